//! Receipts, the replies of step 2: a node confirms that it has the data.

use super::{StampId, put, take};
use crate::{DecodeError, Signable, mesh::Name};
use serde::{Deserialize, Serialize};
use thalweg_units::WallTime;

/// Confirms that a node has stored the data of a stamp durably, and that the data matches the commitment.
///
/// Signed with the node's key. It does not contain the nonce, so that a receipt discloses nothing about the data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The stamp of the data.
    pub stamp: StampId,
    /// The node that has it.
    pub node: Name,
    /// When the data was complete, by that node's clock.
    pub time: WallTime,
}

impl Signable for Receipt {
    const DOMAIN: &'static str = "bistro receipt 1";
    /// A hash, and at most a text of 64 bytes and a number of ten.
    const MAX_BYTES: usize = 32 + 64 + 10;

    fn encode(&self, out: &mut Vec<u8>) {
        put(self, out);
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        take(bytes, "a field of the receipt is not readable")
    }
}
