//! Where a collection lands: from listings to files under one directory.
//!
//! ```text
//! open:   listings ─► layout (names, collisions) ─► compare (what is here) ─► Inventory
//! write:  pieces ─► writers: small files whole, under temporary names │ large ones by `part`
//!                      └─► batches: one syncfs, then the renames
//! finish: the last batch, directories' modes and times (deepest first), sync, Report
//! ```
//!
//! Nothing is shown under its name before all of it is on the disk with its mode and times. A
//! crash costs the small files of the batches under way and what large ones got since their
//! last checkpoint; the next [`Landing::open`] into the same directory goes on from there.
//!
//! Names. As with `rsync`, `NODE:/a/data` lands in `DIR/data`, and `NODE:/a/data/` in `DIR` itself.
//! Of a pattern, what it matched lands under its path behind the last `/` before the first
//! wildcard. Where several nodes are collected from, each has a directory of its own
//! ([`Layout::ByNode`]), so that equal names do not meet; with [`Layout::Flat`] directories are
//! merged, and two different things under one name are refused before anything is moved.

mod options;
mod report;

pub use options::{Layout, Listed, Options, Sums};
pub use report::{Collision, Failed, OpenError, Outlook, Progress, Report};

use super::{FileNo, Inventory, Land, LandError};
use crate::{daemon::BoxFuture, job::Job};
use bytes::Bytes;
use std::path::Path;

/// A collection's files in the making. Cloning gives another hand on the same.
///
/// Dropping the last one without [`finish`](Self::finish) is like a crash; it waits for
/// the write under way.
#[derive(Clone, Debug)]
pub struct Landing {}

impl Landing {
    /// Finds out what is missing below `into`, makes directories, symbolic links and empty files, and
    /// locks it against other collections. With [`Options::dry_run`] it only looks.
    ///
    /// Blocks on the disk, and on [`Sums`]: not for a thread of the runtime.
    ///
    /// # Errors
    ///
    /// [`OpenError`]; nothing was moved then.
    pub fn open(
        into: &Path,
        listed: Vec<Listed>,
        options: Options,
    ) -> Result<(Self, Inventory), OpenError> {
        _ = (into, listed, options);
        Err(OpenError::Locked(into.to_owned()))
    }

    /// What [`open`](Self::open) found.
    pub fn outlook(&self) -> &Outlook {
        unreachable!()
    }

    /// The durable record: an earlier session's, if this goes on with it.
    pub fn job(&self) -> &Job {
        unreachable!()
    }

    /// How far each source is, by its index; all of them, also those with nothing to fetch.
    pub fn progress(&self) -> Vec<Progress> {
        Vec::new()
    }

    /// Completes what can be completed: the last batch, directories' modes and times, sync. What is not
    /// complete is kept as far as it can be resumed. Writes from now on are refused.
    ///
    /// Also the end of a session that is interrupted. A second call gives the same report.
    pub async fn finish(&self) -> Report {
        Report::default()
    }
}

impl Land for Landing {
    fn write(&self, file: FileNo, at: u64, bytes: Bytes) -> BoxFuture<'_, Result<(), LandError>> {
        _ = (file, at, bytes);
        Box::pin(async { Ok(()) })
    }

    fn give_up(&self, file: FileNo, why: String) {
        _ = (file, why);
    }
}
