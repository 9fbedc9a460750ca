//! What the oracle last knew of all paths, for people who ask while it is away.

use super::{
    age,
    file::{self, Found},
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

/// The form that is written and read here.
const FORMAT: u32 = 1;

/// The most bytes that are read: as much as an oracle's answer may have.
const MAX_BYTES: usize = 32 << 20;

/// What the oracle calls a place in its list that no node has now.
const FREE: &str = PathsReply::FREE;

/// The oracle's answer and when it came.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnownPaths {
    /// By this host's clock.
    pub asked: WallTime,
    /// The answer.
    pub reply: PathsReply,
}

impl KnownPaths {
    /// The file beside this history: `history.json` has `history.paths.json`.
    pub fn beside(history: &Path) -> PathBuf {
        history.with_extension("paths.json")
    }

    /// How long ago it was asked for; none if that is yet to come.
    pub fn age(&self, now: WallTime) -> Duration {
        age(self.asked, now)
    }

    /// What was kept, and why less is known than might be. Legs of nobody are dropped.
    pub fn load(file: &Path) -> (Option<Self>, Option<String>) {
        match file::read::<Self>(file, MAX_BYTES, FORMAT) {
            Ok(Found::Nothing) => (None, None),
            Ok(Found::Sound(known)) => (Some(known.checked()), None),
            Ok(Found::Newer(format)) => (None, Some(file::newer(file, format))),
            Ok(Found::Damaged(why)) => {
                (None, Some(file::set_aside::<Self>(file, &why, MAX_BYTES, FORMAT)))
            }
            Err(e) => (None, Some(format!("cannot read {}: {e}", file.display()))),
        }
    }

    /// An answer that came now. Legs of nobody are dropped.
    pub fn new(reply: PathsReply, now: WallTime) -> Self {
        Self { asked: now, reply }.checked()
    }

    /// Without places that no node has, and legs that lead to none or are no numbers.
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

    /// Keeps it for the next time. A newer program's file is left alone.
    ///
    /// # Errors
    /// The system's; what was kept stays.
    pub fn keep(&self, file: &Path) -> io::Result<()> {
        let _lock = lock(file)?;
        match file::read::<Self>(file, MAX_BYTES, FORMAT) {
            Ok(Found::Newer(_)) => Ok(()),
            _ => file::write(file, self, FORMAT),
        }
    }
}
