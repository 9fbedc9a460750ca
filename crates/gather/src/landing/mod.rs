//! The destination's disk: from listings to the files of a collection under one directory.
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

mod batch;
mod begun;
mod crew;
mod ending;
mod hard_links;
mod large;
mod layout;
mod lock;
mod make;
mod open;
mod options;
mod plan;
mod report;
mod shared;
mod small;
mod survey;
#[cfg(test)]
mod tests;
mod tree;
mod trouble;
mod work;
mod writer;

pub use options::{Layout, Listed, Options, Sums, as_root};
pub(super) use report::printable;
pub use report::{Collision, Failed, OpenError, Outlook, PassedOver, Progress, Report};
pub use thalweg_part::Fidelity;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use std::{io, path::Path, sync::Arc};
use thalweg_base::job::Job;
use thalweg_files::{
    inventory::{FileNo, Inventory},
    land::{Land, LandError},
};
use work::Work;

/// A collection's files in the making. Cloning gives another hand on the same.
///
/// Dropping the last one without [`finish`](Self::finish) is like a crash; it waits for
/// the writes under way.
#[derive(Clone, Debug)]
pub struct Landing {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    outlook: Outlook,
    job: Job,
    /// `None` if it only looks.
    work: Option<Arc<Work>>,
}

impl Landing {
    /// Finds out what is missing below `into`, makes directories, symbolic links and empty files, and
    /// locks it against other collections. With [`Options::dry_run`] it only looks.
    ///
    /// Files of the inventory with nothing missing are complete already; they only wait for
    /// their names. Blocks on the disk, and on [`Sums`]: not for a thread of the runtime.
    ///
    /// # Errors
    ///
    /// [`OpenError`]; nothing was moved then.
    pub fn open(
        into: &Path,
        listed: Vec<Listed>,
        options: Options,
    ) -> Result<(Self, Inventory), OpenError> {
        open::open(into, &listed, options)
    }

    fn looking(outlook: Outlook, job: Job) -> Self {
        Self { inner: Arc::new(Inner { outlook, job, work: None }) }
    }

    fn working(outlook: Outlook, work: Work) -> Self {
        let job = work.shared().job.clone();
        Self { inner: Arc::new(Inner { outlook, job, work: Some(Arc::new(work)) }) }
    }

    /// What [`open`](Self::open) found.
    pub fn outlook(&self) -> &Outlook {
        &self.inner.outlook
    }

    /// The durable record: an earlier session's, if this goes on with it.
    pub fn job(&self) -> &Job {
        &self.inner.job
    }

    /// How far each source is, by its index; all of them, also those with nothing to fetch.
    pub fn progress(&self) -> Vec<Progress> {
        let Some(work) = &self.inner.work else { return Vec::new() };
        let known = work.shared().progress();
        let most = known.keys().last().map_or(0, |source| source + 1);
        (0..most).map(|source| known.get(&source).copied().unwrap_or_default()).collect()
    }

    /// Completes what can be completed: the last batch, directories' modes and times, sync. What is not
    /// complete is kept as far as it can be resumed. Writes from now on are refused.
    ///
    /// Also the end of a session that is interrupted. A second call gives the same report.
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
                    why: "nothing is written when it is only looked".into(),
                    kind: io::ErrorKind::Unsupported,
                }),
            }
        })
    }

    fn give_up(&self, file: FileNo, why: String) {
        self.inner.work.iter().for_each(|work| work.give_up(file.0, why.clone()));
    }
}
