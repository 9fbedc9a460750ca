//! The results of earlier transfers by this host's user, for each path, shared by all processes.
//!
//! They are stored in one file in the state directory (or the cache directory without one): estimates by origin and
//! path, bounded, written as a whole and renamed. The file is only a hint: if it is lost, locked or corrupt, nothing
//! else is affected.
//!
//! Estimates are kept in a [`thalweg_measure::Table`]. New samples are merged as in UKAIRO's Algorithm 2: the mean of
//! the current score and the new value, which halves the weight of the past with each transfer.
//!
//! Only the rate of one path alone is exact: the winner's, in completion. The rates of the others in sampling, in
//! competition with each other, are lower bounds: they order paths about which nothing better is known, never lower an
//! exact rate, and replace it once they are newer and higher. This does not lock in a winner. Its rate counts for one
//! day and is no prior for the choice of a large file's path, which is sampled each time. It decides two things: the
//! order in which relays become candidates, where one place is left for an unknown one; and the path of a small file,
//! which is the direct one unless another is expected to be faster by a fifth and 50 ms.
//!
//! Several processes may learn at the same time: each keeps its own changes, and on saving applies them to the present
//! contents of the file, so that nothing is lost or counted twice.

mod blame;
mod record;
mod state;
mod store;
#[cfg(test)]
mod tests;

pub use blame::QUARANTINE;
pub use thalweg_measure::Bound;

use serde::{Deserialize, Serialize};
use state::{HistoryChange, HistoryState};
use std::{
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
    time::Duration,
};
use store::HistoryFile;
pub(crate) use store::lock;
use thalweg_base::durable;
use thalweg_plan::selection::Prior;
use thalweg_units::{Rate, WallTime};

/// The most unsaved changes, the oldest dropped first: as many as there can be estimates; a download adds a dozen.
const MAX_CHANGES: usize = state::MAX_ESTIMATES;

/// What one transfer observed of one path.
#[derive(Clone, Debug, PartialEq)]
pub struct PathObservation {
    /// The path's name: `direct`, a relay, a chain, with its interface.
    pub path: String,
    /// The rate that it reached.
    pub rate: Rate,
    /// The time from dialling to the first byte.
    pub setup: Duration,
    /// Whether the path itself was the limit.
    pub bound: Bound,
}

/// What is known of one path to one origin.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryEntry {
    /// `scheme://host:port`.
    pub origin: String,
    pub path: String,
    /// The expected rate.
    pub rate: Rate,
    /// Whether the rate is exact or a lower bound.
    pub bound: Bound,
    /// The time from dialling to the first byte, if it is known.
    pub setup: Option<Duration>,
    /// How long ago it was last observed.
    pub age: Duration,
    /// Whether it is recent enough to be used (1 day).
    pub is_valid: bool,
}

/// A relay that delivered altered bytes from one origin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantinedRelay {
    pub relay: String,
    /// `scheme://host:port`; empty in a file of a version that did not record it.
    #[serde(default)]
    pub origin: String,
    /// What it did, for people.
    pub why: String,
    /// When the alteration was found.
    pub since: WallTime,
}

/// The history of this host, stored in one file.
#[derive(Debug)]
pub struct History {
    file: PathBuf,
    memory: HistoryState,
    /// Changes that are not saved yet.
    changes: VecDeque<HistoryChange>,
    /// The time of the last change.
    now: WallTime,
    problem: Option<String>,
}

impl History {
    /// Reads the file. The history is empty if the file does not exist or cannot be read.
    ///
    /// A corrupt file is moved aside (`FILE.damaged`), once; [`History::problem`] then returns a message.
    pub fn open(file: &Path) -> Self {
        let (memory, problem) = match store::read(file) {
            Ok(HistoryFile::Valid(memory)) => (memory, None),
            Ok(HistoryFile::Newer(format)) => (HistoryState::default(), Some(newer(file, format))),
            Ok(HistoryFile::Damaged(why)) => (HistoryState::default(), Some(set_aside(file, &why))),
            Err(e) => {
                (HistoryState::default(), Some(format!("cannot read {}: {e}", file.display())))
            }
        };
        let (changes, now) = (VecDeque::new(), WallTime::from_unix_nanos(0));
        Self { file: file.to_owned(), memory, changes, now, problem }
    }

    /// Why data is missing, as a message for the user: the file was corrupt, or cannot be read, or is a newer
    /// program's.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// The expectation of `path` to `origin` (`http://host:port`), if it is recent enough to be used: at most one day.
    ///
    /// Dates in the future, which a fast clock leaves behind, count as `now`.
    pub fn prior(&self, origin: &str, path: &str, now: WallTime) -> Option<Prior> {
        self.memory.prior(&state::origin_of(origin)?, path, now)
    }

    /// Learns what a transfer from `origin` observed. Only the scheme, host and port of the origin are kept.
    pub fn learn(&mut self, origin: &str, seen: &[PathObservation], now: WallTime) {
        let Some(origin) = state::origin_of(origin) else { return };
        let learn =
            |seen: &PathObservation| HistoryChange::Learn(origin.clone(), seen.clone(), now);
        self.change(seen.iter().map(learn), now);
    }

    /// Whether this relay must not be used to `origin` unless the user names it: in the last seven days it was blamed
    /// for altered bytes there, or at three unrelated sites. Without an origin: whether it must not be used to any.
    ///
    /// The blame of a single site does not count for others: a server can send other bytes, or records that TLS
    /// refuses, to the relay's address alone.
    pub fn is_quarantined(&self, relay: &str, origin: Option<&str>, now: WallTime) -> bool {
        let origin = origin.and_then(state::origin_of);
        self.memory.blames.is_shut_out(relay, origin.as_deref(), now)
    }

    /// Records that this relay delivered altered bytes from the origin of this URL.
    pub fn quarantine(&mut self, relay: &str, origin: &str, why: &str, now: WallTime) {
        let Some(origin) = state::origin_of(origin) else { return };
        self.change(
            [HistoryChange::Quarantine(QuarantinedRelay::new(relay, &origin, why, now))],
            now,
        );
    }

    /// Allows this relay again, to all origins.
    pub fn lift(&mut self, relay: &str, now: WallTime) {
        self.change([HistoryChange::Lift(relay.to_owned())], now);
    }

    /// Forgets everything, including what other processes save before the next [`History::save`].
    pub fn clear(&mut self, now: WallTime) {
        self.change([HistoryChange::Clear], now);
    }

    /// All entries, by origin and path.
    pub fn entries(&self, now: WallTime) -> Vec<HistoryEntry> {
        self.memory.entries(now)
    }

    /// The relays in quarantine, by name and origin.
    pub fn quarantined(&self, now: WallTime) -> Vec<QuarantinedRelay> {
        self.memory.blames.iter().filter(|blame| blame.counts(now)).cloned().collect()
    }

    /// Saves the changes, merged with what other processes wrote meanwhile. Does nothing without changes. May block for
    /// half a second.
    ///
    /// A newer program's file is not changed; nothing is then saved.
    ///
    /// # Errors
    /// If the file cannot be written (`WouldBlock`: another process holds the lock). The transfer is not affected, and
    /// the changes are kept for the next attempt.
    pub fn save(&mut self) -> io::Result<()> {
        if self.changes.is_empty() {
            return Ok(());
        }
        let _lock = store::lock(&self.file)?;
        let memory = match store::read(&self.file)? {
            HistoryFile::Valid(theirs) => self.merged(theirs),
            HistoryFile::Damaged(_) => {
                // If it cannot be moved aside, it is replaced.
                _ = durable::set_aside(&self.file);
                self.memory.clone()
            }
            HistoryFile::Newer(format) => {
                self.problem = Some(newer(&self.file, format));
                return Ok(());
            }
        };
        store::write(&self.file, &memory, self.now)?;
        self.memory = memory;
        self.changes.clear();
        Ok(())
    }

    /// Takes the unsaved changes as a separate value, so that a thread that may block can save it while this one is
    /// used. `None` if there are no changes. They count as saved here until [`History::take_back`].
    pub fn unsaved(&mut self) -> Option<Self> {
        if self.changes.is_empty() {
            return None;
        }
        let (file, memory) = (self.file.clone(), self.memory.clone());
        let changes = std::mem::take(&mut self.changes);
        Some(Self { file, memory, changes, now: self.now, problem: None })
    }

    /// Takes back the value of [`History::unsaved`]: the present contents of the file, and the changes if they could
    /// not be saved.
    pub fn take_back(&mut self, other: Self) {
        let (later, now) = (std::mem::take(&mut self.changes), self.now.max(other.now));
        self.memory = other.memory;
        self.changes = other.changes;
        self.problem = other.problem.or(self.problem.take());
        // A history that was only read has no time, and all its dates would be in the future.
        if !later.is_empty() {
            self.change(later, now);
        }
    }

    fn merged(&self, mut theirs: HistoryState) -> HistoryState {
        theirs.settle(self.now);
        self.changes.iter().for_each(|change| theirs.apply(change, self.now));
        theirs
    }

    fn change(&mut self, changes: impl IntoIterator<Item = HistoryChange>, now: WallTime) {
        self.now = now;
        self.memory.settle(now);
        for change in changes {
            self.memory.apply(&change, now);
            if self.changes.len() == MAX_CHANGES {
                self.changes.pop_front();
            }
            self.changes.push_back(change);
        }
    }
}

fn newer(file: &Path, format: u32) -> String {
    let file = file.display();
    format!(
        "{file} was written by a newer thalweg (format {format}): it is not used and not changed"
    )
}

fn set_aside(file: &Path, why: &str) -> String {
    let shown = file.display();
    match store::set_aside(file) {
        Ok(Some(aside)) => {
            format!(
                "{shown} was corrupt ({why}) and was moved to {}; starting with an empty file",
                aside.display()
            )
        }
        Ok(None) => format!("{shown} was corrupt ({why}); another process has replaced it"),
        Err(e) => format!("{shown} is corrupt ({why}) and cannot be moved aside: {e}"),
    }
}
