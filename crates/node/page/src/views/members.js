// The members of the mesh: roles, tags, addresses, and when the oracle heard of them.

import { useState } from "preact/hooks";
import { me, pathDocument, roster, status } from "../store.js";
import { ago, count, dayAndTime, duration, plural, seconds } from "../format.js";
import { Badge, Card, Empty, Facts, Fault, useDocuments } from "../parts/basics.js";
import { DataTable } from "../parts/lists.js";
import { Head } from "./head.js";

/** A member that was not heard of for this long, s, probably does not run: nodes ask for the roster each minute or so. */
export const QUIET = 600;

export function Members() {
  useDocuments("roster", "status", "paths");
  const [filter, setFilter] = useState("");
  const members = roster.value?.members;
  const seen = new Map((status.value?.oracle?.members ?? []).map((one) => [one.name, one]));
  const down = new Map((pathDocument.value?.paths?.down ?? []).map((one) => [one.node, one]));
  const rows = (members ?? []).map((member) => {
    const heard = seen.get(member.name);
    return { ...member, seen: heard ? seconds(heard.seen) : NaN, version: heard?.version, down: down.get(member.name), text: `${member.name} ${member.roles.join(" ")} ${member.tags.join(" ")}`.toLowerCase() };
  });
  const shown = rows.filter((row) => filter.toLowerCase().split(/\s+/).every((word) => row.text.includes(word)));
  const version = roster.value?.version;
  const columns = [
    { id: "name", label: "Name", value: (row) => row.name, cell: (row) => <>{row.name}{row.name === me.value && <Badge kind="accent">this host</Badge>}</> },
    { id: "roles", label: "Roles", value: (row) => row.roles.join(" "), cell: (row) => row.roles.map((role) => <Badge key={role} kind={role === "client" ? "quiet" : role === "oracle" ? "accent" : ""}>{role}</Badge>) },
    { id: "tags", label: "Tags", value: (row) => row.tags.join(" "), cell: (row) => row.tags.map((tag) => <Badge key={tag} kind="quiet">{tag}</Badge>) },
    { id: "seen", label: "Last heard", isNumber: true, value: (row) => row.seen, cell: (row) => heardCell(row) },
    { id: "version", label: "Roster", isNumber: true, value: (row) => row.version, cell: (row) => (row.version === undefined || row.version === null ? "–" : row.version === version ? count(row.version) : <Badge kind="warn" title={`The newest is ${version}`}>{row.version}</Badge>) },
    { id: "addresses", label: "Addresses", isWide: true, value: (row) => row.addresses.join(", ") },
    { id: "key", label: "Key", value: (row) => row.node ?? row.client, cell: (row) => <code title={row.node ?? row.client}>{(row.node ?? row.client).slice(0, 12)}</code> },
  ];
  return (
    <>
      <Head title="Members">{members ? `${plural(members.length, "member")}, ${count(members.filter((m) => m.roles.includes("relay")).length)} of them relay` : "The hosts that relay for each other"}</Head>
      <Fault name="roster" />
      <RosterCard />
      <Card title="All members" aside={<label class="search"><span class="unseen">Filter by name, role or tag</span><input type="search" placeholder="Filter by name, role or tag" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} /></label>}>
        <DataTable caption="Members" columns={columns} rows={shown} keyOf={(row) => row.name} sort={{ id: "name", isDown: false }} most={620}
          empty={<Empty title={filter ? "No member matches" : "No roster yet"} command={filter ? undefined : "thalweg mesh token --role relay"} commandLabel="Make a token for another host">{filter ? "Clear the filter to see all." : "Make a token here and run `thalweg mesh join` with it on another host."}</Empty>} />
      </Card>
    </>
  );
}

function heardCell(row) {
  if (row.down) return <Badge kind="bad" title={row.down.why}>down: {row.down.why}</Badge>;
  if (Number.isFinite(row.seen)) return <span class={row.seen > QUIET ? "warn-text" : ""}>{ago(row.seen)}</span>;
  return row.node ? <span class="muted">not since the oracle started</span> : <span class="muted">no daemon</span>;
}

function RosterCard() {
  const state = status.value?.roster;
  if (!state) return null;
  const left = state.left ? seconds(state.left) : NaN;
  return (
    <Card title="Roster">
      <Facts rows={[
        ["Version", count(state.version)],
        ["Members", count(state.members)],
        ["Valid until", dayAndTime(state.expiry)],
        ["Left", Number.isFinite(left) ? duration(left) : "not valid"],
        ["Signed by key", state.key_number ? `number ${state.key_number}` : "the root key"],
        state.fault && ["Fault", <span class="bad-text">{state.fault}</span>],
        state.fork && ["Fork", <span class="bad-text">{state.fork}</span>],
      ]} />
    </Card>
  );
}
