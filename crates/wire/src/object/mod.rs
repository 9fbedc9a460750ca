//! The protocol of the channel `thalweg/object/1`: files between nodes.
//!
//! ```text
//! client →  request                    one at a time on a channel; more on several channels
//! client ←  reply …                    [`Request`] specifies the replies and their order
//! client ←  bytes                      after `Reply::Bytes`, which has their number
//! ```
//!
//! All messages are `length:u32 ‖ postcard`, big-endian; bytes of files are not framed. The serving node replies with
//! [`Reply::Failed`] to a request that it cannot carry out, and the channel continues; only an undecodable message ends
//! the channel.

mod delivery;
mod entry;
mod failure;
mod memory;
mod metadata;
mod path;
mod request;
mod root;
mod spool;
mod time;

pub use delivery::{
    Comparison, Delivery, FailedEntries, Link, Links, MAX_DELIVERED, MAX_HASHED, MAX_KEPT,
    MAX_NAMED, MAX_REASONS, PathState, RemovalReport, Rules, SurplusRemoval, TransferHashes,
};
pub use entry::{Entry, Kind, Snapshot};
pub use failure::{Failure, MAX_WHY};
pub(crate) use metadata::Field;
pub use metadata::{
    DescribedEntry, ExtraMetadata, MAX_HOLES, MAX_XATTRS, MetadataError, Owners, Xattr,
};
pub use path::{FilePath, PathError, is_reserved};
pub use request::{
    FileRef, Keep, ListRequest, MAX_REPLY, MAX_REQUEST, MAX_STORE, MessageError, ReadRequest,
    Reply, Request, TransferHash, decode, encode, length,
};
pub use root::{base, pattern};
pub use spool::{
    DeniedGrant, Grant, Holding, JobId, MAX_NOTE, MAX_PART, MAX_PARTS, SpoolId, Ticket,
};
pub use time::{FileTime, NanosError};
