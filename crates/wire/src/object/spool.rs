//! Transfers through other nodes: tickets, and data that nodes hold in a spool for other members.

use super::{Failure, ReadRequest};
use crate::mesh::Name;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The maximum size of a part of a ticket, bytes. Each end holds a part in memory, since its hash is checked before it
/// is stored.
pub const MAX_PART: u64 = 1 << 20;

/// The maximum number of parts of a ticket, and of an entry in the spool.
pub const MAX_PARTS: usize = 16_384;

/// The id of a collection; the same in all its sessions, also after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub [u8; 16]);

/// The id of data that a node holds for a member. The requesting member chooses it, and only that member knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SpoolId {
    /// The collection.
    pub job: JobId,
    /// The number of the entry, unique in the collection over all its sessions.
    pub number: u64,
}

/// The longest note on an entry, bytes: some 29 for each of [`MAX_PARTS`] parts.
pub const MAX_NOTE: usize = 480 << 10;

/// A complete entry of a collection in a spool, as reported to its owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// The entry's [`SpoolId::number`].
    pub number: u64,
    /// The owner's note, which only the owner interprets.
    pub note: Vec<u8>,
}

/// A secret with which one member may read parts of files once, within an hour.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ticket(pub [u8; 16]);

/// The secret is not printed.
impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticket(…)")
    }
}

/// The reads that a ticket is requested for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Parts of files, sent in this order: at most [`MAX_PARTS`], each of at most [`MAX_PART`] bytes.
    pub reads: Vec<ReadRequest>,
    /// The member that may read them.
    pub to: Name,
}

/// Why a grant gets no ticket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeniedGrant {
    /// The first impossible read, as an index of [`Grant::reads`].
    pub read: u32,
    pub why: Failure,
}
