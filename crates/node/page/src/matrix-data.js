// The mesh's rates as typed arrays: what the matrix, its table and the graph draw. Read and computed in a worker, so that
// a large mesh never stops the page.

/** The most nodes for which the best detour of every pair is computed: 300³ steps take about 50 ms, in the worker. */
const MOST_FOR_DETOURS = 512;

/** The steps of colour between the lowest and the highest value. */
export const STEPS = 48;

/** The values of a logarithmic scale of 65,535 steps; 0 is unknown. As `Scale` of the node. */
function scale(lowest, highest) {
  const values = new Float32Array(65_536);
  for (let step = 1; step < 65_536; step += 1) values[step] = lowest * (highest / lowest) ** ((step - 1) / 65_534);
  values[0] = NaN;
  return values;
}
const RATES = scale(1, 1e13);
const ROUND_TRIPS = scale(1e-6, 1e3);

/** What the node told so far. `from * size + to` is the index of a leg; NaN is unknown. */
export class MatrixStore {
  constructor() {
    this.version = null;
    /** The number of the last copy. */
    this.serial = 0;
  }
  /** Takes a reply of `GET /v1/paths/matrix` (docs/console.md). Returns the document without the cells, how long it is
   *  valid, s, and the places of the cells that have changed; `null` if they are all new. */
  take(buffer) {
    const length = new DataView(buffer).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
    let at = 4 + length;
    const column = (Kind, count) => {
      const found = new Kind(buffer, at, count);
      at += found.byteLength;
      return found;
    };
    const isWhole = head.nodes !== null;
    if (isWhole) this.clear(head.nodes);
    const count = isWhole ? this.size ** 2 : head.changed;
    const changed = isWhole ? null : column(Uint32Array, count);
    const measured = column(Uint32Array, count);
    const [rate, spread, rtt, available] = [0, 1, 2, 3].map(() => column(Uint16Array, count));
    const method = column(Uint8Array, count);
    for (let index = 0; index < count; index += 1) {
      const cell = changed ? changed[index] : index;
      this.measured[cell] = measured[index];
      this.rate[cell] = RATES[rate[index]];
      this.spread[cell] = RATES[spread[index]];
      this.rtt[cell] = ROUND_TRIPS[rtt[index]];
      this.available[cell] = RATES[available[index]];
      this.method[cell] = method[index] & 127;
      this.atLeast[cell] = method[index] >> 7;
    }
    Object.assign(this, { version: head.version, legs: head.legs, methods: head.methods, now: head.now });
    return { rest: head.document, validFor: head.valid_for_seconds, changed: changed?.slice() ?? null };
  }
  clear(names) {
    const cells = names.length ** 2;
    Object.assign(this, {
      detours: null, names, size: names.length, measured: new Uint32Array(cells),
      rate: new Float32Array(cells), spread: new Float32Array(cells), rtt: new Float32Array(cells), available: new Float32Array(cells),
      method: new Uint8Array(cells), atLeast: new Uint8Array(cells),
    });
  }
  /** A copy for the page, with everything that is computed from the cells. `relays` are the names of members that
   *  relay; without it all do. */
  matrix(relays, changed) {
    const { names, size, legs, methods, now } = this;
    const cells = () => new Float32Array(size * size).fill(NaN);
    this.serial += 1;
    const matrix = { names, size, legs, methods, changed, serial: this.serial, age: cells(), via: new Int16Array(size * size).fill(-1), detour: cells() };
    for (const name of ["rate", "spread", "rtt", "available", "method", "atLeast"]) matrix[name] = this[name].slice();
    for (let at = 0; at < matrix.age.length; at += 1) if (this.measured[at]) matrix.age[at] = Math.max(0, now - this.measured[at]);
    if (size <= MOST_FOR_DETOURS) this.updateDetours(relays, changed).addTo(matrix);
    matrix.nodes = nodeSummaries(matrix);
    matrix.totals = totals(matrix);
    addSteps(matrix);
    matrix.arrays = () => [...Object.values(matrix), ...Object.values(matrix.steps)].filter(ArrayBuffer.isView);
    return matrix;
  }
  updateDetours(relays, changed) {
    const relayNames = relays?.join();
    const isKnown = this.detours && changed && this.detoursOf === relayNames;
    if (isKnown && changed.length < this.size * 4) this.detours.update(this, changed);
    else this.detours = new Detours(this, relays);
    this.detoursOf = relayNames;
    return this.detours;
  }
}

/** The values that cells can show. */
const SHOWN = {
  rate: { isLog: true, value: (matrix, at) => matrix.rate[at] },
  gain: { value: (matrix, at) => Math.min(gainOf(matrix, at), 10) },
  age: { isLog: true, isReversed: true, value: (matrix, at) => matrix.age[at] },
};

/** Adds the bounds of the colours, and the step of each cell's colour, from 1; 0: unknown. */
function addSteps(matrix) {
  matrix.bounds = {};
  matrix.steps = {};
  for (const [name, shown] of Object.entries(SHOWN)) {
    const { isLog, isReversed, value } = shown;
    const [low, high] = (matrix.bounds[name] = bounds(matrix, shown));
    const steps = (matrix.steps[name] = new Uint8Array(matrix.rate.length));
    for (let at = 0; at < steps.length; at += 1) {
      const found = value(matrix, at);
      if (!(found >= 0)) continue;
      const part = isLog ? Math.log(Math.max(found, low) / low) / Math.log(high / low) : (found - low) / (high - low);
      const step = Math.max(0, Math.min(STEPS - 1, Math.round(part * (STEPS - 1))));
      steps[at] = 1 + (isReversed ? STEPS - 1 - step : step);
    }
  }
}

function bounds(matrix, { isLog, value }) {
  let [low, high] = [Infinity, -Infinity];
  for (let at = 0; at < matrix.rate.length; at += 1) {
    const found = value(matrix, at);
    if (!(found >= 0) || (isLog && found === 0)) continue;
    if (found < low) low = found;
    if (found > high) high = found;
  }
  if (low > high) return [1, 10];
  return isLog ? [low, Math.max(high, low * 2)] : [0, Math.max(high, 0.5)];
}

/** A detour is good if it gains this share and this rate, as in `thalweg paths --advise`. */
export const GOOD_GAIN = 0.2;
export const GOOD_RATE = 1e6;

/** What heads of views say of the whole matrix. */
function totals(matrix) {
  const methods = matrix.methods.map((name) => ({ name, count: 0 }));
  let good = 0;
  for (let at = 0; at < matrix.rate.length; at += 1) {
    if (!(matrix.rate[at] >= 0)) continue;
    methods[matrix.method[at]].count += 1;
    if (gainOf(matrix, at) >= GOOD_GAIN && matrix.detour[at] - matrix.rate[at] >= GOOD_RATE) good += 1;
  }
  return { methods, good, rate: median(matrix.rate), age: median(matrix.age) };
}

/** The best detour over one relay for each pair: as fast as the slower of the relay's two legs. */
class Detours {
  /** `relays` are the names of relays; without it all members relay. */
  constructor(store, relays) {
    const { names, size } = store;
    const relaySet = relays && new Set(relays);
    Object.assign(this, {
      size, isRelay: names.map((name) => !relaySet || relaySet.has(name)),
      usable: new Float32Array(size * size), best: new Float32Array(size * size), via: new Int16Array(size * size).fill(-1),
    });
    for (let at = 0; at < this.usable.length; at += 1) this.take(store, at);
    for (let relay = 0; relay < size; relay += 1) if (this.isRelay[relay]) this.tryEverywhere(relay);
  }
  /** Lower bounds prove nothing about a detour; as in `thalweg paths`. Zero is unknown: comparisons of NaN are slow. */
  take({ rate, atLeast }, at) {
    this.usable[at] = rate[at] > 0 && !atLeast[at] ? rate[at] : 0;
  }
  tryEverywhere(relay) {
    const { size, usable, best, via } = this;
    const onward = usable.subarray(relay * size, (relay + 1) * size);
    for (let from = 0; from < size; from += 1) {
      const first = usable[from * size + relay];
      const row = from * size;
      if (!first) continue;
      for (let to = 0; to < size; to += 1) {
        const whole = Math.min(first, onward[to]);
        if (whole > best[row + to]) {
          best[row + to] = whole;
          via[row + to] = relay;
        }
      }
    }
  }
  /** After these cells have changed: only pairs with a relay at the other end of one of them can have another detour. */
  update(store, changed) {
    const { size, isRelay } = this;
    for (const at of changed) this.take(store, at);
    for (const at of changed) {
      const [a, b] = [Math.floor(at / size), at % size];
      if (isRelay[b]) for (let to = 0; to < size; to += 1) this.refresh(a, to, b);
      if (isRelay[a]) for (let from = 0; from < size; from += 1) this.refresh(from, b, a);
    }
  }
  refresh(from, to, relay) {
    const { size, usable, best, via } = this;
    const pair = from * size + to;
    const whole = Math.min(usable[from * size + relay], usable[relay * size + to]);
    if (whole > best[pair]) {
      best[pair] = whole;
      via[pair] = relay;
    } else if (via[pair] === relay && whole < best[pair]) this.search(from, to);
  }
  search(from, to) {
    const { size, usable, best, via, isRelay } = this;
    const pair = from * size + to;
    best[pair] = 0;
    via[pair] = -1;
    for (let relay = 0; relay < size; relay += 1) {
      const whole = Math.min(usable[from * size + relay], usable[relay * size + to]);
      if (isRelay[relay] && whole > best[pair]) {
        best[pair] = whole;
        via[pair] = relay;
      }
    }
  }
  /** Copies the detours. A node has none to itself. */
  addTo(matrix) {
    const { size, best, via } = this;
    matrix.via.set(via);
    for (let at = 0; at < best.length; at += 1) if (best[at]) matrix.detour[at] = best[at];
    for (let node = 0; node < size; node += 1) {
      matrix.via[node * size + node] = -1;
      matrix.detour[node * size + node] = NaN;
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
function median(values) {
  const sorted = Float32Array.from(values).sort();
  // NaN is sorted to the end.
  let count = sorted.length;
  while (count && Number.isNaN(sorted[count - 1])) count -= 1;
  return count ? sorted[(count - 1) >> 1] : NaN;
}

/** Each node's part: median rates out and in, the number of measured legs, their median age. */
function nodeSummaries(matrix) {
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
