//! `thalweg drop-box list` and `status`: shows boxes and their submissions.

use super::{BoxArgs, OpenBox};
use crate::commands::text::{aligned, counted, listed, say};
use serde_json::{Value, json};
use std::{collections::BTreeMap, process::ExitCode};
use thalweg_console::note;
use thalweg_dropbox::{NodeAddress, NodeChannelError, View};
use thalweg_mesh::State;
use thalweg_node::config::DropBoxSection;
use thalweg_units::ByteSize;
use thalweg_wire::{
    Signer as _,
    bistro::{Stamp, show_date},
    mesh::Name,
};

const HELP: &str = "\
Reads the box's files below the state directory, whether or not the daemon runs.

  thalweg drop-box status taxes
  thalweg drop-box status taxes --missing     # commitments whose data no node has";

/// Arguments of `thalweg drop-box status`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The box
    #[arg(value_name = "BOX")]
    name: String,
    /// List only commitments whose data no node has
    #[arg(long)]
    missing: bool,
    #[command(flatten)]
    common: BoxArgs,
}

/// Runs `thalweg drop-box list`.
///
/// # Errors
/// If the settings or the state cannot be read.
pub fn list(args: &BoxArgs) -> anyhow::Result<ExitCode> {
    let state = args.state_dir.open()?;
    let boxes = args.settings(&state)?;
    boxes.iter().for_each(|one| warn(&state, one));
    let rows: Vec<_> = boxes.iter().map(|one| row(&state, one)).collect();
    let text = match args.json {
        true => {
            json!({ "boxes": boxes.iter().map(|one| value(&state, one)).collect::<Vec<_>>() })
                .to_string()
                + "\n"
        }
        false => {
            aligned(["BOX", "DESTINATION", "UNTIL", "NODES", "WHO", "SUBMIT WITH --to"], &rows)
        }
    };
    say(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Warns of nodes that have no address: clients would believe that their box is closed.
fn warn(state: &State, one: &DropBoxSection) {
    let (Some(name), Some(roster)) =
        (&one.name, state.membership().ok().and_then(|membership| membership.current()))
    else {
        return;
    };
    for node in one.nodes.iter().chain(&one.destination) {
        match roster.by_name(node).and_then(NodeAddress::of_member) {
            None => note!("thalweg: box {name}: the roster has no node `{node}`"),
            Some(port) if port.addresses.is_empty() => {
                note!("thalweg: box {name}: node {node}: {}", NodeChannelError::Unlisted);
            }
            Some(_) => {}
        }
    }
}

fn row(state: &State, one: &DropBoxSection) -> [String; 6] {
    let dash = || "-".to_owned();
    [
        one.name.as_ref().map_or_else(dash, Name::to_string),
        one.destination.as_ref().map_or_else(|| "this node".to_owned(), Name::to_string),
        one.until.map_or_else(dash, show_date),
        if one.destination.is_some() { dash() } else { listed(nodes(one)) },
        who(one),
        link(state, one).unwrap_or_else(dash),
    ]
}

fn nodes(one: &DropBoxSection) -> Vec<String> {
    match one.nodes.is_empty() {
        true => vec!["this node".to_owned()],
        false => one.nodes.iter().map(Name::to_string).collect(),
    }
}

fn who(one: &DropBoxSection) -> String {
    match (one.open, one.members) {
        (true, _) => "anybody".to_owned(),
        (false, true) if one.keys.is_empty() => "members".to_owned(),
        (false, true) => format!("members, {}", counted(one.keys.len() as u64, "key")),
        (false, false) => counted(one.keys.len() as u64, "key"),
    }
}

/// The `--to` argument for clients that are not members: the box, an address, and the key to expect there.
fn link(state: &State, one: &DropBoxSection) -> Option<String> {
    let name = one.name.as_ref().filter(|_| one.destination.is_none())?;
    let key = state.node_key().ok()?.id();
    let roster = state.membership().ok()?.current()?;
    let address = roster.by_key(&key)?.dialled_addresses().next()?.clone();
    Some(format!("{name}@{address}#{key}"))
}

fn value(state: &State, one: &DropBoxSection) -> Value {
    json!({
        "box": one.name, "destination": one.destination, "until": one.until.map(show_date),
        "nodes": one.nodes, "open": one.open, "members": one.members, "keys": one.keys,
        "to": link(state, one),
    })
}

/// Runs `thalweg drop-box status`.
///
/// # Errors
/// If the settings, the state or the box's files cannot be read.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let open_box = args.common.open(&args.name)?;
    let view = View::read(&open_box.files)?;
    let text = match (args.common.json, args.missing) {
        (true, _) => format!("{}\n", as_json(&open_box, &view)),
        (false, true) => missing(&view),
        (false, false) => summary(&open_box, &view),
    };
    say(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn size(bytes: u64) -> String {
    ByteSize::from_bytes(bytes).to_string()
}

/// Numbers of submissions and bytes by node; each submission counts for the first node that has it.
fn by_node(view: &View) -> BTreeMap<Name, (u64, u64)> {
    let mut nodes: BTreeMap<Name, (u64, u64)> = BTreeMap::new();
    for arrival in view.arrivals.values().filter_map(|arrivals| arrivals.first()) {
        let (count, bytes) = nodes.entry(arrival.receipt.value().node.clone()).or_default();
        *count += 1;
        *bytes += arrival.stamp.value().commitment.content_size();
    }
    nodes
}

fn summary(open_box: &OpenBox, view: &View) -> String {
    let mut text = format!("{}\n", open_box.name);
    let mut line = |what: &str, value: String| text += &format!("  {what:<12} {value}\n");
    if let Some(destination) = &open_box.settings.destination {
        line("destination", destination.to_string());
    } else {
        let bytes: u64 = view.stamps.iter().map(|stamp| stamp.commitment.content_size()).sum();
        line("deadline", open_box.settings.until.map_or_else(|| "-".to_owned(), show_date));
        line(
            "committed",
            format!("{}, {}", counted(view.stamps.len() as u64, "submission"), size(bytes)),
        );
        line("received", counted(view.arrivals.len() as u64, "submission"));
        for (node, (count, bytes)) in by_node(view) {
            line("", format!("{node}: {count}, {}", size(bytes)));
        }
        line("collected", counted(view.collected.len() as u64, "submission"));
        line("without data", counted(view.missing().count() as u64, "submission"));
    }
    let held = view.here;
    if held.held + held.gone > 0 {
        let reported = if held.untold == 0 {
            "all reported".into()
        } else {
            format!("{} not reported", held.untold)
        };
        let what = counted(held.held, "submission");
        let bytes = size(held.bytes);
        line("here", format!("{what}, {bytes}; {reported}; {} collected", held.gone));
    }
    text
}

/// The table of commitments whose data no node has.
pub fn missing(view: &View) -> String {
    let row = |stamp: &Stamp| {
        let size = size(stamp.commitment.content_size());
        let (number, label) = (stamp.number.to_string(), stamp.label.to_string());
        [number, show_date(stamp.time), stamp.client.to_string(), size, label]
    };
    let rows: Vec<_> = view.missing().map(row).collect();
    aligned(["NUMBER", "COMMITTED", "KEY", "SIZE", "NAME"], &rows)
}

fn as_json(open_box: &OpenBox, view: &View) -> Value {
    let missing = |stamp: &Stamp| {
        json!({
            "number": stamp.number, "committed": show_date(stamp.time), "client": stamp.client,
            "bytes": stamp.commitment.content_size(), "name": stamp.label.as_str(),
        })
    };
    let node = |(node, (count, bytes)): (Name, (u64, u64))| json!({ "node": node, "submissions": count, "bytes": bytes });
    json!({
        "box": open_box.name, "destination": open_box.settings.destination,
        "until": open_box.settings.until.map(show_date), "committed": view.stamps.len(),
        "received": view.arrivals.len(), "collected": view.collected.len(),
        "nodes": by_node(view).into_iter().map(node).collect::<Vec<_>>(),
        "missing": view.missing().map(missing).collect::<Vec<_>>(),
        "here": {
            "submissions": view.here.held, "bytes": view.here.bytes, "not_told": view.here.untold,
            "given_away": view.here.gone,
        },
    })
}
