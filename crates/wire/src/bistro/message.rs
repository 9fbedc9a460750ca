//! Requests and replies.

use super::{Commitment, Label, Nonce, Refusal, StampId};
use crate::mesh::Name;
use serde::{Deserialize, Serialize};

/// The longest request, bytes: [`MOST_DELIVERIES`] deliveries, and reserve.
pub const MAX_SUBMIT_REQUEST: usize = 256 << 10;

/// The longest reply, bytes: a sheet, or [`MOST_INTENTS`] stamps.
pub const MAX_SUBMIT_REPLY: usize = 256 << 10;

/// The maximum number of commitments in one request.
pub const MOST_INTENTS: usize = 256;

/// The maximum number of receipts in one request.
pub const MOST_DELIVERIES: usize = 256;

/// A commitment that a client requests a stamp for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The client's name for the data.
    pub label: Label,
    /// The data's size and hidden hash.
    pub commitment: Commitment,
}

/// A node's message to the destination that it has data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptDelivery {
    /// A `Signed<Stamp>` of the destination.
    pub stamp: Vec<u8>,
    /// A `Signed<Receipt>` of the node.
    pub receipt: Vec<u8>,
    /// The secret that opens the commitment.
    pub nonce: Nonce,
    /// The absolute path of the data on that node.
    pub path: Vec<u8>,
}

/// How busy a node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// The number of submissions being received.
    pub pushes: u32,
    /// Free space, bytes.
    pub room: u64,
}

/// A request on a channel; one at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SubmitRequest {
    /// To the destination: requests the box's sheet. Reply: `Sheet`.
    Sheet(Name),
    /// To the destination: commits to these before the deadline. Reply: `Stamps`.
    Commit(Name, Vec<Intent>),
    /// To a node that takes data: requests its load. Reply: `Load`.
    Load(Name),
    /// To a node that takes data: offers the data of a stamp. Reply: `From`, or `Receipt` if the node has all of it.
    Push {
        /// A `Signed<Stamp>`.
        stamp: Vec<u8>,
        /// The secret that opens the commitment.
        nonce: Nonce,
        /// The size of the client's data, bytes.
        bytes: u64,
    },
    /// From such a node to the destination: delivers receipts. Reply: `Delivered`.
    Deliver(Vec<ReceiptDelivery>),
    /// From the destination to a node that takes data: these were collected. Reply: `Forgot`.
    Forget(Name, Vec<StampId>),
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SubmitReply {
    /// A `Signed<Sheet>`.
    Sheet(Vec<u8>),
    /// For each commitment, in order: a `Signed<Stamp>`, stored durably, or a `Signed<Denial>`.
    Stamps(Vec<Result<Vec<u8>, Vec<u8>>>),
    Load(Load),
    /// The client must send all data from this byte on; then `Receipt` or `Refused` follows.
    From(u64),
    /// A `Signed<Receipt>`: the data is stored durably, and matches its commitment.
    Receipt(Vec<u8>),
    /// For each receipt, in order: it is stored durably, or a `Signed<Denial>` says that it never will be.
    Delivered(Vec<Result<(), Vec<u8>>>),
    /// The number of submissions deleted.
    Forgot(u32),
    /// The replying node refuses the request.
    Refused(Refusal),
    /// A `Signed<Denial>` with which the destination refused this node's receipt for the stamp.
    Denied(Vec<u8>),
}
