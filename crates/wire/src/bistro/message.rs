//! Questions and answers.

use super::{Commitment, Label, Nonce, Refusal, StampId};
use crate::mesh::Name;
use serde::{Deserialize, Serialize};

/// The longest question: so many deliveries, and room.
pub const MAX_ASK: usize = 256 << 10;

/// The longest answer: a sheet, or so many stamps.
pub const MAX_ANSWER: usize = 256 << 10;

/// Commitments in one question.
pub const MOST_INTENTS: usize = 256;

/// Receipts in one question.
pub const MOST_DELIVERIES: usize = 256;

/// What a client wants to commit to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// What it calls the data.
    pub label: Label,
    /// The data's size and hidden hash.
    pub commitment: Commitment,
}

/// A node's word to the destination that it has data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// `Signed<Stamp>`: the destination's own.
    pub stamp: Vec<u8>,
    /// `Signed<Receipt>`: the node's.
    pub receipt: Vec<u8>,
    /// What opens the commitment.
    pub nonce: Nonce,
    /// Where the data is on that node: an absolute path.
    pub path: Vec<u8>,
}

/// How busy a node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Data that is being received now.
    pub pushes: u32,
    /// Bytes that there is room for.
    pub room: u64,
}

/// What is asked on a channel, one at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// Of the destination: what is this box? Answer: `Sheet`.
    Sheet(Name),
    /// Of the destination: these, before the deadline. Answer: `Stamps`.
    Commit(Name, Vec<Intent>),
    /// Of a node that takes data: how busy is it? Answer: `Load`.
    Load(Name),
    /// Of a node that takes data: the data of a stamp. Answer: `From`, or `Receipt` if it has all.
    Push {
        /// `Signed<Stamp>`.
        stamp: Vec<u8>,
        /// What opens the commitment.
        nonce: Nonce,
        /// How many bytes the client has.
        bytes: u64,
    },
    /// Of the destination, by such a node: receipts. Answer: `Delivered`.
    Deliver(Vec<Delivery>),
    /// Of a node that takes data, by the destination: these were collected. Answer: `Forgot`.
    Forget(Name, Vec<StampId>),
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// `Signed<Sheet>`.
    Sheet(Vec<u8>),
    /// For each commitment in its order: `Signed<Stamp>`, durable, or `Signed<Denial>`.
    Stamps(Vec<Result<Vec<u8>, Vec<u8>>>),
    /// How busy.
    Load(Load),
    /// Send the data from this byte on, all of it; then comes `Receipt` or `Refused`.
    From(u64),
    /// `Signed<Receipt>`: the data is durable, and matches.
    Receipt(Vec<u8>),
    /// For each receipt in its order: durable, or `Signed<Denial>`: it never will be.
    Delivered(Vec<Result<(), Vec<u8>>>),
    /// They are gone, so many.
    Forgot(u32),
    /// Not done, as the node says that answers.
    Refused(Refusal),
    /// Not done: `Signed<Denial>`, with which the destination has refused this node's receipt for the stamp.
    Denied(Vec<u8>),
}
