//! The client: commits, chooses a node, pushes the data, and stores stamps and receipts.

mod choose;
mod evidence;
mod push;
mod receipt_path;

pub use choose::{NodeOffer, find_nodes};
pub use evidence::{
    begin_evidence, load_evidence, new_draw, new_nonce, save_evidence, save_evidence_in_turn,
};
pub use push::{PushError, push};
pub use receipt_path::{open_data, path_beside};

use super::{NodeAddress, NodeChannel, NodeChannelError};
use thalweg_net::Ed25519;
use thalweg_units::NodeId;
use thalweg_wire::{
    Signed,
    bistro::{Denial, Intent, MOST_INTENTS, Refusal, Sheet, Stamp, SubmitReply, SubmitRequest},
    mesh::Name,
};
use thiserror::Error;

/// The maximum number of commitments in the first request. With the longest names they take 3 kB, and a node reads at
/// most 4 KiB of a stranger's first request.
const FIRST_COMMITMENTS: usize = 8;

/// A box and the address of its destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The name of the box.
    pub drop_box: Name,
    /// The destination's node.
    pub port: NodeAddress,
}

/// The destination could not be asked, or its answer is invalid.
#[derive(Debug, Error)]
pub enum ClientError {
    #[error(transparent)]
    Channel(#[from] NodeChannelError),
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// The destination has signed something other than what was requested.
    #[error("the destination's answer cannot be used: {0}")]
    Wrong(String),
}

fn wrong(why: impl ToString) -> ClientError {
    ClientError::Wrong(why.to_string())
}

impl Target {
    /// Step 1: commits. Returns the destination's stamps or refusals, all signed by it.
    ///
    /// # Errors
    /// Returns [`ClientError`]. A repeated request with the same commitments gets the same stamps.
    pub async fn commit(
        &self,
        line: &mut NodeChannel,
        client: NodeId,
        intents: &[Intent],
    ) -> Result<Vec<Result<Signed<Stamp>, Refusal>>, ClientError> {
        let mut all = Vec::with_capacity(intents.len());
        // A destination accepts a long request only after it has answered this client once.
        let (first, others) = intents.split_at(intents.len().min(FIRST_COMMITMENTS));
        for some in first.chunks(FIRST_COMMITMENTS).chain(others.chunks(MOST_INTENTS)) {
            let ask = SubmitRequest::Commit(self.drop_box.clone(), some.to_vec());
            let stamps = match line.ask(&ask).await? {
                SubmitReply::Stamps(stamps) if stamps.len() == some.len() => stamps,
                SubmitReply::Refused(refusal) => return Err(refusal.into()),
                _ => return Err(wrong("it does not answer a commitment")),
            };
            for (stamp, intent) in stamps.into_iter().zip(some) {
                all.push(match stamp {
                    Ok(bytes) => Ok(self.checked(&bytes, client, intent)?),
                    Err(denial) => {
                        let about = &intent.commitment.hash;
                        let read = Denial::read(&denial, &self.port.key, about, &Ed25519);
                        Err(read.map_err(wrong)?)
                    }
                });
            }
        }
        Ok(all)
    }

    /// Checks that a stamp is the destination's, and matches the request.
    fn checked(
        &self,
        bytes: &[u8],
        client: NodeId,
        intent: &Intent,
    ) -> Result<Signed<Stamp>, ClientError> {
        let stamp: Signed<Stamp> = Signed::open(bytes, &Ed25519).map_err(wrong)?;
        let said = stamp.value();
        match () {
            () if stamp.signer() != self.port.key => {
                Err(wrong("the stamp is signed with another key"))
            }
            () if said.drop_box != self.drop_box || said.client != client => {
                Err(wrong("the stamp is for another box or another client key"))
            }
            () if said.commitment != intent.commitment => {
                Err(wrong("the stamp is for another commitment"))
            }
            () => Ok(stamp),
        }
    }

    /// Requests the destination's description of its box.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn sheet(&self, line: &mut NodeChannel) -> Result<Signed<Sheet>, ClientError> {
        let bytes = match line.ask(&SubmitRequest::Sheet(self.drop_box.clone())).await? {
            SubmitReply::Sheet(bytes) => bytes,
            SubmitReply::Refused(refusal) => return Err(refusal.into()),
            _ => return Err(wrong("it does not describe the box")),
        };
        let sheet: Signed<Sheet> = Signed::open(&bytes, &Ed25519).map_err(wrong)?;
        match sheet.signer() == self.port.key && sheet.value().drop_box == self.drop_box {
            true => Ok(sheet),
            false => Err(wrong("the sheet describes another box, or is signed with another key")),
        }
    }
}
