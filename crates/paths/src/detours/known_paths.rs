//! The oracle's last answer about all paths, kept for users while the oracle is unreachable.

use super::{
    age,
    versioned_file::{self, FileContent},
};
use crate::history::lock;
use serde::{Deserialize, Serialize};
use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};
use thalweg_units::WallTime;
use thalweg_wire::mesh::measure::PathsReply;

/// The format that is written and read.
const FORMAT: u32 = 1;

/// The most bytes that are read: the largest size of an oracle's answer.
const MAX_BYTES: usize = 32 << 20;

/// The oracle's name for an unused index in its list of nodes.
const FREE: &str = PathsReply::FREE;

/// The oracle's answer and when it arrived.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnownPaths {
    /// By this host's clock.
    pub asked: WallTime,
    pub reply: PathsReply,
}

impl KnownPaths {
    /// The path of the file next to this history: for `history.json` it is `history.paths.json`.
    pub fn beside(history: &Path) -> PathBuf {
        history.with_extension("paths.json")
    }

    /// How long ago the oracle was asked; zero if that is in the future.
    pub fn age(&self, now: WallTime) -> Duration {
        age(self.asked, now)
    }

    /// Reads the stored answer. Also returns why data is missing, as a message. Legs of unused indices are dropped.
    pub fn load(file: &Path) -> (Option<Self>, Option<String>) {
        match versioned_file::read::<Self>(file, MAX_BYTES, FORMAT) {
            Ok(FileContent::Missing) => (None, None),
            Ok(FileContent::Valid(known)) => (Some(known.checked()), None),
            Ok(FileContent::Newer(format)) => (None, Some(versioned_file::newer(file, format))),
            Ok(FileContent::Damaged(why)) => {
                (None, Some(versioned_file::set_aside::<Self>(file, &why, MAX_BYTES, FORMAT)))
            }
            Err(e) => (None, Some(format!("cannot read {}: {e}", file.display()))),
        }
    }

    /// Creates it from an answer that arrived at `now`. Legs of unused indices are dropped.
    pub fn new(reply: PathsReply, now: WallTime) -> Self {
        Self { asked: now, reply }.checked()
    }

    /// Removes unused indices, legs to or from them, and legs with an invalid rate.
    fn checked(mut self) -> Self {
        let mut places = Vec::new();
        let mut taken = 0;
        for name in &self.reply.nodes {
            let is_free = name.as_str() == FREE;
            places.push((!is_free).then_some(taken));
            taken += u32::from(!is_free);
        }
        let place = |at: u32| places.get(usize::try_from(at).ok()?).copied().flatten();
        self.reply.legs.retain_mut(|leg| {
            let (Some(from), Some(to)) = (place(leg.from), place(leg.to)) else { return false };
            (leg.from, leg.to) = (from, to);
            leg.bps.is_finite() && leg.bps >= 0.0
        });
        self.reply.nodes.retain(|name| name.as_str() != FREE);
        self
    }

    /// Stores it. A newer program's file is not changed.
    ///
    /// # Errors
    /// I/O errors. The stored answer is then unchanged.
    pub fn keep(&self, file: &Path) -> io::Result<()> {
        let _lock = lock(file)?;
        match versioned_file::read::<Self>(file, MAX_BYTES, FORMAT) {
            Ok(FileContent::Newer(_)) => Ok(()),
            _ => versioned_file::write(file, self, FORMAT),
        }
    }
}
