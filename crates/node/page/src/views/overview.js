// The overview: this node, the mesh's health, what runs, and what needs a hand.

import { useMemo } from "preact/hooks";
import { interfaces, isActive, jobHistory, jobs, matrix, pathDocument, processesOf, roster, status, totalHistory } from "../store.js";
import { count, dayAndTime, duration, mbps, percent, plural, rate, seconds, size } from "../format.js";
import { gainOf, median } from "../matrix-data.js";
import { Badge, Card, Command, Empty, Facts, Fault, Icon, Progress, Prose, Sparkline, useDocuments } from "../parts/basics.js";
import { HistoryChart } from "../parts/chart.js";
import { Head } from "./head.js";
import { Ends } from "./jobs.js";
import { QUIET } from "./members.js";

/** A roster that ends sooner, s, is worth a look: two days. */
const SOON = 2 * 86_400;

export function Overview() {
  useDocuments("status", "roster", "paths", "interfaces");
  const node = status.value;
  const running = (jobs.value ?? []).filter(isActive);
  const total = running.reduce((sum, job) => sum + (job.rate_bps ?? 0), 0);
  const problems = problemsOf();
  return (
    <>
      <Head title="Overview">{node ? `${node.name}, up for ${duration(seconds(node.up))}, version ${node.program}` : "Waiting for the node …"}</Head>
      <Fault name="status" />
      <div class="tiles">
        <Tile name="Running now" value={plural(running.length, "job")} more={running.length ? rate(total) : "nothing moves"} href="#/jobs" />
        <MeshTile />
        <PathTile />
        <Tile name="Channels open" value={node ? count(node.counts.channels) : "–"} more={node ? `${count(node.counts.accepted)} connections since the start` : ""} href="#/members" />
      </div>
      <Problems list={problems} />
      <div class="columns wide-left">
        <Card title="Running jobs" aside={<a href="#/jobs">All jobs</a>}>
          {running.length ? <ul class="running">{running.slice(0, 8).map((job) => <Running key={job.id} job={job} />)}</ul> : (
            <Empty title="Nothing runs" command="thalweg get https://example.org/big.iso" commandLabel="A download in a terminal">Start a job <a href="#/jobs/new">here</a>, or in a terminal.</Empty>
          )}
          {running.length > 8 && <p class="muted">… and {running.length - 8} more</p>}
          <HistoryChart title="Rate of all jobs" history={totalHistory} pick={[["total", "all jobs", { isFilled: true }]]} height={150} />
        </Card>
        <NodeCard node={node} />
      </div>
    </>
  );
}

function Tile({ name, value, more, href, kind = "" }) {
  return <a class={`tile ${kind}`} href={href}><span class="tile-name">{name}</span><span class="tile-value">{value}</span><span class="tile-more">{more}</span></a>;
}

function MeshTile() {
  const members = roster.value?.members.filter((member) => member.node) ?? [];
  const oracle = status.value?.oracle;
  const heard = (oracle?.members ?? []).filter((one) => one.seen && seconds(one.seen) <= QUIET).length;
  if (!members.length) return <Tile name="Mesh" value="–" more="no roster yet" href="#/members" />;
  return <Tile name="Mesh" value={`${count(heard)} of ${count(members.length)}`} more={oracle?.reached ? "nodes heard in the last 10 minutes" : "the oracle does not answer"} href="#/members" kind={oracle && !oracle.reached ? "warn" : ""} />;
}

function PathTile() {
  const found = matrix.value;
  const told = useMemo(() => {
    if (!found?.legs) return null;
    let good = 0;
    for (let at = 0; at < found.rate.length; at += 1) if (gainOf(found, at) >= 0.2 && found.detour[at] - found.rate[at] >= 1e6) good += 1;
    return { good: good / found.legs, middle: median(found.rate) };
  }, [found]);
  if (!told) return <Tile name="Paths" value="–" more="nothing measured yet" href="#/paths" />;
  return <Tile name="Median path" value={<>{mbps(told.middle)} <small>Mbit/s</small></>} more={`${percent(told.good)} of the pairs have a good detour`} href="#/paths" />;
}

function Running({ job }) {
  return (
    <li>
      <a href={`#/jobs/${job.id}`}><span class="verb">{job.verb}</span><Ends job={job} /></a>
      <span class="running-rate"><Sparkline history={jobHistory.get(job.id)} width={72} />{rate(job.rate_bps)}</span>
      <Progress done={job.done_bytes} total={job.total_bytes} label={`Progress of job ${job.id}`} />
    </li>
  );
}

function NodeCard({ node }) {
  if (!node) return <Card title="This node"><p class="waiting">Waiting for the node …</p></Card>;
  const roles = roster.value?.members.find((member) => member.name === node.name)?.roles ?? [];
  const { oracle, relay, roster: list } = node;
  return (
    <Card title="This node">
      <Facts kind="tall" rows={[
        ["Name", node.name],
        ["Roles", roles.length ? roles.map((role) => <Badge key={role} kind={role === "client" ? "quiet" : ""}>{role}</Badge>) : "–"],
        ["Listens at", node.listen.length ? node.listen.join(", ") : "nowhere"],
        ["Oracle", oracle.inside ? "inside this node" : oracle.reached ? "answers" : <span class="warn-text">{oracle.error}</span>],
        Number.isFinite(oracle.clock_ahead_s) && Math.abs(oracle.clock_ahead_s) >= 1 && ["Clock of the oracle", `${duration(Math.abs(oracle.clock_ahead_s))} ${oracle.clock_ahead_s > 0 ? "ahead" : "behind"}`],
        ["Roster", list ? `version ${list.version}, until ${dayAndTime(list.expiry)}` : "none yet"],
        relay && ["Relayed", `${size(relay.bytes)}, ${plural(relay.open ?? 0, "connection")} open`],
        node.files && Number.isFinite(node.files.directories) && ["Offers", plural(node.files.directories, "directory", "directories")],
        node.casts?.casts?.length > 0 && ["Casts", plural(node.casts.casts.length, "object")],
        ["Local programs", plural(node.counts.local, "connection")],
        ["Refused strangers", count(node.counts.strangers)],
        ["Key", <code title={node.key}>{node.key.slice(0, 16)}</code>],
      ]} />
    </Card>
  );
}

/** What needs a hand, the worst first: `{ kind, text, command, href }`. */
function problemsOf() {
  const list = [];
  const add = (kind, text, more = {}) => list.push({ kind, text, ...more });
  const node = status.value;
  if (node) {
    const { roster: state, oracle } = node;
    if (!state) add("bad", "This node has no roster yet, so it serves nobody.", { command: "thalweg status" });
    if (state?.fault) add("bad", `The roster is not valid: ${state.fault}`, { command: "thalweg status" });
    if (state?.fork) add("bad", `Another host seems to sign with the mesh's key: ${state.fork}`);
    if (state?.left && seconds(state.left) < SOON) add("warn", `The roster ends in ${duration(seconds(state.left))}; it is renewed once the oracle answers.`);
    if (!oracle.reached) add("warn", `The oracle does not answer: ${oracle.error ?? "no reason is known"}. Nodes work on until the roster ends.`);
    if (node.restart) add("warn", `Restart this node: ${node.restart}`, { command: "thalweg node" });
    if (node.carrier && !node.carrier.is_up) add("warn", `The carrier is down: ${node.carrier.why ?? "no reason is known"}`, { href: "#/streams" });
    if (node.calibration && !node.calibration.is_valid) add("warn", "This host was too busy when it was calibrated, so its probe trains do not count.", { href: "#/streams" });
    if (Math.abs(oracle.clock_ahead_s ?? 0) > 30) add("warn", `The clocks of this host and the oracle differ by ${duration(Math.abs(oracle.clock_ahead_s))}.`);
    const quiet = (oracle.members ?? []).filter((one) => one.seen && seconds(one.seen) > QUIET);
    if (quiet.length) add("warn", `${plural(quiet.length, "member was", "members were")} not heard for over 10 minutes: ${quiet.slice(0, 5).map((one) => one.name).join(", ")}${quiet.length > 5 ? " …" : ""}`, { href: "#/members" });
  }
  const paths = pathDocument.value?.paths;
  if (paths?.down?.length) add("bad", `${plural(paths.down.length, "node does", "nodes do")} not respond: ${paths.down.slice(0, 5).map((one) => one.node).join(", ")}${paths.down.length > 5 ? " …" : ""}`, { href: "#/paths" });
  if (paths?.disagreements?.length) add("warn", `${plural(paths.disagreements.length, "measurement disagrees", "measurements disagree")} between the two ends.`, { href: "#/paths" });
  if (paths?.measuring && !paths.measuring.enabled) add("warn", "The oracle orders no measurements: set `enabled` in `[oracle.measure]` on its host.", { href: "#/paths" });
  for (const process of processesOf(interfaces.value)) {
    for (const why of process.faults ?? []) add("warn", why, { href: "#/interfaces" });
    for (const one of process.interfaces ?? []) {
      if (one.doubt) add("warn", `${one.name} is left out: ${one.doubt === "impostor" ? "another host answers on it, perhaps a captive portal" : "the latest connections over it failed"}`, { href: "#/interfaces" });
      if (one.cap_is_used_up) add("warn", `The cap of ${one.name} is used up until day ${one.reset_day}.`, { href: "#/interfaces" });
      if (one.fault) add("warn", `The cap of ${one.name} cannot be enforced: ${one.fault}`, { href: "#/interfaces" });
    }
  }
  for (const job of (jobs.value ?? []).filter((one) => one.state === "failed").slice(0, 5)) add("bad", `Job ${job.id} (${job.verb}) failed: ${job.error ?? `exit code ${job.exit_code}`}`, { href: `#/jobs/${job.id}` });
  const unique = [...new Map(list.map((one) => [one.text, one])).values()];
  return unique.sort((a, b) => (a.kind === "bad" ? 0 : 1) - (b.kind === "bad" ? 0 : 1));
}

function Problems({ list }) {
  if (!status.value) return null;
  if (!list.length) return <p class="all-well"><Icon name="done" /> Nothing needs your hand.</p>;
  return (
    <Card title={`${plural(list.length, "thing needs", "things need")} a look`} kind="warning">
      <ul class="problems">
        {list.slice(0, 12).map((one) => (
          <li key={one.text} class={one.kind}><Icon name="warn" /><div><Prose text={one.text} />{one.href && <> <a href={one.href}>Look at it<span class="unseen">: {one.text}</span></a></>}{one.command && <Command line={one.command} label="Find out more" />}</div></li>
        ))}
      </ul>
      {list.length > 12 && <p class="muted">… and {list.length - 12} more</p>}
    </Card>
  );
}
