// The mesh's paths: the matrix of rates, the graph, one path in detail, the candidates, and where a relay would help.

import { useEffect, useMemo, useState } from "preact/hooks";
import { ageNow, announce, estimateHistory, faults, matrix, me, pathDocument, relayNames, roster } from "../store.js";
import { ago, collator, commandLine, count, duration, gain, mbps, percent, plural, rate, seconds } from "../format.js";
import { detoursOf, gainOf, GOOD_GAIN, GOOD_RATE } from "../matrix-data.js";
import { Age, Badge, Button, Card, Command, Empty, Facts, Fault, Prose, Segments, useDocuments } from "../parts/basics.js";
import { Chart } from "../parts/chart.js";
import { Graph } from "../parts/graph.js";
import { DataTable } from "../parts/lists.js";
import { Matrix, describe } from "../parts/matrix.js";
import { Head } from "./head.js";

/** Plans ignore estimates that are older, s: 14 days (docs/gather.md). */
const MAX_AGE = 14 * 86_400;

export function Paths({ rest }) {
  useDocuments("paths", "roster");
  const [form, setForm] = useState(rest[0] === "graph" ? "graph" : "matrix");
  const [selected, setSelected] = useState(null);
  const found = matrix.value;
  const told = pathDocument.value;
  const down = useMemo(() => new Set((told?.paths?.down ?? []).map((one) => one.node)), [told]);
  const names = found?.names.join();
  useEffect(() => setSelected(null), [names]);
  const select = (cell) => {
    setSelected(cell);
    announce(`${describe(found, cell.from, cell.to)}. Details below.`);
  };
  if (!found && !told) return <><Head title="Paths">What is known of the paths between members</Head><Fault name="paths" />{!faults.value.paths && <p class="waiting">Waiting for the oracle's rates …</p>}</>;
  return (
    <>
      <Head title="Paths" aside={found && <Segments label="Form" value={form} onChange={setForm} options={[["matrix", "Matrix"], ["graph", "Graph"], ["table", "Table"]]} />}>
        {found ? <Summary matrix={found} told={told} /> : "No rates are known yet"}
      </Head>
      <Fault name="paths" />
      {!found || !found.legs ? (
        <Card><Empty title="No path is measured yet" command="thalweg measure NODE" commandLabel="Measure one path now">
          {told?.oracle?.trouble ? `The oracle did not answer: ${told.oracle.trouble}` : told?.paths?.measuring?.enabled === false ? "Measuring is off: set `enabled` in `[oracle.measure]` of the oracle's host." : "The oracle orders measurements once nodes have addresses. A measurement of your own fills a cell at once."}
        </Empty></Card>
      ) : (
        <>
          <Card>
            {form === "matrix" && <Matrix matrix={found} down={down} selected={selected} onSelect={select} />}
            {form === "graph" && <><Graph matrix={found} down={down} relays={relayNames.value} me={me.value} selected={selected} onSelect={(node) => setSelected(pairFrom(found, node))} /><NodeTable matrix={found} down={down} /></>}
            {form === "table" && <LegTable matrix={found} selected={selected} onSelect={select} />}
          </Card>
          {form === "matrix" && <p class="hint">The same as a table: <button type="button" class="link" onClick={() => setForm("table")}>all legs, sortable</button>.</p>}
          {selected && <Path matrix={found} told={told} cell={selected} onClose={() => setSelected(null)} />}
        </>
      )}
      <Troubles told={told} />
      <Advice advice={told?.advice} />
      <Candidates told={told} />
    </>
  );
}

/** From a node in the graph: its slowest measured path, which is the one to look at. */
function pairFrom(found, node) {
  let [best, least] = [-1, Infinity];
  for (let to = 0; to < found.size; to += 1) {
    const bps = found.rate[node * found.size + to];
    if (to !== node && bps > 0 && bps < least) [best, least] = [to, bps];
  }
  return best < 0 ? null : { from: node, to: best };
}

function Summary({ matrix: found, told }) {
  const methods = found.totals.methods.map(({ name, count: n }) => `${count(n)} by ${name}`).join(", ");
  const pairs = found.size * (found.size - 1);
  if (!found.legs) return <>{plural(found.size, "node")}, nothing is measured yet</>;
  return (
    <>
      {plural(found.size, "node")}, {count(found.legs)} of {count(pairs)} ordered pairs measured ({percent(found.legs / pairs)}), {duration(ageNow(found.totals.age))} old in the median; {methods}
      {told?.oracle && !told.oracle.answered && <Badge kind="warn">stored answer{told.oracle.paths_age_seconds != null && `, ${ago(ageNow(told.oracle.paths_age_seconds))}`}</Badge>}
    </>
  );
}

function Troubles({ told }) {
  const { down = [], disagreements = [], measuring } = told?.paths ?? {};
  if (!down.length && !disagreements.length && !measuring?.spent?.length && !measuring?.failed && measuring?.enabled !== false) return null;
  const said = (bps) => (bps == null ? "nothing" : rate(bps));
  return (
    <Card title="What hinders measuring" kind="warning">
      <ul class="plain-list">
        {measuring && !measuring.enabled && <li>Measuring is off: set <code>enabled</code> in <code>[oracle.measure]</code> of the oracle's host.</li>}
        {down.slice(0, 20).map((one) => <li key={one.node}><b>{one.node}</b> is down since {duration(seconds(one.since))}: <Prose text={one.why} /></li>)}
        {down.length > 20 && <li>… and {down.length - 20} more nodes that are down</li>}
        {disagreements.slice(0, 10).map((one, index) => (
          <li key={index}><b>{one.from} → {one.to}</b>: {one.by} reported {rate(one.claimed_bps)}, the other end measured {said(one.seen_bps)}, {said(one.believed_bps)} is used ({ago(seconds(one.age))})</li>
        ))}
        {disagreements.length > 10 && <li>… and {disagreements.length - 10} more disagreements</li>}
        {measuring?.spent?.length > 0 && <li>Today's bytes for measuring are used up at {measuring.spent.slice(0, 8).map((one) => one.node).join(", ")}{measuring.spent.length > 8 ? ` and ${measuring.spent.length - 8} more` : ""}.</li>}
        {measuring?.failed && <li>The last failed measurement, {ago(seconds(measuring.failed.age))}: {measuring.failed.from} → {measuring.failed.to}: {measuring.failed.why}</li>}
      </ul>
    </Card>
  );
}

/** One path: its estimate, how it developed, and why it is or is not used. */
function Path({ matrix: found, told, cell, onClose }) {
  const { from, to } = cell;
  const at = from * found.size + to;
  const [a, b] = [found.names[from], found.names[to]];
  const detours = useMemo(() => detoursOf(found, from, to, relayNames.value), [found, from, to, relayNames.value]);
  const history = estimateHistory.get(`${a}→${b}`);
  const candidates = new Map((told?.candidates ?? []).map((one) => [one.relay, one]));
  const direct = found.rate[at];
  const columns = [
    { id: "relay", label: "Relay", value: (row) => found.names[row.relay] },
    { id: "first", label: `${a} → relay`, isNumber: true, value: (row) => row.first, cell: (row) => mbps(row.first) },
    { id: "second", label: `relay → ${b}`, isNumber: true, value: (row) => row.second, cell: (row) => mbps(row.second) },
    { id: "rate", label: "Whole, Mbit/s", isNumber: true, value: (row) => row.rate, cell: (row) => <b>{row.atLeast ? "≥" : ""}{mbps(row.rate)}</b> },
    { id: "gain", label: "Gain", isNumber: true, value: (row) => row.rate / direct - 1, cell: (row) => <span class={row.rate > direct ? "up" : "muted"}>{gain(row.rate / direct - 1)}</span> },
    { id: "why", label: a === me.value ? "Used by this host?" : `At ${me.value}`, isWide: true, value: (row) => candidates.get(found.names[row.relay])?.why ?? "", cell: (row) => (candidates.has(found.names[row.relay]) ? <Prose text={candidates.get(found.names[row.relay]).why} /> : <span class="muted">not in this host's list</span>) },
  ];
  return (
    <Card title={`${a} → ${b}`} aside={<Button icon="cancel" label="Close this path" hidesLabel onClick={onClose} />} id="path">
      {direct >= 0 ? (
        <Facts rows={[
          ["Rate", <b>{found.atLeast[at] ? "≥" : ""}{rate(direct)}</b>],
          ["Spread", found.spread[at] >= 0 ? `±${rate(found.spread[at])}` : "one sample"],
          ["Age", <Age seconds={ageNow(found.age[at])} />],
          ["Method", found.methods[found.method[at]]],
          ["Kind", found.atLeast[at] ? "lower bound" : "exact"],
          found.rtt[at] >= 0 && ["Round trip", duration(found.rtt[at])],
          found.available[at] >= 0 && ["Unused by others", rate(found.available[at]), "The available bandwidth that probe trains measured"],
          ["The other way", found.rate[to * found.size + from] >= 0 ? rate(found.rate[to * found.size + from]) : "not measured"],
        ]} />
      ) : <Empty title="This path is not measured" command={commandLine(["measure", a === me.value ? b : a])} commandLabel="Measure a path from this host">The oracle measures only a part of all pairs.</Empty>}
      <p class="sentence"><Why matrix={found} at={at} detours={detours} candidates={candidates} a={a} b={b} /></p>
      <div class={history?.length > 1 ? "pair" : ""}>
        <DataTable caption={`Detours from ${a} to ${b}`} columns={columns} rows={detours.slice(0, 40)} keyOf={(row) => row.relay} sort={{ id: "rate", isDown: true }} most={300}
          empty={<Empty title="No measured detour">A detour needs a relay with both legs measured.</Empty>} />
        {history?.length > 1 && <Chart title="This estimate since the page was opened" times={history.map(([time]) => time)} series={[{ name: "rate", label: "estimate", values: history.map(([, bps]) => bps), isFilled: true }]} height={170} />}
      </div>
    </Card>
  );
}

function Why({ matrix: found, at, detours, candidates, a, b }) {
  const direct = found.rate[at];
  const best = detours.find((row) => !row.atLeast);
  const name = best && found.names[best.relay];
  const candidate = candidates.get(name);
  const isGood = best && (!(direct > 0) || (best.rate / direct - 1 >= GOOD_GAIN && best.rate - direct >= GOOD_RATE));
  const parts = [];
  if (!(direct >= 0)) parts.push("Nothing is known of the direct path, so plans do not use it.");
  else if (found.atLeast[at]) parts.push("The rate is a lower bound: the transfer ended before the path was at its limit. Plans of detours ignore it.");
  else if (ageNow(found.age[at]) > MAX_AGE) parts.push("The estimate is older than 14 days, so plans ignore it.");
  if (isGood) {
    parts.push(`A detour by ${name} carries ${rate(best.rate)}${direct > 0 ? `, ${gain(best.rate / direct - 1)} against the direct path` : ""}.`);
    if (candidate) parts.push(a === me.value ? `This host's downloads: ${candidate.why}.` : `At ${me.value} the relay is a candidate: ${candidate.why}.`);
    else if (a === me.value) parts.push("It is not among this host's candidates; a download can name it with --via.");
  } else if (direct > 0) {
    parts.push(`No detour is 20 % and 1 Mbit/s faster${best ? ` (the best, by ${name}, carries ${rate(best.rate)})` : ""}, so the direct path from ${a} to ${b} is the best known.`);
  }
  return <Prose text={parts.join(" ")} />;
}

/** The table twin of the matrix. */
function LegTable({ matrix: found, selected, onSelect }) {
  const rows = useMemo(() => {
    const list = [];
    for (let at = 0; at < found.rate.length; at += 1) if (found.rate[at] >= 0) list.push(at);
    return list;
  }, [found]);
  const { size, names } = found;
  // Ninety thousand rows are sorted by the ranks of names, not by the names.
  const rank = useMemo(() => {
    const ranks = new Map([...names].sort(collator.compare).map((name, index) => [name, index]));
    return names.map((name) => ranks.get(name));
  }, [names.join()]);
  const columns = useMemo(() => [
    { id: "from", label: "From", value: (at) => rank[Math.floor(at / size)], cell: (at) => names[Math.floor(at / size)] },
    { id: "to", label: "To", value: (at) => rank[at % size], cell: (at) => names[at % size] },
    { id: "rate", label: "Mbit/s", isNumber: true, value: (at) => found.rate[at], cell: (at) => <b>{found.atLeast[at] ? "≥" : ""}{mbps(found.rate[at])}</b> },
    { id: "spread", label: "Spread", isNumber: true, value: (at) => found.spread[at], cell: (at) => (found.spread[at] >= 0 ? `±${mbps(found.spread[at])}` : "–") },
    { id: "method", label: "Method", value: (at) => found.method[at], cell: (at) => found.methods[found.method[at]] },
    { id: "age", label: "Age", isNumber: true, value: (at) => found.age[at], cell: (at) => duration(ageNow(found.age[at])) },
    { id: "rtt", label: "Round trip", isNumber: true, value: (at) => found.rtt[at], cell: (at) => (found.rtt[at] >= 0 ? duration(found.rtt[at]) : "–") },
    { id: "via", label: "Best detour", value: (at) => (found.via[at] >= 0 ? rank[found.via[at]] : NaN), cell: (at) => (found.via[at] >= 0 ? names[found.via[at]] : "–") },
    { id: "detour", label: "Mbit/s by it", isNumber: true, value: (at) => found.detour[at], cell: (at) => mbps(found.detour[at]) },
    { id: "gain", label: "Gain", isNumber: true, value: (at) => gainOf(found, at), cell: (at) => gain(gainOf(found, at)) },
  ], [found]);
  const key = selected && selected.from * size + selected.to;
  return <DataTable caption="All measured legs" columns={columns} rows={rows} keyOf={(at) => at} sort={{ id: "rate", isDown: true }} most={600} onSelect={(at) => onSelect({ from: Math.floor(at / size), to: at % size })} selected={key} />;
}

/** The table twin of the graph. */
function NodeTable({ matrix: found, down }) {
  const rows = found.nodes;
  const roles = new Map((roster.value?.members ?? []).map((member) => [member.name, member.roles.join(", ")]));
  const columns = [
    { id: "name", label: "Node", value: (row) => row.name, cell: (row) => <>{row.name} {down.has(row.name) && <Badge kind="bad">down</Badge>}</> },
    { id: "out", label: "Out, Mbit/s", isNumber: true, value: (row) => row.out, cell: (row) => mbps(row.out) },
    { id: "in", label: "In, Mbit/s", isNumber: true, value: (row) => row.into, cell: (row) => mbps(row.into) },
    { id: "measured", label: "Measured legs", isNumber: true, value: (row) => row.measured, cell: (row) => `${row.measured} of ${2 * (found.size - 1)}` },
    { id: "age", label: "Median age", isNumber: true, value: (row) => row.age, cell: (row) => duration(ageNow(row.age)) },
    { id: "roles", label: "Roles", value: (row) => roles.get(row.name) ?? "" },
  ];
  return <details open={found.size <= 12}><summary>The nodes as a table</summary><DataTable caption="Nodes, by median rate" columns={columns} rows={rows} keyOf={(row) => row.name} sort={{ id: "out", isDown: true }} /></details>;
}

function Candidates({ told }) {
  const rows = told?.candidates ?? [];
  const columns = [
    { id: "relay", label: "Relay", value: (row) => row.relay, cell: (row) => <>{row.relay} {row.test && <Badge kind="quiet">test detour</Badge>}{row.quarantined && <Badge kind="bad">quarantine</Badge>}</> },
    { id: "score", label: "Score", isNumber: true, value: (row) => row.score, cell: (row) => <b>{gain(row.score)}</b> },
    { id: "oracle", label: "Oracle's score", isNumber: true, value: (row) => row.oracle_score, cell: (row) => gain(row.oracle_score ?? NaN) },
    { id: "evidence", label: "Pairs", isNumber: true, value: (row) => row.evidence, cell: (row) => count(row.evidence ?? NaN) },
    { id: "age", label: "Age", isNumber: true, value: (row) => row.age_seconds, cell: (row) => duration(ageNow(row.age_seconds ?? NaN)) },
    { id: "load", label: "Load", isNumber: true, value: (row) => row.load, cell: (row) => (row.load == null ? "–" : percent(row.load)) },
    { id: "tried", label: "Tried", isNumber: true, value: (row) => row.tried, cell: (row) => count(row.tried) },
    { id: "why", label: "Why it is or is not used", isWide: true, value: (row) => row.why, cell: (row) => <Prose text={row.why} /> },
  ];
  return (
    <Card title="Relays that this host's downloads try" aside={told?.oracle?.candidates_age_seconds != null && <span class="muted">list asked for {ago(ageNow(told.oracle.candidates_age_seconds))}</span>}>
      <DataTable caption="Candidates for relays" columns={columns} rows={rows} keyOf={(row) => row.relay} sort={{ id: "score", isDown: true }}
        empty={<Empty title="No candidates" command="thalweg mesh token --role relay" commandLabel="Let another host relay">The oracle ranks no relays yet, so the first relays of the roster are tried.</Empty>} />
    </Card>
  );
}

/** Where one more relay would help: no other system tells it. */
function Advice({ advice }) {
  if (!advice) {
    return (
      <Card title="One more relay here would bring …">
        <Empty title="Not known here" command="thalweg paths --advise" commandLabel="Ask for advice">It needs measured pairs with detours. The command prints the reason, or the advice.</Empty>
      </Card>
    );
  }
  const worth = (site) => (site.is_relay ? site.gives : site.adds);
  const sites = advice.sites ?? [];
  const further = sites.filter((site) => !site.is_relay && site.adds > 0);
  const present = sites.filter((site) => site.is_relay && site.gives > 0);
  const best = [...further].sort((x, y) => y.adds - x.adds)[0];
  const siteColumns = (isRelay) => [
    { id: "node", label: isRelay ? "Relay" : "Place", value: (site) => site.node },
    { id: "worth", label: isRelay ? "Gives" : "Adds", isNumber: true, value: worth, cell: (site) => <b>{gain(worth(site))}</b> },
    { id: "pairs", label: isRelay ? "Best for pairs" : "Pairs cured", isNumber: true, value: (site) => (isRelay ? site.carries : site.helps), cell: (site) => count(isRelay ? site.carries : site.helps) },
    { id: "evidence", label: "Of known", isNumber: true, value: (site) => site.evidence, cell: (site) => count(site.evidence) },
  ];
  const poorColumns = [
    { id: "pair", label: "Pair", value: (pair) => `${pair.from} → ${pair.to}` },
    { id: "direct", label: "Direct", isNumber: true, value: (pair) => pair.direct_bps, cell: (pair) => mbps(pair.direct_bps) },
    { id: "detour", label: "Detour", isNumber: true, value: (pair) => pair.detour_bps, cell: (pair) => mbps(pair.detour_bps ?? NaN) },
    { id: "cure", label: "By one at", value: (pair) => pair.cure ?? "", cell: (pair) => pair.cure ?? "–" },
    { id: "then", label: "Then, Mbit/s", isNumber: true, value: (pair) => pair.cure_bps, cell: (pair) => <b>{mbps(pair.cure_bps ?? NaN)}</b> },
  ];
  return (
    <Card title="One more relay here would bring …">
      <p class="headline">
        {best ? <><b>{gain(best.adds)}</b> on the mean of all measured pairs, if <b>{best.node}</b> relayed; it would cure {plural(best.helps, "pair")}.</>
          : "No further member would add a better detour as a relay."}
      </p>
      <p class="sentence">{plural(advice.pairs, "measured pair")}; {percent(advice.pairs_with_a_good_detour / advice.pairs)} have a good detour (20 % and 1 Mbit/s more); the best one gains {gain(advice.mean_best_gain)} on average.</p>
      <div class="columns three">
        <div><h3>Let it relay, or place a relay near it</h3><DataTable caption="Places for a further relay" columns={siteColumns(false)} rows={further} keyOf={(site) => site.node} sort={{ id: "worth", isDown: true }} most={280} empty={<p class="muted">None would help.</p>} /></div>
        <div><h3>What the present relays give</h3><DataTable caption="Gain by present relays" columns={siteColumns(true)} rows={present} keyOf={(site) => site.node} sort={{ id: "worth", isDown: true }} most={280} empty={<p class="muted">No relay is the best detour of any pair.</p>} /></div>
        <div><h3>The slowest pairs without a good detour</h3><DataTable caption="Slow pairs" columns={poorColumns} rows={advice.poor ?? []} keyOf={(pair) => `${pair.from} ${pair.to}`} sort={{ id: "direct", isDown: false }} most={280} empty={<p class="muted">Every measured pair has a good detour.</p>} /></div>
      </div>
      {advice.tags?.length > 0 && <p class="sentence">By tag, the mean over its nodes: {advice.tags.slice(0, 8).map((tag, index) => <span key={tag.tag}>{index ? ", " : ""}<code>{tag.tag}</code> {gain(tag.worth)}</span>)}.</p>}
      {best && <Command line="thalweg mesh token --role relay" label="A token for a host that relays" />}
    </Card>
  );
}
