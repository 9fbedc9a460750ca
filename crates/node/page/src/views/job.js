// One job: progress, rates by path or receiver, its plan against reality, its events, and why it took as long as it did.

import { useEffect, useMemo, useState } from "preact/hooks";
import { isActive, isEnded, jobEvents, jobHistory, jobs, loadEvents, me, now } from "../store.js";
import { ago, clock, count, date, duration, mbps, percent, rate, size } from "../format.js";
import { Badge, Card, Command, Empty, Facts, Fault, Moment, Progress, Prose } from "../parts/basics.js";
import { HistoryChart } from "../parts/chart.js";
import { Gantt } from "../parts/gantt.js";
import { DataTable } from "../parts/lists.js";
import { CastTree, receiversOf } from "../parts/tree.js";
import { Head } from "./head.js";
import { Actions, Ends, PriorityChoice, StateBadge, waiting } from "./jobs.js";

/** Words for the bounds of a verdict. */
const BOUNDS = {
  path: "the path", source: "the source", access: "this host's access", relay: "a relay", disk: "the disk", quota: "a quota",
  limit: "its own limit", rival: "other traffic", receiver: "a receiver",
};

export function JobDetail({ id }) {
  useEffect(() => {
    loadEvents(id);
  }, [id]);
  const job = jobs.value?.find((one) => one.id === id);
  const events = jobEvents.value.get(id) ?? [];
  if (!jobs.value) return <><Head title={`Job ${id}`} /><p class="waiting">Waiting for the list of jobs …</p></>;
  if (!job) {
    return <><Head title={`Job ${id}`} /><Empty title="There is no such job"><a href="#/jobs">All jobs</a> lists those that the daemon knows.</Empty></>;
  }
  return (
    <>
      <p class="crumbs"><a href="#/jobs">Jobs</a></p>
      <Head title={`Job ${id}: ${job.verb}`} aside={<Actions job={job} />}><Ends job={job} /></Head>
      <Fault name="events" />
      <Verdict job={job} />
      <Summary job={job} />
      {job.verb === "gather" && events.length > 0 && <GanttCard job={job} events={events} />}
      {job.verb === "cast" && <Cast job={job} events={events} />}
      <Card title="Rates">
        {isEnded(job) && !jobHistory.get(id) ? <p class="muted">The rates were not recorded: this page was not open then.</p>
          : <HistoryChart title={job.verb === "cast" ? "Rate of each receiver" : job.verb === "gather" ? "Rate of each source" : "Rate of each path"} history={jobHistory.get(id)} pick={pickOf(job)} height={200} />}
        {job.paths?.length > 0 && <PathTable job={job} />}
      </Card>
      <Events job={job} events={events} />
    </>
  );
}

/** The series of the chart: the sum, and the fastest paths or receivers. */
function pickOf(job) {
  const parts = (job.paths ?? []).map((one) => one.path).concat((job.receivers ?? []).map((one) => one.name));
  const history = jobHistory.get(job.id);
  const weight = (name) => (history?.series.get(name) ?? []).reduce((sum, v) => sum + (v > 0 ? v : 0), 0);
  const most = parts.length > 1 ? [...parts].sort((a, b) => weight(b) - weight(a)).slice(0, 5) : parts.length === 1 ? [] : [];
  return [["total", parts.length === 1 ? parts[0] : "all", { isFilled: true }], ...most.map((name) => [name, name])];
}

function Verdict({ job }) {
  const { verdict } = job;
  if (job.state === "failed" && job.error) {
    return <Card title="Why it failed" kind="bad"><p class="headline"><Prose text={job.error} /></p>{job.exit_code !== undefined && <p class="muted">Exit code {job.exit_code}. What arrived is kept: resume the job after the cause is gone.</p>}</Card>;
  }
  if (!verdict) return null;
  const columns = [
    { id: "what", label: "What", value: (row) => row.what },
    { id: "value", label: "Value", value: (row) => row.value, cell: (row) => <b>{row.value}</b> },
    { id: "age", label: "Age at the end", value: (row) => row.age_seconds ?? NaN, cell: (row) => (row.age_seconds === undefined ? "–" : duration(row.age_seconds)) },
  ];
  return (
    <Card title="Why it took as long as it did" kind="verdict" aside={<Badge kind="accent">bound: {BOUNDS[verdict.bound] ?? verdict.bound}</Badge>}>
      <p class="headline">{verdict.text}</p>
      {verdict.evidence?.length > 0 && <DataTable caption="Evidence of the verdict" columns={columns} rows={verdict.evidence} keyOf={(row) => row.what} />}
    </Card>
  );
}

function Summary({ job }) {
  const end = job.ended ? date(job.ended) : now.value;
  const took = job.started ? (end - date(job.started)) / 1000 : NaN;
  const left = isActive(job) && job.rate_bps > 0 && job.total_bytes > 0 ? ((job.total_bytes - (job.done_bytes ?? 0)) * 8) / job.rate_bps : NaN;
  const average = isEnded(job) && job.done_bytes && took > 0 ? (job.done_bytes * 8) / took : NaN;
  return (
    <Card>
      <div class="big-progress">
        <Progress done={job.state === "finished" ? 1 : job.done_bytes} total={job.state === "finished" ? 1 : job.total_bytes} label="Progress" kind={job.state === "failed" ? "bad" : job.state === "finished" ? "good" : ""} />
        <span>{job.total_bytes > 0 ? percent((job.done_bytes ?? 0) / job.total_bytes) : ""}</span>
      </div>
      <Facts rows={[
        job.state === "queued" && ["Waits", waiting(job)],
        ["State", <><StateBadge job={job} />{job.origin === "terminal" && <Badge kind="quiet">in a terminal</Badge>}</>],
        ["Done", `${size(job.done_bytes ?? 0)}${job.total_bytes ? ` of ${size(job.total_bytes)}` : ""}`],
        isActive(job) ? ["Rate", rate(job.rate_bps)] : Number.isFinite(average) && ["Mean rate", rate(average)],
        Number.isFinite(left) && ["Left", duration(left)],
        Number.isFinite(took) && ["Time", duration(took)],
        ["Priority", <PriorityChoice job={job} />],
        job.at && ["Not before", <Moment date={job.at} />],
        job.between && ["Daily between", job.between.replace("-", " and ")],
        ["Queued", <Moment date={job.created} />],
        job.attempts > 1 && ["Starts", count(job.attempts)],
        job.pid && ["Process", job.pid],
        job.exit_code !== undefined && ["Exit code", job.exit_code],
      ]} />
      <Command line={job.directory ? `cd ${/^[\w/.+:@%,=-]+$/.test(job.directory) ? job.directory : `'${job.directory.replaceAll("'", "'\\''")}'`} && ${job.command}` : job.command} label="The equivalent command line" />
    </Card>
  );
}

function PathTable({ job }) {
  const all = job.paths.reduce((sum, one) => sum + one.bytes, 0);
  const columns = [
    { id: "path", label: job.verb === "gather" ? "Source" : "Path", value: (row) => row.path },
    ...(isEnded(job) ? [] : [{ id: "rate", label: "Mbit/s", isNumber: true, value: (row) => row.rate_bps, cell: (row) => <b>{mbps(row.rate_bps)}</b> }]),
    { id: "bytes", label: "Bytes", isNumber: true, value: (row) => row.bytes, cell: (row) => size(row.bytes) },
    { id: "share", label: "Share", isNumber: true, value: (row) => row.bytes, cell: (row) => (all ? percent(row.bytes / all) : "–") },
    { id: "state", label: "State", isWide: true, value: (row) => row.state ?? "", cell: (row) => <PathState state={row.state} /> },
  ];
  return <DataTable caption="Paths of the job" columns={columns} rows={job.paths} keyOf={(row) => row.path} />;
}

function PathState({ state }) {
  if (!state) return "–";
  const [word, ...rest] = state.split(": ");
  const kind = { chosen: "accent", failed: "bad", waiting: "warn" }[word] ?? "quiet";
  return <><Badge kind={kind}>{word}</Badge> {rest.join(": ")}</>;
}

function GanttCard({ job, events }) {
  const hasPlan = events.some((event) => event.event === "planned");
  return <Card title="Plan and reality">{hasPlan ? <Gantt job={job} events={events} /> : <p class="muted">The plan is not among the job's last events any more, or is not made yet.</p>}</Card>;
}

function Cast({ job, events }) {
  const receivers = useMemo(() => receiversOf(job, events), [job, events, events.length]);
  if (!receivers.length) return <Card title="Receivers"><p class="muted">The receivers are known when the object was read.</p></Card>;
  const share = (one) => (one.total > 0 ? Math.min(1, (one.done ?? 0) / one.total) : NaN);
  const columns = [
    { id: "name", label: "Receiver", value: (one) => one.name },
    { id: "state", label: "State", value: (one) => one.state ?? "", cell: (one) => <Badge kind={{ complete: "good", receiving: "accent", failed: "bad", refused: "bad", lost: "warn", away: "warn" }[one.state] ?? "quiet"}>{one.state ?? "planned"}</Badge> },
    { id: "share", label: "Has", isNumber: true, value: share, cell: (one) => <span class="with-bar"><Progress done={one.done ?? 0} total={one.total} label={`Progress of ${one.name}`} />{percent(share(one))}</span> },
    { id: "rate", label: "Mbit/s", isNumber: true, value: (one) => one.rate ?? one.average, cell: (one) => <b>{mbps(one.state === "complete" ? (one.average ?? NaN) : one.rate)}</b> },
    { id: "expected", label: "Planned", isNumber: true, value: (one) => one.expected, cell: (one) => mbps(one.expected) },
    { id: "hop", label: "Slowest hop", isNumber: true, value: (one) => one.minHop, cell: (one) => mbps(one.minHop) },
    { id: "parents", label: "From", isWide: true, value: (one) => one.parents.join(", "), cell: (one) => (one.given?.length ? one.given.map((p) => `${p.name} ${size(p.bytes)}`).join(", ") : one.parents.slice(0, 3).join(", ")) },
    { id: "served", label: "Gave", isNumber: true, value: (one) => one.served, cell: (one) => size(one.served) },
    { id: "why", label: "Remark", isWide: true, value: (one) => one.why ?? "" },
  ];
  return (
    <Card title="Tree of the cast">
      <CastTree root={me.value} receivers={receivers} />
      <DataTable caption="Receivers of the cast" columns={columns} rows={receivers} keyOf={(one) => one.name} sort={{ id: "name", isDown: false }} />
    </Card>
  );
}

/** The fields of an event that its sentence does not need. */
const HIDDEN = new Set(["event", "time", "job", "id", "download"]);

const SENTENCES = {
  relays: (e) => `${(e.picked ?? []).map((one) => one.relay ?? one).join(", ") || "none"}, of ${count(e.usable ?? NaN)} usable`,
  started: (e) => `${e.total_bytes ? size(e.total_bytes) : e.bytes !== undefined ? size(e.bytes) : ""}${e.target ? ` to ${e.target}` : e.into ? ` into ${e.into}` : e.name ? ` as ${e.name}` : ""}${e.paths?.length ? `; paths: ${e.paths.join(", ")}` : ""}`,
  path_sampled: (e) => `${e.path}: ${rate(e.rate_bps)}`,
  chosen: (e) => `${e.path}: ${e.reason}`,
  reselected: (e) => `${e.path} instead of ${e.from}`,
  path_failed: (e) => `${e.path}: ${e.why}`,
  hedged: (e) => `${size(e.bytes)} also over ${e.path}`,
  busy: (e) => `${e.path} waits ${duration(e.seconds)}: ${e.why}`,
  path_total: (e) => `${e.path}: ${size(e.bytes)}`,
  finished: (e) => `${size(e.bytes)} in ${duration(e.seconds)}, ${rate(e.rate_bps)}`,
  failed: (e) => e.why,
  note: (e) => e.text,
  listed: (e) => `${e.source}: ${count(e.files)} files, ${size(e.bytes)}`,
  planned: (e) => (e.makespan_seconds ? `${e.method}: ${duration(e.makespan_seconds)}, at least ${duration(e.bound_seconds)}, ${count(e.paths?.length ?? 0)} ways` : e.receivers ? `${count(e.receivers.length)} receivers` : (e.method ?? "")),
  way_opened: (e) => `${e.source} ${e.via?.length ? `by ${e.via.join(", ")}` : "direct"}`,
  way_closed: (e) => `${e.source} ${e.via?.length ? `by ${e.via.join(", ")}` : "direct"}: ${e.why}`,
  replanned: (e) => e.why,
  transfer: (e) => `${e.from} → ${e.to}: ${size(e.bytes)} in ${duration(e.seconds)}`,
  source_failed: (e) => `${e.source}: ${e.why}`,
  file_failed: (e) => `${e.file}: ${e.why}`,
  accepted: (e) => `${e.receiver}${e.held_bytes ? ` has ${size(e.held_bytes)} already` : ""}`,
  received: (e) => `${e.receiver}: ${e.already ? "had it already" : `${size(e.received_bytes)} in ${duration(e.seconds)}, ${rate(e.rate_bps)}`}`,
  refused: (e) => `${e.receiver}: ${e.why}`,
  unreached: (e) => `${e.receiver}: ${e.why}`,
  parent_left: (e) => `${e.receiver} left ${e.parent} (${e.fault})${e.why ? `: ${e.why}` : ""}`,
  ended: (e) => `${e.outcome}${e.seconds !== undefined ? ` after ${duration(e.seconds)}` : ""}${e.why ? `: ${e.why}` : ""}`,
  verdict: (e) => e.text,
  retrying: (e) => `in ${duration(e.after_seconds)}, attempt ${e.attempt} of ${e.of}: ${e.why}`,
};

const TROUBLE = new Set(["failed", "path_failed", "source_failed", "file_failed", "refused", "unreached", "parent_left", "corrupt", "retrying", "broken"]);

function sentence(event) {
  const told = SENTENCES[event.event]?.(event);
  if (told !== undefined) return told;
  return Object.entries(event).filter(([key]) => !HIDDEN.has(key)).map(([key, value]) => `${key}: ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");
}

function Events({ job, events }) {
  const [filter, setFilter] = useState("");
  const rows = events.map((event, index) => ({ event, index, text: sentence(event) })).filter((row) => `${row.event.event} ${row.text}`.toLowerCase().includes(filter.toLowerCase()));
  const columns = [
    { id: "time", label: "Time", value: (row) => row.index, cell: (row) => <span title={ago((now.value - date(row.event.time)) / 1000)}>{clock(row.event.time)}</span> },
    { id: "event", label: "Event", value: (row) => row.event.event, cell: (row) => <Badge kind={TROUBLE.has(row.event.event) ? "bad" : "quiet"}>{row.event.event}</Badge> },
    { id: "text", label: "What happened", isWide: true, value: (row) => row.text },
  ];
  return (
    <Card title="Events" aside={<label class="search"><span class="unseen">Filter events</span><input type="search" placeholder="Filter" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} /></label>}>
      <DataTable caption="Events of the job" columns={columns} rows={rows} keyOf={(row) => row.index} sort={{ id: "time", isDown: true }} most={420}
        empty={<p class="muted">{filter ? "No event matches." : isEnded(job) ? "The daemon keeps no events of this job." : "Nothing has happened yet."}</p>} />
    </Card>
  );
}
