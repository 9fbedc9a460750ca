// The tree of a cast: who receives from whom, with progress. The table of receivers is its twin.

import { mbps, percent, rate } from "../format.js";

const KINDS = { complete: "good", failed: "bad", refused: "bad", lost: "warn", away: "warn", waiting: "quiet" };

/** The receivers with parents, from the events and the job's progress. */
export function receiversOf(job, events) {
  const total = perReceiver(job, events);
  const byName = new Map();
  const planned = events.findLast((event) => event.event === "planned");
  for (const one of planned?.receivers ?? []) byName.set(one.name, { name: one.name, parents: one.parents ?? [], expected: one.expected_bps, minHop: one.min_hop_bps, total });
  for (const one of job.receivers ?? []) {
    byName.set(one.name, { parents: [], total, ...byName.get(one.name), name: one.name, done: one.done_bytes, rate: one.rate_bps, state: one.state });
  }
  for (const event of events) {
    const one = byName.get(event.receiver);
    if (!one) continue;
    if (event.event === "received") Object.assign(one, { state: "complete", done: total ?? one.done, average: event.rate_bps, seconds: event.seconds, given: event.parents, served: event.served_bytes });
    else if (event.event === "refused") Object.assign(one, { state: event.again ? "waiting" : "refused", why: event.why });
    else if (event.event === "unreached") Object.assign(one, { state: "away", why: event.why });
    else if (event.event === "parent_left") one.why = `left ${event.parent}: ${event.why ?? event.fault}`;
  }
  return [...byName.values()];
}

/** The object's length; the job's total counts it once for each receiver. */
function perReceiver(job, events) {
  const started = events.findLast((event) => event.event === "started");
  return started?.bytes ?? (job.receivers?.length ? job.total_bytes / job.receivers.length : job.total_bytes);
}

/** The parent that gives most, else the planned one. */
const parentOf = (one) => (one.given?.length ? [...one.given].sort((a, b) => b.bytes - a.bytes)[0].name : one.parents[0]);

const WIDTH = 150;
const GAP = 44;

export function CastTree({ root, receivers }) {
  const height = receivers.length > 40 ? 24 : 40;
  const names = new Set(receivers.map((one) => one.name));
  const children = new Map();
  const roots = [];
  for (const one of receivers) {
    const parent = parentOf(one);
    if (parent && parent !== root && names.has(parent) && parent !== one.name) children.set(parent, [...(children.get(parent) ?? []), one]);
    else roots.push(one);
  }
  const places = new Map();
  let line = 0;
  let depths = 1;
  const place = (one, depth, seen) => {
    depths = Math.max(depths, depth + 1);
    const below = (children.get(one.name) ?? []).filter((child) => !seen.has(child.name));
    const first = line;
    below.forEach((child) => place(child, depth + 1, new Set([...seen, child.name])));
    if (!below.length) line += 1;
    places.set(one.name, { depth, y: (first + Math.max(first, line - 1)) / 2 });
  };
  roots.forEach((one) => place(one, 1, new Set([one.name])));
  // Receivers in a loop of parents are not reached from the root.
  receivers.filter((one) => !places.has(one.name)).forEach((one) => place(one, 1, new Set(receivers.map((r) => r.name))));
  const lines = Math.max(1, line);
  const x = (depth) => depth * (WIDTH + GAP) + 1;
  const y = (at) => at * (height + 8) + 2;
  const rootY = (lines - 1) / 2;
  const [w, h] = [x(depths) + WIDTH - GAP - WIDTH + WIDTH, y(lines)];
  const most = Math.max(1, ...receivers.map((one) => one.rate ?? one.average ?? 0));
  const edge = (one) => {
    const at = places.get(one.name);
    const parent = places.get(parentOf(one));
    const [fromX, fromY] = parent && parent.depth < at.depth ? [x(parent.depth) + WIDTH, y(parent.y)] : [x(0) + WIDTH, y(rootY)];
    const [toX, toY] = [x(at.depth), y(at.y)];
    const middle = (fromX + toX) / 2;
    const flow = one.rate ?? 0;
    return (
      <path key={one.name} class={`edge ${flow > 0 ? "flows" : ""}`} d={`M${fromX} ${fromY + height / 2}C${middle} ${fromY + height / 2} ${middle} ${toY + height / 2} ${toX} ${toY + height / 2}`}
        stroke-width={1.2 + 3.5 * Math.min(1, flow / most)} />
    );
  };
  const box = (name, depth, at, one) => {
    const share = one ? Math.min(1, (one.done ?? 0) / one.total) || 0 : 1;
    const told = one ? (one.state === "complete" ? `${mbps(one.average ?? one.rate)} Mbit/s` : one.rate > 0 ? `${mbps(one.rate)} Mbit/s` : (one.state ?? "")) : "source";
    return (
      <g key={name} transform={`translate(${x(depth)} ${y(at)})`} class={`tree-node ${one ? (KINDS[one.state] ?? "") : "source"}`}>
        <title>{one ? `${name}: ${one.state ?? "planned"}, ${percent(share)}, ${rate(one.rate)}${one.why ? `; ${one.why}` : ""}` : `${name}: the source`}</title>
        <rect class="back" width={WIDTH} height={height} rx="6" />
        <rect class="fill" x="1" y={height - 4} width={(WIDTH - 2) * share} height="3" rx="1.5" />
        <text x="9" y={height > 30 ? 16 : 14}>{name}</text>
        <text class="more" x={height > 30 ? 9 : WIDTH - 8} y={height > 30 ? 31 : 14} text-anchor={height > 30 ? "start" : "end"}>{told}</text>
        {height > 30 && one && <text class="more" x={WIDTH - 8} y="31" text-anchor="end">{percent(share)}</text>}
      </g>
    );
  };
  return (
    <div class="tree" tabIndex={0} role="region" aria-label="Tree of the cast">
      <svg width={w} height={h} role="img" aria-label={`The tree of the cast: ${root} sends to ${roots.map((one) => one.name).join(", ")}. The table below has all receivers.`}>
        {receivers.map(edge)}
        {box(root, 0, rootY, null)}
        {receivers.map((one) => box(one.name, places.get(one.name).depth, places.get(one.name).y, one))}
      </svg>
    </div>
  );
}
