//! What a node's journal says of the data that it holds.

use serde::{Deserialize, Serialize};
use thalweg_wire::{
    bistro::{Delivery, StampId},
    object,
};

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Record {
    /// Data is complete, and its receipt was signed.
    Held {
        /// Whose.
        id: StampId,
        /// How many.
        bytes: u64,
        /// What the destination is to know.
        delivery: Delivery,
    },
    /// The destination knows.
    Told(Vec<StampId>),
    /// The destination has it, and it is thrown away here.
    Gone(Vec<StampId>),
    /// Written when a book is compacted: receipts of what was given away.
    Past(Vec<(StampId, Vec<u8>)>),
    /// So many more were given away, of which nothing is known any more.
    Forgotten(u64),
    /// The destination has refused receipts, with these `Signed<Denial>`.
    Denied(Vec<(StampId, Vec<u8>)>),
}

impl Record {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        // `encode` puts a length in front, which the journal has itself.
        object::encode(self).split_off(4)
    }

    /// The record of these bytes, which carry the journal's check; none from a later version.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        object::decode(bytes).ok()
    }
}
