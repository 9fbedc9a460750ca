//! Data that goes by way of other nodes: tickets, and what nodes hold of others' data.

use super::{Failure, ReadRequest};
use crate::mesh::Name;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The most bytes of a part of a ticket: its hash is known before any of it is kept, so that each
/// end holds a part in memory.
pub const MAX_PART: u64 = 1 << 20;

/// The most parts of a ticket, and of an entry of the spool.
pub const MAX_PARTS: usize = 16_384;

/// Which collection data belongs to; the same in all its sessions, also after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub [u8; 16]);

/// Names data that a node holds for a member; drawn by who asks for it, and known to it alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SpoolId {
    /// The collection.
    pub job: JobId,
    /// Another one for each entry of the collection, in all its sessions.
    pub number: u64,
}

/// The longest note on an entry: some 29 bytes for each of [`MAX_PARTS`] parts.
pub const MAX_NOTE: usize = 480 << 10;

/// A whole entry of a collection, as its owner is told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// Its [`SpoolId::number`].
    pub number: u64,
    /// What its owner wrote on it: words for itself.
    pub note: Vec<u8>,
}

/// A secret with which one member may read something once, for an hour.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ticket(pub [u8; 16]);

/// Secret as it is.
impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticket(…)")
    }
}

/// What a ticket shall be for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Parts of files, one behind the other: at most [`MAX_PARTS`], each of at most [`MAX_PART`]
    /// bytes.
    pub reads: Vec<ReadRequest>,
    /// The member who may read them.
    pub to: Name,
}

/// There is no ticket for this.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denied {
    /// The first read that is not possible, as an index of [`Grant::reads`].
    pub read: u32,
    /// Why.
    pub why: Failure,
}
