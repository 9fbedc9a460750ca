//! What a landing says.

use crate::Changes;
use std::{
    io,
    path::{Path, PathBuf},
};
use thalweg_files::land::LandError;
use thalweg_units::ByteSize;
use thiserror::Error;

/// Two things that would land under one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collision {
    /// The name, below the directory.
    pub path: PathBuf,
    /// The first thing, as `NODE:PATH`.
    pub one: String,
    /// The other.
    pub other: String,
}

/// A collection cannot land here. Nothing was moved.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Different things under one name; at least one of them.
    #[error("{}", collisions(.0))]
    Collisions(Vec<Collision>),
    /// Another collection is at work.
    #[error("another collection is already landing in {}; wait for it or choose another directory", .0.display())]
    Locked(PathBuf),
    /// It is there, and no directory.
    #[error("{} is no directory", .0.display())]
    NotADirectory(PathBuf),
    /// No room on the filesystem.
    #[error("the disk is full: {} needs {needed} more, and {free} are free; free some space and run the same command again", .into.display())]
    DiskFull {
        /// The directory.
        into: PathBuf,
        /// What is missing, in whole blocks.
        needed: ByteSize,
        /// What is free for this user.
        free: ByteSize,
    },
    /// Fewer files can be made on the filesystem than are to be.
    #[error("the file system of {} takes {free} more files, directories and links (inodes), and {needed} are needed; remove files there and run the same command again", .into.display())]
    NoInodes {
        /// The directory.
        into: PathBuf,
        /// What is to be made.
        needed: u64,
        /// What is free for this user.
        free: u64,
    },
    /// The system refused.
    #[error("cannot {what} {}: {source}", .path.display())]
    Io {
        /// A verb.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
}

/// A path for a message: a line end in a name of another host would begin a line of its own.
pub(in super::super) fn printable(path: &Path) -> String {
    in_one_line(&path.display().to_string())
}

fn in_one_line(text: &str) -> String {
    thalweg_console::field(text).into_owned()
}

/// The most collisions that are named in a message.
const NAMED: usize = 5;

fn collisions(all: &[Collision]) -> String {
    let names = all.iter().take(NAMED).map(|c| {
        format!(
            "{} would be both {} and {}",
            printable(&c.path),
            in_one_line(&c.one),
            in_one_line(&c.other)
        )
    });
    let mut text = names.collect::<Vec<_>>().join("; ");
    if let Some(more) = all.len().checked_sub(NAMED).filter(|more| *more > 0) {
        text.push_str(&format!("; and {more} more"));
    }
    text + ": choose other paths, or a directory for each node"
}

/// What is to be done, as far as it was known at the beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// Files to fetch, or to go on with.
    pub files: u64,
    /// Bytes to fetch.
    pub bytes: u64,
    /// Files that are here as they are there.
    pub present_files: u64,
    /// Their bytes.
    pub present_bytes: u64,
    /// Other items to create or change.
    pub changes: Changes,
    /// Bytes of unfinished files that an earlier session left.
    pub resumed_bytes: u64,
    /// Files, symbolic links and directories that were left out, and why.
    pub failed: Vec<Failed>,
    /// Warnings: that the file system holds fewer files, and which empty directories will be replaced.
    pub remarks: Vec<String>,
    /// What is not missed.
    pub passed_over: Vec<PassedOver>,
}

/// How far a source is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of this session that are written here.
    pub bytes: u64,
    /// Of how many.
    pub of_bytes: u64,
    /// Files of this session that are here under their names.
    pub files: u64,
    /// Of how many.
    pub of_files: u64,
}

/// Something that is not here as it is at its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The source's index.
    pub source: u32,
    /// Its path here, below the directory; of what could not be listed, its path there.
    pub path: PathBuf,
    /// What happened and what to try.
    pub why: String,
}

/// Something that is left out everywhere: a device, socket or pipe, or Thalweg's own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PassedOver {
    /// The source's index.
    pub source: u32,
    /// Its path, as it would be here.
    pub path: PathBuf,
    /// Whether it is a record or a file in the making of Thalweg's.
    pub is_ours: bool,
}

/// What came out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Files fetched and complete, empty ones among them.
    pub files: u64,
    /// Bytes written in this session.
    pub bytes: u64,
    /// Files that were here as they are there.
    pub skipped: u64,
    /// Directories that are here as they are there.
    pub directories: u64,
    /// Symbolic links made or already here.
    pub links: u64,
    /// Other items that were created or changed.
    pub changes: Changes,
    /// What is not here, and why: not listed, given up, refused by the system here, no file.
    pub failed: Vec<Failed>,
    /// Files that were neither completed nor given up: the session ended before.
    pub unfinished: u64,
    /// Bytes of unfinished files that a later session takes over.
    pub kept_bytes: u64,
    /// Numbers in the inventory of files that came in part or whole, and are not here.
    pub lost: Vec<u32>,
    /// Why nothing more could be kept, if so.
    pub stopped: Option<LandError>,
}

impl Report {
    /// Whether everything that was listed is here.
    pub fn is_complete(&self) -> bool {
        self.failed.is_empty() && self.unfinished == 0 && self.stopped.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_move_no_cursor() {
        let path = PathBuf::from("a\u{1b}[2J\nb");
        let one = Collision { path, one: "x:/a\u{7}".into(), other: "y:/b".into() };
        let said = OpenError::Collisions(vec![one]).to_string();
        assert!(!said.contains(char::is_control), "{said:?}");
        assert!(said.contains("a\\u001b[2J\\nb would be both x:/a\\u0007"), "{said}");
    }
}
