// What the page knows: the node's documents as signals, kept up to date by polling and by the stream of events.

import { batch, computed, signal } from "@preact/signals";
import { ApiError, ask, get } from "./api.js";
import { date } from "./format.js";
import { History, record } from "./history.js";

/** The shortest time between two updates of the screen by events. */
const UPDATE = 250;

/** The most events kept of one job: as many as the node keeps. */
const MOST_EVENTS = 256;

/** The most paths with a history of estimates, and the most estimates of one. */
const MOST_PATHS = 10_000;
const MOST_ESTIMATES = 100;

/** A history of 20 minutes at a sample a second. */
const SAMPLES = 1200;

export const status = signal(null);
export const roster = signal(null);
export const matrix = signal(null);
export const pathDocument = signal(null);
export const interfaces = signal(null);
export const jobs = signal(null);
/** The last error of each document, by its name. */
export const faults = signal({});
/** The stream of events: `connecting`, `live` or `lost`. */
export const connection = signal("connecting");
/** Text that a screen reader speaks; `n` makes equal texts different. */
export const spoken = signal({ text: "", n: 0 });
/** Short messages on the screen. */
export const toasts = signal([]);
/** The time that ages refer to; it moves every second while the page is visible. */
export const now = signal(Date.now());
/** Scripting times of the last renderings, ms; for tests. */
export const updateCost = { all: [] };

export const me = computed(() => status.value?.name ?? "this host");
export const relayNames = computed(() => {
  const members = roster.value?.members;
  return members ? new Set(members.filter((m) => m.roles.includes("relay")).map((m) => m.name)) : null;
});

export const announce = (text) => {
  spoken.value = { text, n: spoken.value.n + 1 };
};

let nextToast = 1;
/** Shows a message for some seconds; errors stay until they are closed. */
export function toast(text, kind = "good") {
  const id = nextToast++;
  toasts.value = [...toasts.value.slice(-3), { id, text, kind }];
  announce(text);
  if (kind !== "bad") setTimeout(() => closeToast(id), 5000);
}
export const closeToast = (id) => {
  toasts.value = toasts.value.filter((one) => one.id !== id);
};

function setFault(name, error) {
  const { [name]: before, ...others } = faults.value;
  if (!error && !before) return;
  if (error && before?.message === error.message) return;
  faults.value = error ? { ...others, [name]: error } : others;
}

// ---- Documents that are polled -----------------------------------------------------------------------------------

const visible = () => document.visibilityState === "visible";

/** A document that is fetched again and again while a view needs it and the page is visible. */
class Poller {
  constructor(name, every, load) {
    Object.assign(this, { name, every, load, users: 0, timer: 0, last: 0, isBusy: false });
  }
  use() {
    this.users += 1;
    this.wake();
    return () => {
      this.users -= 1;
    };
  }
  wake() {
    clearTimeout(this.timer);
    if (!this.users || !visible() || this.isBusy) return;
    const wait = Math.max(0, this.last + this.every - Date.now());
    this.timer = setTimeout(() => this.run(), wait);
  }
  async run() {
    this.isBusy = true;
    try {
      await this.load(this);
      setFault(this.name, null);
    } catch (error) {
      setFault(this.name, error);
    }
    this.isBusy = false;
    this.last = Date.now();
    this.wake();
  }
  /** Fetches now, whatever the interval. */
  refresh() {
    this.last = 0;
    this.wake();
  }
}

export const pollers = {
  status: new Poller("status", 4000, async () => {
    const found = await get("/v1/status");
    recordStatus(found);
    status.value = found;
  }),
  roster: new Poller("roster", 30_000, async () => {
    roster.value = await get("/v1/roster");
  }),
  paths: new Poller("paths", 10_000, loadPaths),
  interfaces: new Poller("interfaces", 2000, async () => {
    const found = await get("/v1/interfaces");
    recordInterfaces(found);
    interfaces.value = found;
  }),
};

document.addEventListener("visibilitychange", () => Object.values(pollers).forEach((poller) => poller.wake()));

/** Measures the scripting time of a rendering. */
export function timed(work) {
  const began = performance.now();
  work();
  const took = performance.now() - began;
  updateCost.all.push(took);
  if (updateCost.all.length > 2000) updateCost.all.shift();
}

let worker = null;

/** Fetches the paths in the worker, which gets what has changed, and computes what is drawn. */
function loadPaths(poller) {
  worker ??= new Worker(new URL("app.js", document.baseURI));
  return new Promise((resolve, reject) => {
    worker.onmessage = ({ data }) => {
      if (data.error) {
        reject(new ApiError(data.error.status, data.error.code, data.error.message));
        return;
      }
      if (data.rest) {
        batch(() => {
          recordEstimates(matrix.value, data.matrix);
          matrix.value = data.matrix;
          pathDocument.value = { ...data.rest, at: Date.now() };
        });
        poller.every = Math.max(1, data.validFor) * 1000;
      }
      resolve();
    };
    worker.onerror = () => reject(new ApiError(0, "worker", "This browser did not start the page's worker: reload the page."));
    worker.postMessage({ relays: relayNames.value && [...relayNames.value] });
  });
}

/** How old an estimate of the matrix is now. */
export const ageNow = (age) => age + Math.max(0, (now.value - (pathDocument.value?.at ?? now.value)) / 1000);

// ---- Histories since the page was opened -------------------------------------------------------------------------

/** Changes of estimates, by `from→to`: lists of `[time, bit/s]`. */
export const estimateHistory = new Map();
export const interfaceHistory = new Map();
export const programHistory = new Map();
export const legHistory = new Map();
export const riderHistory = new History(SAMPLES);
export const jobHistory = new Map();
export const totalHistory = new History(SAMPLES);

function recordEstimates(before, after) {
  // All cells are new if the nodes are others, or nothing was known.
  if (!before || !after?.changed) return;
  const at = Date.now() / 1000;
  for (const cell of after.changed) {
    if (!(after.rate[cell] > 0)) continue;
    const key = `${after.names[Math.floor(cell / after.size)]}→${after.names[cell % after.size]}`;
    const list = estimateHistory.get(key) ?? (before.rate[cell] > 0 ? [[at - before.age[cell], before.rate[cell]]] : []);
    list.push([at, after.rate[cell]]);
    if (list.length > MOST_ESTIMATES) list.shift();
    // The path that changed longest ago is the first to be forgotten.
    estimateHistory.delete(key);
    estimateHistory.set(key, list);
    if (estimateHistory.size > MOST_PATHS) estimateHistory.delete(estimateHistory.keys().next().value);
  }
}

let counters = new Map();
/** The rate of a growing counter since the last call, per second. */
function perSecond(key, value, at) {
  const before = counters.get(key);
  counters.set(key, { value, at });
  return before && value >= before.value && at > before.at ? (value - before.value) / (at - before.at) : NaN;
}

function recordInterfaces(found) {
  const at = Date.now() / 1000;
  for (const process of processesOf(found)) {
    for (const one of process.interfaces ?? []) {
      const key = `${process.pid ?? ""} ${one.name}`;
      const carried = one.used_bytes == null ? NaN : perSecond(`if ${key}`, one.used_bytes, at) * 8;
      record(interfaceHistory, key, SAMPLES, at, { down: one.down_bps, up: one.up_bps, carried, connections: one.connections });
    }
    for (const one of process.applications ?? []) {
      record(programHistory, `${process.pid ?? ""} ${one.process} ${one.port}`, 300, at, {
        connections: perSecond(`app ${process.pid} ${one.process} ${one.port}`, one.connections ?? 0, at) || 0,
        demand: one.demand_bytes,
      });
    }
  }
}

/** The processes of the document; without one, the stored records. */
export function processesOf(found) {
  if (!found) return [];
  if (found.processes?.length) return found.processes.filter((process) => !process.error);
  return found.kept ? [{ ...found.kept, isKept: true }] : [];
}

function recordStatus(found) {
  const at = Date.now() / 1000;
  for (const stream of found.streams?.streams ?? []) {
    for (const leg of stream.legs ?? []) {
      record(legHistory, `${stream.name}→${leg.to}`, SAMPLES, at, {
        sent: leg.sent_bps, wanted: leg.wanted_bps, limit: leg.limit_bps, age: (leg.child_age_us ?? NaN) / 1e3, queue: (leg.queue_us ?? NaN) / 1e3,
      });
    }
  }
  const counts = found.carrier?.counts;
  if (counts) {
    riderHistory.add(at, {
      ridden: perSecond("ridden", counts.ridden_bytes, at) * 8,
      sent: perSecond("sent", counts.sent_bytes, at) * 8,
      received: perSecond("received", counts.received_bytes, at) * 8,
    });
  }
}

// ---- Jobs and events ----------------------------------------------------------------------------------------------

/** The jobs by id; `jobs` is published from it at most four times a second. */
let table = new Map();
/** The change up to which `table` is known: `{ run, number }`. */
let known = null;
let pending = false;
let lastUpdate = 0;

/** The events of the jobs whose details were opened, by id. */
export const jobEvents = signal(new Map());

const parseChange = (text) => {
  const found = /^(\d+)-(\d+)$/.exec(text ?? "");
  return found && { run: found[1], number: Number(found[2]) };
};

function publishSoon() {
  if (pending) return;
  pending = true;
  setTimeout(publish, Math.max(0, lastUpdate + UPDATE - performance.now()));
}

function publish() {
  pending = false;
  lastUpdate = performance.now();
  batch(() => {
    jobs.value = sorted([...table.values()]);
    if (changedEvents) {
      jobEvents.value = new Map(jobEvents.value);
      changedEvents = false;
    }
  });
}

const RANK = { running: 0, pausing: 0, queued: 1, paused: 2, failed: 3, finished: 3, cancelled: 3 };
const PRIORITY = { high: 0, normal: 1, low: 2 };
export const isEnded = (job) => RANK[job.state] === 3;
export const isActive = (job) => RANK[job.state] === 0;
/** How many jobs run: what shows only this is not rendered with each of their reports. */
export const activeJobs = computed(() => jobs.value?.filter(isActive).length ?? 0);

function sorted(list) {
  return list.sort((a, b) => {
    const rank = RANK[a.state] - RANK[b.state];
    if (rank) return rank;
    if (isEnded(a)) return b.endedAt - a.endedAt || b.id - a.id;
    return PRIORITY[a.priority] - PRIORITY[b.priority] || a.id - b.id;
  });
}

function takeJob(job) {
  const before = table.get(job.id);
  // Parsed once: a list of a thousand jobs is sorted at each update.
  job.endedAt = job.ended ? date(job.ended) : 0;
  table.set(job.id, job);
  if (isActive(job)) {
    const rates = { total: job.rate_bps };
    for (const path of job.paths ?? []) rates[path.path] = path.rate_bps;
    for (const receiver of job.receivers ?? []) rates[receiver.name] = receiver.rate_bps;
    record(jobHistory, job.id, SAMPLES, Date.now() / 1000, rates);
  }
  if (before && !isEnded(before) && isEnded(job)) {
    announce(`Job ${job.id} ${job.state}`);
  }
}

function takeTotal() {
  let total = 0;
  for (const job of table.values()) if (isActive(job)) total += job.rate_bps ?? 0;
  totalHistory.add(Date.now() / 1000, { total });
}

async function fetchJobs() {
  const found = await get("/v1/jobs");
  known = parseChange(found.change);
  const ids = new Set(found.jobs.map((job) => job.id));
  table = new Map();
  for (const job of found.jobs) takeJob(job);
  for (const id of jobHistory.keys()) if (!ids.has(id)) jobHistory.delete(id);
  for (const id of jobEvents.value.keys()) loadEvents(id);
  setFault("jobs", null);
  publishSoon();
}

/** Whether the event is newer than the list. An event of another run means that the daemon was started again. */
function isNews(id) {
  const change = parseChange(id);
  if (!change || !known) return true;
  if (change.run !== known.run) {
    resync();
    return false;
  }
  if (change.number <= known.number) return false;
  known = change;
  return true;
}

let source = null;
let waiting = null;
let retry = 1000;

/** Events that arrive while the list is fetched. */
function receive(message, apply) {
  if (waiting) waiting.push({ message, apply });
  else if (isNews(message.lastEventId)) {
    apply(JSON.parse(message.data));
    publishSoon();
  }
}

/** Fetches the list again. Events that arrive meanwhile wait, so that none is lost between the list and the stream. */
async function resync() {
  if (waiting) return;
  waiting = [];
  try {
    await fetchJobs();
    connection.value = "live";
    retry = 1000;
  } catch (error) {
    setFault("jobs", error);
    connection.value = "lost";
    waiting = null;
    reconnect();
    return;
  }
  const held = waiting;
  waiting = null;
  for (const { message, apply } of held) receive(message, apply);
}

function reconnect() {
  source?.close();
  source = null;
  setTimeout(connect, retry);
  retry = Math.min(retry * 2, 15_000);
}

/** Opens the stream of events. The browser reconnects with `Last-Event-ID`; the list is fetched after each opening
 *  because the browser does not tell whether it sent one. */
export function connect() {
  source = new EventSource("/v1/events");
  source.onopen = resync;
  source.onerror = () => {
    connection.value = "lost";
    // The browser gives up after a reply other than 200.
    if (source?.readyState === EventSource.CLOSED) {
      get("/v1/jobs").then(() => setFault("jobs", null), (error) => setFault("jobs", error));
      reconnect();
    }
  };
  source.addEventListener("job", (message) => receive(message, (job) => {
    told += 1;
    takeJob(job);
  }));
  source.addEventListener("job_event", (message) => receive(message, ({ id, event }) => takeEvent(id, event)));
  source.addEventListener("job_removed", (message) => receive(message, ({ id }) => forgetJob(id)));
  source.addEventListener("reset", resync);
}

setInterval(() => {
  if (!visible()) return;
  now.value = Date.now();
  if (jobs.value) takeTotal();
}, 1000);

let changedEvents = false;

function takeEvent(id, event) {
  const events = jobEvents.value.get(id);
  if (!events) return;
  // The list that was just fetched may have it already.
  if (event.time && events.slice(-8).some((one) => one.time === event.time && one.event === event.event)) return;
  events.push({ time: new Date().toISOString(), ...event });
  if (events.length > MOST_EVENTS) events.splice(0, events.length - MOST_EVENTS);
  changedEvents = true;
}

function forgetJob(id) {
  table.delete(id);
  jobHistory.delete(id);
  jobEvents.value.delete(id);
}

/** Fetches a job's events; later ones arrive by the stream. */
export async function loadEvents(id) {
  try {
    const { events } = await get(`/v1/jobs/${id}/events`);
    // Progress reports among the events tell the rates from before the page was opened.
    for (const event of events) if (event.event === "progress") recordProgress(id, event);
    const told = events.filter((event) => event.event !== "progress");
    const next = new Map(jobEvents.value);
    next.set(id, told.slice(-MOST_EVENTS));
    jobEvents.value = next;
    setFault("events", null);
  } catch (error) {
    setFault("events", error);
  }
}

function recordProgress(id, event) {
  const at = date(event.time) / 1000;
  const history = jobHistory.get(id);
  if (!Number.isFinite(at) || (history && history.length && at <= history.times[history.length - 1])) return;
  const rates = { total: event.rate_bps };
  for (const path of event.paths ?? []) rates[path.path] = path.rate_bps;
  for (const one of event.sources ?? []) rates[one.source] = one.rate_bps;
  for (const one of event.receivers ?? []) rates[one.name] = one.rate_bps;
  record(jobHistory, id, SAMPLES, at, rates);
}

/** The number of job events so far. */
let told = 0;

/** Sends a request about jobs and shows its result at once; errors are shown as messages. A reply that events overtook is
 *  not shown: they tell every change, and the last one is newer. */
export async function act(method, path, body, done, onError = (error) => toast(error.message, "bad")) {
  try {
    const before = told;
    const job = await ask(method, path, body);
    if (job?.id !== undefined && (told === before || !table.has(job.id))) takeJob(job);
    publishSoon();
    if (done) toast(typeof done === "function" ? done(job) : done);
    return job ?? true;
  } catch (error) {
    onError(error);
    if (error.code === "no_job") resync();
    return null;
  }
}

export const pause = (id) => act("POST", `/v1/jobs/${id}/pause`, undefined, `Job ${id} pauses and keeps what it has.`);
export const resume = (id) => act("POST", `/v1/jobs/${id}/resume`, undefined, `Job ${id} continues.`);
export const cancel = (id) => act("POST", `/v1/jobs/${id}/cancel`, undefined, `Job ${id} is cancelled.`);
export const setPriority = (id, priority) => act("PUT", `/v1/jobs/${id}/priority`, { priority }, `Job ${id} has ${priority} priority.`);
export async function forget(id) {
  const done = await act("DELETE", `/v1/jobs/${id}`, undefined, `Job ${id} is forgotten.`);
  if (done) {
    forgetJob(id);
    publishSoon();
  }
  return done;
}
export const startJob = (request, onError) => act("POST", "/v1/jobs", request, (job) => `Job ${job.id} is queued.`, onError);

/** Changes how the host's processes use their interfaces, as `thalweg interfaces` does; shows the reply at once. Returns
 *  whether it was done. */
export async function changeInterfaces(method, path, body, done) {
  try {
    const found = await ask(method, `/v1/interfaces/${path}`, body);
    recordInterfaces(found);
    interfaces.value = found;
    toast(done);
    return true;
  } catch (error) {
    toast(error.message, "bad");
    return false;
  }
}
