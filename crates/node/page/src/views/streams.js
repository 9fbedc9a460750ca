// Streams over time, and probe trains with their riders.

import { legHistory, me, riderHistory, status } from "../store.js";
import { count, duration, mbps, percent, plural, rate, seconds, size } from "../format.js";
import { Badge, Card, Empty, Facts, Fault, Sparkline, useDocuments } from "../parts/basics.js";
import { HistoryChart } from "../parts/chart.js";
import { DataTable } from "../parts/lists.js";
import { Head } from "./head.js";

const CLASSES = ["tables", "audio", "key", "reference", "disposable"];
const milliseconds = (us) => (Number.isFinite(us) ? `${Math.round(us / 1000)} ms` : "–");

export function Streams() {
  useDocuments("status");
  const report = status.value?.streams;
  const streams = report?.streams ?? [];
  return (
    <>
      <Head title="Streams">{streams.length ? `${plural(streams.length, "stream")} at this node, ${plural(streams.reduce((n, s) => n + (s.legs?.length ?? 0), 0), "leg")}` : "Live media to many members, and what rides in probe trains"}</Head>
      <Fault name="status" />
      {report?.oracle?.standing === "down" && <p class="fault">No oracle answers, so the last plan stays in force: {report.oracle.why}</p>}
      {(report?.oracle?.refused ?? []).map((why) => <p class="fault" key={why}>Refused by the oracle: {why}</p>)}
      {streams.map((stream) => <Stream key={`${stream.name} ${stream.origin}`} stream={stream} oracle={report.oracle} />)}
      {status.value && !streams.length && (
        <Card title="Streams">
          <Empty title="No streams at this node" command="encoder | thalweg stream publish stage" commandLabel="Publish a stream">
            {report ? "Publish one here, or subscribe to one of another member with `thalweg stream subscribe`." : "This node takes part in no streams: set `[stream]` in its settings and restart it."}
          </Empty>
        </Card>
      )}
      <Trains />
    </>
  );
}

const rateOf = (stream) => (stream.rates ?? []).flat().reduce((sum, bps) => sum + bps, 0);

function Stream({ stream, oracle }) {
  const legs = stream.legs ?? [];
  const planned = oracle?.plan?.streams?.find((one) => one.stream === stream.name);
  const columns = [
    { id: "to", label: "To", value: (leg) => leg.to, cell: (leg) => <>{leg.to} {leg.taker === "local" && <Badge kind="quiet">program</Badge>}</> },
    { id: "sent", label: "Sent", isNumber: true, value: (leg) => leg.sent_bps, cell: (leg) => <span class="with-spark"><Sparkline history={legHistory.get(`${stream.name}→${leg.to}`)} name="sent" width={64} />{mbps(leg.sent_bps)}</span> },
    { id: "wanted", label: "of, Mbit/s", isNumber: true, value: (leg) => leg.wanted_bps, cell: (leg) => mbps(leg.wanted_bps) },
    { id: "level", label: "Level", value: (leg) => leg.gets?.level, cell: (leg) => <Badge kind={leg.gets?.level === leg.wants?.level ? "quiet" : "warn"}>{leg.gets?.level ?? "–"}</Badge> },
    { id: "age", label: "Age there", isNumber: true, value: (leg) => leg.child_age_us, cell: (leg) => milliseconds(leg.child_age_us) },
    { id: "queue", label: "Queue", isNumber: true, value: (leg) => leg.queue_us, cell: (leg) => milliseconds(leg.queue_us) },
    { id: "rtt", label: "Round trip", isNumber: true, value: (leg) => leg.rtt_us, cell: (leg) => milliseconds(leg.rtt_us) },
    { id: "dropped", label: "Dropped", isWide: true, value: (leg) => dropCount(leg), cell: (leg) => drops(leg) },
    { id: "why", label: "Why this level", isWide: true, value: (leg) => leg.why, cell: (leg) => <>{leg.why || "–"}{leg.estimate && <span class="muted"> ({rate(leg.estimate[0])}, {duration(leg.estimate[1])} before)</span>}</> },
  ];
  const source = stream.published_by ? `published by ${stream.published_by}` : stream.parent ? `from ${stream.parent}` : "no source at present";
  return (
    <Card title={stream.name ?? "without a name"} aside={<Badge kind={stream.ended ? "bad" : "good"}>{stream.ended ? `ended: ${stream.ended}` : "live"}</Badge>}>
      <Facts rows={[
        ["Rate", rate(rateOf(stream))], ["Origin", stream.origin], ["Source here", source], ["Age here", milliseconds(stream.age_us)],
        ["Worst age", milliseconds(stream.worst_us)], ["Latency", `${stream.latency_ms} ms`], ["Held", size(stream.held_bytes)],
        stream.tracks?.length && ["Tracks", stream.tracks.join(", ")],
      ]} />
      {(planned?.subscriptions ?? []).map((given, index) => (
        <p class="sentence" key={index}>Plan: {planned.parent ? `from ${planned.parent}, ` : ""}{given.why?.reason}{given.why?.since ? `, ${duration(seconds(given.why.since) + (oracle.plan_age_s ?? 0))} ago` : ""}
          {given.why?.estimate?.bps ? `; the leg carried ${rate(given.why.estimate.bps)}` : ""}.</p>
      ))}
      {legs.length > 0 && <DataTable caption={`Legs of ${stream.name}`} columns={columns} rows={legs} keyOf={(leg) => leg.to} />}
      {legs.slice(0, 6).map((leg) => (
        <div class="pair" key={leg.to}>
          <HistoryChart title={`${stream.name} → ${leg.to}: rate`} history={legHistory.get(`${stream.name}→${leg.to}`)} pick={[["sent", "sent", { isFilled: true }], ["wanted", "wanted", { isDashed: true }], ["limit", "limit of the leg", { isDashed: true }]]} height={140} />
          <HistoryChart title={`${stream.name} → ${leg.to}: age of frames`} history={legHistory.get(`${stream.name}→${leg.to}`)} pick={[["age", "age there", { isFilled: true }], ["queue", "queue"]]} unit="ms" scale={1} format={(v) => (Number.isFinite(v) ? Math.round(v).toString() : "–")} height={140} />
        </div>
      ))}
    </Card>
  );
}

const dropCount = (leg) => Object.values(leg.dropped ?? {}).flat().reduce((sum, n) => sum + n, 0);

function drops(leg) {
  const parts = Object.entries(leg.dropped ?? {}).map(([why, counts]) => {
    const told = counts.map((n, index) => n && `${count(n)} ${CLASSES[index]}`).filter(Boolean);
    return told.length ? `${why}: ${told.join(", ")}` : null;
  });
  return parts.filter(Boolean).join("; ") || "none";
}

function Trains() {
  const node = status.value;
  if (!node) return null;
  const { carrier, calibration, overlay } = node;
  return (
    <>
      <Card title="Probe trains and their riders" aside={carrier && <Badge kind={carrier.is_up ? "good" : "bad"}>{carrier.is_up ? "carrier up" : "carrier down"}</Badge>}>
        {carrier?.why && <p class="fault">{carrier.why}</p>}
        {carrier ? <Carrier carrier={carrier} /> : (
          <Empty title="No packets ride here" command="thalweg carrier status" commandLabel="State of the carrier">The carrier lets application packets travel in the padding of probe trains. Set `[carrier]` in the settings of this node.</Empty>
        )}
      </Card>
      <div class="columns">
        <Card title="Calibration of this host">
          {calibration ? (
            <Facts rows={[
              ["Trains count", <Badge kind={calibration.is_valid ? "good" : "warn"}>{calibration.is_valid ? "yes" : "no: the host was busy"}</Badge>],
              ["Highest honest rate", rate(calibration.honest_bps)],
              ["Shortest gap", duration(calibration.shortest_gap_ns / 1e9)],
              ["Gap error, median and 99 %", (calibration.gap_error_ns ?? []).map((ns) => duration(ns / 1e9)).join(" and ")],
              ["Calibrated", `${duration(calibration.age_seconds)} ago`],
            ]} />
          ) : <Empty title="Not calibrated yet" command="thalweg measure NODE" commandLabel="Measure a path">The first measurement with probe trains calibrates this host.</Empty>}
        </Card>
        <Card title="Measurement overlay">
          {overlay ? (
            <Facts rows={[
              ["Links measured", count(overlay.measured)], ["Lower bounds", count(overlay.at_least)], ["Doubtful", count(overlay.doubtful)],
              ["Busy", count(overlay.busy)], ["Failed", count(overlay.failed)], ["Bytes sent", size(overlay.bytes)],
            ]} />
          ) : <Empty title="Off">Set `[measure]` in the settings to keep the links that this node uses measured.</Empty>}
        </Card>
      </div>
    </>
  );
}

function Carrier({ carrier }) {
  const share = (counts) => {
    const all = counts.carrying_probes + counts.empty_probes;
    return all ? counts.carrying_probes / all : NaN;
  };
  const ridden = (counts) => (counts.sent_bytes ? Math.min(1, counts.ridden_bytes / counts.sent_bytes) : NaN);
  const columns = [
    { id: "name", label: "Member", value: (one) => one.name },
    { id: "session", label: "Session", value: (one) => one.session, cell: (one) => <Badge kind={one.session === "open" ? "good" : "quiet"}>{one.session}</Badge> },
    { id: "packets", label: "Packets sent", isNumber: true, value: (one) => one.counts.sent_packets, cell: (one) => count(one.counts.sent_packets) },
    { id: "ridden", label: "Rode", isNumber: true, value: (one) => ridden(one.counts), cell: (one) => percent(ridden(one.counts)) },
    { id: "used", label: "Probes with riders", isNumber: true, value: (one) => share(one.counts), cell: (one) => percent(share(one.counts)) },
    { id: "late", label: "Timed out", isNumber: true, value: (one) => one.counts.timed_out_packets, cell: (one) => count(one.counts.timed_out_packets) },
    { id: "dropped", label: "Dropped", isNumber: true, value: (one) => one.counts.dropped_packets, cell: (one) => count(one.counts.dropped_packets) },
    { id: "received", label: "Received", isNumber: true, value: (one) => one.counts.received_bytes, cell: (one) => size(one.counts.received_bytes) },
    { id: "address", label: "Overlay address", value: (one) => one.address, cell: (one) => <code>{one.address}</code> },
  ];
  const { counts } = carrier;
  return (
    <>
      <Facts rows={[
        ["Device", carrier.device], ["Address", <code>{carrier.address}</code>], ["Longest packet", size(carrier.mtu)], ["Longest wait", `${carrier.hold_ms} ms`],
        ["Bytes that rode", `${size(counts.ridden_bytes)} of ${size(counts.sent_bytes)}`], ["Probes with riders", percent(share(counts))],
      ]} />
      <HistoryChart title={`Riders of ${me.value}`} history={riderHistory} pick={[["ridden", "in probes", { isFilled: true }], ["sent", "sent by programs"], ["received", "received", { isDashed: true }]]} height={150} />
      <DataTable caption="Members that packets went to or came from" columns={columns} rows={carrier.members ?? []} keyOf={(one) => one.name} empty={<Empty title="No member yet">Packets to an overlay address open a session.</Empty>} />
    </>
  );
}
