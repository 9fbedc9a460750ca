// Values over time since the page was opened, at most one sample each half second.

const SPACING = 0.5;

/** Series of one time axis. A series that begins later has NaN before. */
export class History {
  constructor(most) {
    this.most = most;
    this.times = [];
    this.series = new Map();
  }
  get length() {
    return this.times.length;
  }
  /** Adds values by name; a value that comes sooner than half a second after the last one replaces it. */
  add(at, values) {
    const last = this.times.length - 1;
    const isSame = last >= 0 && at - this.times[last] < SPACING;
    if (!isSame) this.times.push(at);
    const end = this.times.length - 1;
    for (const name of Object.keys(values)) {
      if (!this.series.has(name)) this.series.set(name, new Array(end).fill(NaN));
    }
    for (const [name, list] of this.series) list[end] = values[name] ?? NaN;
    if (this.times.length > this.most) this.thin();
  }
  /** Drops every second sample of the older half: a long run stays visible as a whole. */
  thin() {
    const half = this.times.length >> 1;
    const keep = (_, index) => index >= half || index % 2 === 0;
    this.times = this.times.filter(keep);
    for (const [name, list] of this.series) this.series.set(name, list.filter(keep));
  }
  last(name) {
    return this.series.get(name)?.[this.times.length - 1];
  }
}

/** Adds to the history under a key, and makes it. */
export function record(map, key, most, at, values) {
  let history = map.get(key);
  if (!history) map.set(key, (history = new History(most)));
  history.add(at, values);
}
