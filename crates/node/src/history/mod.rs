//! What earlier transfers of this host's user learnt of paths, across processes.
//!
//! One file in the state directory (or the cache directory without one): estimates by
//! origin and path, bounded, written whole and renamed. It is only ever a hint: a lost,
//! locked or corrupt file costs nothing but the hint.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use thalweg_measure::Bound;
use thalweg_plan::selection::Prior;
use thalweg_units::{Rate, WallTime};

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

/// The estimates of this host, as one file keeps them.
#[derive(Debug)]
pub struct History {
    file: PathBuf,
}

impl History {
    /// What the file holds; empty if there is none or it cannot be read.
    pub fn open(file: &Path) -> Self {
        Self { file: file.to_owned() }
    }

    /// What is known of `path` to `origin` (`http://host:port`), if it is young enough to be used.
    pub fn prior(&self, origin: &str, path: &str, now: WallTime) -> Option<Prior> {
        _ = (origin, path, now);
        None
    }

    /// Takes in what a transfer from `origin` saw.
    pub fn learn(&mut self, origin: &str, seen: &[Observed], now: WallTime) {
        _ = (origin, seen, now);
    }

    /// Whether this relay altered bytes of late, and must not be used unless it is named.
    pub fn is_quarantined(&self, relay: &str, now: WallTime) -> bool {
        _ = (relay, now);
        false
    }

    /// This relay altered bytes.
    pub fn quarantine(&mut self, relay: &str, why: &str, now: WallTime) {
        _ = (relay, why, now);
    }

    /// Writes what was learnt, merged with what other processes wrote meanwhile.
    ///
    /// # Errors
    /// If the file cannot be written: a transfer goes on without.
    pub fn save(&mut self) -> std::io::Result<()> {
        _ = &self.file;
        Ok(())
    }
}
