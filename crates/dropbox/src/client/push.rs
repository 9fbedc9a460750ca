//! Step 2, at the client: sends the data to a node, and gets its receipt.

use crate::{NodeChannel, NodeChannelError};
use std::io::{self, Read, Seek, SeekFrom};
use thalweg_net::Ed25519;
use thalweg_wire::{
    Signed,
    bistro::{
        Denial, Nonce, Receipt, Refusal, SheetNode, Stamp, StampId, SubmitReply, SubmitRequest,
    },
};
use thiserror::Error;

/// Why a push ended without a receipt.
#[derive(Debug, Error)]
pub enum PushError {
    /// The connection failed; another attempt resumes where it broke.
    #[error(transparent)]
    Channel(#[from] NodeChannelError),
    #[error("the node refuses the data: {0}")]
    Refused(Refusal),
    /// The destination has refused the node's receipt, and signed the refusal; so no other node may have the data
    /// either.
    #[error("the destination refuses the submission: {0}")]
    Denied(Refusal),
    /// The local file cannot be read.
    #[error("cannot read the file: {0}")]
    File(io::Error),
    /// The receipt is not for this data, or the refusal is not the destination's.
    #[error("the node's answer cannot be used: {0}")]
    Wrong(String),
}

/// Sends encrypted `data` (an [`crate::Envelope`]) to the node, starting after the bytes that the node already has.
///
/// # Errors
/// [`PushError`].
pub async fn push(
    (line, node): (&mut NodeChannel, &SheetNode),
    stamp: &Signed<Stamp>,
    nonce: Nonce,
    data: &mut (impl Read + Seek),
) -> Result<Signed<Receipt>, PushError> {
    let bytes = data.seek(SeekFrom::End(0)).map_err(PushError::File)?;
    let ask = || SubmitRequest::Push { stamp: stamp.encode(), nonce, bytes };
    // The node first hashes the data it has.
    let mut answer = line.ask_about(&ask(), bytes).await?;
    // If that data was damaged, sends everything once more.
    for _ in 0..2 {
        let SubmitReply::From(from) = answer else { break };
        answer = send(line, data, from, bytes).await?;
        if answer == SubmitReply::Refused(Refusal::Again) {
            answer = line.ask_about(&ask(), bytes).await?;
        }
    }
    match answer {
        SubmitReply::Receipt(receipt) => checked(&receipt, node, stamp),
        SubmitReply::Refused(refusal) => Err(PushError::Refused(refusal)),
        SubmitReply::Denied(denial) => {
            let read =
                Denial::read(&denial, &stamp.signer(), &StampId::from_stamp(stamp).0, &Ed25519);
            Err(read.map_or_else(PushError::Wrong, PushError::Denied))
        }
        _ => Err(PushError::Wrong("it does not match the request".into())),
    }
}

async fn send(
    line: &mut NodeChannel,
    data: &mut (impl Read + Seek),
    from: u64,
    bytes: u64,
) -> Result<SubmitReply, PushError> {
    data.seek(SeekFrom::Start(from)).map_err(PushError::File)?;
    let (mut left, mut failed) = (bytes.saturating_sub(from), None);
    let answer = line.send(|buffer| {
        let most = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        match data.read(&mut buffer[..most]) {
            Ok(0) if left > 0 => {
                failed = Some(io::Error::other("it became shorter"));
                Err(io::ErrorKind::UnexpectedEof.into())
            }
            Ok(n) => {
                left -= n as u64;
                Ok(n)
            }
            Err(e) => {
                failed = Some(e);
                Err(io::ErrorKind::Other.into())
            }
        }
    });
    let answer = answer.await;
    match failed {
        Some(e) => Err(PushError::File(e)),
        None => Ok(answer?),
    }
}

fn checked(
    bytes: &[u8],
    node: &SheetNode,
    stamp: &Signed<Stamp>,
) -> Result<Signed<Receipt>, PushError> {
    let wrong = |why: &str| Err(PushError::Wrong(why.into()));
    let receipt: Signed<Receipt> =
        Signed::open(bytes, &Ed25519).map_err(|e| PushError::Wrong(e.to_string()))?;
    match () {
        () if receipt.signer() != node.key => {
            wrong("the receipt is not signed with the node's key")
        }
        () if receipt.value().node != node.name => wrong("the receipt names another node"),
        () if receipt.value().stamp != StampId::from_stamp(stamp) => {
            wrong("the receipt is for another stamp")
        }
        () => Ok(receipt),
    }
}
