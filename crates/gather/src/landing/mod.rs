//! Writes a collection to the destination's disk: turns listings into files below one directory.
//!
//! ```text
//! open:   listings ─► layout (names, collisions) ─► compare (what is here) ─► Inventory
//! write:  pieces ─► writers: small files whole, under temporary names │ large ones by `part`
//!                      └─► batches: one syncfs, then the renames
//! finish: the last batch, directories' modes and times (deepest first), sync, Report
//! ```
//!
//! A file appears under its name only after all of its data is on the disk with its mode and times. A crash costs the
//! small files of the unfinished batches and the bytes that large files received since their last checkpoint; the next
//! [`Landing::open`] into the same directory continues from there.
//!
//! Names: as with `rsync`, `NODE:/a/data` lands in `DIR/data`, and `NODE:/a/data/` in `DIR` itself. Matches of a
//! pattern land under their paths behind the last `/` before the first wildcard. If several nodes are collected, each
//! gets its own directory ([`Layout::ByNode`]), so that equal names do not collide. [`Layout::Flat`] merges
//! directories, and refuses two different items under one name before anything is moved.

mod batch;
mod execution;
mod finish;
mod hard_links;
mod large;
mod layout;
mod lock;
mod open;
mod options;
mod plan;
mod preparation;
mod report;
mod resumed_parts;
mod small;
mod state;
mod step_error;
mod survey;
#[cfg(test)]
mod tests;
mod threads;
mod tree;
mod writer;

pub use options::{ChecksumSource, Layout, Listing, Options, as_root};
pub(super) use report::printable;
pub use report::{
    Collision, FailedItem, LandingProgress, OpenError, PassedOver, Report, RequiredWork,
};
pub use thalweg_part::Fidelity;

use bytes::Bytes;
use execution::LandingWork;
use futures_util::future::BoxFuture;
use std::{io, path::Path, sync::Arc};
use thalweg_base::job::Job;
use thalweg_files::{
    inventory::{FileNo, Inventory},
    land::{Land, LandError},
};

/// A collection during its writing. Clones are handles of the same collection.
///
/// Dropping the last one without [`finish`](Self::finish) has the effect of a crash, but waits for writes under way.
#[derive(Clone, Debug)]
pub struct Landing {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    required_work: RequiredWork,
    job: Job,
    /// `None` in a dry run.
    work: Option<Arc<LandingWork>>,
}

impl Landing {
    /// Finds the missing data below `into`, creates directories, symbolic links and empty files, and locks `into`
    /// against other collections. With [`Options::dry_run`] it changes nothing.
    ///
    /// Files of the inventory without missing ranges are already complete and only wait for their names. Blocks on the
    /// disk and on [`ChecksumSource`], so it must not run on a thread of the async runtime.
    ///
    /// # Errors
    ///
    /// Returns [`OpenError`]; nothing was moved then.
    pub fn open(
        into: &Path,
        listed: Vec<Listing>,
        options: Options,
    ) -> Result<(Self, Inventory), OpenError> {
        open::open(into, &listed, options)
    }

    fn for_dry_run(required_work: RequiredWork, job: Job) -> Self {
        Self { inner: Arc::new(Inner { required_work, job, work: None }) }
    }

    fn with_work(required_work: RequiredWork, work: LandingWork) -> Self {
        let job = work.shared().job.clone();
        Self { inner: Arc::new(Inner { required_work, job, work: Some(Arc::new(work)) }) }
    }

    /// The result of [`open`](Self::open).
    pub fn required_work(&self) -> &RequiredWork {
        &self.inner.required_work
    }

    /// The durable record; the one of an earlier session if this landing resumes it.
    pub fn job(&self) -> &Job {
        &self.inner.job
    }

    /// The progress of each source, by its index. Sources with nothing to fetch are included.
    pub fn progress(&self) -> Vec<LandingProgress> {
        let Some(work) = &self.inner.work else { return Vec::new() };
        let known = work.shared().progress();
        let most = known.keys().last().map_or(0, |source| source + 1);
        (0..most).map(|source| known.get(&source).copied().unwrap_or_default()).collect()
    }

    /// Completes everything possible: writes the last batch, sets the directories' modes and times, and syncs.
    /// Incomplete large files are kept for a later session. Later writes are refused.
    ///
    /// Also ends an interrupted session. A second call returns the same report.
    pub async fn finish(&self) -> Report {
        let Some(work) = self.inner.work.clone() else { return Report::default() };
        let ended = tokio::task::spawn_blocking(move || work.end()).await;
        ended.unwrap_or_else(|_| Report { stopped: Some(died()), ..Report::default() })
    }
}

fn died() -> LandError {
    let why = "the thread that completes the collection died: run the same command again".into();
    LandError::All { why, kind: io::ErrorKind::Other }
}

impl Land for Landing {
    fn write(&self, file: FileNo, at: u64, bytes: Bytes) -> BoxFuture<'_, Result<(), LandError>> {
        Box::pin(async move {
            match &self.inner.work {
                Some(work) => work.write(file.0, at, bytes).await,
                None => Err(LandError::All {
                    why: "a dry run writes nothing".into(),
                    kind: io::ErrorKind::Unsupported,
                }),
            }
        })
    }

    fn give_up(&self, file: FileNo, why: String) {
        self.inner.work.iter().for_each(|work| work.give_up(file.0, why.clone()));
    }
}
