//! What outlives the process: C_demand of applications, bytes of this period.

use super::Estimate;
use crate::mesh::durable;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, io, path::Path, time::Duration};
use thalweg_bond::{Application, Applications};
use thalweg_units::{Rate, WallTime};

/// The longest file that is read: 4096 applications of a few hundred bytes.
const MAX_BYTES: usize = 4 << 20;

/// Interfaces whose bytes are remembered: names of USB devices change.
const MOST_NAMES: usize = 256;

/// The local database of DBAS §II-B, and what was spent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Kept {
    /// What their connections move.
    pub applications: Applications,
    used: BTreeMap<String, Used>,
    estimates: BTreeMap<String, KeptEstimate>,
}

/// What an interface brought when it was last seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KeptEstimate {
    down: Rate,
    up: Rate,
    #[serde(with = "thalweg_units::serde_duration")]
    rtt: Duration,
}

/// What came on top of what is kept, and is to be added to it: other processes of this user add to
/// the same file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addition {
    ended: Vec<(Application, u64)>,
    spent: BTreeMap<String, (WallTime, u64)>,
    estimates: BTreeMap<String, KeptEstimate>,
    back: BTreeMap<String, (WallTime, u64)>,
}

/// What an allotment is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allotting {
    /// The cap, bytes.
    pub cap: u64,
    /// When its period began.
    pub start: WallTime,
    /// What is wanted, bytes.
    pub size: u64,
    /// What is not given away: it may be under way, bytes.
    pub reserve: u64,
}

/// Connections whose ends wait to be kept; each second they are.
const MOST_ENDED: usize = 65_536;

impl Addition {
    /// A connection has ended.
    pub(super) fn ended(&mut self, application: &Application, bytes: u64) {
        if self.ended.len() < MOST_ENDED {
            self.ended.push((application.clone(), bytes));
        }
    }

    /// So many bytes more went by this interface in the period that began then.
    pub(super) fn spent(&mut self, name: &str, bytes: u64, start: WallTime) {
        let spent = self.spent.entry(name.to_owned()).or_insert((start, 0));
        if spent.0 < start {
            *spent = (start, 0);
        }
        spent.1 = spent.1.saturating_add(bytes);
    }

    /// So many bytes that were allotted in that period were not moved.
    pub(super) fn gives_back(&mut self, name: &str, bytes: u64, start: WallTime) {
        self.back.insert(name.to_owned(), (start, bytes));
    }

    /// What an interface brings now.
    pub(super) fn seen(&mut self, name: &str, estimate: &Estimate) {
        let (down, up, rtt) = (estimate.down(), estimate.up(), estimate.rtt());
        self.estimates.insert(name.to_owned(), KeptEstimate { down, up, rtt });
    }

    /// What came after it, on top of it.
    pub(super) fn follow(&mut self, later: Self) {
        later.ended.iter().for_each(|(application, bytes)| self.ended(application, *bytes));
        for (name, (start, bytes)) in later.spent {
            self.spent(&name, bytes, start);
        }
        self.estimates.extend(later.estimates);
        self.back.extend(later.back);
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        let of_bytes = self.spent.is_empty() && self.back.is_empty();
        of_bytes && self.ended.is_empty() && self.estimates.is_empty()
    }

    /// Adds it.
    pub fn to(&self, kept: &mut Kept) {
        for (application, bytes) in &self.ended {
            kept.applications.ended(application, *bytes);
        }
        for (name, (start, bytes)) in &self.spent {
            kept.spend(name, *bytes, *start);
        }
        for (name, (start, bytes)) in &self.back {
            if let Some(used) = kept.used.get_mut(name).filter(|used| used.since == *start) {
                used.bytes = used.bytes.saturating_sub(*bytes);
            }
        }
        for (name, estimate) in &self.estimates {
            if kept.estimates.len() < MOST_NAMES || kept.estimates.contains_key(name) {
                kept.estimates.insert(name.clone(), *estimate);
            }
        }
    }
}

/// Bytes both ways since a period's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Used {
    since: WallTime,
    bytes: u64,
}

impl Kept {
    /// Reads the file; nothing is kept yet if there is none.
    ///
    /// # Errors
    /// The system's, `InvalidData` if it is damaged, `FileTooLarge` beyond 4 MiB. It is left as
    /// it is: a cap that was forgotten costs money.
    pub fn open(file: &Path) -> io::Result<Self> {
        let Some(bytes) = durable::read(file, MAX_BYTES)? else { return Ok(Self::default()) };
        serde_json::from_slice(&bytes).map_err(io::Error::from)
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// The system's; the file is then as it was.
    pub fn save(&self, file: &Path) -> io::Result<()> {
        durable::replace(file, &serde_json::to_vec(self)?)
    }

    /// Adds to the file, under a lock that the user's processes share; what is there then. Blocks
    /// until it is synced.
    ///
    /// # Errors
    /// As [`Self::open`] and [`Self::save`]; nothing is added then.
    pub fn exchange(file: &Path, addition: &Addition) -> io::Result<Self> {
        let _turn = durable::turn(file)?;
        let mut kept = Self::open(file)?;
        addition.to(&mut kept);
        kept.save(file)?;
        Ok(kept)
    }

    /// Takes an allotment of at most `size` bytes from what is left of a cap, but for `reserve`; what
    /// is kept then, and how many bytes they are. They count as moved from here on. Blocks until
    /// that is synced.
    ///
    /// # Errors
    /// As [`Self::exchange`]; nothing is allotted then.
    pub fn allot(file: &Path, name: &str, of: &Allotting) -> io::Result<(Self, u64)> {
        let _turn = durable::turn(file)?;
        let mut kept = Self::open(file)?;
        let bytes = kept.take_allotment(name, of);
        if bytes > 0 {
            kept.save(file)?;
        }
        Ok((kept, bytes))
    }

    /// The same where there is no file.
    pub(super) fn take_allotment(&mut self, name: &str, of: &Allotting) -> u64 {
        let left = of.cap.saturating_sub(self.used(name, of.start)).saturating_sub(of.reserve);
        let bytes = left.min(of.size);
        if bytes > 0 {
            self.spend(name, bytes, of.start);
        }
        bytes
    }

    /// What was known of an interface.
    pub(super) fn estimate(&self, name: &str) -> Option<Estimate> {
        self.estimates.get(name).map(|kept| Estimate::kept(kept.down, kept.up, kept.rtt))
    }

    /// So many bytes more went by this interface in the period that began then.
    pub(super) fn spend(&mut self, name: &str, bytes: u64, start: WallTime) {
        if self.used.len() >= MOST_NAMES && !self.used.contains_key(name) {
            let oldest = self.used.iter().min_by_key(|(_, used)| used.since);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.used.remove(&oldest);
            }
        }
        let used = self.used.entry(name.to_owned()).or_insert(Used { since: start, bytes: 0 });
        // A clock that was set back gives nothing back.
        if used.since < start {
            *used = Used { since: start, bytes: 0 };
        }
        used.bytes = used.bytes.saturating_add(bytes);
    }

    /// Bytes by this interface in the period that began then.
    pub(super) fn used(&self, name: &str, start: WallTime) -> u64 {
        let used = self.used.get(name).filter(|used| used.since >= start);
        used.map_or(0, |used| used.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_bond::Application;

    #[test]
    fn what_is_kept_is_read_again_and_damage_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("interfaces.json");
        let mut kept = Kept::open(&file).unwrap();
        assert_eq!(kept, Kept::default());
        let curl = Application { process: Some("curl".into()), port: 443 };
        kept.applications.ended(&curl, 8000);
        let period = WallTime::from_unix_nanos(5);
        kept.spend("lte0", 70, period);
        kept.save(&file).unwrap();
        let mut read = Kept::open(&file).unwrap();
        assert_eq!(read.applications.expected(&curl), 8000);
        assert_eq!(read.used("lte0", period), 70);
        let next = WallTime::from_unix_nanos(9);
        assert_eq!(read.used("lte0", next), 0);
        read.spend("lte0", 1, next);
        assert_eq!((read.used("lte0", next), read.used("lte0", period)), (1, 1));
        let mut addition = Addition::default();
        addition.spent("lte0", 5, next);
        addition.ended(&curl, 16_000);
        for sum in [5, 10] {
            let both = Kept::exchange(&file, &addition).unwrap();
            assert_eq!(both.used("lte0", next), sum);
        }
        let of = Allotting { cap: 100, start: next, size: 60, reserve: 5 };
        let allot = || Kept::allot(&file, "lte0", &of).unwrap().1;
        // 10 are used, 5 are not given away.
        assert_eq!([allot(), allot(), allot()], [60, 25, 0]);
        let mut back = Addition::default();
        back.gives_back("lte0", 20, next);
        assert_eq!(Kept::exchange(&file, &back).unwrap().used("lte0", next), 75);
        assert_eq!(allot(), 20);
        std::fs::write(&file, "{\"used\": 1").unwrap();
        assert!(Kept::open(&file).is_err());
    }
}
