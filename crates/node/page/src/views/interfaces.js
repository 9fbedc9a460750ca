// The bond view: what each interface and each program does, and the policies that decide it.

import { useMemo, useState } from "preact/hooks";
import { changeInterfaces, interfaceHistory, interfaces, processesOf, programHistory } from "../store.js";
import { ago, commandLine, count, duration, percent, plural, rate, seconds, size } from "../format.js";
import { Badge, Button, Card, Command, Empty, Facts, Fault, Progress, Segments, Sparkline, useDocuments } from "../parts/basics.js";
import { HistoryChart } from "../parts/chart.js";
import { DataTable } from "../parts/lists.js";
import { Head } from "./head.js";

const SCHEDULES = {
  "only-one": "the system's first choice alone", "round-robin": "in turn", "weighted-round-robin": "in turn, in proportion to the rates",
  "maximum-throughput": "where all current work and the new connection finish first",
};
const TIERS = { primary: "always used", secondary: "used while the primary ones are fully loaded or absent", backup: "used while no other is available", never: "not used" };

export function Interfaces() {
  useDocuments("interfaces");
  const processes = processesOf(interfaces.value);
  const [chosen, setChosen] = useState(null);
  // The first process to look at is one that has a choice.
  const at = Math.min(chosen ?? Math.max(0, processes.findIndex((one) => one.interfaces?.length > 1)), processes.length - 1);
  const process = processes[at];
  const broken = (interfaces.value?.processes ?? []).filter((one) => one.error);
  return (
    <>
      <Head title="Interfaces" aside={processes.length > 1 && <Segments label="Process" value={at} onChange={setChosen} options={processes.map((one, index) => [index, one.listen ? `proxy ${one.listen}` : `process ${one.pid}`])} />}>
        {process ? `${plural(process.interfaces?.length ?? 0, "interface")} in use${process.isKept ? "; no process runs, these are the stored records" : ""}` : "Several networks as one"}
      </Head>
      <Fault name="interfaces" />
      {broken.map((one) => <p class="fault" key={one.pid}>Process {one.pid}: {one.error}</p>)}
      {!process && interfaces.value && <Card><Empty title="No interface is known" command="thalweg interfaces status" commandLabel="The interfaces in a terminal">Start `thalweg proxy`, or set policies in `[interfaces]` of the settings.</Empty></Card>}
      {process && <Process key={process.pid} process={process} />}
    </>
  );
}

function Process({ process }) {
  const key = (name) => `${process.pid ?? ""} ${name}`;
  const list = process.interfaces ?? [];
  return (
    <>
      {(process.faults ?? []).map((why) => <p class="fault" key={why}>{why}</p>)}
      <div class="cards">{list.map((one) => <Interface key={one.name} one={one} history={interfaceHistory.get(key(one.name))} isFixed={process.isKept} />)}</div>
      {!list.length && <Card><Empty title="No interface has a route to the Internet" command="ip route" commandLabel="The host's routes">Connect a network; changes are seen within a second.</Empty></Card>}
      {list.length > 0 && <RateChart list={list} keyOf={key} />}
      <Programs process={process} />
      <Decisions process={process} />
      <Bonds process={process} />
      <div class="columns wide-right">
        <Schedule process={process} />
        <Rules process={process} names={list.map((one) => one.name)} />
      </div>
      {process.unused?.length > 0 && (
        <Card title="Not used">
          <DataTable caption="Interfaces that are not used" rows={process.unused} keyOf={(one) => one.name} columns={[{ id: "name", label: "Interface", value: (one) => one.name }, { id: "why", label: "Because", isWide: true, value: (one) => one.why }]} />
        </Card>
      )}
    </>
  );
}

/** One chart of what all interfaces carry. */
function RateChart({ list, keyOf }) {
  const histories = list.map((one) => [one.name, interfaceHistory.get(keyOf(one.name))]).filter(([, history]) => history);
  const merged = histories.length ? { times: histories[0][1].times, series: new Map() } : null;
  let isCarried = false;
  for (const [name, history] of histories) {
    const carried = history.series.get("carried") ?? [];
    if (carried.some(Number.isFinite)) isCarried = true;
    merged.series.set(name, carried);
  }
  if (!isCarried) {
    // Without an account of bytes the estimates are what is known.
    for (const [name, history] of histories) merged.series.set(name, history.series.get("down") ?? []);
  }
  return <Card title={isCarried ? "What each interface carries" : "Rate down of each interface"}><HistoryChart title={isCarried ? "Both directions together" : "Estimates from traffic"} history={merged} pick={histories.map(([name]) => [name, name, { isFilled: histories.length < 3 }])} height={190} /></Card>;
}

function Interface({ one, history, isFixed }) {
  const [isOpen, setOpen] = useState(false);
  const notes = notesOf(one);
  const isOut = Boolean(one.doubt) || one.cap_is_used_up || one.tier === "never";
  const carried = history?.last("carried");
  return (
    <Card title={one.name} level={2} kind={isOut ? "dim" : ""} aside={<>{isFixed ? <Badge kind="quiet" title={TIERS[one.tier]}>{one.tier}</Badge> : <TierChoice one={one} />}{isOut && <Badge kind="warn">left out</Badge>}</>}>
      <div class="if-rates">
        <div><span>Down</span><b>{rate(one.down_bps ?? NaN)}</b></div>
        <div><span>Up</span><b>{rate(one.up_bps ?? NaN)}</b></div>
        <div><span>Carries now</span><b>{Number.isFinite(carried) ? rate(carried) : "–"}</b></div>
      </div>
      <Sparkline history={history} name="carried" width="100%" height={38} />
      <Facts rows={[
        ["Round trip", one.rtt_seconds == null ? "–" : duration(one.rtt_seconds)],
        ["Loss", one.loss == null ? "–" : `${(one.loss * 100).toFixed(1)} %`],
        ["Rate heard", one.heard_seconds_ago == null ? (one.heard_by ? "long ago" : "–") : `${ago(one.heard_seconds_ago)}${one.heard_by === "probe" ? ", by a probe" : ""}`],
        ["Open", plural(one.connections ?? 0, "connection")],
        ["Expected work", size(one.load_bytes ?? NaN)],
        ["Used", `${size(one.used_bytes ?? NaN)}${one.cap_bytes ? ` of ${size(one.cap_bytes)}` : ""}`],
      ]} />
      {one.cap_bytes > 0 && <Progress done={one.used_bytes} total={one.cap_bytes} label={`Use of the cap of ${one.name}`} kind={one.cap_is_used_up ? "bad" : ""} />}
      {notes.length > 0 && <ul class="notes">{notes.map(([note, isWarning]) => <li key={note} class={isWarning ? "warn-text" : ""}>{note}</li>)}</ul>}
      {!isFixed && (
        <details onToggle={(event) => setOpen(event.currentTarget.open)}>
          <summary>Change how {one.name} may be used</summary>
          {isOpen && <Policy one={one} />}
        </details>
      )}
    </Card>
  );
}

/** Everything out of the ordinary about an interface, as `thalweg interfaces status` tells it. */
function notesOf(one) {
  const warnings = [
    one.doubt === "impostor" ? "left out: another host answers than the one that was asked (a captive portal?)" : one.doubt ? "left out: the latest connections over it failed" : null,
    one.cap_is_used_up ? `its cap is used up until day ${one.reset_day ?? "–"}` : null,
    one.fault ? `its cap cannot be enforced: ${one.fault}` : null,
    one.probe_failure,
  ];
  const remarks = [
    one.ipv4 === false && one.ipv6 ? "IPv6 only" : null,
    one.rate_limit_bps ? `at most ${rate(one.rate_limit_bps)}` : null,
    one.metered ? "metered" : null,
    one.price_per_gb > 0 ? `${one.price_per_gb} / GB` : null,
    one.beside_tunnel ? "used beside a tunnel" : null,
    one.probe_bytes > 0 ? `${size(one.probe_bytes)} of probes` : null,
    one.duplicate_bytes > 0 ? `${size(one.duplicate_bytes)} sent or fetched twice` : null,
  ];
  return [...warnings.filter(Boolean).map((note) => [note, true]), ...remarks.filter(Boolean).map((note) => [note, false])];
}

/** Makes the change of a choice. A choice that was refused shows again what holds. */
async function choose(select, before, ...change) {
  if (!(await changeInterfaces(...change))) select.value = before;
}

/** When an interface is used; a change applies at once. */
function TierChoice({ one }) {
  const set = ({ currentTarget: select }) => {
    const tier = select.value;
    choose(select, one.tier, "PUT", `${encodeURIComponent(one.name)}/policy`, { tier }, `${one.name} is ${tier} now: ${TIERS[tier]}.`);
  };
  return (
    <select class="small" aria-label={`Tier of ${one.name}`} title={TIERS[one.tier]} value={one.tier} onChange={set}>
      {Object.entries(TIERS).map(([tier, words]) => <option key={tier} value={tier} title={words}>{tier}</option>)}
    </select>
  );
}

/** The fields of a policy, with the options of `thalweg interfaces allow`. */
const POLICY = [
  ["rate_limit", "--rate-limit", "Most it carries", "20 Mbit/s, or none"],
  ["cap", "--cap", "Cap of a month", "10 GB, or none"],
  ["reset_day", "--reset-day", "The month begins on day", "1"],
  ["price", "--price", "Price", "5 / GB, or none"],
];

const SWITCHES = [
  ["metered", "--metered", "Metered", "true: no probes, nothing twice"],
  ["spend", "--spend", "Probes although it is metered", "true"],
  ["beside_tunnel", "--beside-tunnel", "Used beside a tunnel", "true: it bypasses the VPN"],
];

const LASTS = <p class="muted">Applies to running processes until they end; permanent changes belong in <code>[interfaces]</code> of the settings.</p>;

function Policy({ one }) {
  const [values, setValues] = useState({});
  const set = (id) => ({ currentTarget: { value } }) => setValues((before) => ({ ...before, [id]: value }));
  const args = ["interfaces", "allow", one.name];
  const body = {};
  for (const [id, option] of [...POLICY, ...SWITCHES]) {
    const value = values[id]?.trim();
    if (!value) continue;
    args.push(option, value);
    body[id] = id === "reset_day" ? Number(value) : value === "true" || value === "false" ? value === "true" : value;
  }
  const apply = async (event) => {
    event.preventDefault();
    if (await changeInterfaces("PUT", `${encodeURIComponent(one.name)}/policy`, body, `${one.name} is used as you chose.`)) setValues({});
  };
  const isChanged = args.length > 3;
  return (
    <form class="policy" onSubmit={apply} aria-label={`Policy of ${one.name}`}>
      {[POLICY.slice(0, 2), POLICY.slice(2)].map((row, index) => (
        <div class="field-row" key={index}>
          {row.map(([id, , label, hint]) => <label class="field" key={id}><span>{label}</span><input name={id} placeholder={hint} inputMode={id === "reset_day" ? "numeric" : "text"} value={values[id] ?? ""} onInput={set(id)} /></label>)}
        </div>
      ))}
      {SWITCHES.map(([id, , label, hint]) => (
        <label class="field" key={id}><span>{label}</span><select name={id} value={values[id] ?? ""} onChange={set(id)}><option value="">unchanged</option><option value="true">{hint}</option><option value="false">false</option></select></label>
      ))}
      <Button type="submit" label="Apply" kind="primary" disabled={!isChanged} />
      {isChanged && <Command line={commandLine(args)} label="The same in a terminal" />}
      {LASTS}
    </form>
  );
}

function Programs({ process }) {
  const connections = process.connections ?? [];
  const by = useMemo(() => {
    const found = new Map();
    for (const one of connections) {
      const key = `${one.process} ${one.port}`;
      const counts = found.get(key) ?? new Map();
      counts.set(one.interface, (counts.get(one.interface) ?? 0) + 1);
      found.set(key, counts);
    }
    return found;
  }, [process]);
  const rows = process.applications ?? [];
  const columns = [
    { id: "process", label: "Program", value: (row) => row.process ?? "", cell: (row) => row.process ?? "unknown" },
    { id: "port", label: "Port", isNumber: true, value: (row) => row.port },
    { id: "nature", label: "Nature", value: (row) => row.nature ?? "", cell: (row) => <Badge kind="quiet">{row.nature ?? "unknown"}</Badge> },
    { id: "demand", label: "Moves on average", isNumber: true, value: (row) => row.demand_bytes, cell: (row) => size(row.demand_bytes) },
    { id: "connections", label: "Connections", isNumber: true, value: (row) => row.connections, cell: (row) => count(row.connections) },
    { id: "now", label: "New ones a second", value: (row) => programHistory.get(`${process.pid ?? ""} ${row.process} ${row.port}`)?.last("connections"), cell: (row) => <Sparkline history={programHistory.get(`${process.pid ?? ""} ${row.process} ${row.port}`)} name="connections" width={90} /> },
    { id: "by", label: "Its last connections went by", isWide: true, cell: (row) => [...(by.get(`${row.process} ${row.port}`) ?? [])].map(([name, n]) => <Badge key={name} kind="quiet">{name} {n}</Badge>) },
  ];
  return <Card title="Programs"><DataTable caption="Programs and their traffic" columns={columns} rows={rows} keyOf={(row) => `${row.process} ${row.port}`} sort={{ id: "connections", isDown: true }} most={360} empty={<Empty title="No program yet" command="thalweg run curl -O https://example.org/big.iso" commandLabel="Run a program over all interfaces">Programs that use `thalweg proxy` or `thalweg run` appear here.</Empty>} /></Card>;
}

function Decisions({ process }) {
  const rows = process.connections ?? [];
  if (!rows.length) return null;
  const columns = [
    { id: "ago", label: "When", value: (row) => row.ago_seconds, cell: (row) => ago(row.ago_seconds) },
    { id: "process", label: "Program", value: (row) => row.process ?? "", cell: (row) => row.process ?? "unknown" },
    { id: "to", label: "To", isWide: true, value: (row) => `${row.to}:${row.port}` },
    { id: "interface", label: "By", value: (row) => row.interface, cell: (row) => <b>{row.interface}</b> },
    { id: "why", label: "Because", isWide: true, value: (row) => row.why },
  ];
  return <Card title="The last connections"><DataTable caption="The last connections and why they took their interface" columns={columns} rows={rows.map((row, index) => ({ ...row, index }))} keyOf={(row) => row.index} sort={{ id: "ago", isDown: false }} most={320} /></Card>;
}

function Bonds({ process }) {
  const rows = [...(process.bonds ?? []), ...(process.bonds_of_others ?? [])].flatMap((bond) => {
    const member = bond.name ?? String(bond.member ?? "").slice(0, 12);
    if (bond.none) return [{ key: `${member} none`, member, life: "none", why: `${bond.none} (asked again in ${duration(bond.again_seconds)})` }];
    const links = (bond.links ?? []).map((link, index) => ({ ...link, key: `${member} ${index}`, member, by: `${link.interface ?? "–"}${link.via ? ` via ${link.via}` : ""}` }));
    return links.concat(Object.entries(bond.without ?? {}).map(([by, why]) => ({ key: `${member} ${by}`, member, by, life: "no link", why })));
  });
  const columns = [
    { id: "member", label: "Bond with", value: (row) => row.member },
    { id: "by", label: "By", value: (row) => row.by ?? "", cell: (row) => row.by ?? "–" },
    { id: "life", label: "State", value: (row) => row.life, cell: (row) => <Badge kind={row.life === "alive" ? "good" : row.life === "silent" ? "warn" : "quiet"}>{row.life}</Badge> },
    { id: "rate", label: "Rate", isNumber: true, value: (row) => row.rate ?? "", cell: (row) => row.rate ?? "–" },
    { id: "rtt", label: "Round trip", isNumber: true, value: (row) => seconds(row.rtt), cell: (row) => duration(seconds(row.rtt)) },
    { id: "loss", label: "Loss", isNumber: true, value: (row) => row.loss, cell: (row) => (row.loss == null ? "–" : percent(row.loss)) },
    { id: "sent", label: "Sent", isNumber: true, value: (row) => row.sent, cell: (row) => size(row.sent) },
    { id: "received", label: "Received", isNumber: true, value: (row) => row.received, cell: (row) => size(row.received) },
    { id: "why", label: "Remark", isWide: true, value: (row) => row.why ?? "" },
  ];
  return <Card title="Bonds"><DataTable caption="Links of bonds" columns={columns} rows={rows} keyOf={(row) => row.key} most={320} empty={<Empty title="No bond now">Bonds with other members are made beside the first channel, where this host has several interfaces.</Empty>} /></Card>;
}

function Schedule({ process }) {
  const [affinity, setAffinity] = useState("");
  const keep = async (event) => {
    event.preventDefault();
    if (await changeInterfaces("PUT", "settings", { affinity: affinity.trim() }, `Destinations keep their interface for ${affinity.trim()}.`)) setAffinity("");
  };
  const isFixed = process.isKept;
  return (
    <Card title="Who gets the next connection">
      <p class="headline"><b>{process.schedule}</b>: {SCHEDULES[process.schedule] ?? ""}</p>
      <Facts rows={[
        ["Affinity", process.affinity_seconds ? duration(process.affinity_seconds) : "none"],
        ["Nearby hosts", process.near ? "assigned too" : "as the kernel decides"],
        ["Probes", size(process.spent_on_probes_bytes ?? NaN)],
      ]} />
      {!isFixed && (
        <div class="policy">
          <label class="field"><span>Choose by</span><select name="schedule" value={process.schedule} onChange={({ currentTarget: select }) => choose(select, process.schedule, "PUT", "settings", { schedule: select.value }, `Connections are assigned by ${select.value}.`)}>{Object.entries(SCHEDULES).map(([name, words]) => <option key={name} value={name}>{name}: {words}</option>)}</select></label>
          <label class="field"><span>Nearby hosts</span><select name="near" value={String(Boolean(process.near))} onChange={({ currentTarget: select }) => choose(select, String(Boolean(process.near)), "PUT", "settings", { near: select.value === "true" }, "Nearby hosts are treated as you chose.")}><option value="true">assigned too</option><option value="false">as the kernel decides</option></select></label>
          <form class="field-row" onSubmit={keep}>
            <label class="field"><span>A destination keeps its interface for</span><input name="affinity" placeholder="1 min, or 0 s" value={affinity} onInput={(event) => setAffinity(event.currentTarget.value)} /></label>
            <Button type="submit" label="Keep" disabled={!affinity.trim()} />
          </form>
          {LASTS}
        </div>
      )}
    </Card>
  );
}

function Rules({ process, names }) {
  const [values, setValues] = useState({ action: "only" });
  const set = (id) => ({ currentTarget: { value } }) => setValues((before) => ({ ...before, [id]: value }));
  const rules = process.rules ?? [];
  const args = ["interfaces", "rule"];
  const body = {};
  for (const id of ["process", "port", "destination"]) {
    const value = values[id]?.trim();
    if (!value) continue;
    args.push(`--${id}`, value);
    body[id] = id === "port" ? Number(value) : value;
  }
  const isWhole = args.length > 2 && values.interface;
  if (values.interface) {
    args.push(`--${values.action}`, values.interface);
    body[values.action] = [values.interface];
  }
  const add = async (event) => {
    event.preventDefault();
    if (await changeInterfaces("POST", "rules", body, "The rule applies to new connections.")) setValues({ action: "only" });
  };
  const columns = [
    { id: "number", label: "Rule", isNumber: true, value: (row) => row.number },
    { id: "process", label: "Program", value: (row) => row.process ?? "", cell: (row) => row.process ?? "all" },
    { id: "port", label: "Port", isNumber: true, value: (row) => row.port, cell: (row) => row.port ?? "all" },
    { id: "to", label: "To", value: (row) => row.destination ?? "", cell: (row) => row.destination ?? "all" },
    { id: "what", label: "Uses", isWide: true, cell: (row) => ["only", "prefer", "avoid"].filter((action) => row[action]).map((action) => `${action} ${row[action].join(", ")}`).join("; ") },
    { id: "remove", label: "Remove", cell: (row) => <Button icon="forget" hidesLabel label={`Remove rule ${row.number}`} onClick={() => changeInterfaces("DELETE", `rules/${row.number}`, undefined, `Rule ${row.number} is removed.`)} /> },
  ];
  return (
    <Card title="Rules for programs">
      <DataTable caption="Rules; the first that matches applies" columns={process.isKept ? columns.slice(0, -1) : columns} rows={rules.map((rule, index) => ({ ...rule, number: index + 1 }))} keyOf={(row) => row.number} rowHeight={44} empty={<p class="muted">No rule: every program may use every interface.</p>} />
      {!process.isKept && (
        <details>
          <summary>Add a rule</summary>
          <form class="policy" onSubmit={add} aria-label="A rule">
            <div class="field-row">
              <label class="field"><span>Program</span><input name="process" placeholder="zoom*" value={values.process ?? ""} onInput={set("process")} /></label>
              <label class="field"><span>Port</span><input name="port" inputMode="numeric" placeholder="22" value={values.port ?? ""} onInput={set("port")} /></label>
              <label class="field"><span>Destination</span><input name="destination" placeholder="*.example.org" value={values.destination ?? ""} onInput={set("destination")} /></label>
            </div>
            <div class="field-row">
              <label class="field"><span>Uses</span><select name="action" value={values.action} onChange={set("action")}><option value="only">only</option><option value="prefer">first</option><option value="avoid">not</option></select></label>
              <label class="field"><span>Interface</span><select name="interface" value={values.interface ?? ""} onChange={set("interface")}><option value="">choose</option>{names.map((name) => <option key={name} value={name}>{name}</option>)}</select></label>
            </div>
            <Button type="submit" label="Add the rule" kind="primary" disabled={!isWhole} />
            {isWhole ? <Command line={commandLine(args)} label="The same in a terminal" /> : <p class="muted">Name a program, port or destination, and an interface.</p>}
          </form>
        </details>
      )}
    </Card>
  );
}
