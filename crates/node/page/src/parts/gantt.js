// A collection's plan against what happened, as a Gantt chart with a table twin.

import { useRef, useState } from "preact/hooks";
import { announce, now } from "../store.js";
import { collator, date, duration, mbps, rate, size } from "../format.js";
import { Canvas, colours, FONT } from "./basics.js";
import { DataTable } from "./lists.js";

const ROW = 34;
const HEAD = 38;

/** The rows of the chart from a job's events: a row for each way or leg, with its plan and its spans. */
export function ganttOf(job, events) {
  const planned = events.findLast((event) => event.event === "planned");
  const begin = date((planned ?? events.find((event) => event.event === "started"))?.time ?? job.started) / 1000;
  const rows = new Map();
  const row = (key, make) => {
    if (!rows.has(key)) rows.set(key, { key, spans: [], ...make });
    return rows.get(key);
  };
  const wayName = (source, via) => (via?.length ? `${source} by ${via.join(", ")}` : `${source} direct`);
  const wayRow = ({ source, via }) => row(wayName(source, via), { label: wayName(source, via), source });
  for (const path of planned?.paths ?? []) Object.assign(wayRow(path), { bytes: path.bytes, rate: path.rate_bps });
  const marks = [];
  for (const event of events) {
    const at = date(event.time) / 1000 - begin;
    if (event.event === "way_opened") wayRow(event).spans.push({ from: at });
    else if (event.event === "way_closed") {
      const span = wayRow(event).spans.findLast((one) => one.to === undefined);
      if (span) Object.assign(span, { to: at, why: event.why, hasFailed: event.failed });
    } else if (event.event === "transfer") {
      const name = `${event.from} → ${event.to}`;
      row(name, { label: name, source: event.from }).spans.push({ from: event.began_seconds, to: event.began_seconds + event.seconds, moving: event.moving_seconds, bytes: event.bytes, why: event.why, hasFailed: Boolean(event.why) });
    } else if (event.event === "replanned") marks.push({ at, why: event.why, makespan: event.makespan_seconds });
  }
  const ended = events.findLast((event) => event.event === "ended");
  const stop = ended ? (ended.seconds ?? date(ended.time) / 1000 - begin) : job.ended ? date(job.ended) / 1000 - begin : null;
  // Methods without ways: each source until its last byte.
  for (const total of ended?.sources ?? []) {
    const own = [...rows.values()].filter((one) => one.source === total.source);
    if (!own.some((one) => one.spans.length)) wayRow({ source: total.source }).spans.push({ from: 0, to: total.seconds, bytes: total.bytes });
  }
  const list = [...rows.values()].sort((a, b) => collator.compare(a.label, b.label));
  return { rows: list, begin, makespan: planned?.makespan_seconds, bound: planned?.bound_seconds, method: planned?.method, atLeast: planned?.at_least, marks, stop };
}

export function Gantt({ job, events }) {
  const chart = ganttOf(job, events);
  const [cursor, setCursor] = useState(-1);
  const latest = useRef(-1);
  const box = useRef(null);
  if (!chart.rows.length) return null;
  const current = chart.stop ?? Math.max(0, now.value / 1000 - chart.begin);
  const end = Math.max(current, chart.makespan ?? 0, chart.bound ?? 0, 0.1) * 1.03;
  const state = (row) => {
    const last = row.spans[row.spans.length - 1];
    if (!last) return "not opened";
    if (last.hasFailed) return "failed";
    return last.to === undefined && chart.stop === null ? "open" : "done";
  };
  const opened = (row) => row.spans.reduce((sum, span) => sum + ((span.to ?? current) - span.from), 0);
  const words = (row) => `${row.label}: planned ${row.bytes ? `${size(row.bytes)} at ${rate(row.rate)}` : "nothing"}; ${row.spans.length ? `open for ${duration(opened(row))}, ${state(row)}` : "not opened"}`;

  const draw = (context, w, h) => {
    const labelWidth = Math.min(170, w * 0.3);
    const x = (seconds) => labelWidth + (Math.max(0, seconds) / end) * (w - labelWidth - 12);
    context.textBaseline = "middle";
    drawAxis(context, x, h);
    chart.rows.forEach((row, index) => {
      const y = HEAD + index * ROW;
      if (index === cursor) {
        context.fillStyle = colours.soft;
        context.fillRect(0, y, w, ROW);
      }
      context.fillStyle = colours.text;
      context.font = `12.5px ${FONT}`;
      context.textAlign = "left";
      context.fillText(row.label, 4, y + ROW / 2, labelWidth - 10);
      if (row.bytes !== undefined && chart.makespan) {
        context.strokeStyle = colours.muted;
        context.lineWidth = 1;
        context.strokeRect(x(0) + 0.5, y + 5.5, Math.max(2, x(chart.makespan) - x(0) - 1), 8);
      }
      for (const span of row.spans) {
        const until = span.to ?? current;
        context.fillStyle = span.hasFailed ? colours.bad : colours.accent;
        context.globalAlpha = span.moving !== undefined ? 0.4 : 1;
        context.beginPath();
        context.roundRect(x(span.from), y + 17, Math.max(2, x(until) - x(span.from)), 11, 2);
        context.fill();
        context.globalAlpha = 1;
        if (span.moving !== undefined) {
          context.beginPath();
          context.roundRect(x(until - span.moving), y + 17, Math.max(2, x(until) - x(until - span.moving)), 11, 2);
          context.fill();
        }
      }
    });
    const line = (seconds, colour, dash, text) => {
      if (!(seconds >= 0)) return;
      context.strokeStyle = colour;
      context.lineWidth = 1.2;
      context.setLineDash(dash);
      context.beginPath();
      context.moveTo(Math.round(x(seconds)) + 0.5, HEAD - 4);
      context.lineTo(Math.round(x(seconds)) + 0.5, h);
      context.stroke();
      context.setLineDash([]);
      if (!text) return;
      context.fillStyle = colour;
      context.font = `11px ${FONT}`;
      context.textAlign = x(seconds) > w - 90 ? "right" : "left";
      context.fillText(text, x(seconds) + (x(seconds) > w - 90 ? -4 : 4), 8);
    };
    chart.marks.forEach((mark) => line(mark.at, colours.warn, [2, 3]));
    line(chart.makespan, colours.muted, [5, 4], "planned end");
    if (chart.stop === null) line(current, colours.accent, [], "now");
  };

  const drawAxis = (context, x, h) => {
    const room = (x(end) - x(0)) / 84;
    const step = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400].find((one) => end / one <= room) ?? end;
    context.strokeStyle = colours.line;
    context.fillStyle = colours.muted;
    context.lineWidth = 1;
    context.font = `11px ${FONT}`;
    context.textAlign = "center";
    for (let at = 0; at <= end; at += step) {
      context.beginPath();
      context.moveTo(Math.round(x(at)) + 0.5, HEAD);
      context.lineTo(Math.round(x(at)) + 0.5, h);
      context.stroke();
      context.fillText(at === 0 ? "0" : duration(at), x(at), HEAD - 7);
    }
  };

  const keys = (event) => {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = Math.max(0, Math.min(chart.rows.length - 1, latest.current + step));
    latest.current = next;
    setCursor(next);
    announce(words(chart.rows[next]));
  };
  const columns = [
    { id: "way", label: "Way", value: (row) => row.label },
    { id: "bytes", label: "Planned", isNumber: true, value: (row) => row.bytes, cell: (row) => size(row.bytes) },
    { id: "rate", label: "Mbit/s", isNumber: true, value: (row) => row.rate, cell: (row) => mbps(row.rate) },
    { id: "opened", label: "Began after", isNumber: true, value: (row) => row.spans[0]?.from, cell: (row) => duration(row.spans[0]?.from) },
    { id: "length", label: "Open for", isNumber: true, value: opened, cell: (row) => (row.spans.length ? duration(opened(row)) : "–") },
    { id: "state", label: "State", value: state },
    { id: "why", label: "Why it closed", isWide: true, value: (row) => row.spans.findLast((span) => span.why)?.why ?? "" },
  ];
  const late = chart.stop !== null && chart.makespan ? chart.stop / chart.makespan - 1 : null;
  return (
    <>
      <p class="sentence">
        {chart.method && <>Method {chart.method}. </>}
        {chart.makespan ? <>Planned for {duration(chart.makespan)}{chart.atLeast ? " or less" : ""}{chart.bound ? <>; no schedule over these legs takes less than {duration(chart.bound)}</> : null}. </> : "The duration was not planned: a source has no measured path. "}
        {chart.stop !== null && <>It took {duration(chart.stop)}{late !== null && Math.abs(late) >= 0.005 ? `, ${Math.round(Math.abs(late) * 100)} % ${late > 0 ? "longer" : "less"} than planned` : ""}. </>}
        {chart.marks.length > 0 && <>Planned anew {chart.marks.length === 1 ? "once" : `${chart.marks.length} times`}: {chart.marks[chart.marks.length - 1].why}.</>}
      </p>
      <div class="gantt" ref={box} tabIndex={0} role="application" aria-roledescription="Gantt chart" aria-label={`The plan of ${chart.rows.length} ways against what happened. Up and down arrows move between ways.`}
        onKeyDown={keys} style={{ height: `${HEAD + chart.rows.length * ROW + 6}px` }}>
        <Canvas draw={draw} />
      </div>
      <p class="legend-line" aria-hidden="true"><i class="outline" /> planned <i class="filled" /> what happened <i class="failed" /> broken</p>
      <details><summary>The same as a table</summary><DataTable caption="Ways of the collection" columns={columns} rows={chart.rows} keyOf={(row) => row.key} sort={{ id: "way", isDown: false }} /></details>
    </>
  );
}
