//! The file of an entry: its data, followed by a label that describes it.
//!
//! ```text
//! data ‖ postcard(Label) ‖ BLAKE3 of that:32 ‖ its length:u32
//! ```
//!
//! The label is written last, so a file without a valid label belongs to an interrupted transfer.

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io,
    os::unix::fs::{FileExt as _, MetadataExt as _},
};
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::object::{Failure, SpoolId, TransferHash, decode, encode};

/// A part of an entry, as it was received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpooledPart {
    /// The length in bytes; 0 if the part was not received.
    pub bytes: u64,
    /// The hash of the bytes, or why the part was not received.
    pub check: Result<TransferHash, Failure>,
}

/// The description of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Label {
    /// The member that requested it.
    pub owner: NodeId,
    /// The id that the owner chose.
    pub id: SpoolId,
    /// When it was requested.
    pub since: WallTime,
    /// Its parts, in the order of their data.
    pub parts: Vec<SpooledPart>,
    /// The owner's note, which only the owner reads.
    pub note: Vec<u8>,
}

/// The bytes of hash and length behind the label.
const TAIL: u64 = 36;

/// The longest valid label, bytes: some 100,000 parts.
const MAX_LABEL: u32 = 8 << 20;

impl Label {
    /// The bytes of data.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    /// Writes the label behind the data. Returns the file's length.
    ///
    /// # Errors
    /// The system's errors.
    pub fn write(&self, file: &File) -> io::Result<u64> {
        let at = self.bytes();
        let mut tail = encode(self).split_off(4);
        let (hash, length) = (*blake3::hash(&tail).as_bytes(), tail.len() as u32);
        tail.extend(hash);
        tail.extend(length.to_be_bytes());
        file.write_all_at(&tail, at)?;
        Ok(at + tail.len() as u64)
    }

    /// Reads the label of a file.
    ///
    /// # Errors
    /// The system's errors; `InvalidData` if the file has no valid label.
    pub fn read(file: &File) -> io::Result<Self> {
        let none = || io::Error::from(io::ErrorKind::InvalidData);
        let size = file.metadata()?.size();
        let end = size.checked_sub(TAIL).ok_or_else(none)?;
        let mut tail = [0; TAIL as usize];
        file.read_exact_at(&mut tail, end)?;
        let (hash, length) = tail.split_at(32);
        let length = length.try_into().map(u32::from_be_bytes).map_err(|_| none())?;
        let at = end.checked_sub(length.into()).filter(|_| length <= MAX_LABEL).ok_or_else(none)?;
        let mut label = vec![0; length as usize];
        file.read_exact_at(&mut label, at)?;
        if blake3::hash(&label).as_bytes() != hash {
            return Err(none());
        }
        let label: Self = decode(&label).map_err(|_| none())?;
        if label.bytes() == at { Ok(label) } else { Err(none()) }
    }
}

/// The failure for an error of the spool's disk, for the requesting peer.
pub(super) fn failure_of(what: &str, e: &io::Error) -> Failure {
    let full = [Errno::NOSPC, Errno::DQUOT].map(|errno| Some(errno.raw_os_error()));
    Failure::System(match full.contains(&e.raw_os_error()) {
        true => format!(
            "the disk of the spool is full ({what}: {e}); free some space, or lower `[files] spool_bytes`"
        ),
        false => format!("the spool cannot be used ({what}: {e})"),
    })
}
