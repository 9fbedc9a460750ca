//! The bytes that a node spends on measuring in a day.

use super::kept::Kept;
use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use thalweg_base::budget::{Budget, PeerKey, Purpose, Scope};
use thalweg_relay::today;
use thalweg_units::{ByteSize, NodeId};

/// Counts both directions in [`Budget`] as [`Purpose::Probe`], by the UTC day.
///
/// A clock that is set back renews nothing. After one that was far ahead and is set right there
/// are new bytes every 24 hours of steady time, since no date tells. The count is kept in a file, if there is one, so
/// that a node that is started anew goes on with it.
#[derive(Debug)]
pub struct Purse {
    budget: Arc<Budget>,
    per_day: ByteSize,
    day: Mutex<Day>,
    kept: Option<Kept>,
}

/// The day that counts.
#[derive(Clone, Copy, Debug)]
struct Day {
    /// Since 1970.
    number: u64,
    /// Its bytes are new since then.
    since: Instant,
}

/// How long a day is by the steady clock.
const LENGTH: Duration = Duration::from_secs(86_400);

const PROBE: Scope = Scope::purpose(Purpose::Probe);

impl Purse {
    /// At most so many bytes a day, counted in `budget`; the count ends with the process.
    pub fn new(budget: Arc<Budget>, per_day: ByteSize) -> Self {
        budget.set_limit(PROBE, Some(per_day));
        Self { budget, per_day, day: Mutex::new(Day::new(today().0)), kept: None }
    }

    /// The same, with the count of today that `file` has, and kept there from now on by a
    /// thread of its own. `failed` is told when that begins to fail, and of a file that cannot
    /// be read, or holds no count: then it begins at zero.
    pub fn kept(
        budget: Arc<Budget>,
        per_day: ByteSize,
        file: PathBuf,
        failed: impl Fn(io::Error) + Send + 'static,
    ) -> Self {
        let (found, today) = (super::kept::read(&file), today().0);
        let found = found.map_err(&failed).ok().flatten();
        let mut purse = Self::new(budget, per_day);
        // A day that is farther ahead was a clock's mistake: it counts as today's, or nothing
        // could be measured until then.
        if let Some((day, spent)) = found.filter(|(day, _)| *day >= today) {
            purse.budget.charge(PROBE, ByteSize::from_bytes(spent));
            purse.day = Mutex::new(Day::new(day.min(today + 1)));
        }
        purse.kept = Some(Kept::start(file, failed));
        purse
    }

    /// What is left of today.
    pub fn left(&self) -> ByteSize {
        self.turn(today().0, Instant::now());
        let spent = self.budget.spent(PROBE).as_bytes();
        ByteSize::from_bytes(self.per_day.as_bytes().saturating_sub(spent))
    }

    /// The day that counts now: its number since 1970, or a later one where the clock was ahead.
    pub fn day(&self) -> u64 {
        self.turn(today().0, Instant::now())
    }

    /// The most of a day.
    pub fn per_day(&self) -> ByteSize {
        self.per_day
    }

    /// Counts what was moved to or from this node; it was within [`Purse::left`] before.
    pub fn charge(&self, peer: NodeId, bytes: u64) {
        let day = self.turn(today().0, Instant::now());
        let scope = Scope { peer: Some(PeerKey::Node(peer)), ..PROBE };
        self.budget.charge(scope, ByteSize::from_bytes(bytes));
        if let Some(kept) = &self.kept {
            kept.put(day, self.budget.spent(PROBE).as_bytes());
        }
    }

    /// The number of the day that counts now.
    fn turn(&self, today: u64, now: Instant) -> u64 {
        // A thread that panicked in here left whole numbers.
        let mut day = self.day.lock().unwrap_or_else(PoisonError::into_inner);
        let was_ahead = today < day.number && now.duration_since(day.since) >= LENGTH;
        if today > day.number || was_ahead {
            *day = Day { number: day.number.max(today), since: now };
            self.budget.renew(PROBE);
        }
        day.number
    }
}

impl Day {
    fn new(number: u64) -> Self {
        Self { number, since: Instant::now() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const PEER: NodeId = NodeId::from_bytes([1; 32]);
    const MOST: ByteSize = ByteSize::from_bytes(1000);

    fn kept(file: &std::path::Path) -> Purse {
        let failed = |e| panic!("{e}");
        Purse::kept(Arc::new(Budget::new()), MOST, file.to_owned(), failed)
    }

    #[test]
    fn a_day_has_its_bytes_and_only_a_later_one_has_new_ones() {
        let budget = Arc::new(Budget::new());
        let purse = Purse::new(budget.clone(), MOST);
        purse.charge(PEER, 900);
        assert_eq!(purse.left(), ByteSize::from_bytes(100));
        purse.charge(PEER, 900);
        assert_eq!(purse.left(), ByteSize::ZERO, "the last flow may go beyond");
        purse.turn(0, Instant::now());
        assert_eq!(purse.left(), ByteSize::ZERO);
        purse.turn(u64::MAX, Instant::now());
        assert_eq!(purse.left(), MOST);
        let all = Scope { peer: Some(PeerKey::Node(PEER)), ..PROBE };
        assert_eq!(budget.spent(all), ByteSize::from_bytes(1800));
    }

    #[test]
    fn a_clock_that_jumped_ahead_and_back_costs_a_day_at_most() {
        let purse = Purse::new(Arc::new(Budget::new()), MOST);
        let (today, now) = (today().0, Instant::now());
        assert_eq!(purse.turn(today + 9999, now), today + 9999);
        purse.charge(PEER, 900);
        assert_eq!(purse.left(), ByteSize::from_bytes(100), "set right, it renews nothing");
        for day in 1..=3 {
            let at = now + LENGTH * day;
            purse.turn(today + 1, at - Duration::from_secs(1));
            assert_eq!(purse.left(), ByteSize::from_bytes(100), "{day}");
            purse.turn(today + u64::from(day), at);
            assert_eq!(purse.left(), MOST, "{day}: and not for years");
            purse.charge(PEER, 900);
        }
    }

    #[test]
    fn the_days_count_outlives_the_process_and_not_the_day() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("measured");
        let purse = kept(&file);
        assert_eq!(purse.left(), MOST, "no file: nothing was spent");
        purse.charge(PEER, 300);
        purse.charge(PEER, 400);
        drop(purse);
        assert_eq!(kept(&file).left(), ByteSize::from_bytes(300));
        let (day, _) = super::super::kept::read(&file).unwrap().unwrap();
        fs::write(&file, format!("{} 700\n", day - 1)).unwrap();
        assert_eq!(kept(&file).left(), MOST, "yesterday's");
        fs::write(&file, format!("{} 700\n", day + 9999)).unwrap();
        let ahead = kept(&file);
        assert_eq!(ahead.left(), ByteSize::from_bytes(300), "a clock was ahead: it counts");
        ahead.turn(today().0 + 2, Instant::now());
        assert_eq!(ahead.left(), MOST, "and not for years");
    }

    #[test]
    fn a_count_that_cannot_be_read_is_told_with_its_file_and_begins_anew() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("measured");
        for text in ["", "1", "x 2", "1 2 3", "-1 5"] {
            fs::write(&file, text).unwrap();
            let (tell, told) = std::sync::mpsc::sync_channel(64);
            let failed = move |e: io::Error| tell.send(e.to_string()).unwrap();
            let purse = Purse::kept(Arc::new(Budget::new()), MOST, file.clone(), failed);
            assert_eq!(purse.left(), MOST);
            let told = told.recv().unwrap();
            assert!(told.contains("measured") && told.contains("begins at zero"), "{told}");
        }
    }
}
