//! Step 2 of a submission: sends the data to the nearest idle node.

use super::{
    progress::Progress,
    retry,
    submission::{Step, Submission},
};
use anyhow::Context as _;
use std::time::Duration;
use thalweg_console::note;
use thalweg_dropbox::{
    Envelope, NodeChannel, NodeOffer, PushError, Target, find_nodes, new_draw, open_data, push,
};
use thalweg_net::channel::Connector;
use thalweg_wire::{
    Signed,
    bistro::{Refusal, Sheet},
};
use tokio::time::sleep;

/// The pause before an interrupted push continues at the same node, which first has to notice the interruption.
const RESUME_DELAY: Duration = Duration::from_secs(1);

/// Sends the data of all committed items. Failures are recorded in the items.
///
/// # Errors
/// If the destination does not name its nodes, or a receipt cannot be stored.
pub async fn send_all(
    items: &mut [Submission],
    target: &Target,
    connector: &Connector,
) -> anyhow::Result<()> {
    let mut open: Vec<&mut Submission> =
        items.iter_mut().filter(|item| item.step() == Step::Committed).collect();
    let Some(greatest) = open.iter().map(|item| item.evidence.commitment.size).max() else {
        return Ok(());
    };
    let committed = "the commitments are signed, but the destination does not say where to send \
                     the data; run the same command again to send it";
    let mut line = NodeChannel::open(connector, &target.port).await.context(committed)?;
    let sheet = target.sheet(&mut line).await.context(committed)?;
    line.close().await;
    let (mut offers, others) = find_nodes(connector, sheet.value(), greatest, new_draw()?).await;
    for (name, why) in &others {
        note!("thalweg: node {name}: {why}");
    }
    if offers.is_empty() {
        let why = "no node of the box accepts data now; run the same command again later";
        open.iter_mut().for_each(|item| item.why = Some(why.into()));
    }
    for item in open {
        send_one(item, &sheet, &mut offers, connector).await?;
    }
    for offer in offers {
        offer.line.close().await;
    }
    Ok(())
}

/// Sends the data to the first node that accepts it; a node that fails is moved behind the others. An interrupted push
/// continues at the same node, which has kept the received part, as long as each try gets further.
async fn send_one(
    item: &mut Submission,
    sheet: &Signed<Sheet>,
    offers: &mut Vec<NodeOffer>,
    connector: &Connector,
) -> anyhow::Result<()> {
    let (Some(stamp), Some(nonce)) = (item.evidence.stamp.clone(), item.evidence.nonce) else {
        return Ok(());
    };
    let (Some(keys), Some(content)) = (item.evidence.keys, item.evidence.content) else {
        return Ok(());
    };
    let (mut left, mut reached) = (offers.len(), None);
    while left > 0 {
        let Some(offer) = offers.first_mut() else { break };
        let commitment = &item.evidence.commitment;
        let file = open_data(&item.file)
            .and_then(|file| Envelope::new(file, keys, content, commitment))
            .map_err(PushError::File);
        let (pushed, begun) = match file {
            Ok(file) => {
                let size = item.evidence.commitment.size;
                let mut file = Progress::new(file, "sending", &item.file, size);
                let to = (&mut offer.line, &offer.node);
                (push(to, &stamp, nonce, &mut file).await, file.begun())
            }
            Err(e) => (Err(e), None),
        };
        if let Some(wait) = pushed.as_ref().err().and_then(retry::retry_delay) {
            sleep(wait).await;
            // The same node again: it is the nearest one, and has said when to retry.
            reconnect(offers, connector).await;
            continue;
        }
        match pushed {
            Ok(receipt) => return item.record_receipt(receipt, sheet),
            // Every node refuses a struck submission in the end; other refusals may concern this node only.
            Err(e @ (PushError::File(_) | PushError::Denied(Refusal::NotAdmitted))) => {
                item.why = Some(e.to_string());
                reconnect(offers, connector).await;
                return Ok(());
            }
            Err(e) => {
                item.why = Some(format!("node {}: {e}", offer.node.name));
                let goes_on = matches!(e, PushError::Channel(_)) && begun > reached;
                if goes_on {
                    sleep(RESUME_DELAY).await;
                }
                let is_there = reconnect(offers, connector).await;
                if goes_on && is_there {
                    reached = begun;
                    continue;
                }
                (left, reached) = (left - 1, None);
                offers.rotate_left(usize::from(is_there));
            }
        }
    }
    Ok(())
}

/// Opens a new connection to the first node, because the old one still holds the rest of the last push. If that fails,
/// removes the node and returns `false`.
async fn reconnect(offers: &mut Vec<NodeOffer>, connector: &Connector) -> bool {
    let Some(first) = offers.first_mut() else { return false };
    let port = thalweg_dropbox::NodeAddress::from_sheet(&first.node);
    match NodeChannel::open(connector, &port).await {
        Ok(line) => {
            first.line = line;
            true
        }
        Err(_) => {
            offers.remove(0);
            false
        }
    }
}
