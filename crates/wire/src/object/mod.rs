//! The protocol of a channel `thalweg/object/1`: files between nodes.
//!
//! ```text
//! client →  request                    one at a time on a channel; several channels for more
//! client ←  reply …                    [`Request`] says which replies come, and in which order
//! client ←  bytes                      after `Reply::Bytes`, exactly as many as it says
//! ```
//!
//! All messages are `length:u32 ‖ postcard`, big-endian; bytes of files are not framed. The one who
//! serves answers what it cannot do with [`Reply::Failed`] and goes on; only a message that is
//! not readable ends the channel.

mod entry;
mod failure;
mod path;
mod request;
mod root;
mod spool;

pub use entry::{Entry, Kind, Snapshot};
pub use failure::{Failure, MAX_WHY};
pub use path::{FilePath, PathError};
pub use request::{
    Check, FileRef, ListRequest, MAX_REPLY, MAX_REQUEST, MAX_STORE, MessageError, ReadRequest,
    Reply, Request, decode, encode, length,
};
pub use root::{base, pattern};
pub use spool::{Denied, Grant, Holding, JobId, MAX_NOTE, MAX_PART, MAX_PARTS, SpoolId, Ticket};
