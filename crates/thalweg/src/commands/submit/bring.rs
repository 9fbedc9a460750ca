//! Step 2: the data, to whichever node is near and idle.

use super::{
    item::{Item, Step},
    pace,
    progress::Progress,
};
use anyhow::Context as _;
use std::time::Duration;
use thalweg_console::note;
use thalweg_dropbox::{
    Envelope, Line, Offer, PushError, Target, nearest, new_draw, open_data, push,
};
use thalweg_net::channel::Connector;
use thalweg_wire::{
    Signed,
    bistro::{Refusal, Sheet},
};
use tokio::time::sleep;

/// Before a push that broke off goes on at the same node, which has to notice that it broke.
const BREATH: Duration = Duration::from_secs(1);

/// Brings all that is committed to and not there; what fails is said of its file.
///
/// # Errors
/// If the destination does not say where to, or a receipt cannot be kept.
pub async fn all(items: &mut [Item], target: &Target, connector: &Connector) -> anyhow::Result<()> {
    let mut open: Vec<&mut Item> =
        items.iter_mut().filter(|item| item.step() == Step::Committed).collect();
    let Some(greatest) = open.iter().map(|item| item.evidence.commitment.size).max() else {
        return Ok(());
    };
    let committed = "the commitments are signed, but the destination does not say where the data \
                     goes; run this again to send it";
    let mut line = Line::open(connector, &target.port).await.context(committed)?;
    let sheet = target.sheet(&mut line).await.context(committed)?;
    line.close().await;
    let (mut offers, others) = nearest(connector, sheet.value(), greatest, new_draw()?).await;
    for (name, why) in &others {
        note!("thalweg: node {name}: {why}");
    }
    if offers.is_empty() {
        let why = "no node of the box takes data now; run this again later";
        open.iter_mut().for_each(|item| item.why = Some(why.into()));
    }
    for item in open {
        one(item, &sheet, &mut offers, connector).await?;
    }
    for offer in offers {
        offer.line.close().await;
    }
    Ok(())
}

/// To the first node that takes it; one that fails is put behind the others. A push that broke off
/// goes on at the same node first, which has kept what came, as long as each try brings it further.
async fn one(
    item: &mut Item,
    sheet: &Signed<Sheet>,
    offers: &mut Vec<Offer>,
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
        if let Some(wait) = pushed.as_ref().err().and_then(pace::wait) {
            sleep(wait).await;
            // The same node again: it is the nearest one, and says when.
            renew(offers, connector).await;
            continue;
        }
        match pushed {
            Ok(receipt) => return item.received(receipt, sheet),
            // A struck submission is refused by every node in the end; other refusals may be of this node alone.
            Err(e @ (PushError::File(_) | PushError::Denied(Refusal::NotAdmitted))) => {
                item.why = Some(e.to_string());
                renew(offers, connector).await;
                return Ok(());
            }
            Err(e) => {
                item.why = Some(format!("node {}: {e}", offer.node.name));
                let goes_on = matches!(e, PushError::Line(_)) && begun > reached;
                if goes_on {
                    sleep(BREATH).await;
                }
                let is_there = renew(offers, connector).await;
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

/// The first node's channel anew, since what was left of the last push is in the old one;
/// without the node, and `false`, if that fails.
async fn renew(offers: &mut Vec<Offer>, connector: &Connector) -> bool {
    let Some(first) = offers.first_mut() else { return false };
    let port = thalweg_dropbox::Port::on(&first.node);
    match Line::open(connector, &port).await {
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
