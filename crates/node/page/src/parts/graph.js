// The mesh as a graph: nodes that exchange data fast lie near each other. The table of nodes is its twin.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { announce } from "../store.js";
import { mbps, rate, spokenRate } from "../format.js";
import { Canvas, colours, FONT } from "./basics.js";

/** The fastest legs of each node that hold it in place and are drawn. */
const NEAREST = 3;

/** The most legs that are drawn of the node in focus: its fastest. */
const MOST_LEGS = 40;

/** Steps of the layout, and the milliseconds of one frame that it may take. */
const ROUNDS = 220;
const BUDGET = 6;

/** Names are drawn beside all nodes up to this number. */
const MOST_LABELS = 48;

/** The mean of a pair's two directions; NaN if none is known. */
function mutual({ rate: rates, size }, a, b) {
  const [there, back] = [rates[a * size + b], rates[b * size + a]];
  if (there > 0 && back > 0) return (there + back) / 2;
  return there > 0 ? there : back;
}

/** Each node's fastest legs, each pair once. */
function nearestPairs(matrix) {
  const pairs = new Map();
  for (let a = 0; a < matrix.size; a += 1) {
    const best = [];
    for (let b = 0; b < matrix.size; b += 1) {
      const bps = a === b ? NaN : mutual(matrix, a, b);
      if (!(bps > 0) || (best.length === NEAREST && bps <= best[NEAREST - 1][0])) continue;
      best.push([bps, b]);
      best.sort((x, y) => y[0] - x[0]);
      best.length = Math.min(best.length, NEAREST);
    }
    for (const [bps, b] of best) pairs.set(Math.min(a, b) * matrix.size + Math.max(a, b), { a: Math.min(a, b), b: Math.max(a, b), bps });
  }
  return [...pairs.values()];
}

/** A layout by forces: all nodes repel each other, fast legs attract, and the middle attracts a little. */
class Layout {
  constructor(size, pairs) {
    // A sunflower: even, and the same at each visit.
    const golden = Math.PI * (3 - Math.sqrt(5));
    this.x = Float32Array.from({ length: size }, (_, i) => Math.sqrt(i + 0.5) * Math.cos(i * golden) * 40);
    this.y = Float32Array.from({ length: size }, (_, i) => Math.sqrt(i + 0.5) * Math.sin(i * golden) * 40);
    this.pairs = pairs;
    this.round = 0;
    const logs = pairs.map((pair) => Math.log(pair.bps));
    const [low, high] = [Math.min(...logs), Math.max(...logs)];
    pairs.forEach((pair, index) => {
      pair.strength = high > low ? (logs[index] - low) / (high - low) : 0.5;
    });
  }
  get isDone() {
    return this.round >= ROUNDS;
  }
  step() {
    const { x, y, pairs } = this;
    const heat = 1 - this.round / ROUNDS;
    const n = x.length;
    const fx = new Float32Array(n);
    const fy = new Float32Array(n);
    for (let i = 0; i < n; i += 1) {
      for (let j = i + 1; j < n; j += 1) {
        const [dx, dy] = [x[i] - x[j], y[i] - y[j]];
        const force = 2600 / (dx * dx + dy * dy + 20);
        fx[i] += dx * force * 0.05;
        fy[i] += dy * force * 0.05;
        fx[j] -= dx * force * 0.05;
        fy[j] -= dy * force * 0.05;
      }
      fx[i] -= x[i] * 0.012;
      fy[i] -= y[i] * 0.012;
    }
    for (const { a, b, strength } of pairs) {
      const [dx, dy] = [x[b] - x[a], y[b] - y[a]];
      const distance = Math.hypot(dx, dy) || 1;
      const pull = ((distance - (90 - 50 * strength)) / distance) * 0.04;
      fx[a] += dx * pull;
      fy[a] += dy * pull;
      fx[b] -= dx * pull;
      fy[b] -= dy * pull;
    }
    for (let i = 0; i < n; i += 1) {
      const most = 12 * heat + 0.5;
      x[i] += Math.max(-most, Math.min(most, fx[i]));
      y[i] += Math.max(-most, Math.min(most, fy[i]));
    }
    this.round += 1;
  }
}

export function Graph({ matrix, down, relays, me, selected, onSelect }) {
  const [cursor, showCursor] = useState(null);
  // Several keys may be pressed before the next rendering.
  const latest = useRef(null);
  const setCursor = (node) => {
    latest.current = node;
    showCursor(node);
  };
  const [round, setRound] = useState(0);
  const [box, setBox] = useState({ width: 0, height: 0 });
  const outer = useRef(null);
  const { names, size } = matrix;
  const pairs = useMemo(() => nearestPairs(matrix), [matrix]);
  const layout = useMemo(() => new Layout(size, pairs), [names.join()]);
  const summaries = matrix.nodes;

  useEffect(() => {
    let frame = 0;
    const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const run = () => {
      const began = performance.now();
      while (!layout.isDone && performance.now() - began < BUDGET) layout.step();
      if (!isCalm || layout.isDone) setRound(layout.round);
      if (!layout.isDone) frame = requestAnimationFrame(run);
    };
    frame = requestAnimationFrame(run);
    return () => cancelAnimationFrame(frame);
  }, [layout]);

  /** Places on the canvas. */
  const places = useMemo(() => {
    const { x, y } = layout;
    const [x0, x1, y0, y1] = [Math.min(...x), Math.max(...x), Math.min(...y), Math.max(...y)];
    const [marginX, marginY] = [size > MOST_LABELS ? 20 : 56, 28];
    // The picture may be stretched by 1.8 to fill a wide or a high window.
    const [fitX, fitY] = [(box.width - 2 * marginX) / Math.max(1, x1 - x0), (box.height - 2 * marginY) / Math.max(1, y1 - y0)];
    const least = Math.min(fitX, fitY, 3.2);
    const [scaleX, scaleY] = [Math.min(fitX, least * 1.8), Math.min(fitY, least * 1.8)];
    const [cx, cy] = [(x0 + x1) / 2, (y0 + y1) / 2];
    return names.map((_, i) => [box.width / 2 + (x[i] - cx) * scaleX, box.height / 2 + (y[i] - cy) * scaleY]);
  }, [layout, round, box.width, box.height]);

  const focus = cursor ?? (selected ? selected.from : null);

  const draw = (context) => {
    const line = (a, b) => {
      context.beginPath();
      context.moveTo(...places[a]);
      context.lineTo(...places[b]);
      context.stroke();
    };
    context.strokeStyle = colours.accent;
    for (const { a, b, strength } of pairs) {
      context.globalAlpha = focus === null ? 0.16 + 0.3 * strength : 0.1;
      context.lineWidth = 0.8 + 2.4 * strength;
      line(a, b);
    }
    if (focus !== null) drawLegs(context, line);
    context.globalAlpha = 1;
    if (selected && cursor === null) drawPair(context, line);
    const radius = size > 120 ? 3.5 : size > MOST_LABELS ? 5 : 7;
    names.forEach((name, i) => {
      const [px, py] = places[i];
      context.beginPath();
      context.arc(px, py, radius, 0, 2 * Math.PI);
      const colour = down.has(name) ? colours.bad : colours.accent;
      context.fillStyle = !relays || relays.has(name) ? colour : colours.panel;
      context.strokeStyle = colour;
      context.lineWidth = 2;
      context.fill();
      context.stroke();
      if (name === me) {
        context.beginPath();
        context.arc(px, py, radius + 4, 0, 2 * Math.PI);
        context.lineWidth = 1.5;
        context.stroke();
      }
      const isNear = i === focus || i === selected?.to;
      if (size <= MOST_LABELS || isNear || name === me) drawLabel(context, name, px, py + radius + 11, isNear);
    });
  };

  /** All legs of the node in focus, by rate. */
  const drawLegs = (context, line) => {
    const all = [];
    let most = 0;
    for (let other = 0; other < size; other += 1) {
      const bps = other === focus ? NaN : mutual(matrix, focus, other);
      if (bps > 0) all.push([other, bps]);
      if (bps > most) most = bps;
    }
    all.sort((a, b) => b[1] - a[1]);
    for (const [other, bps] of all.slice(0, MOST_LEGS)) {
      const part = Math.max(0, 1 + Math.log10(bps / most) / 2);
      context.globalAlpha = 0.12 + 0.7 * part;
      context.lineWidth = 0.5 + 3 * part;
      line(focus, other);
      if (size <= 16) {
        const [x, y] = [0, 1].map((axis) => places[focus][axis] * 0.4 + places[other][axis] * 0.6);
        context.globalAlpha = 1;
        drawLabel(context, mbps(bps), x, y, false);
      }
    }
  };

  /** The selected path and its best detour. */
  const drawPair = (context, line) => {
    const { from, to } = selected;
    const via = matrix.via[from * size + to];
    context.lineWidth = 2.5;
    context.strokeStyle = colours.text;
    context.setLineDash([5, 5]);
    line(from, to);
    context.setLineDash([]);
    if (via >= 0) {
      line(from, via);
      line(via, to);
    }
    context.strokeStyle = colours.accent;
  };

  const drawLabel = (context, text, x, y, isStrong) => {
    context.font = `${isStrong ? "600 " : ""}12px ${FONT}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.lineJoin = "round";
    context.lineWidth = 4;
    context.strokeStyle = colours.panel;
    context.strokeText(text, x, y);
    context.fillStyle = colours.text;
    context.fillText(text, x, y);
    context.strokeStyle = colours.accent;
  };

  const nearest = (event) => {
    const rect = outer.current.getBoundingClientRect();
    const [x, y] = [event.clientX - rect.left, event.clientY - rect.top];
    let [best, least] = [null, 20];
    places.forEach(([px, py], i) => {
      const distance = Math.hypot(px - x, py - y);
      if (distance < least) [best, least] = [i, distance];
    });
    return best;
  };
  const say = (i) => {
    const one = summaries[i];
    announce(`${names[i]}${down.has(names[i]) ? ", down" : ""}: median ${spokenRate(one.out)} out, ${spokenRate(one.into)} in, ${one.measured} legs measured`);
  };
  const keys = (event) => {
    const turn = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (turn) {
      event.preventDefault();
      const here = latest.current ?? selected?.from ?? 0;
      let [best, least] = [here, Infinity];
      places.forEach(([x, y], i) => {
        const [dx, dy] = [x - places[here][0], y - places[here][1]];
        const along = dx * turn[0] + dy * turn[1];
        const aside = Math.abs(dx * turn[1]) + Math.abs(dy * turn[0]);
        if (i !== here && along > 0 && along + 2 * aside < least) [best, least] = [i, along + 2 * aside];
      });
      setCursor(best);
      say(best);
    } else if (event.key === "Enter" && latest.current !== null) onSelect(latest.current);
  };

  const one = focus === null ? null : summaries[focus];
  return (
    <div class="graph">
      <div class="graph-view" ref={outer} tabIndex={0} role="application" aria-roledescription="graph"
        aria-label={`The mesh of ${size} nodes. Arrow keys move to the next node in a direction.`} onKeyDown={keys}
        onPointerMove={(event) => event.pointerType !== "touch" && setCursor(nearest(event))} onPointerLeave={() => setCursor(null)}
        onClick={(event) => {
          const node = nearest(event);
          if (node !== null) {
            setCursor(node);
            onSelect(node);
          }
        }}>
        <Canvas draw={draw} onSize={(width, height) => setBox({ width, height })} />
      </div>
      <p class="readout" aria-hidden="true">
        {one ? <><b>{one.name}</b> median out {rate(one.out)} · in {rate(one.into)} · {one.measured} legs measured{down.has(one.name) ? " · down" : ""}</>
          : "Filled: relays. Lines: each node's three fastest legs. Point at a node to see its legs."}
      </p>
    </div>
  );
}
