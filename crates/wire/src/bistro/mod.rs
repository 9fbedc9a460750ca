//! The protocol of a channel `thalweg/submit/2`: submissions with a deadline (Bistro).
//!
//! Source: Cheng et al., *Large-scale Data Collection: a Coordinated Approach* (INFOCOM 2004), §I:
//! (1) a timestamp commits to the data before the deadline, without moving it; (2) the data goes
//! to whichever node is near, which gives a receipt; (3) the destination collects when it likes.
//!
//! ```text
//! client → destination   Ask::Sheet        the box's nodes, and the key that data is encrypted to
//! client → destination   Ask::Commit       size, BLAKE3 of nonce, key and encrypted data
//! client ← destination   Answer::Stamps    [`Stamp`], signed: who, what, when
//! client → node          Ask::Push, data   nonce and encrypted data, from where the node says
//! client ← node          Answer::Receipt   [`Receipt`], signed: which stamp's data, when, where
//! node   → destination   Ask::Deliver      the same receipt and the nonce, until acknowledged
//! ```
//!
//! Messages are framed as [`crate::object`]'s; data is not framed. Everything that is signed has
//! a domain of its own ([`crate::Signable::DOMAIN`]). [`Evidence`] is what the client keeps: a text
//! file that anybody can check without asking anybody.

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

pub use commitment::{Commitment, Committing, Nonce};
pub use date::{DateError, parse_date, show_date};
pub use denial::Denial;
pub use envelope::{
    ContentHash, ENVELOPE_END, ENVELOPE_HEAD, ENVELOPE_MAGIC, EnvelopeKeys, PIECE, PIECE_EXTRA,
    content_size, envelope_size,
};
pub use evidence::{Evidence, EvidenceError};
pub use label::{Label, LabelError};
pub use message::{
    Answer, Ask, Delivery, Intent, Load, MAX_ANSWER, MAX_ASK, MOST_DELIVERIES, MOST_INTENTS,
};
pub use receipt::Receipt;
pub use refusal::Refusal;
pub use sheet::{Sheet, SheetNode};
pub use stamp::{Stamp, StampId};
pub use strike::{StrikeReply, StrikeRequest};
pub use verdict::{Trust, Trusted, Verdict};

#[cfg(test)]
mod tests;

use crate::DecodeError;
use serde::{Serialize, de::DeserializeOwned};

/// Postcard of a value that is signed.
fn put(value: &impl Serialize, out: &mut Vec<u8>) {
    // Writing to a vector fails for no value of these types.
    if let Ok(bytes) = postcard::to_stdvec(value) {
        out.extend(bytes);
    }
}

/// All of the bytes as such a value.
fn take<T: DeserializeOwned>(bytes: &[u8], wrong: &'static str) -> Result<T, DecodeError> {
    match postcard::take_from_bytes::<T>(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(DecodeError::TooLong(rest.len())),
        Err(_) => Err(DecodeError::Invalid(wrong)),
    }
}

/// The directory of all boxes, below the state directory.
pub const BOXES: &str = "drop-box";
