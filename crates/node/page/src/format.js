// Values as text. Rates are in bits per second, sizes in bytes, times in seconds.

const NUMBER = [0, 1, 2, 3].map(
  (digits) => new Intl.NumberFormat("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }),
);

/** A number with three significant digits and no exponent: `0.412`, `9.40`, `1,230`. */
export function digits3(value) {
  if (!Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(value)));
  if (size >= 2) return NUMBER[0].format(Number(value.toPrecision(3)));
  if (size >= 0) return NUMBER[2 - size].format(value);
  // Below 0.001 nobody needs more digits.
  return value < 0.0005 ? "0" : NUMBER[3].format(value);
}

/** A rate in Mbit/s, without the unit. */
export const mbps = (bps) => (Number.isFinite(bps) ? digits3(bps / 1e6) : "–");

/** A rate in Mbit/s, with the unit. */
export const rate = (bps) => (Number.isFinite(bps) ? `${mbps(bps)} Mbit/s` : "–");

/** A rate as a screen reader should say it. */
export const spokenRate = (bps) => (Number.isFinite(bps) ? `${mbps(bps)} megabits per second` : "unknown");

/** A size with a decimal unit: `1.84 MB`. */
export function size(bytes) {
  if (!Number.isFinite(bytes)) return "–";
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let at = 0;
  while (bytes >= 999.5 && at < units.length - 1) {
    bytes /= 1000;
    at += 1;
  }
  return `${at === 0 ? Math.round(bytes) : digits3(bytes)} ${units[at]}`;
}

export const count = (n) => (Number.isFinite(n) ? NUMBER[0].format(n) : "–");
export const percent = (share) => (Number.isFinite(share) ? `${Math.round(share * 100)} %` : "–");
export const gain = (share) => (Number.isFinite(share) ? `${share >= 0 ? "+" : "−"}${NUMBER[0].format(Math.abs(share * 100))} %` : "–");
export const plural = (n, word, words = `${word}s`) => `${count(n)} ${n === 1 ? word : words}`;

/** A duration, short: `12 s`, `3 min`, `1 h 40 min`, `2 d 3 h`. */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 0) return `−${duration(-seconds)}`;
  if (seconds < 0.9995) return `${digits3(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${NUMBER[1].format(seconds)} s`;
  if (seconds < 59.5) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const pair = (big, bigUnit, small, smallUnit) => (small ? `${big} ${bigUnit} ${small} ${smallUnit}` : `${big} ${bigUnit}`);
  if (minutes < 1440) return pair(Math.floor(minutes / 60), "h", minutes % 60, "min");
  const hours = Math.round(seconds / 3600);
  return pair(Math.floor(hours / 24), "d", hours % 24, "h");
}

/** An age in words: `just now`, `40 seconds ago`, `3 hours ago`. */
export function ago(seconds) {
  if (!Number.isFinite(seconds)) return "never";
  if (seconds < 2) return "just now";
  const steps = [[60, 1, "second"], [3600, 60, "minute"], [86400, 3600, "hour"], [Infinity, 86400, "day"]];
  for (const [below, unit, word] of steps) {
    const n = Math.round(seconds / unit);
    if (seconds < below && !(n * unit >= below)) return `${plural(n, word)} ago`;
  }
  return "long ago";
}

const UNITS = { ns: 1e-9, us: 1e-6, "µs": 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600, d: 86400, days: 86400 };

/** Seconds of a duration as Thalweg writes it (`1.5 s`); NaN without one. */
export function seconds(text) {
  if (typeof text === "number") return text;
  const found = /^\s*([\d.]+)\s*([a-zµ]+)\s*$/.exec(text ?? "");
  return found ? Number(found[1]) * (UNITS[found[2]] ?? NaN) : NaN;
}

/** Milliseconds since 1970 of RFC 3339 text, or of a number of seconds, milliseconds or nanoseconds. */
export function date(value) {
  if (typeof value === "string") return Date.parse(value);
  if (typeof value !== "number") return NaN;
  if (value > 1e16) return value / 1e6;
  return value > 1e11 ? value : value * 1000;
}

/** The seconds since a date. */
export const since = (value, now = Date.now()) => Math.max(0, (now - date(value)) / 1000);

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const DAY = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short", hour12: false });
export const clock = (value) => (Number.isFinite(date(value)) ? CLOCK.format(date(value)) : "–");
export const dayAndTime = (value) => (Number.isFinite(date(value)) ? DAY.format(date(value)) : "–");

/** One argument, quoted for a shell. */
export const quoted = (word) => (/^[\w/.+:@%,=-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);

/** A command line of `thalweg`, quoted for a shell. */
export const commandLine = (words) => ["thalweg", ...words].map(quoted).join(" ");

/** The words of a line as a shell reads them: blanks separate, quotes and backslashes keep. */
export function words(line) {
  const found = [];
  let word = null;
  let quote = "";
  for (let at = 0; at < line.length; at += 1) {
    const c = line[at];
    if (quote) {
      if (c === quote) quote = "";
      else word += c;
    } else if (c === "'" || c === '"') {
      quote = c;
      word ??= "";
    } else if (c === "\\" && at + 1 < line.length) {
      at += 1;
      word = (word ?? "") + line[at];
    } else if (/\s/.test(c)) {
      if (word !== null) found.push(word);
      word = null;
    } else word = (word ?? "") + c;
  }
  if (word !== null) found.push(word);
  return found;
}

/** The last part of a path or URL, for titles. */
export function baseName(text) {
  const path = (text ?? "").split(/[?#]/)[0].replace(/\/+$/, "");
  return path.slice(path.lastIndexOf("/") + 1) || text || "";
}
