// Rates over time: uPlot with the page's colours, a cursor for the keyboard, and a table twin.

import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { announce } from "../store.js";
import { clock, mbps } from "../format.js";
import { Button, colours, theme } from "./basics.js";
import { DataTable } from "./lists.js";

/** The shortest time between two drawings. */
const UPDATE = 1000;

/** uPlot, once it is loaded: a file of its own, so that the page is shown before. */
const plots = signal(null);
let isLoading = false;

function load() {
  if (isLoading) return;
  isLoading = true;
  const script = document.createElement("script");
  script.src = "charts.js";
  script.onload = () => {
    plots.value = window.uPlot;
  };
  // The next chart tries again.
  script.onerror = () => {
    isLoading = false;
  };
  document.head.append(script);
}

/**
 * A chart of `series`: `[{ name, label, values, isDashed, isFilled }]` over `times` (seconds since 1970).
 * `format` makes the values' text, `unit` names them.
 */
export function Chart({ title, times, series, unit = "Mbit/s", scale = 1e-6, format = mbps, height = 180 }) {
  const box = useRef(null);
  const chart = useRef(null);
  const drawn = useRef(0);
  const [isTable, setTable] = useState(false);
  const [cursor, setCursor] = useState(null);
  const shape = `${series.map((one) => one.name + one.label).join("|")} ${theme.value} ${unit}`;
  const data = () => [times, ...series.map((one) => one.values.map((v) => (Number.isFinite(v) ? v * scale : null)))];

  const Plot = plots.value;
  useEffect(load, []);
  useEffect(() => {
    if (isTable || !Plot || times.length < 2) return undefined;
    chart.current = new Plot(options({ series, height, width: box.current.clientWidth, onCursor: setCursor }), data(), box.current);
    const observer = new ResizeObserver(() => box.current && chart.current?.setSize({ width: box.current.clientWidth, height }));
    observer.observe(box.current);
    return () => {
      observer.disconnect();
      chart.current?.destroy();
      chart.current = null;
    };
  }, [shape, isTable, Plot, times.length < 2]);

  useEffect(() => {
    const at = performance.now();
    if (!chart.current || at - drawn.current < UPDATE) return;
    drawn.current = at;
    chart.current.setData(data());
  });

  const move = (event) => {
    const u = chart.current;
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -1e9, End: 1e9 }[event.key];
    if (!u || !step) return;
    event.preventDefault();
    const at = Math.max(0, Math.min(times.length - 1, (u.cursor.idx ?? times.length - 1) + step));
    u.setCursor({ left: u.valToPos(times[at], "x"), top: 0 });
    announce(`${clock(times[at])}: ${series.map((one) => `${one.label} ${format(one.values[at])}`).join(", ")} ${unit}`);
  };

  const rows = isTable ? times.map((time, at) => ({ time, at })) : [];
  const columns = [
    { id: "time", label: "Time", value: (row) => row.time, cell: (row) => clock(row.time) },
    ...series.map((one) => ({ id: one.name, label: `${one.label}, ${unit}`, isNumber: true, value: (row) => one.values[row.at], cell: (row) => format(one.values[row.at]) })),
  ];
  const at = cursor !== null && cursor < times.length ? cursor : times.length - 1;
  return (
    <figure class="chart">
      <figcaption>
        <span>{title}</span>
        <Button kind="quiet" label={isTable ? "Show the chart" : "Show as a table"} onClick={() => setTable(!isTable)} />
      </figcaption>
      {isTable && <DataTable caption={title} columns={columns} rows={rows} keyOf={(row) => row.at} sort={{ id: "time", isDown: true }} most={height + 60} />}
      {!isTable && times.length < 2 && <p class="waiting" style={{ height: `${height}px` }}>The chart begins with the second sample.</p>}
      {!isTable && times.length >= 2 && (
        <div class="plot" ref={box} tabIndex={0} role="img" aria-label={`${title}. ${series.map((one) => `${one.label}: ${format(one.values[one.values.length - 1])} ${unit}`).join("; ")}. Arrow keys move through time.`} onKeyDown={move} />
      )}
      {!isTable && times.length >= 2 && (
        <ul class="series" aria-hidden="true">
          {series.map((one, index) => <li key={one.name}><i class={`s${(index % 6) + 1} ${one.isDashed ? "dashed" : ""}`} />{one.label} <b>{format(one.values[at])}</b></li>)}
          <li class="muted">{unit}{cursor !== null && `, ${clock(times[at])}`}</li>
        </ul>
      )}
    </figure>
  );
}

/** The shortest span of the time axis, s: a new chart fills from the right. */
const SPAN = 60;

function options({ series, width, height, onCursor }) {
  const axis = { stroke: colours.muted, font: "11px system-ui", grid: { stroke: colours.line, width: 1 }, ticks: { show: false } };
  return {
    width, height,
    padding: [8, 8, 0, 0],
    legend: { show: false },
    cursor: { points: { size: 6 }, drag: { x: false, y: false } },
    hooks: { setCursor: [(u) => onCursor(u.cursor.idx ?? null)] },
    scales: {
      x: { time: true, range: (_, from, until) => [Math.min(from, until - SPAN), until] },
      y: { range: (_, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.08 : 1] },
    },
    axes: [
      { ...axis, size: 26, space: 76, values: (_, splits) => splits.map((time) => clock(time).slice(0, splits.length > 1 && splits[1] - splits[0] >= 60 ? 5 : 8)) },
      { ...axis, size: 48, space: 28, values: (_, splits) => splits.map((value) => (value == null ? "" : shortNumber(value))) },
    ],
    series: [
      {},
      ...series.map((one, index) => {
        const colour = colours.series[index % colours.series.length];
        return {
          stroke: colour, width: one.isDashed ? 1.2 : 1.8, dash: one.isDashed ? [5, 4] : undefined,
          fill: one.isFilled ? colour.replace("rgb(", "rgba(").replace(")", ", 0.12)") : undefined,
          points: { show: false }, spanGaps: false,
        };
      }),
    ],
  };
}

const shortNumber = (value) => (Math.abs(value) >= 1e6 ? `${value / 1e6}M` : Math.abs(value) >= 1e4 ? `${value / 1e3}k` : String(Number(value.toPrecision(4))));

/** A chart of a history. `pick`: `[[name, label, more]]`; by default all its series, the largest first. */
export function HistoryChart({ history, pick, most = 6, ...rest }) {
  if (!history) return <Chart times={[]} series={[]} {...rest} />;
  const names = pick ?? [...history.series.keys()].map((name) => [name, name]);
  const series = names.filter(([name]) => history.series.has(name)).map(([name, label, more]) => ({ name, label, values: history.series.get(name), ...more }));
  const sum = (list) => list.reduce((all, v) => all + (v > 0 ? v : 0), 0);
  const chosen = pick ? series : series.sort((a, b) => sum(b.values) - sum(a.values)).slice(0, most);
  return <Chart times={history.times} series={chosen} {...rest} />;
}
