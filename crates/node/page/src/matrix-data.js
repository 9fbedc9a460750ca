// The mesh's rates as typed arrays: what the matrix, its table and the graph draw. Filled in a worker, so that a large
// document never stops the page.

/** The most nodes for which the best detour of every pair is computed: 300³ steps take about 50 ms. */
const MOST_FOR_DETOURS = 512;

/** Seconds of `1.5 s`; only the units that Thalweg prints. */
function seconds(text) {
  if (typeof text === "number") return text;
  const at = text.indexOf(" ");
  const scale = { s: 1, ms: 1e-3, us: 1e-6, ns: 1e-9, min: 60, h: 3600, d: 86400 }[text.slice(at + 1)];
  return Number(text.slice(0, at)) * scale;
}

/**
 * The matrix of a reply of `GET /v1/paths`. `from * size + to` is the index of a leg; NaN is unknown.
 * `since` is the age of the oracle's answer, `relays` the names of members that relay; without it all do.
 */
export function matrixOf(reply, since, relays) {
  // The oracle keeps the indices of nodes that left under this name.
  const names = reply.nodes.filter((name) => name !== "0.free");
  const size = names.length;
  let next = 0;
  const place = reply.nodes.map((name) => (name === "0.free" ? -1 : next++));
  const cells = () => new Float32Array(size * size).fill(NaN);
  const matrix = {
    names, size, legs: reply.legs.length, methods: [],
    rate: cells(), spread: cells(), age: cells(), rtt: cells(), available: cells(),
    method: new Uint8Array(size * size), atLeast: new Uint8Array(size * size),
    via: new Int16Array(size * size).fill(-1), detour: cells(),
  };
  const known = new Map();
  for (const leg of reply.legs) {
    const [from, to] = [place[leg.from], place[leg.to]];
    if (!(from >= 0 && to >= 0)) continue;
    const at = from * size + to;
    matrix.rate[at] = leg.bps;
    matrix.spread[at] = leg.spread_bps ?? NaN;
    matrix.age[at] = seconds(leg.age) + since;
    matrix.rtt[at] = leg.rtt_s ?? NaN;
    matrix.available[at] = leg.available?.bps ?? NaN;
    matrix.atLeast[at] = leg.at_least ? 1 : 0;
    if (!known.has(leg.method)) known.set(leg.method, known.size);
    matrix.method[at] = known.get(leg.method);
  }
  matrix.methods = [...known.keys()];
  if (size <= MOST_FOR_DETOURS) addDetours(matrix, relays);
  return matrix;
}

/** The best detour over one relay for each pair: as fast as the slower of the relay's two legs. */
function addDetours({ names, size, rate, atLeast, via, detour }, relays) {
  const relaySet = relays && new Set(relays);
  // Lower bounds prove nothing about a detour; as in `thalweg paths`.
  const usable = (at) => (atLeast[at] ? NaN : rate[at]);
  for (let relay = 0; relay < size; relay += 1) {
    if (relaySet && !relaySet.has(names[relay])) continue;
    for (let from = 0; from < size; from += 1) {
      const first = usable(from * size + relay);
      if (!(first > 0) || from === relay) continue;
      for (let to = 0; to < size; to += 1) {
        if (to === relay || to === from) continue;
        const second = usable(relay * size + to);
        const whole = second < first ? second : first;
        const at = from * size + to;
        if (second > 0 && !(whole <= detour[at])) {
          detour[at] = whole;
          via[at] = relay;
        }
      }
    }
  }
}

/** The gain of the best detour over the direct leg (UKAIRO Eq. 1); NaN if one of them is unknown. */
export function gainOf(matrix, at) {
  const direct = matrix.rate[at];
  return direct > 0 ? Math.max(0, matrix.detour[at] / direct - 1) : NaN;
}

/** All detours of one pair, the fastest first. */
export function detoursOf(matrix, from, to, relays) {
  const { size, rate, names, atLeast } = matrix;
  const found = [];
  for (let relay = 0; relay < size; relay += 1) {
    const [one, two] = [from * size + relay, relay * size + to];
    if (relay === from || relay === to || (relays && !relays.has(names[relay]))) continue;
    if (rate[one] > 0 && rate[two] > 0) {
      found.push({ relay, first: rate[one], second: rate[two], rate: Math.min(rate[one], rate[two]), atLeast: atLeast[one] || atLeast[two] });
    }
  }
  return found.sort((a, b) => b.rate - a.rate);
}

/** The median of the finite values; NaN without one. */
export function median(values) {
  const finite = Float64Array.from(values).filter(Number.isFinite).sort();
  return finite.length ? finite[(finite.length - 1) >> 1] : NaN;
}

/** Each node's part: median rates out and in, the number of measured legs, the newest age. */
export function nodeSummaries(matrix) {
  const { names, size, rate, age } = matrix;
  return names.map((name, node) => {
    const [out, into, ages] = [[], [], []];
    for (let other = 0; other < size; other += 1) {
      const [there, back] = [node * size + other, other * size + node];
      if (rate[there] > 0) out.push(rate[there]);
      if (rate[back] > 0) into.push(rate[back]);
      if (age[there] >= 0) ages.push(age[there]);
      if (age[back] >= 0) ages.push(age[back]);
    }
    return { name, node, out: median(out), into: median(into), measured: out.length + into.length, age: median(ages) };
  });
}
