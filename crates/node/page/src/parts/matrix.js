// The matrix of rates: a canvas that draws only the cells in view, moved by pointer or keyboard. Its table twin is in
// the view of paths.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ageNow, announce } from "../store.js";
import { ago, collator, duration, gain, mbps, percent, rate, spokenRate } from "../format.js";
import { gainOf, STEPS } from "../matrix-data.js";
import { Button, Canvas, colours, FONT, Segments, theme } from "./basics.js";

/** Widths of a cell, px: by zoom. Text needs 38 px, text with age and method 92 px. */
const WIDTHS = [2, 3, 4, 6, 8, 12, 18, 26, 40, 56, 96, 150];

/** The most height of the whole canvas, as a part of the window. */
const MOST_HEIGHT = 0.72;

const cellHeight = (width) => (width < 26 ? width : width >= 92 ? 52 : Math.max(24, Math.round(width * 0.55)));

const parse = (colour) => colour.match(/[\d.]+/g).slice(0, 3).map(Number);

/** Colours from low over mid to high, and whether text on each is light. */
function ramp() {
  const stops = [colours.low, colours.mid, colours.high].map(parse);
  return Array.from({ length: STEPS }, (_, step) => {
    const at = (step / (STEPS - 1)) * 2;
    const [a, b] = at < 1 ? [stops[0], stops[1]] : [stops[1], stops[2]];
    const part = at < 1 ? at : at - 1;
    const rgb = a.map((v, i) => Math.round(v + (b[i] - v) * part));
    const light = rgb.map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    const luminance = 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2];
    // Where white and black text have the same contrast, 4.6.
    return { pixel: (255 << 24) | (rgb[2] << 16) | (rgb[1] << 8) | rgb[0], isDark: luminance < 0.179 };
  });
}

/** What the cells show: its text, and the ends of its scale. */
const MODES = {
  rate: { label: "Rate", text: (m, at) => (m.atLeast[at] ? "≥" : "") + mbps(m.rate[at]), ends: (low, high) => [`${mbps(low)} Mbit/s`, `${mbps(high)} Mbit/s`] },
  gain: { label: "Gain of the best detour", text: (m, at) => gain(gainOf(m, at)), ends: (low, high) => [gain(low), gain(high)] },
  age: { label: "Age", text: (m, at) => duration(ageNow(m.age[at])), ends: (low, high) => [duration(high), duration(low)] },
};

/** One pixel for each cell, in this order of nodes; a canvas scales it. */
class Picture {
  constructor(order, palette) {
    const size = order.length;
    Object.assign(this, { order, size, palette, pixels: new ImageData(size, size), rank: new Uint32Array(size) });
    order.forEach((node, place) => {
      this.rank[node] = place;
    });
    this.words = new Uint32Array(this.pixels.data.buffer);
  }
  set(at, step) {
    const { size, rank } = this;
    this.words[rank[Math.floor(at / size)] * size + rank[at % size]] = step ? this.palette[step - 1].pixel : 0;
  }
  fill(steps) {
    const { order, size, palette, words } = this;
    for (let row = 0, at = 0; row < size; row += 1) {
      const from = order[row] * size;
      for (let column = 0; column < size; column += 1, at += 1) {
        const step = steps[from + order[column]];
        if (step) words[at] = palette[step - 1].pixel;
      }
    }
  }
  drawOn(canvas) {
    if (canvas.width !== this.size || canvas.height !== this.size) canvas.width = canvas.height = this.size;
    canvas.getContext("2d").putImageData(this.pixels, 0, 0);
  }
}

/** The words for one cell. */
export function describe(matrix, from, to) {
  const [a, b] = [matrix.names[from], matrix.names[to]];
  if (from === to) return `${a}: the node itself`;
  const at = from * matrix.size + to;
  if (!(matrix.rate[at] >= 0)) return `${a} to ${b}: not measured`;
  const spread = matrix.spread[at] >= 0 ? `, plus or minus ${mbps(matrix.spread[at])}` : "";
  const via = matrix.via[at] >= 0 && gainOf(matrix, at) > 0.01 ? `; the best detour, by ${matrix.names[matrix.via[at]]}, gains ${percent(gainOf(matrix, at))}` : "";
  return `${a} to ${b}: ${matrix.atLeast[at] ? "at least " : ""}${spokenRate(matrix.rate[at])}${spread}, by ${matrix.methods[matrix.method[at]]}, ${ago(ageNow(matrix.age[at]))}${via}`;
}

export function Matrix({ matrix, down, selected, onSelect }) {
  const [modeName, setMode] = useState("rate");
  const [orderName, setOrder] = useState("name");
  const [zoom, setZoom] = useState(null);
  const [cursor, showCursor] = useState(null);
  // Several keys may be pressed before the next rendering.
  const latest = useRef(null);
  const setCursor = (cell) => {
    latest.current = cell;
    showCursor(cell);
  };
  const [box, setBox] = useState({ width: 0, height: 0 });
  const [scroll, setScroll] = useState({ left: 0, top: 0 });
  const outer = useRef(null);
  const mode = MODES[modeName];
  const { size, names } = matrix;

  const order = useMemo(() => {
    const all = names.map((_, index) => index);
    if (orderName === "name") return all.sort((a, b) => collator.compare(names[a], names[b]));
    const medians = matrix.nodes.map((node) => node.out || 0);
    return all.sort((a, b) => medians[b] - medians[a]);
  }, [matrix.names.join(), orderName, orderName === "name" ? null : matrix]);

  // Text is measured once for each set of names.
  const nameWidth = useMemo(() => {
    const context = document.createElement("canvas").getContext("2d");
    context.font = `600 12px ${FONT}`;
    return Math.min(116, Math.max(...names.map((name) => context.measureText(name).width), 24));
  }, [names.join()]);
  const labelWidth = Math.max(56, nameWidth) + 14;

  const fit = () => {
    const room = (box.width - labelWidth - 16) / size;
    let best = 0;
    WIDTHS.forEach((width, index) => {
      if (width <= room) best = index;
    });
    return best;
  };
  const level = zoom ?? fit();
  const width = zoom === null ? Math.min(150, Math.max(WIDTHS[level], Math.floor((box.width - labelWidth - 16) / size))) : WIDTHS[level];
  const height = cellHeight(width);
  const isUpright = width >= 44;
  const headHeight = isUpright ? 26 : Math.min(110, nameWidth + 14);
  const headWidth = labelWidth;
  const whole = { width: headWidth + size * width + 1, height: headHeight + size * height + 1 };

  const [low, high] = matrix.bounds[modeName];
  const steps = matrix.steps[modeName];
  const palette = useMemo(ramp, [theme.value, colours.low]);
  const canvas = useMemo(() => document.createElement("canvas"), []);
  const drawn = useRef(null);
  const image = useMemo(() => {
    const key = [modeName, low, high, size].join();
    const { current: last } = drawn;
    // Between two documents most rates stay. Gains and ages change everywhere.
    const isNext = modeName === "rate" && last?.key === key && last.order === order && last.palette === palette && last.serial + 1 === matrix.serial && matrix.changed;
    const picture = isNext ? last.picture : new Picture(order, palette);
    if (isNext) for (const at of matrix.changed) picture.set(at, steps[at]);
    else picture.fill(steps);
    picture.drawOn(canvas);
    drawn.current = { key, order, palette, serial: matrix.serial, picture };
    return canvas;
  }, [matrix, modeName, order, palette]);

  useEffect(() => {
    const observer = new ResizeObserver(() => outer.current && setBox({ width: outer.current.clientWidth, height: outer.current.clientHeight }));
    observer.observe(outer.current);
    return () => observer.disconnect();
  }, []);

  const place = (index) => order.indexOf(index);
  const chosen = cursor ?? selected;

  const draw = (context, w, h) => {
    const [left, top] = [scroll.left, scroll.top];
    const x = (column) => headWidth + column * width - left;
    const y = (row) => headHeight + row * height - top;
    context.save();
    context.beginPath();
    context.rect(headWidth, headHeight, w - headWidth, h - headHeight);
    context.clip();
    context.imageSmoothingEnabled = false;
    context.drawImage(image, 0, 0, size, size, x(0), y(0), size * width, size * height);
    const columns = [Math.max(0, Math.floor(left / width)), Math.min(size, Math.ceil((left + w - headWidth) / width))];
    const rows = [Math.max(0, Math.floor(top / height)), Math.min(size, Math.ceil((top + h - headHeight) / height))];
    if (width >= 8) {
      context.fillStyle = colours.panel;
      const gap = width >= 26 ? 2 : 1;
      for (let column = columns[0]; column <= columns[1]; column += 1) context.fillRect(x(column) - gap / 2, 0, gap, h);
      for (let row = rows[0]; row <= rows[1]; row += 1) context.fillRect(0, y(row) - gap / 2, w, gap);
    }
    if (width >= 38) drawTexts(context, { columns, rows, x, y });
    drawCursor(context, x, y, w, h);
    context.restore();
    drawHeads(context, { columns, rows, x, y, w, h });
  };

  const drawTexts = (context, { columns, rows, x, y }) => {
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let row = rows[0]; row < rows[1]; row += 1) {
      for (let column = columns[0]; column < columns[1]; column += 1) {
        const [from, to] = [order[row], order[column]];
        const at = from * size + to;
        const centre = x(column) + width / 2;
        const middle = y(row) + height / 2;
        if (from === to || !steps[at]) {
          context.fillStyle = colours.muted;
          context.font = `12px ${FONT}`;
          context.globalAlpha = 0.6;
          if (from !== to) context.fillText("–", centre, middle);
          context.globalAlpha = 1;
          continue;
        }
        context.fillStyle = palette[steps[at] - 1].isDark ? "#fff" : "#000";
        const hasMore = width >= 92;
        context.font = `${hasMore ? "600 14" : "12.5"}px ${FONT}`;
        context.fillText(mode.text(matrix, at), centre, hasMore ? middle - 9 : middle);
        if (!hasMore) continue;
        context.font = `11px ${FONT}`;
        const spread = matrix.spread[at] >= 0 ? `±${mbps(matrix.spread[at])} · ` : "";
        context.fillText(`${spread}${duration(ageNow(matrix.age[at]))}`, centre, middle + 6, width - 8);
        context.fillText(matrix.methods[matrix.method[at]], centre, middle + 19, width - 8);
      }
    }
  };

  const drawCursor = (context, x, y, w, h) => {
    if (!chosen) return;
    const [column, row] = [place(chosen.to), place(chosen.from)];
    if (width < 26) {
      context.fillStyle = colours.text;
      context.globalAlpha = 0.1;
      context.fillRect(x(column), 0, width, h);
      context.fillRect(0, y(row), w, height);
      context.globalAlpha = 1;
    }
    context.strokeStyle = colours.text;
    context.lineWidth = 2;
    const spare = width < 8 ? 3 : 0;
    context.strokeRect(x(column) - spare, y(row) - spare, width + 2 * spare, height + 2 * spare);
  };

  const drawHeads = (context, { columns, rows, x, y, w, h }) => {
    const label = (index, isChosen) => {
      context.fillStyle = down.has(names[index]) ? colours.bad : isChosen ? colours.text : colours.muted;
      context.font = `${isChosen ? "600 " : ""}12px ${FONT}`;
      return names[index];
    };
    const [chosenColumn, chosenRow] = chosen ? [place(chosen.to), place(chosen.from)] : [-1, -1];
    // Only every so many names fit beside small cells; the cursor's names are always shown.
    const eachColumn = Math.max(1, Math.ceil((isUpright ? 0 : 15) / width));
    const eachRow = Math.max(1, Math.ceil(15 / height));
    const fitsColumn = (column) => column === chosenColumn || (column % eachColumn === 0 && (chosenColumn < 0 || Math.abs(column - chosenColumn) >= eachColumn));
    const fitsRow = (row) => row === chosenRow || (row % eachRow === 0 && (chosenRow < 0 || Math.abs(row - chosenRow) >= eachRow));
    context.textBaseline = "middle";
    context.save();
    context.beginPath();
    context.rect(headWidth, 0, w - headWidth, headHeight);
    context.clip();
    for (let column = columns[0]; column < columns[1]; column += 1) {
      if (!fitsColumn(column)) continue;
      const text = label(order[column], column === chosenColumn);
      const centre = Math.max(x(column) + width / 2, isUpright ? 0 : headWidth + 6);
      if (isUpright) {
        context.textAlign = "center";
        context.fillText(text, centre, headHeight / 2, width - 4);
      } else {
        context.save();
        context.translate(centre, headHeight - 6);
        context.rotate(-Math.PI / 2);
        context.textAlign = "left";
        context.fillText(text, 0, 0, headHeight - 8);
        context.restore();
      }
    }
    context.restore();
    context.save();
    context.beginPath();
    context.rect(0, headHeight, headWidth, h - headHeight);
    context.clip();
    context.textAlign = "right";
    for (let row = rows[0]; row < rows[1]; row += 1) {
      if (!fitsRow(row)) continue;
      context.fillText(label(order[row], row === chosenRow), headWidth - 8, Math.max(y(row) + height / 2, headHeight + 6), headWidth - 10);
    }
    context.restore();
    context.fillStyle = colours.muted;
    context.font = `11px ${FONT}`;
    context.textAlign = "right";
    context.fillText("from ↓ to →", headWidth - 8, headHeight - 12, headWidth - 8);
  };

  const cellAt = (event) => {
    const rect = outer.current.getBoundingClientRect();
    const column = Math.floor((event.clientX - rect.left - outer.current.clientLeft - headWidth + scroll.left) / width);
    const row = Math.floor((event.clientY - rect.top - outer.current.clientTop - headHeight + scroll.top) / height);
    const isInside = event.clientX - rect.left > headWidth && event.clientY - rect.top > headHeight;
    return isInside && row >= 0 && column >= 0 && row < size && column < size ? { from: order[row], to: order[column] } : null;
  };
  const frame = useRef(0);
  const hover = (event) => {
    if (event.pointerType === "touch") return;
    cancelAnimationFrame(frame.current);
    frame.current = requestAnimationFrame(() => {
      const cell = cellAt(event);
      if (cell?.from !== latest.current?.from || cell?.to !== latest.current?.to) setCursor(cell);
    });
  };
  const goTo = (row, column) => {
    const cell = { from: order[Math.max(0, Math.min(size - 1, row))], to: order[Math.max(0, Math.min(size - 1, column))] };
    setCursor(cell);
    announce(describe(matrix, cell.from, cell.to));
    reveal(place(cell.from), place(cell.to));
  };
  const reveal = (row, column) => {
    const element = outer.current;
    const [cx, cy] = [headWidth + column * width, headHeight + row * height];
    if (cx - headWidth < element.scrollLeft) element.scrollLeft = cx - headWidth;
    else if (cx + width > element.scrollLeft + element.clientWidth) element.scrollLeft = cx + width - element.clientWidth;
    if (cy - headHeight < element.scrollTop) element.scrollTop = cy - headHeight;
    else if (cy + height > element.scrollTop + element.clientHeight) element.scrollTop = cy + height - element.clientHeight;
  };
  const keys = (event) => {
    const here = latest.current ?? selected;
    const [row, column] = here ? [place(here.from), place(here.to)] : [0, -1];
    const moves = {
      ArrowUp: [row - 1, column], ArrowDown: [row + 1, column], ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
      Home: [row, 0], End: [row, size - 1], PageUp: [row - 10, column], PageDown: [row + 10, column],
    };
    if (moves[event.key]) {
      event.preventDefault();
      goTo(...moves[event.key]);
    } else if ((event.key === "Enter" || event.key === " ") && here) {
      event.preventDefault();
      if (here.from !== here.to) onSelect(here);
    } else if (event.key === "+" || event.key === "-") {
      event.preventDefault();
      zoomBy(event.key === "+" ? 1 : -1);
    }
  };
  const zoomBy = (step) => {
    const from = zoom ?? WIDTHS.findLastIndex((one) => one <= width);
    setZoom(Math.max(0, Math.min(WIDTHS.length - 1, from + step)));
  };
  const wheel = (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoomBy(event.deltaY < 0 ? 1 : -1);
  };
  useEffect(() => {
    const element = outer.current;
    const listen = (event) => wheel(event);
    element.addEventListener("wheel", listen, { passive: false });
    return () => element.removeEventListener("wheel", listen);
  });

  const viewHeight = Math.min(whole.height + 2, Math.max(220, Math.round(window.innerHeight * MOST_HEIGHT)));
  return (
    <div class="matrix">
      <div class="tools">
        <Segments label="What the cells show" value={modeName} onChange={setMode} options={[["rate", "Rate"], ["gain", "Gain by detour"], ["age", "Age"]]} />
        <Segments label="Order of the nodes" value={orderName} onChange={setOrder} options={[["name", "By name"], ["rate", "Fastest first"]]} />
        <span class="zoom">
          <Button icon="minus" label="Smaller cells" hidesLabel onClick={() => zoomBy(-1)} />
          <Button icon="fit" label="Fit all nodes" hidesLabel onClick={() => setZoom(null)} />
          <Button icon="plus" label="Larger cells" hidesLabel onClick={() => zoomBy(1)} />
        </span>
        <span class="legend" aria-hidden="true">{mode.ends(low, high)[0]}<i />{mode.ends(low, high)[1]}</span>
      </div>
      <div class="matrix-view" ref={outer} tabIndex={0} role="application" aria-roledescription="matrix"
        aria-label={`${mode.label} from ${size} nodes to ${size} nodes. Arrow keys move, Enter opens a path, plus and minus zoom.`}
        style={{ height: `${viewHeight}px` }} onKeyDown={keys} onPointerMove={hover} onPointerLeave={() => setCursor(null)}
        onClick={(event) => {
          const cell = cellAt(event);
          if (cell && cell.from !== cell.to) onSelect(cell);
        }}
        onScroll={(event) => setScroll({ left: event.currentTarget.scrollLeft, top: event.currentTarget.scrollTop })}>
        <div class="matrix-space" style={{ width: `${whole.width}px`, height: `${whole.height}px` }}>
          <div class="matrix-pin" style={{ width: `${box.width}px`, height: `${box.height}px` }}><Canvas draw={draw} /></div>
        </div>
      </div>
      <p class="readout" aria-hidden="true">{chosen ? <Readout matrix={matrix} cell={chosen} /> : "Point at a cell, or focus the matrix and use the arrow keys."}</p>
    </div>
  );
}

function Readout({ matrix, cell }) {
  const at = cell.from * matrix.size + cell.to;
  const title = <b>{matrix.names[cell.from]} → {matrix.names[cell.to]}</b>;
  if (cell.from === cell.to) return <b>{matrix.names[cell.from]}</b>;
  if (!(matrix.rate[at] >= 0)) return <>{title} not measured</>;
  const isBetter = matrix.via[at] >= 0 && gainOf(matrix, at) > 0.005;
  return (
    <>
      {title} {matrix.atLeast[at] ? "≥" : ""}{rate(matrix.rate[at])}
      {matrix.spread[at] >= 0 && ` ±${mbps(matrix.spread[at])}`} · {matrix.methods[matrix.method[at]]} · {ago(ageNow(matrix.age[at]))}
      {isBetter && <> · by {matrix.names[matrix.via[at]]} {rate(matrix.detour[at])} (<span class="up">{gain(gainOf(matrix, at))}</span>)</>}
    </>
  );
}
