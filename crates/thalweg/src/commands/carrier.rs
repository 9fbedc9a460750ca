//! `thalweg carrier`: shows the carrier, which sends IP packets as payload of probe trains.

use super::{
    gather::messages::size,
    host::{self, StateDir},
    text::{counted, say},
};
use anyhow::Context as _;
use std::{fmt::Write as _, process::ExitCode};
use thalweg_mesh::carrier_network::Network;
use thalweg_probe::carrier::{CarrierReport, PartnerReport, RiderCounts};
use thalweg_wire::{Signer as _, mesh::Name};

const HELP: &str = "\
With `[carrier] enabled = true` in its settings a node has a network device. Packets that programs
send through it to the overlay address of another such node replace padding in the probe trains to
that node; while no train is due, they are sent at once.

  thalweg carrier status
  ping $(thalweg carrier address fra)";

/// Arguments of `thalweg carrier`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(subcommand)]
    what: CarrierCommand,
}

#[derive(clap::Subcommand)]
enum CarrierCommand {
    /// Show the device, its peers and the traffic in trains; exit code 1 if it is not up
    Status {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        state_dir: StateDir,
    },
    /// Print the overlay address of a node, or of this host; works offline
    Address {
        /// The node
        #[arg(value_name = "NODE")]
        node: Option<Name>,
        #[command(flatten)]
        state_dir: StateDir,
    },
}

/// Runs the command.
///
/// # Errors
/// If it fails; the message says what to try.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        CarrierCommand::Status { json, state_dir } => status(&state_dir, json),
        CarrierCommand::Address { node, state_dir } => address(&state_dir, node.as_ref()),
    }
}

fn status(state_dir: &StateDir, as_json: bool) -> anyhow::Result<ExitCode> {
    let state = state_dir.open()?;
    let report = host::block_on(async {
        let daemon = host::daemon(&state).await?.context("no daemon runs; start `thalweg node`")?;
        Ok(daemon.carrier().await?)
    })?;
    let none = "this node has no carrier: `[carrier]` in its settings lacks `enabled = true`";
    let report = report.context(none)?;
    match as_json {
        true => say(&(serde_json::to_string_pretty(&report)? + "\n"))?,
        false => say(&text(&report))?,
    }
    Ok(if report.is_up { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn address(state_dir: &StateDir, node: Option<&Name>) -> anyhow::Result<ExitCode> {
    let state = state_dir.open()?;
    let membership = state.membership()?;
    let network = Network::of(&membership.mesh());
    let key = match node {
        None => state.node_key()?.id(),
        Some(name) => {
            let roster = membership.current().context("this host has no roster yet")?;
            let member = roster.by_name(name);
            let member =
                member.with_context(|| format!("no member of the mesh is named `{name}`"))?;
            member.node.with_context(|| format!("member `{name}` runs no node"))?
        }
    };
    say(&format!("{}\n", network.address(&key)))?;
    Ok(ExitCode::SUCCESS)
}

fn text(report: &CarrierReport) -> String {
    let CarrierReport { device, address, mtu, hold_ms, why, counts, members, .. } = report;
    let up = why
        .as_ref()
        .map_or("up".to_owned(), |why| format!("not up: {}", thalweg_console::field(why)));
    let mut text = format!(
        "device   {device}, {address}, packets of {mtu} bytes; {up}\n\
         holds    packets up to {hold_ms} ms for a train\n"
    );
    if !members.is_empty() {
        text += &counted_lines(counts);
    }
    for PartnerReport { name, address, session, counts } in members {
        // Writing to a string cannot fail.
        _ = write!(text, "\n{name}  {address}, session {session}\n{}", counted_lines(counts));
    }
    text
}

fn counted_lines(counts: &RiderCounts) -> String {
    let RiderCounts {
        sent_packets,
        sent_bytes,
        ridden_packets,
        ridden_fragments,
        ridden_bytes,
        ..
    } = counts;
    let RiderCounts { carrying_probes, own_datagrams, timed_out_packets, .. } = counts;
    let RiderCounts {
        received_packets, received_bytes, refused_fragments, expired_packets, ..
    } = counts;
    let lost = counts.dropped_packets + counts.strange_packets + counts.unasked_packets;
    format!(
        "sent     {}, {}; {own_datagrams} datagrams without a probe, {timed_out_packets} of them \
         after a wait\n\
         rode     {} in {ridden_fragments} fragments and {}; {} complete\n\
         received {}, {}; {expired_packets} incomplete, {refused_fragments} duplicate or late \
         fragments\n\
         dropped  {}\n",
        counted(*sent_packets, "packet"),
        size(*sent_bytes),
        size(*ridden_bytes),
        counted(*carrying_probes, "probe"),
        counted(*ridden_packets, "packet"),
        counted(*received_packets, "packet"),
        size(*received_bytes),
        counted(lost, "packet"),
    )
}
