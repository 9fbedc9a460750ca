//! The protocol of the channel `thalweg/submit/2`: submissions with a deadline (Bistro).
//!
//! Source: Cheng et al., *Large-scale Data Collection: a Coordinated Approach* (INFOCOM 2004), §I: (1) a timestamp
//! commits the client to the data before the deadline, without moving the data; (2) the client sends the data to a
//! nearby node, which gives a receipt; (3) the destination collects the data at any later time.
//!
//! ```text
//! client → destination   Sheet        the box's nodes, and the public key for the data
//! client → destination   Commit       size and BLAKE3 of nonce, key and encrypted data
//! client ← destination   Stamps       [`Stamp`], signed: client, commitment, time
//! client → node          Push, data   nonce and encrypted data, from the offset that the node names
//! client ← node          Receipt      [`Receipt`], signed: stamp, node, time
//! node   → destination   Deliver      the same receipt and the nonce, repeated until acknowledged
//! ```
//!
//! Requests are [`SubmitRequest`]s, and replies [`SubmitReply`]s. Messages are framed as those of [`crate::object`];
//! data is not framed. Each kind of signed object has its own domain ([`crate::Signable::DOMAIN`]). The client keeps
//! [`Evidence`]: a text file that anybody can verify offline.

mod commitment;
mod date;
mod denial;
mod envelope;
mod evidence;
mod label;
mod message;
mod receipt;
mod refusal;
mod sheet;
mod stamp;
mod strike;
mod verdict;

pub use commitment::{Commitment, CommitmentHasher, Nonce};
pub use date::{DateError, parse_date, show_date};
pub use denial::Denial;
pub use envelope::{
    ContentHash, ENVELOPE_END, ENVELOPE_HEAD, ENVELOPE_MAGIC, EnvelopeKeys, PIECE, PIECE_EXTRA,
    content_size, envelope_size,
};
pub use evidence::{Evidence, EvidenceError};
pub use label::{Label, LabelError};
pub use message::{
    Intent, Load, MAX_SUBMIT_REPLY, MAX_SUBMIT_REQUEST, MOST_DELIVERIES, MOST_INTENTS,
    ReceiptDelivery, SubmitReply, SubmitRequest,
};
pub use receipt::Receipt;
pub use refusal::Refusal;
pub use sheet::{Sheet, SheetNode};
pub use stamp::{Stamp, StampId};
pub use strike::{StrikeReply, StrikeRequest};
pub use verdict::{Trust, TrustBasis, Verdict};

#[cfg(test)]
mod tests;

use crate::DecodeError;
use serde::{Serialize, de::DeserializeOwned};

/// Appends the postcard encoding of a signed value.
fn put(value: &impl Serialize, out: &mut Vec<u8>) {
    // Encoding these types to a vector cannot fail.
    if let Ok(bytes) = postcard::to_stdvec(value) {
        out.extend(bytes);
    }
}

/// Decodes all of the bytes.
fn take<T: DeserializeOwned>(bytes: &[u8], wrong: &'static str) -> Result<T, DecodeError> {
    match postcard::take_from_bytes::<T>(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(DecodeError::TooLong(rest.len())),
        Err(_) => Err(DecodeError::Invalid(wrong)),
    }
}

/// The directory of all drop boxes, relative to the state directory.
pub const BOXES: &str = "drop-box";
