//! Step 2's answer: a node's word that it has the data.

use super::{StampId, put, take};
use crate::{DecodeError, Signable, mesh::Name};
use serde::{Deserialize, Serialize};
use thalweg_units::WallTime;

/// That a node has the data of a stamp, durable, and that it matched the commitment.
///
/// Signed with the node's key. It does not hold the nonce: whoever is shown a receipt learns
/// nothing of the data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Whose data.
    pub stamp: StampId,
    /// The node that has it.
    pub node: Name,
    /// When it was complete, by that node's clock.
    pub time: WallTime,
}

impl Signable for Receipt {
    const DOMAIN: &'static str = "bistro receipt 1";
    /// A hash, a text of 64 and a number of ten bytes at most.
    const MAX_BYTES: usize = 32 + 64 + 10;

    fn encode(&self, out: &mut Vec<u8>) {
        put(self, out);
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        take(bytes, "a field of the receipt is not readable")
    }
}
