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

mod delivery;
mod entry;
mod failure;
mod memory;
mod more;
mod path;
mod request;
mod root;
mod spool;
mod time;

pub use delivery::{
    Checks, Compared, Delivery, Found, Link, Links, MAX_DELIVERED, MAX_HASHED, MAX_KEPT, MAX_NAMED,
    MAX_REASONS, Removed, Rules, Surplus, Undone,
};
pub use entry::{Entry, Kind, Snapshot};
pub use failure::{Failure, MAX_WHY};
pub(crate) use more::Field;
pub use more::{Described, MAX_HOLES, MAX_XATTRS, More, MoreError, Owners, Xattr};
pub use path::{FilePath, PathError, is_ours};
pub use request::{
    Check, FileRef, Keep, ListRequest, MAX_REPLY, MAX_REQUEST, MAX_STORE, MessageError,
    ReadRequest, Reply, Request, decode, encode, length,
};
pub use root::{base, pattern};
pub use spool::{Denied, Grant, Holding, JobId, MAX_NOTE, MAX_PART, MAX_PARTS, SpoolId, Ticket};
pub use time::{FileTime, NanosError};
