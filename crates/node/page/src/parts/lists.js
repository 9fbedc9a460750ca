// Tables and lists that render only the rows in view.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { collator } from "../format.js";
import { announce } from "../store.js";

/** Rows beyond the view that are rendered too, so that scrolling shows no gap. */
const SPARE = 8;

/** A table that is higher than its view by less, px, is shown whole. */
const SLACK = 60;

const compare = (a, b) => {
  const [isNone, isOtherNone] = [a == null || Number.isNaN(a), b == null || Number.isNaN(b)];
  if (isNone || isOtherNone) return isNone - isOtherNone;
  return typeof a === "string" ? collator.compare(a, b) : a - b;
};

/**
 * A table that is sorted by its heads. `columns`: `{ id, label, value(row), cell(row), isNumber, isWide }`; `value` is what
 * sorting compares, `cell` what is shown. `rowHeight` is the height of each row, which the style sheet sets too.
 */
export function DataTable({ caption, columns, rows, keyOf, sort = null, rowHeight = 34, most = 480, onSelect, selected, empty }) {
  const [order, setOrder] = useState(sort);
  const [top, setTop] = useState(0);
  const box = useRef(null);
  const sorted = useMemo(() => {
    const column = order && columns.find((one) => one.id === order.id);
    if (!column) return rows;
    const sign = order.isDown ? -1 : 1;
    const keyed = rows.map((row) => [column.value(row), row]);
    const isNone = (v) => v == null || Number.isNaN(v);
    keyed.sort(([a], [b]) => (isNone(a) || isNone(b) ? compare(a, b) : sign * compare(a, b)));
    return keyed.map(([, row]) => row);
  }, [rows, order, columns]);
  const isCut = sorted.length * rowHeight > most + SLACK;
  const from = isCut ? Math.max(0, Math.floor(top / rowHeight) - SPARE) : 0;
  const until = isCut ? Math.min(sorted.length, Math.ceil((top + most) / rowHeight) + SPARE) : sorted.length;
  const toggle = (column) => {
    const isDown = order?.id === column.id ? !order.isDown : Boolean(column.isNumber);
    setOrder({ id: column.id, isDown });
    announce(`Sorted by ${column.label}, ${isDown ? "descending" : "ascending"}`);
  };
  if (!rows.length && empty) return empty;
  const gap = (rowsLeft) => isCut && rowsLeft > 0 && <tr class="gap" aria-hidden="true"><td colSpan={columns.length} style={{ height: `${rowsLeft * rowHeight}px` }} /></tr>;
  return (
    <div class={`table-box ${isCut ? "cut" : ""}`} ref={box} tabIndex={0} role="region" aria-label={caption}
      style={isCut ? { maxHeight: `${most}px` } : undefined} onScroll={isCut ? (event) => setTop(event.currentTarget.scrollTop) : undefined}>
      <table aria-rowcount={sorted.length + 1}>
        <caption class="unseen">{caption}</caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.id} scope="col" class={column.isNumber ? "number" : ""}
                aria-sort={order?.id === column.id ? (order.isDown ? "descending" : "ascending") : undefined}>
                {column.value
                  ? <button type="button" onClick={() => toggle(column)}>{column.label}{order?.id === column.id && <span class="arrow" aria-hidden="true">{order.isDown ? "↓" : "↑"}</span>}</button>
                  : column.label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {gap(from)}
          {sorted.slice(from, until).map((row, index) => {
            const key = keyOf(row);
            const isSelected = selected !== undefined && selected === key;
            return (
              <tr key={key} aria-rowindex={from + index + 2} class={`${onSelect ? "can-select" : ""} ${isSelected ? "is-selected" : ""}`}
                onClick={onSelect ? () => onSelect(row) : undefined}>
                {columns.map((column, place) => {
                  const shown = column.cell ? column.cell(row) : column.value(row);
                  const inner = onSelect && place === 0 ? <button type="button" class="link" aria-pressed={isSelected ? "true" : "false"}>{shown}</button> : shown;
                  return place === 0
                    ? <th key={column.id} scope="row" class={column.isNumber ? "number" : ""}>{inner}</th>
                    : <td key={column.id} class={`${column.isNumber ? "number" : ""} ${column.isWide ? "wide" : ""}`}>{inner}</td>;
                })}
              </tr>
            );
          })}
          {gap(sorted.length - until)}
        </tbody>
      </table>
    </div>
  );
}

/** A list whose items have one height; those outside of the window are not rendered. */
export function WindowedList({ items, height, render, keyOf, label }) {
  const box = useRef(null);
  const [view, setView] = useState({ from: 0, until: 40 });
  const look = () => {
    if (!box.current) return;
    const above = -box.current.getBoundingClientRect().top;
    const from = Math.max(0, Math.floor(above / height) - SPARE);
    const until = Math.ceil((above + window.innerHeight) / height) + SPARE;
    setView((before) => (before.from === from && before.until === until ? before : { from, until }));
  };
  useEffect(() => {
    const listen = () => requestAnimationFrame(look);
    window.addEventListener("scroll", listen, { passive: true });
    window.addEventListener("resize", listen);
    return () => {
      window.removeEventListener("scroll", listen);
      window.removeEventListener("resize", listen);
    };
  }, [height]);
  useLayoutEffect(look, [items.length, height]);
  const shown = items.slice(view.from, view.until);
  return (
    <ul class="windowed" ref={box} aria-label={label}
      style={{ paddingTop: `${Math.min(view.from, items.length) * height}px`, paddingBottom: `${Math.max(0, items.length - view.until) * height}px` }}>
      {shown.map((item, index) => (
        <li key={keyOf(item)} aria-setsize={items.length} aria-posinset={view.from + index + 1} style={{ height: `${height}px` }}>{render(item)}</li>
      ))}
    </ul>
  );
}
