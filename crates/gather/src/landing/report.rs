//! The results and errors of a landing.

use crate::Changes;
use std::{
    io,
    path::{Path, PathBuf},
};
use thalweg_files::land::LandError;
use thalweg_units::ByteSize;
use thiserror::Error;

/// Two items that would land under one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collision {
    /// The name, below the directory.
    pub path: PathBuf,
    /// The first item, as `NODE:PATH`.
    pub one: String,
    pub other: String,
}

/// The collection cannot land here. Nothing was moved.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Different items have the same name; at least one collision.
    #[error("{}", collisions(.0))]
    Collisions(Vec<Collision>),
    /// Another collection is writing here.
    #[error("another collection is already writing to {}; wait for it or choose another directory", .0.display())]
    Locked(PathBuf),
    /// The target exists and is not a directory.
    #[error("{} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// The filesystem has too little space.
    #[error("the disk is full: {} needs {needed} more, and {free} are free; free some space and run the same command again", .into.display())]
    DiskFull {
        into: PathBuf,
        /// The required space, in whole blocks.
        needed: ByteSize,
        /// The space available to this user.
        free: ByteSize,
    },
    /// The filesystem has too few inodes.
    #[error("the file system of {} has {free} free inodes, and {needed} are needed for files, \
             directories and links; remove files there and run the same command again", .into.display())]
    NoInodes {
        into: PathBuf,
        /// The required number of inodes.
        needed: u64,
        /// The number available to this user.
        free: u64,
    },
    /// A system call failed.
    #[error("cannot {what} {}: {source}", .path.display())]
    Io {
        /// The action, a verb.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        source: io::Error,
    },
}

/// Makes a path printable: escapes control characters, because a line end in another host's name would forge a line.
pub(in super::super) fn printable(path: &Path) -> String {
    in_one_line(&path.display().to_string())
}

fn in_one_line(text: &str) -> String {
    thalweg_console::field(text).into_owned()
}

/// The maximum number of collisions named in a message.
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

/// The required work, as far as it is known at the beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequiredWork {
    /// Files to fetch or to resume.
    pub files: u64,
    /// Bytes to fetch.
    pub bytes: u64,
    /// Files that are already equal to those at the source.
    pub present_files: u64,
    pub present_bytes: u64,
    /// Other items to create or change.
    pub changes: Changes,
    /// Bytes of unfinished files that an earlier session left.
    pub resumed_bytes: u64,
    /// Files, symbolic links and directories that were left out, and the reasons.
    pub failed: Vec<FailedItem>,
    /// Warnings: too few inodes, and empty directories that will be replaced.
    pub remarks: Vec<String>,
    /// Items that are not collected on purpose.
    pub passed_over: Vec<PassedOver>,
}

/// The progress of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LandingProgress {
    /// Bytes written in this session.
    pub bytes: u64,
    /// Bytes to write in this session.
    pub of_bytes: u64,
    /// Files of this session that have their names.
    pub files: u64,
    /// Files to write in this session.
    pub of_files: u64,
}

/// An item that is missing here, or differs from that of its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedItem {
    /// The source's index.
    pub source: u32,
    /// Its path here, below the directory; if it could not be listed, its path at the source.
    pub path: PathBuf,
    /// What happened, and what the user can try.
    pub why: String,
}

/// An item that is never collected: a device, socket or pipe, or a file of Thalweg's own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PassedOver {
    /// The source's index.
    pub source: u32,
    /// Its path, as it would be here.
    pub path: PathBuf,
    /// Whether it is a record or an unfinished file of Thalweg.
    pub is_ours: bool,
}

/// The result of a landing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Files fetched completely, including empty ones.
    pub files: u64,
    /// Bytes written in this session.
    pub bytes: u64,
    /// Files that were already equal to those at the source.
    pub skipped: u64,
    /// Directories that are equal to those at the source.
    pub directories: u64,
    /// Symbolic links created or already present.
    pub links: u64,
    /// Other items created or changed.
    pub changes: Changes,
    /// Missing items and the reasons: not listed, given up, refused by this system, or not a file.
    pub failed: Vec<FailedItem>,
    /// Files neither completed nor given up when the session ended.
    pub unfinished: u64,
    /// Bytes of unfinished files that a later session reuses.
    pub kept_bytes: u64,
    /// Inventory numbers of files that were received in part or whole and are not here.
    pub lost: Vec<u32>,
    /// Why nothing more could be stored, if so.
    pub stopped: Option<LandError>,
}

impl Report {
    /// Whether every listed item is here.
    pub fn is_complete(&self) -> bool {
        self.failed.is_empty() && self.unfinished == 0 && self.stopped.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_in_names_are_escaped() {
        let path = PathBuf::from("a\u{1b}[2J\nb");
        let one = Collision { path, one: "x:/a\u{7}".into(), other: "y:/b".into() };
        let said = OpenError::Collisions(vec![one]).to_string();
        assert!(!said.contains(char::is_control), "{said:?}");
        assert!(said.contains("a\\u001b[2J\\nb would be both x:/a\\u0007"), "{said}");
    }
}
