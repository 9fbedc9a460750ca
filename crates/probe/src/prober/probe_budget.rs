//! The bytes that a node may spend on measurements in a day.

use super::saved_count::SavedCount;
use parking_lot::Mutex;
use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use thalweg_base::budget::{Budget, PeerKey, Purpose, Scope};
use thalweg_relay::today;
use thalweg_units::{ByteSize, NodeId};

/// Counts the bytes of both directions in [`Budget`] as [`Purpose::Probe`], by the UTC day.
///
/// A clock that is set back renews nothing. If a clock was far ahead and is set right, no date tells when a day ends,
/// so the bytes are renewed every 24 hours of the steady clock. The count is kept in a file, if there is one, so that a
/// restarted node continues it.
#[derive(Debug)]
pub struct ProbeBudget {
    budget: Arc<Budget>,
    /// In bytes.
    per_day: AtomicU64,
    day: Mutex<Day>,
    saved: Option<SavedCount>,
}

/// The current day.
#[derive(Clone, Copy, Debug)]
struct Day {
    /// Its number since 1970.
    number: u64,
    /// When its bytes were renewed.
    since: Instant,
}

/// How long a day is by the steady clock.
const LENGTH: Duration = Duration::from_secs(86_400);

const PROBE: Scope = Scope::purpose(Purpose::Probe);

impl ProbeBudget {
    /// Creates a budget of `per_day` bytes, counted in `budget`; the count ends with the process.
    pub fn new(budget: Arc<Budget>, per_day: ByteSize) -> Self {
        budget.set_limit(PROBE, Some(per_day));
        let per_day = AtomicU64::new(per_day.as_bytes());
        Self { budget, per_day, day: Mutex::new(Day::new(today().0)), saved: None }
    }

    /// As [`ProbeBudget::new`], with the count of today in `file`, where a thread of its own keeps it from now on.
    /// `failed` is called when writing begins to fail, and if the file cannot be read or holds no count; the count then
    /// begins at zero.
    pub fn with_file(
        budget: Arc<Budget>,
        per_day: ByteSize,
        file: PathBuf,
        failed: impl Fn(io::Error) + Send + 'static,
    ) -> Self {
        let (found, today) = (super::saved_count::read(&file), today().0);
        let found = found.map_err(&failed).ok().flatten();
        let mut probe_budget = Self::new(budget, per_day);
        // A day that is further ahead was a clock's mistake. It counts as tomorrow at the latest, or nothing could be
        // measured until that day.
        if let Some((day, spent)) = found.filter(|(day, _)| *day >= today) {
            probe_budget.budget.charge(PROBE, ByteSize::from_bytes(spent));
            probe_budget.day = Mutex::new(Day::new(day.min(today + 1)));
        }
        probe_budget.saved = Some(SavedCount::start(file, failed));
        probe_budget
    }

    /// Changes the bytes of a day from now on; those that were spent today count.
    pub fn set_per_day(&self, per_day: ByteSize) {
        self.per_day.store(per_day.as_bytes(), Ordering::Relaxed);
        self.budget.set_limit(PROBE, Some(per_day));
    }

    /// The bytes left today.
    pub fn left(&self) -> ByteSize {
        self.begin_day_if_due(today().0, Instant::now());
        let spent = self.budget.spent(PROBE).as_bytes();
        ByteSize::from_bytes(self.per_day().as_bytes().saturating_sub(spent))
    }

    /// The number of the current day since 1970, or of a later day if the clock was ahead.
    pub fn day(&self) -> u64 {
        self.begin_day_if_due(today().0, Instant::now())
    }

    /// The most bytes of a day.
    pub fn per_day(&self) -> ByteSize {
        ByteSize::from_bytes(self.per_day.load(Ordering::Relaxed))
    }

    /// Counts bytes that were moved to or from this node, within what was [`ProbeBudget::left`] before.
    pub fn charge(&self, peer: NodeId, bytes: u64) {
        let day = self.begin_day_if_due(today().0, Instant::now());
        let scope = Scope { peer: Some(PeerKey::Node(peer)), ..PROBE };
        self.budget.charge(scope, ByteSize::from_bytes(bytes));
        if let Some(saved) = &self.saved {
            saved.put(day, self.budget.spent(PROBE).as_bytes());
        }
    }

    /// Begins a new day if it is due. Returns the number of the current day.
    fn begin_day_if_due(&self, today: u64, now: Instant) -> u64 {
        let mut day = self.day.lock();
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

    fn reopen(file: &std::path::Path) -> ProbeBudget {
        let failed = |e| panic!("{e}");
        ProbeBudget::with_file(Arc::new(Budget::new()), MOST, file.to_owned(), failed)
    }

    #[test]
    fn bytes_are_renewed_only_on_a_later_day() {
        let budget = Arc::new(Budget::new());
        let probe_budget = ProbeBudget::new(budget.clone(), MOST);
        probe_budget.charge(PEER, 900);
        assert_eq!(probe_budget.left(), ByteSize::from_bytes(100));
        probe_budget.charge(PEER, 900);
        assert_eq!(probe_budget.left(), ByteSize::ZERO, "the last flow may go beyond");
        probe_budget.begin_day_if_due(0, Instant::now());
        assert_eq!(probe_budget.left(), ByteSize::ZERO);
        probe_budget.begin_day_if_due(u64::MAX, Instant::now());
        assert_eq!(probe_budget.left(), MOST);
        let all = Scope { peer: Some(PeerKey::Node(PEER)), ..PROBE };
        assert_eq!(budget.spent(all), ByteSize::from_bytes(1800));
    }

    #[test]
    fn a_clock_that_jumped_ahead_and_back_costs_a_day_at_most() {
        let probe_budget = ProbeBudget::new(Arc::new(Budget::new()), MOST);
        let (today, now) = (today().0, Instant::now());
        assert_eq!(probe_budget.begin_day_if_due(today + 9999, now), today + 9999);
        probe_budget.charge(PEER, 900);
        assert_eq!(probe_budget.left(), ByteSize::from_bytes(100), "set right, it renews nothing");
        for day in 1..=3 {
            let at = now + LENGTH * day;
            probe_budget.begin_day_if_due(today + 1, at - Duration::from_secs(1));
            assert_eq!(probe_budget.left(), ByteSize::from_bytes(100), "{day}");
            probe_budget.begin_day_if_due(today + u64::from(day), at);
            assert_eq!(probe_budget.left(), MOST, "{day}: and not for years");
            probe_budget.charge(PEER, 900);
        }
    }

    #[test]
    fn the_count_survives_a_restart_but_not_the_day() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("measured");
        let probe_budget = reopen(&file);
        assert_eq!(probe_budget.left(), MOST, "no file: nothing was spent");
        probe_budget.charge(PEER, 300);
        probe_budget.charge(PEER, 400);
        drop(probe_budget);
        assert_eq!(reopen(&file).left(), ByteSize::from_bytes(300));
        let (day, _) = super::super::saved_count::read(&file).unwrap().unwrap();
        fs::write(&file, format!("{} 700\n", day - 1)).unwrap();
        assert_eq!(reopen(&file).left(), MOST, "yesterday's");
        fs::write(&file, format!("{} 700\n", day + 9999)).unwrap();
        let ahead = reopen(&file);
        assert_eq!(ahead.left(), ByteSize::from_bytes(300), "a clock was ahead: it counts");
        ahead.begin_day_if_due(today().0 + 2, Instant::now());
        assert_eq!(ahead.left(), MOST, "and not for years");
    }

    #[test]
    fn an_unreadable_count_is_reported_with_its_file_and_begins_at_zero() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("measured");
        for text in ["", "1", "x 2", "1 2 3", "-1 5"] {
            fs::write(&file, text).unwrap();
            let (tell, told) = std::sync::mpsc::sync_channel(64);
            let failed = move |e: io::Error| tell.send(e.to_string()).unwrap();
            let probe_budget =
                ProbeBudget::with_file(Arc::new(Budget::new()), MOST, file.clone(), failed);
            assert_eq!(probe_budget.left(), MOST);
            let told = told.recv().unwrap();
            assert!(told.contains("measured") && told.contains("restarts at zero"), "{told}");
        }
    }
}
