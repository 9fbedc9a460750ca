//! The file of an entry: its data, and behind that what is to be known of it.
//!
//! ```text
//! data ‖ postcard(Label) ‖ BLAKE3 of that:32 ‖ its length:u32
//! ```
//!
//! The label is written last, so that a file without a good one is of a transfer that broke off.

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io,
    os::unix::fs::{FileExt as _, MetadataExt as _},
};
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::object::{Check, Failure, SpoolId, decode, encode};

/// A part of an entry, as it came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// How many of the data's bytes; 0 if it did not come.
    pub bytes: u64,
    /// Their hash, or what was said instead.
    pub check: Result<Check, Failure>,
}

/// What is known of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Label {
    /// For whom it was fetched.
    pub owner: NodeId,
    /// What that one calls it.
    pub id: SpoolId,
    /// When it was asked for.
    pub since: WallTime,
    /// Its parts, one behind the other.
    pub parts: Vec<Part>,
    /// Its owner's words about it, for itself.
    pub note: Vec<u8>,
}

/// Hash and length behind the label.
const TAIL: u64 = 36;

/// A longer one is none: 100,000 parts.
const LONGEST: u32 = 8 << 20;

impl Label {
    /// Bytes of data.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    /// Writes it behind the data; returns the file's length.
    ///
    /// # Errors
    /// The system's.
    pub fn write(&self, file: &File) -> io::Result<u64> {
        let at = self.bytes();
        let mut tail = encode(self).split_off(4);
        let (hash, length) = (*blake3::hash(&tail).as_bytes(), tail.len() as u32);
        tail.extend(hash);
        tail.extend(length.to_be_bytes());
        file.write_all_at(&tail, at)?;
        Ok(at + tail.len() as u64)
    }

    /// Reads it.
    ///
    /// # Errors
    /// The system's; `InvalidData` if there is none.
    pub fn read(file: &File) -> io::Result<Self> {
        let none = || io::Error::from(io::ErrorKind::InvalidData);
        let size = file.metadata()?.size();
        let end = size.checked_sub(TAIL).ok_or_else(none)?;
        let mut tail = [0; TAIL as usize];
        file.read_exact_at(&mut tail, end)?;
        let (hash, length) = tail.split_at(32);
        let length = length.try_into().map(u32::from_be_bytes).map_err(|_| none())?;
        let at = end.checked_sub(length.into()).filter(|_| length <= LONGEST).ok_or_else(none)?;
        let mut label = vec![0; length as usize];
        file.read_exact_at(&mut label, at)?;
        if blake3::hash(&label).as_bytes() != hash {
            return Err(none());
        }
        let label: Self = decode(&label).map_err(|_| none())?;
        if label.bytes() == at { Ok(label) } else { Err(none()) }
    }
}

/// In words, for who asked.
pub(super) fn in_words(what: &str, e: &io::Error) -> Failure {
    let full = [Errno::NOSPC, Errno::DQUOT].map(|errno| Some(errno.raw_os_error()));
    Failure::System(match full.contains(&e.raw_os_error()) {
        true => format!(
            "the disk of the spool is full ({what}: {e}); free some, or lower `[files] spool_bytes`"
        ),
        false => format!("the spool cannot be used ({what}: {e})"),
    })
}
