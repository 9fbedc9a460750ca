//! The results of earlier transfers by this host's user, for each path, shared by all processes.
//!
//! One file in the state directory (or the cache directory without one): estimates by
//! origin and path, bounded, written whole and renamed. It is only ever a hint: a lost,
//! locked or corrupt file costs nothing but the hint.
//!
//! Estimates stand in a [`thalweg_measure::Table`]. What a new sample does to them is
//! UKAIRO's Algorithm 2: the mean of the current score and the new value, which forgets
//! half of the past with each transfer.
//!
//! Only what one path reached alone is an exact rate: the winner's, at completion. What the
//! others reached in sampling, beside each other, are lower bounds: they order paths of which
//! nothing better is known, never lower an exact rate, and replace it once they are younger
//! and higher. A winner is not locked in by that. Its rate counts for one day and is no prior
//! for the choice of a large file's path, which is sampled anew each time. It decides two
//! things: the order in which relays become candidates, where one place is left to an unknown
//! one; and the path of a small file, which is the direct one unless another is expected to
//! be faster by a fifth and 50 ms.
//!
//! Several processes may learn at the same time: each
//! keeps what it learnt itself apart, and at saving applies that to what the file then
//! holds, so that nothing is lost or counted twice.

mod blame;
mod memory;
mod record;
mod store;
#[cfg(test)]
mod tests;

pub use blame::QUARANTINE;
pub use thalweg_measure::Bound;

use memory::{Change, Memory};
use serde::{Deserialize, Serialize};
use std::{
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
    time::Duration,
};
use store::Found;
pub(crate) use store::lock;
use thalweg_base::durable;
use thalweg_plan::selection::Prior;
use thalweg_units::{Rate, WallTime};

/// The most changes that wait to be saved, the oldest out first: as many as there can be
/// estimates, and a download brings a dozen.
const MAX_CHANGES: usize = memory::MAX_ESTIMATES;

/// What one transfer saw of one path.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The path's name: `direct`, a relay, a chain, with its interface.
    pub path: String,
    /// The rate it reached.
    pub rate: Rate,
    /// From dialling to the first byte.
    pub setup: Duration,
    /// Whether the path itself was the limit.
    pub bound: Bound,
}

/// What is remembered of one path to one origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Remembered {
    /// `scheme://host:port`.
    pub origin: String,
    /// The path's name.
    pub path: String,
    /// The rate that it may be expected to reach.
    pub rate: Rate,
    /// Whether it may be larger.
    pub bound: Bound,
    /// From dialling to the first byte, if it is known.
    pub setup: Option<Duration>,
    /// How long ago it was last seen.
    pub age: Duration,
    /// Whether it is young enough to be used (1 day).
    pub is_valid: bool,
}

/// A relay by which altered bytes came from one origin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantined {
    /// Its name.
    pub relay: String,
    /// `scheme://host:port`; empty in a file of a version that did not note it.
    #[serde(default)]
    pub origin: String,
    /// What it did, for people.
    pub why: String,
    /// When that was found.
    pub since: WallTime,
}

/// The estimates of this host, as one file keeps them.
#[derive(Debug)]
pub struct History {
    file: PathBuf,
    memory: Memory,
    /// What the file does not know yet.
    changes: VecDeque<Change>,
    /// The date that was told last.
    now: WallTime,
    problem: Option<String>,
}

impl History {
    /// What the file holds; empty if there is none or it cannot be read.
    ///
    /// A corrupt file is moved aside (`FILE.damaged`), once; [`History::problem`] then tells.
    pub fn open(file: &Path) -> Self {
        let (memory, problem) = match store::read(file) {
            Ok(Found::Memory(memory)) => (memory, None),
            Ok(Found::Newer(format)) => (Memory::default(), Some(newer(file, format))),
            Ok(Found::Damaged(why)) => (Memory::default(), Some(set_aside(file, &why))),
            Err(e) => (Memory::default(), Some(format!("cannot read {}: {e}", file.display()))),
        };
        let (changes, now) = (VecDeque::new(), WallTime::from_unix_nanos(0));
        Self { file: file.to_owned(), memory, changes, now, problem }
    }

    /// Why less is remembered than might be, for the user's eyes: the file was corrupt, or
    /// cannot be read, or is a newer program's.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// What is known of `path` to `origin` (`http://host:port`), if it is young enough to be
    /// used: at most one day.
    ///
    /// Dates in the future, as a clock leaves behind that was ahead, count as of now.
    pub fn prior(&self, origin: &str, path: &str, now: WallTime) -> Option<Prior> {
        self.memory.prior(&memory::origin_of(origin)?, path, now)
    }

    /// Takes in what a transfer from `origin` saw. Of the origin only scheme, host and port
    /// are kept.
    pub fn learn(&mut self, origin: &str, seen: &[Observed], now: WallTime) {
        let Some(origin) = memory::origin_of(origin) else { return };
        let learn = |seen: &Observed| Change::Learn(origin.clone(), seen.clone(), now);
        self.change(seen.iter().map(learn), now);
    }

    /// Whether this relay must not be used to `origin` unless it is named: in the last seven
    /// days it was blamed for altered bytes there, or at three unrelated sites. Without an
    /// origin: whether it must not be used to any.
    ///
    /// A single site is no witness against a relay for others: a server can send other bytes,
    /// or records that TLS refuses, to the relay's address alone.
    pub fn is_quarantined(&self, relay: &str, origin: Option<&str>, now: WallTime) -> bool {
        let origin = origin.and_then(memory::origin_of);
        self.memory.blames.is_shut_out(relay, origin.as_deref(), now)
    }

    /// Altered bytes came by this relay from the origin of this URL.
    pub fn quarantine(&mut self, relay: &str, origin: &str, why: &str, now: WallTime) {
        let Some(origin) = memory::origin_of(origin) else { return };
        self.change([Change::Quarantine(Quarantined::new(relay, &origin, why, now))], now);
    }

    /// This relay may be used again, to all origins.
    pub fn lift(&mut self, relay: &str, now: WallTime) {
        self.change([Change::Lift(relay.to_owned())], now);
    }

    /// All is forgotten, also what other processes learnt and saved before the next
    /// [`History::save`].
    pub fn clear(&mut self, now: WallTime) {
        self.change([Change::Clear], now);
    }

    /// All that is remembered, by origin and path.
    pub fn entries(&self, now: WallTime) -> Vec<Remembered> {
        self.memory.entries(now)
    }

    /// The relays in quarantine, by name and origin.
    pub fn quarantined(&self, now: WallTime) -> Vec<Quarantined> {
        self.memory.blames.iter().filter(|blame| blame.counts(now)).cloned().collect()
    }

    /// Writes what was learnt, merged with what other processes wrote meanwhile; does nothing
    /// if nothing was learnt. May block for half a second.
    ///
    /// A newer program's file is left alone; nothing is saved then.
    ///
    /// # Errors
    /// If the file cannot be written (`WouldBlock`: another process is at it): a transfer goes
    /// on without. What was learnt waits for the next attempt.
    pub fn save(&mut self) -> io::Result<()> {
        if self.changes.is_empty() {
            return Ok(());
        }
        let _lock = store::lock(&self.file)?;
        let memory = match store::read(&self.file)? {
            Found::Memory(theirs) => self.merged(theirs),
            Found::Damaged(_) => {
                // If it cannot be moved aside, it is replaced.
                _ = durable::set_aside(&self.file);
                self.memory.clone()
            }
            Found::Newer(format) => {
                self.problem = Some(newer(&self.file, format));
                return Ok(());
            }
        };
        store::write(&self.file, &memory, self.now)?;
        self.memory = memory;
        self.changes.clear();
        Ok(())
    }

    /// What was learnt and is not saved yet, apart: a thread that may block saves it while this
    /// one is used on. `None` if there is nothing. Its changes count as saved here until
    /// [`History::take_back`].
    pub fn unsaved(&mut self) -> Option<Self> {
        if self.changes.is_empty() {
            return None;
        }
        let (file, memory) = (self.file.clone(), self.memory.clone());
        let changes = std::mem::take(&mut self.changes);
        Some(Self { file, memory, changes, now: self.now, problem: None })
    }

    /// Takes back what [`History::unsaved`] gave: what the file holds by now, and if it could not
    /// be saved the changes, for the next attempt.
    pub fn take_back(&mut self, other: Self) {
        let (later, now) = (std::mem::take(&mut self.changes), self.now.max(other.now));
        self.memory = other.memory;
        self.changes = other.changes;
        self.problem = other.problem.or(self.problem.take());
        // One that has only been read knows no date, and all dates would be of its future.
        if !later.is_empty() {
            self.change(later, now);
        }
    }

    fn merged(&self, mut theirs: Memory) -> Memory {
        theirs.settle(self.now);
        self.changes.iter().for_each(|change| theirs.apply(change, self.now));
        theirs
    }

    fn change(&mut self, changes: impl IntoIterator<Item = Change>, now: WallTime) {
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
    format!("{file} was written by a newer thalweg (format {format}): left alone, and not used")
}

fn set_aside(file: &Path, why: &str) -> String {
    let shown = file.display();
    match store::set_aside(file) {
        Ok(Some(aside)) => {
            format!("{shown} was corrupt ({why}) and is now {}: starting anew", aside.display())
        }
        Ok(None) => format!("{shown} was corrupt ({why}); another process has mended it"),
        Err(e) => format!("{shown} is corrupt ({why}) and cannot be moved aside: {e}"),
    }
}
