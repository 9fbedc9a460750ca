//! Files that are being received: locking, ranges, journal, sync, verification, publication.
//!
//! The input is pieces of a file with their offsets, in any order and from several sources. The output is the file
//! under its final name, or the state that a later run needs to continue.
//!
//! ```text
//! pieces ─► Writer (a thread) ─► Part ─┬─ bytes   ─► .NAME.thalweg-part    ─ fdatasync
//!                                      └─ records ─► .NAME.thalweg-journal ─ fdatasync
//! all bytes there ─► digest ─► sync ─► rename ─► NAME
//! an interrupted run: part, journal ─► records checked against the bytes ─► ranges still missing
//! ```
//!
//! For a target `NAME`, `.NAME.thalweg-part` beside it holds the bytes and `.NAME.thalweg-journal` records which of
//! them are valid. Nothing appears under the final name before every byte has arrived and is verified and synced.
//!
//! Safety depends on the order of writes: bytes, fdatasync of the bytes, record, fdatasync of the record. So the
//! journal never claims more than the disk holds, whenever a process is killed or the power fails. Records contain the
//! BLAKE3 of their bytes as received from the network. When a part is opened again, every record is checked against the
//! file, and ranges that do not match count as missing.
//!
//! [`Part`] blocks on the disk; [`Writer`] runs it on a thread of its own.

pub mod acl;
mod attributes;
mod background;
pub mod describe;
mod digest;
mod error;
mod fidelity;
mod final_name;
pub mod hard_link;
pub mod holes;
mod journal;
mod key;
mod leftover;
pub mod link_target;
mod mark;
mod mode;
pub mod names;
mod parked;
mod part;
mod part_files;
mod publisher;
mod ranges;
mod reader;
mod runs;
mod stored_time;
mod whole_digests;
mod writer;
pub mod xattr;

pub use attributes::{Attributes, FileMetadata, Owner};
pub use digest::{Digest, DigestError, PieceDigests};
pub use error::PartError;
pub use fidelity::{Fidelity, gives_away, special_bits_note};
pub use key::{PartKey, Validator};
pub use mark::is_published_as;
pub use mode::umask;
pub use parked::ParkedPart;
pub use part::{ADOPTED, Batch, CompletePart, NamedPart, Part};
pub use publisher::Publisher;
pub use publisher::syncs_as_a_whole;
pub use ranges::Ranges;
pub use reader::PartReader;
pub use stored_time::StoredTimes;
pub use writer::{WriteFailed, Writer};
