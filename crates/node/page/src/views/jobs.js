// The list of jobs, and the form that starts one.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { cancel, faults, forget, isActive, isEnded, jobHistory, jobs, now, pause, resume, setPriority, startJob } from "../store.js";
import { ago, baseName, commandLine, date, dayAndTime, duration, percent, plural, quoted, rate, since, size, words } from "../format.js";
import { Badge, Button, Card, Command, Empty, Fault, Icon, Progress, Prose, Segments, Sparkline, SureButton, useMedia } from "../parts/basics.js";
import { WindowedList } from "../parts/lists.js";
import { Head } from "./head.js";

const KINDS = { running: "accent", pausing: "warn", queued: "quiet", paused: "warn", finished: "good", failed: "bad", cancelled: "quiet" };
const WAITS = { slot: "waits for a slot", time: "waits for its time", retry: "tries again later" };

/** Text that is longer is cut in lists. */
const LONGEST = 56;

export function StateBadge({ job }) {
  return <Badge kind={KINDS[job.state]} title={job.waits_for && WAITS[job.waits_for]}>{job.state}</Badge>;
}

/** What a queued job waits for. */
export function waiting(job) {
  if (job.at && date(job.at) > now.value) return `not before ${dayAndTime(job.at)}`;
  if (job.waits_for === "time" && job.between) return `waits for ${job.between.replace("-", " to ")}`;
  return `${WAITS[job.waits_for] ?? "waits"}, queued ${ago(since(job.created, now.value))}`;
}

/** The ends of a job in few words; the title has all. */
export function Ends({ job, isStacked }) {
  const from = job.from?.length ? job.from : [job.arguments?.slice(1).join(" ") ?? ""];
  const first = shorten(from[0], true);
  return (
    <span class={`ends ${isStacked ? "stacked" : ""}`} title={`${from.join("\n")}${job.to ? `\n→ ${job.to}` : ""}`}>
      <span><b>{first}</b>{from.length > 1 && <span class="muted"> and {from.length - 1} more</span>}</span>{" "}
      {job.to && <span><span class="muted">→</span> {shorten(job.to)}</span>}
    </span>
  );
}

function shorten(text, isSource) {
  const short = isSource && /^https?:/.test(text) ? `${text.split("/")[2]}/…/${baseName(text)}`.replace("/…//", "/") : text;
  return short.length > LONGEST ? `${short.slice(0, LONGEST / 2)}…${short.slice(-LONGEST / 2 + 1)}` : short;
}

/** The buttons for one job. A command in a terminal can only be cancelled. */
export function Actions({ job, hidesLabel }) {
  const isQueue = job.origin !== "terminal";
  return (
    <span class="actions">
      {isQueue && (job.state === "running" || job.state === "queued") && <Button icon="pause" label={`Pause job ${job.id}`} hidesLabel={hidesLabel} onClick={() => pause(job.id)} />}
      {isQueue && ["paused", "failed", "cancelled"].includes(job.state) && <Button icon="resume" label={`Resume job ${job.id}`} hidesLabel={hidesLabel} onClick={() => resume(job.id)} />}
      {!isEnded(job) && <SureButton icon="cancel" label={`Cancel job ${job.id}`} sure="Cancel it?" hidesLabel={hidesLabel} onClick={() => cancel(job.id)} />}
      {isEnded(job) && <SureButton icon="forget" label={`Forget job ${job.id}`} sure="Forget it?" hidesLabel={hidesLabel} onClick={() => forget(job.id)} />}
    </span>
  );
}

export function PriorityChoice({ job }) {
  if (isEnded(job) || job.origin === "terminal") return <span class="muted">{job.priority}</span>;
  return (
    <select class="small" aria-label={`Priority of job ${job.id}`} value={job.priority} onChange={(event) => setPriority(job.id, event.currentTarget.value)}>
      {["high", "normal", "low"].map((one) => <option key={one} value={one}>{one}</option>)}
    </select>
  );
}

export function Jobs({ rest }) {
  const [filter, setFilter] = useState("all");
  const [isOpen, setOpen] = useState(rest[0] === "new");
  const isNarrow = useMedia("(max-width: 900px)");
  const list = jobs.value;
  const counts = useMemo(() => {
    const found = { all: 0, active: 0, waiting: 0, ended: 0 };
    for (const job of list ?? []) {
      found.all += 1;
      found[isActive(job) ? "active" : isEnded(job) ? "ended" : "waiting"] += 1;
    }
    return found;
  }, [list]);
  const shown = (list ?? []).filter((job) => filter === "all" || (filter === "active" ? isActive(job) : filter === "ended" ? isEnded(job) : !isActive(job) && !isEnded(job)));
  const total = (list ?? []).filter(isActive).reduce((sum, job) => sum + (job.rate_bps ?? 0), 0);
  return (
    <>
      <Head title="Jobs" aside={<Button icon="plus" label="Start a job" kind="primary" onClick={() => setOpen(true)} />}>
        {list ? (counts.active + counts.waiting === 0 ? "Nothing runs and nothing waits" : `${plural(counts.active, "job runs", "jobs run")}${counts.active ? ` with ${rate(total)}` : ""}, ${plural(counts.waiting, "waits", "wait")}`) : "Transfers that the daemon runs"}
      </Head>
      <Fault name="jobs" />
      <div class="tools">
        <Segments label="Which jobs" value={filter} onChange={setFilter} options={[["all", `All ${counts.all}`], ["active", `Running ${counts.active}`], ["waiting", `Waiting ${counts.waiting}`], ["ended", `Ended ${counts.ended}`]]} />
      </div>
      {!list && !faults.value.jobs && <p class="waiting">Waiting for the list of jobs …</p>}
      {list && !shown.length && (
        <Card><Empty title={counts.all ? "No job of this kind" : "No job yet"} command={counts.all ? undefined : "thalweg get https://example.org/big.iso"} commandLabel="A download in a terminal">
          {counts.all ? "Choose another filter." : "Start a job here, or run a command in a terminal: it is listed here as long as it runs."}
        </Empty></Card>
      )}
      {shown.length > 0 && <WindowedList label="Jobs" items={shown} height={isNarrow ? 112 : 64} keyOf={(job) => job.id} render={(job) => <JobRow job={job} isNarrow={isNarrow} />} />}
      {isOpen && <StartForm onClose={() => setOpen(false)} />}
    </>
  );
}

function JobRow({ job, isNarrow }) {
  const left = isActive(job) && job.rate_bps > 0 && job.total_bytes > 0 ? ((job.total_bytes - (job.done_bytes ?? 0)) * 8) / job.rate_bps : NaN;
  const share = job.total_bytes > 0 ? (job.done_bytes ?? 0) / job.total_bytes : NaN;
  return (
    <article class={`job ${isNarrow ? "narrow" : ""}`} aria-label={`Job ${job.id}`}>
      <a class="job-name" href={`#/jobs/${job.id}`}><span class="job-id">{job.id}</span><span class="verb">{job.verb}</span><Ends job={job} isStacked={!isNarrow} /></a>
      <span class="job-state"><StateBadge job={job} />{job.origin === "terminal" && <Badge kind="quiet">terminal</Badge>}</span>
      <span class="job-progress">
        {(job.state !== "queued" || job.done_bytes > 0) && <Progress done={job.state === "finished" ? 1 : job.done_bytes} total={job.state === "finished" ? 1 : job.total_bytes} label={`Progress of job ${job.id}`} kind={job.state === "failed" ? "bad" : job.state === "finished" ? "good" : ""} />}
        <small>
          {job.state === "queued" && `${waiting(job)}${job.done_bytes ? " · " : ""}`}
          {job.state === "finished" ? size(job.done_bytes ?? NaN) : job.total_bytes ? `${size(job.done_bytes ?? 0)} of ${size(job.total_bytes)}` : job.done_bytes ? size(job.done_bytes) : ""}
          {Number.isFinite(share) && !isEnded(job) && !Number.isFinite(left) && `, ${percent(share)}`}{Number.isFinite(left) && ` · ${duration(left)} left`}
          {job.state === "failed" && job.error && <span class="bad-text" title={job.error}> {job.error}</span>}
          {isEnded(job) && job.ended && job.state !== "failed" && `${job.started && job.state === "finished" ? ` in ${duration((Date.parse(job.ended) - Date.parse(job.started)) / 1000)}` : ""} · ${ago((now.value - job.endedAt) / 1000)}`}
        </small>
      </span>
      <span class="job-rate">{isActive(job) ? <><Sparkline history={jobHistory.get(job.id)} /><span>{rate(job.rate_bps)}</span></> : null}</span>
      <span class="job-priority"><PriorityChoice job={job} /></span>
      <Actions job={job} hidesLabel />
    </article>
  );
}

// ---- The form -------------------------------------------------------------------------------------------------------

const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);

/** The verbs with their fields; `arguments` makes the words after the verb. */
const VERBS = {
  get: {
    about: "Downloads files over all interfaces and the best relays.",
    fields: [
      { id: "urls", label: "URLs, one in each line", area: true, needed: true, sample: "https://example.org/big.iso" },
      { id: "via", label: "Relays", hint: "by name, with commas; empty: the best ones", sample: "fra,nyc" },
      { id: "limit", label: "Most bytes a second", sample: "2M" },
      { id: "sha256", label: "SHA-256 of the file", sample: "9f86d0…" },
    ],
    arguments: (f) => [...lines(f.urls), ...option("--via", f.via), ...option("--limit-rate", f.limit), ...option("--sha256", f.sha256)],
  },
  gather: {
    about: "Collects files of many members into a directory here.",
    fields: [
      { id: "sources", label: "Sources, one in each line", area: true, needed: true, sample: "fra:/data/run7\nnyc:/data/run7" },
      { id: "into", label: "Into the directory", needed: true, sample: "run7", hint: "created if missing" },
      { id: "limit", label: "Most bytes a second", sample: "2M" },
      { id: "deadline", label: "Finish within", sample: "30min" },
    ],
    arguments: (f) => [...lines(f.sources), ...option("--into", f.into), ...option("--bwlimit", f.limit), ...option("--deadline", f.deadline)],
  },
  send: {
    about: "Copies files from here to a member.",
    fields: [
      { id: "files", label: "Files and directories, one in each line", area: true, needed: true, sample: "/srv/results.tar" },
      { id: "target", label: "To", needed: true, sample: "fra:/inbox" },
    ],
    arguments: (f) => [...lines(f.files), ...lines(f.target)],
  },
  cast: {
    about: "Delivers one file or directory to many members, who pass it on to each other.",
    fields: [
      { id: "file", label: "File or directory", needed: true, sample: "/srv/image.iso" },
      { id: "to", label: "Receivers", hint: "by name, with commas; empty: all members", sample: "fra,nyc,ber" },
      { id: "tag", label: "Only with the tag", sample: "lab" },
    ],
    arguments: (f) => [...lines(f.file), ...(f.to ? ["--to", f.to.replace(/\s+/g, "")] : ["--to-all"]), ...option("--tag", f.tag)],
  },
  submit: {
    about: "Submits files to a drop box before its deadline.",
    fields: [
      { id: "files", label: "Files, one in each line", area: true, needed: true, sample: "/srv/return.pdf" },
      { id: "box", label: "Drop box", needed: true, sample: "taxes@irs" },
    ],
    arguments: (f) => [...lines(f.files), ...option("--to", f.box)],
  },
  stream: {
    about: "Publishes live media, or subscribes to it.",
    fields: [
      { id: "what", label: "Do", choices: [["publish", "publish"], ["subscribe", "subscribe"]] },
      { id: "name", label: "Name of the stream", needed: true, sample: "stage" },
      { id: "file", label: "File, or address to listen at", sample: "udp://127.0.0.1:9000", only: "publish", needed: true },
      { id: "sink", label: "To a directory for HLS, or an address", sample: "udp://127.0.0.1:9001", only: "subscribe", needed: true },
    ],
    arguments: (f) => {
      const isAddress = (text) => /^(tcp|udp):/.test(text);
      if (f.what === "subscribe") return ["subscribe", f.name, ...(isAddress(f.sink) ? ["--to", f.sink] : ["--hls-dir", f.sink])].filter(Boolean);
      return ["publish", f.name, ...(isAddress(f.file) ? ["--listen", f.file] : [f.file, "--pace"])].filter(Boolean);
    },
  },
};

const option = (name, value) => (value?.trim() ? [name, value.trim()] : []);
const isShown = (field, values) => !field.only || field.only === (values.what || "publish");

function lastDirectory() {
  const used = jobs.value?.find((job) => job.directory)?.directory;
  try {
    return localStorage.getItem("directory") ?? used ?? "";
  } catch {
    return used ?? "";
  }
}

function StartForm({ onClose }) {
  const dialog = useRef(null);
  const [verb, setVerb] = useState("get");
  const [values, setValues] = useState({ directory: lastDirectory(), priority: "normal", when: "now" });
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    dialog.current.showModal();
  }, []);
  const kind = VERBS[verb];
  const set = (id) => ({ currentTarget: { value } }) => setValues((before) => ({ ...before, [id]: value }));
  const fields = kind.fields.filter((field) => isShown(field, values));
  const full = Object.fromEntries(kind.fields.map((field) => [field.id, values[field.id] ?? field.choices?.[0][0] ?? ""]));
  const args = [verb, ...kind.arguments(full), ...words(values.more ?? "")];
  const directory = (values.directory ?? "").trim();
  const line = `${directory ? `cd ${quoted(directory)} && ` : ""}${commandLine(args)}`;

  const submit = async (event) => {
    event.preventDefault();
    const missing = fields.find((field) => field.needed && !full[field.id].trim());
    if (missing) {
      setProblem(`Fill in: ${missing.label}.`);
      dialog.current.querySelector(`[name=${missing.id}]`)?.focus();
      return;
    }
    if (!directory.startsWith("/")) {
      setProblem("Give the directory in which the command runs as a path that begins with /.");
      dialog.current.querySelector("[name=directory]").focus();
      return;
    }
    const request = { arguments: args, directory, priority: values.priority };
    if (values.when === "at" && values.at) request.at = new Date(values.at).toISOString().replace(/\.\d+Z$/, "Z");
    if (values.when === "between" && values.from && values.until) request.between = `${values.from}-${values.until}`;
    setBusy(true);
    setProblem("");
    // The form is above the page's messages, so it shows the refusal itself.
    const job = await startJob(request, (error) => setProblem(error.message));
    setBusy(false);
    if (!job) return;
    try {
      localStorage.setItem("directory", directory);
    } catch {
      // A browser without storage asks again the next time.
    }
    dialog.current.close();
    location.hash = `#/jobs/${job.id}`;
  };
  return (
    <dialog ref={dialog} class="dialog" aria-labelledby="start-title" onClose={onClose}>
      <form method="dialog" onSubmit={submit} noValidate>
        <header><h2 id="start-title">Start a job</h2><Button icon="cancel" label="Close without starting" hidesLabel onClick={() => dialog.current.close()} /></header>
        <Segments label="Verb" value={verb} onChange={(next) => {
          setVerb(next);
          setProblem("");
        }} options={Object.keys(VERBS).map((name) => [name, name])} />
        <p class="muted">{kind.about}</p>
        {fields.map((field) => <Field key={`${verb} ${field.id}`} field={field} value={full[field.id]} onInput={set(field.id)} />)}
        <Field field={{ id: "directory", label: "Directory in which it runs", needed: true, sample: "/srv/data", hint: verb === "get" ? "the files land here" : "relative paths begin here" }} value={values.directory ?? ""} onInput={set("directory")} />
        <div class="field-row">
          <label class="field"><span>Priority</span>
            <select name="priority" value={values.priority} onChange={set("priority")}>{["high", "normal", "low"].map((one) => <option key={one} value={one}>{one}</option>)}</select>
          </label>
          <label class="field"><span>When</span>
            <select name="when" value={values.when} onChange={set("when")}><option value="now">as soon as there is a slot</option><option value="at">not before …</option><option value="between">daily between …</option></select>
          </label>
        </div>
        {values.when === "at" && <label class="field"><span>Not before</span><input type="datetime-local" name="at" value={values.at ?? ""} onInput={set("at")} /></label>}
        {values.when === "between" && (
          <div class="field-row">
            <label class="field"><span>From, by the host's clock</span><input type="time" name="from" value={values.from ?? ""} onInput={set("from")} /></label>
            <label class="field"><span>Until</span><input type="time" name="until" value={values.until ?? ""} onInput={set("until")} /></label>
          </div>
        )}
        <Field field={{ id: "more", label: "Further options", sample: "--no-relays", hint: `as in a shell; ${commandLine([verb, "--help"])} lists them` }} value={values.more ?? ""} onInput={set("more")} />
        <div class="preview"><span>It runs</span><Command line={line} label="The command line that it runs" /></div>
        {problem && <p class="fault" role="alert"><Icon name="warn" /> <span><Prose text={problem} /></span></p>}
        <footer><Button label="Cancel" onClick={() => dialog.current.close()} /><Button type="submit" kind="primary" icon="resume" label={isBusy ? "Starting …" : "Start"} disabled={isBusy} /></footer>
      </form>
    </dialog>
  );
}

function Field({ field, value, onInput }) {
  const rest = { name: field.id, value, onInput, placeholder: field.sample, required: field.needed, autocomplete: "off", spellcheck: false };
  return (
    <label class="field">
      <span>{field.label}{field.hint && <small>{field.hint}</small>}</span>
      {field.area ? <textarea rows={3} {...rest} /> : field.choices ? (
        <select name={field.id} value={value} onChange={onInput}>{field.choices.map(([key, text]) => <option key={key} value={key}>{text}</option>)}</select>
      ) : <input type="text" {...rest} />}
    </label>
  );
}
