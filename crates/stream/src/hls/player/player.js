// Plays the live edge of stream.m3u8 by Media Source Extensions, and shows the figures of status.json.

const byId = (id) => document.getElementById(id);
const video = byId("video");

/** Seconds behind the newest frame that the player aims for: two segments, and what a fetch takes. */
const BEHIND = 2.5;
/** Seconds that must be buffered before it begins, so that the next segment comes in time. */
const AHEAD = 1.8;
/** Farther behind than this, it jumps forward. */
const TOO_FAR = 8;
/** Seconds that are kept behind the playing position. */
const KEPT = 20;
/** Points of the chart, one a second. */
const POINTS = 120;

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

function show(kind, text) {
  byId("state").dataset.kind = kind;
  byId("state").textContent = text;
}

/** Figures that the page shows, and that tests read. */
const figures = { stalls: 0, errors: [], appended: 0, switches: 0, latency: null };
globalThis.figures = figures;

function fail(text) {
  figures.errors.push(text);
  show("error", text);
}

/** The segments of a media playlist, and whether it has ended. */
function parse(text) {
  const segments = [];
  let init = null;
  for (const line of text.split("\n")) {
    const map = /^#EXT-X-MAP:URI="(init-\d+\.mp4)"/.exec(line);
    const segment = /^segment-(\d+)\.m4s$/.exec(line);
    if (map) init = map[1];
    if (segment && init) segments.push({ number: Number(segment[1]), url: segment[0], init });
  }
  return { segments, isEnded: text.includes("#EXT-X-ENDLIST") };
}

async function get(url) {
  const answer = await fetch(url, { cache: "no-store" });
  if (!answer.ok) throw Object.assign(new Error(`${url}: ${answer.status}`), { status: answer.status });
  return answer;
}

/** One source buffer, to which segments are appended in turn. */
class Track {
  constructor(source) {
    this.source = source;
    this.buffer = null;
    this.init = null;
    this.next = null;
  }

  async done() {
    if (this.buffer.updating) {
      await new Promise((done, failed) => {
        this.buffer.addEventListener("updateend", done, { once: true });
        this.buffer.addEventListener("error", () => failed(new Error("the browser cannot decode a segment")), { once: true });
      });
    }
  }

  async append(bytes) {
    for (;;) {
      try {
        this.buffer.appendBuffer(bytes);
        return await this.done();
      } catch (error) {
        if (error.name !== "QuotaExceededError" || !(await this.trim(2))) throw error;
      }
    }
  }

  /** Removes what is more than `kept` seconds behind the playing position; false if there is nothing. */
  async trim(kept) {
    const ranges = this.buffer.buffered;
    const end = video.currentTime - kept;
    if (ranges.length === 0 || ranges.start(0) >= end) return false;
    this.buffer.remove(ranges.start(0), end);
    await this.done();
    return true;
  }

  async begin(init, codecs) {
    const kind = `video/mp4; codecs="${codecs}"`;
    if (!MediaSource.isTypeSupported(kind)) throw new Error(`this browser does not play ${codecs}`);
    if (this.buffer === null) {
      this.buffer = this.source.addSourceBuffer(kind);
    } else {
      this.buffer.changeType(kind);
      figures.switches += 1;
    }
    await this.append(await (await get(init)).arrayBuffer());
    this.init = init;
  }

  /** Appends the segments of the playlist that are new; begins near its end. */
  async follow(segments) {
    const oldest = segments[Math.max(0, segments.length - 3)];
    this.next ??= oldest?.number ?? null;
    for (const segment of segments.filter((one) => one.number >= this.next)) {
      if (segment.init !== this.init) {
        const { inits } = await (await get("status.json")).json();
        const codecs = inits[/\d+/.exec(segment.init)[0]];
        if (codecs === undefined) continue;
        await this.begin(segment.init, codecs);
      }
      const bytes = await (await get(segment.url)).arrayBuffer();
      await this.append(bytes);
      this.next = segment.number + 1;
      figures.appended += 1;
      await this.trim(KEPT);
      steer();
    }
  }
}

/** Keeps the playing position within what is buffered and near its end. */
function steer() {
  const ranges = video.buffered;
  if (ranges.length === 0) return;
  const now = video.currentTime;
  const end = ranges.end(ranges.length - 1);
  let range = -1;
  for (let at = 0; at < ranges.length; at += 1) {
    if (ranges.start(at) <= now + 0.1 && now < ranges.end(at)) range = at;
  }
  const isOutside = range < 0 && (now < ranges.start(0) || now + 0.5 < end);
  if (isOutside || end - now > TOO_FAR) {
    // The start of the newest range, or the usual distance from its end.
    video.currentTime = Math.max(ranges.start(ranges.length - 1) + 0.01, end - BEHIND);
  }
  // Catches up slowly, so that nobody hears it.
  video.playbackRate = end - now > BEHIND + 1.5 ? 1.05 : 1;
  const hasEnough = end - video.currentTime >= AHEAD || video.played.length > 0;
  if (video.paused && hasEnough && !video.dataset.paused && !video.ended) video.play().catch(() => {});
}

async function hasBegun() {
  const { inits } = await (await get("status.json")).json();
  return Object.keys(inits).length > 0;
}

async function play() {
  const source = new MediaSource();
  const opened = new Promise((done) => source.addEventListener("sourceopen", done, { once: true }));
  video.src = URL.createObjectURL(source);
  await opened;
  const track = new Track(source);
  for (;;) {
    let playlist = null;
    try {
      if (track.init === null && !(await hasBegun())) {
        show("waiting", "Waiting for the first key frame");
        await pause(300);
        continue;
      }
      playlist = parse(await (await get("stream.m3u8")).text());
      await track.follow(playlist.segments);
      show("live", "Live");
    } catch (error) {
      // A segment that is gone by now, or a server that restarts.
      const isPassing = error.status === 404 || error.status === 503 || error instanceof TypeError;
      if (!isPassing) throw error;
      if (error.status === 404) track.next = null;
      show("waiting", "Reconnecting");
    }
    if (playlist?.isEnded) {
      if (source.readyState === "open") source.endOfStream();
      show("waiting", "The stream has ended");
      return;
    }
    steer();
    await pause(300);
  }
}

const rates = [];

function chart() {
  const peak = Math.max(...rates, 1);
  const x = (at) => POINTS - rates.length + at;
  const y = (rate) => 29 - (rate / peak) * 27;
  const points = rates.map((rate, at) => `${x(at)},${y(rate).toFixed(2)}`);
  byId("line").setAttribute("points", points.join(" "));
  byId("area").setAttribute("d", `M${x(0)},30 L${points.join(" L")} L${x(rates.length - 1)},30 Z`);
  byId("peak").textContent = `peak ${megabits(peak)}`;
}

const megabits = (bps) => `${(bps / 1e6).toFixed(bps < 1e6 ? 2 : 1)} Mbit/s`;
const sum = (values) => values.reduce((all, value) => all + value, 0);

/** Shows the figures of the second since `last`. */
function report(status, last, seconds, shown) {
  byId("name").textContent = status.name;
  byId("origin").textContent = status.origin && `from ${status.origin}`;
  document.title = `${status.name} · ${status.origin}`;
  rates.push(((status.bytes - last.bytes) * 8) / seconds);
  if (rates.length > POINTS) rates.shift();
  byId("rate").textContent = megabits(rates.at(-1));
  byId("pictures").textContent = `${(shown / seconds).toFixed(0)}/s`;
  const lost = sum(Object.values(status.lost));
  byId("dropped").textContent = lost;
  byId("dropped").title = Object.entries(status.lost).map(([why, n]) => `${why}: ${n}`).join(", ");
  byId("stalls").textContent = figures.stalls;
  if (video.videoWidth > 0) byId("resolution").textContent = `${video.videoWidth} × ${video.videoHeight}`;
  if (!video.paused && !status.is_ended) {
    // From the publisher to this screen: the frame's age on arrival, and how far behind it the picture is.
    const behind = status.newest_ms / 1000 - video.currentTime;
    figures.latency = behind + (status.age_ms + status.idle_ms) / 1000;
    byId("latency").textContent = `${figures.latency.toFixed(1)} s`;
  }
  chart();
}

async function watch() {
  let [last, at, pictures] = [null, 0, 0];
  for (;;) {
    try {
      const status = await (await get("status.json")).json();
      const now = performance.now();
      const shown = video.getVideoPlaybackQuality().totalVideoFrames;
      if (last !== null) report(status, last, (now - at) / 1000, shown - pictures);
      [last, at, pictures] = [status, now, shown];
    } catch {
      // The other loop says that the server is gone.
    }
    await pause(1000);
  }
}

video.addEventListener("waiting", () => {
  if (!video.seeking && video.played.length > 0) figures.stalls += 1;
  steer();
});
video.addEventListener("error", () => fail(`cannot play: ${video.error?.message || video.error?.code}`));
// A pause by the viewer is kept.
video.addEventListener("pause", () => { if (!video.seeking && !video.ended) video.dataset.paused = "1"; });
video.addEventListener("play", () => { delete video.dataset.paused; });

watch();
play().catch((error) => fail(error.message));
