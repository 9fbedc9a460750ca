//! Tells nodes to delete their copies of collected submissions.

use super::OpenBox;
use anyhow::{Context as _, bail};
use std::collections::{BTreeMap, BTreeSet};
use thalweg_console::note;
use thalweg_dropbox::{Collected, NodeAddress, NodeChannel, View};
use thalweg_net::channel::Connector;
use thalweg_wire::{
    bistro::{StampId, SubmitReply, SubmitRequest},
    mesh::Name,
};

/// The most ids in one request.
const AT_ONCE: usize = 1000;

/// Tells every node that may have copies. Nodes that are not reached are told at the next collection.
///
/// # Errors
/// If the records cannot be read or written.
pub async fn delete_copies(open_box: &OpenBox, book: &Collected) -> anyhow::Result<()> {
    let view = View::read(&open_box.files)?;
    let mut nodes: BTreeMap<&Name, Vec<(u64, StampId)>> = BTreeMap::new();
    for (number, arrival) in view.copies() {
        nodes.entry(&arrival.receipt.value().node).or_default().push((number, arrival.id()));
    }
    let mut left: BTreeSet<u64> = BTreeSet::new();
    for (node, copies) in &nodes {
        let ids: Vec<StampId> = copies.iter().map(|(_, id)| *id).collect();
        if let Err(why) = delete_from_node(open_box, node, &ids).await {
            note!("thalweg: node {node} keeps its copies until the next collection: {why:#}");
            left.extend(copies.iter().map(|(number, _)| number));
        }
    }
    let informed = view.copies().map(|(number, _)| number).filter(|number| !left.contains(number));
    let count = |number: u64| view.arrivals.get(&number).map_or(0, Vec::len);
    let done: BTreeMap<u64, usize> = informed.map(|number| (number, count(number))).collect();
    book.cleared(&done).await.context("cannot record which copies are deleted")
}

/// Tells one node to delete the data of these submissions.
///
/// # Errors
/// If the node cannot be reached, or refuses.
pub async fn delete_from_node(
    open_box: &OpenBox,
    node: &Name,
    ids: &[StampId],
) -> anyhow::Result<()> {
    let roster = open_box.state.membership()?.current().context("this host has no roster")?;
    let port = roster
        .by_name(node)
        .and_then(NodeAddress::of_member)
        .context("the node is not a member")?;
    let connector = Connector::new(&open_box.state.client_key()?)?;
    let mut line = NodeChannel::open(&connector, &port).await?;
    for some in ids.chunks(AT_ONCE) {
        match line.ask(&SubmitRequest::Forget(open_box.name.clone(), some.to_vec())).await? {
            SubmitReply::Forgot(_) => {}
            SubmitReply::Refused(refusal) => return Err(refusal.into()),
            _ => bail!("the node sent an unexpected answer"),
        }
    }
    line.close().await;
    Ok(())
}
