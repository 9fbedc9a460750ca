//! `thalweg drop-box strike`: takes submissions and keys out of a box.

use super::{BoxArgs, OpenBox, clear};
use crate::commands::{
    host,
    text::{counted, say},
};
use anyhow::{Context as _, bail};
use std::{collections::BTreeMap, process::ExitCode};
use thalweg_console::note;
use thalweg_dropbox::View;
use thalweg_units::{ByteSize, NodeId};
use thalweg_wire::{
    Signer as _,
    bistro::{StampId, StrikeReply, StrikeRequest},
    mesh::Name,
};

const HELP: &str = "\
A struck submission no longer counts. Its data is deleted and its stamp becomes invalid. A struck key cannot submit
again. `thalweg drop-box status BOX --missing` shows numbers and keys.

  thalweg drop-box strike taxes 3 17
  thalweg drop-box strike taxes --key 5b1f…";

/// Arguments of `thalweg drop-box strike`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The box
    #[arg(value_name = "BOX")]
    name: String,
    /// Numbers of submissions
    #[arg(value_name = "NUMBER")]
    numbers: Vec<u64>,
    /// Strike all submissions of this key, and refuse later ones
    #[arg(long = "key", value_name = "KEY")]
    keys: Vec<NodeId>,
    #[command(flatten)]
    common: BoxArgs,
}

/// Runs the command.
///
/// # Errors
/// If the settings, the state or the box's files cannot be read or written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.numbers.is_empty() && args.keys.is_empty() {
        bail!("give numbers of submissions, or keys with --key KEY");
    }
    let open_box = args.common.open(&args.name)?;
    if open_box.settings.destination.is_some() {
        bail!("this node only takes data for box `{}`; strike at its destination", open_box.name);
    }
    let view = View::read(&open_box.files)?;
    let reply = host::block_on(async {
        let reply = strike(&open_box, &view, args).await?;
        tell_nodes(&open_box, &view, args).await;
        Ok(reply)
    })?;
    let text = match args.common.json {
        true => format!("{}\n", serde_json::to_string(&reply)?),
        false => format!(
            "{} struck, {}\n",
            counted(reply.submissions, "submission"),
            ByteSize::from_bytes(reply.bytes)
        ),
    };
    say(&text)?;
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn has(&self, number: u64, key: &NodeId) -> bool {
        self.numbers.contains(&number) || self.keys.contains(key)
    }
}

/// Asks the running node, which has the journal open. If no node runs, writes the journal.
async fn strike(open_box: &OpenBox, view: &View, args: &Args) -> anyhow::Result<StrikeReply> {
    let (numbers, keys) = (args.numbers.clone(), args.keys.clone());
    if let Some(daemon) = host::daemon(&open_box.state).await? {
        let request = StrikeRequest { drop_box: open_box.name.clone(), numbers, keys };
        return Ok(daemon.strike(&request).await?);
    }
    let key = open_box.state.node_key()?.id();
    let struck = thalweg_dropbox::strike(&open_box.files, key, &numbers, &keys).await;
    struck.context("cannot record the strike")?;
    let mut reply = StrikeReply::default();
    for stamp in view.stamps.iter().filter(|stamp| args.has(stamp.number, &stamp.client)) {
        reply.submissions += 1;
        reply.bytes += stamp.commitment.size;
    }
    Ok(reply)
}

/// Tells the nodes that have the data to delete it.
async fn tell_nodes(open_box: &OpenBox, view: &View, args: &Args) {
    let mut nodes: BTreeMap<&Name, Vec<StampId>> = BTreeMap::new();
    for arrival in view.arrivals.values().flatten() {
        let stamp = arrival.stamp.value();
        if args.has(stamp.number, &stamp.client) {
            nodes.entry(&arrival.receipt.value().node).or_default().push(arrival.id());
        }
    }
    for (node, ids) in nodes {
        if let Err(why) = clear::delete_from_node(open_box, node, &ids).await {
            note!("thalweg: node {node} could not delete the struck data: {why:#}");
        }
    }
}
