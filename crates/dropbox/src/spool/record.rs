//! The records of a node's journal `held` about the data that it stores.

use serde::{Deserialize, Serialize};
use thalweg_wire::{
    bistro::{ReceiptDelivery, StampId},
    object,
};

/// One change of the state: data stored, receipts delivered or denied, or data collected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Record {
    /// Data is complete, and its receipt was signed.
    Held {
        /// The submission.
        id: StampId,
        /// The size of the data, bytes.
        bytes: u64,
        /// The message for the destination.
        delivery: ReceiptDelivery,
    },
    /// The destination has the receipts.
    Told(Vec<StampId>),
    /// The destination has collected the data, and it is deleted here.
    Gone(Vec<StampId>),
    /// Receipts of collected data; written when a journal is compacted.
    Past(Vec<(StampId, Vec<u8>)>),
    /// The number of further collected submissions, about which nothing else is known; written when a journal is
    /// compacted.
    Forgotten(u64),
    /// The destination has refused these receipts, each with a `Signed<Denial>`.
    Denied(Vec<(StampId, Vec<u8>)>),
}

impl Record {
    pub fn encode(&self) -> Vec<u8> {
        // `encode` adds a length, which the journal adds as well.
        object::encode(self).split_off(4)
    }

    /// Decodes a record, whose bytes the journal has verified; `None` if it is of an unknown kind, from a later
    /// version.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        object::decode(bytes).ok()
    }
}
