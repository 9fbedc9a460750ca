//! The part of the table that outlives the process: the demand of applications (C_demand) and the bytes of this period.

use super::{Estimate, daily_usage::DailyUsage, estimate::RecordedEstimate};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, io, path::Path, time::Duration};
use thalweg_base::durable;
use thalweg_bond::{Application, Applications, Period};
use thalweg_measure::Method;
use thalweg_units::{Rate, Time, WallTime};

/// The longest file that is read, bytes: 4096 applications of a few hundred bytes each. A longer file is an error.
const MAX_BYTES: usize = 4 << 20;

/// How long a process waits for its turn at the file.
const PATIENCE: Duration = Duration::from_secs(5);

/// Interfaces that are remembered: names of USB devices change. Beyond that, the one that moved something longest ago
/// is forgotten.
const MOST_NAMES: usize = 256;

/// The local database of DBAS §II-B, and the bytes that were spent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredTable {
    /// What the connections of each application move.
    pub applications: Applications,
    used: BTreeMap<String, DailyUsage>,
    estimates: BTreeMap<String, StoredEstimate>,
    probes: ProbeSpending,
}

/// Bytes spent on light probes on that day (days since 1970-01-01, UTC).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct ProbeSpending {
    day: u32,
    bytes: u64,
}

/// The last estimates of an interface, with their dates, and how the rate to this host was found. Older files have no
/// dates; then the age is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredEstimate {
    down: Rate,
    #[serde(default)]
    down_at: Option<WallTime>,
    #[serde(default = "passive")]
    down_by: Method,
    up: Rate,
    #[serde(default)]
    up_at: Option<WallTime>,
    #[serde(with = "thalweg_units::serde_duration")]
    rtt: Duration,
    #[serde(default)]
    rtt_at: Option<WallTime>,
}

fn passive() -> Method {
    Method::Passive
}

impl StoredEstimate {
    fn of(past: &RecordedEstimate, today: WallTime) -> Self {
        let date = |age: Duration| {
            let ns = u64::try_from(age.as_nanos()).ok()?;
            today.as_unix_nanos().checked_sub(ns).map(WallTime::from_unix_nanos)
        };
        let RecordedEstimate { down: (down, down_age), up: (up, up_age), rtt: (rtt, rtt_age), by } =
            *past;
        let (down_at, up_at, rtt_at) = (date(down_age), date(up_age), date(rtt_age));
        Self { down, down_at, down_by: by, up, up_at, rtt, rtt_at }
    }

    /// A date in the future was set by a wrong clock, so the age is not known.
    fn past(&self, today: WallTime) -> RecordedEstimate {
        let age = |at: Option<WallTime>| {
            let ns = at.and_then(|at| today.as_unix_nanos().checked_sub(at.as_unix_nanos()));
            ns.map_or(Duration::MAX, Duration::from_nanos)
        };
        RecordedEstimate {
            down: (self.down, age(self.down_at)),
            up: (self.up, age(self.up_at)),
            rtt: (self.rtt, age(self.rtt_at)),
            by: self.down_by,
        }
    }
}

/// What is to be added to the file. Other processes of this user add to the same file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addition {
    ended: Vec<(Application, u64)>,
    /// By interface and day.
    spent: BTreeMap<(String, u32), (Period, u64)>,
    estimates: BTreeMap<String, StoredEstimate>,
    back: BTreeMap<(String, u32), u64>,
}

/// A request for an allotment of a cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllotmentRequest {
    /// The cap, bytes.
    pub cap: u64,
    /// The month that the cap is for.
    pub period: Period,
    /// Bytes that are wanted.
    pub size: u64,
}

/// Connections that have ended and wait to be saved, which happens every five seconds. Ends beyond that are not learnt
/// from.
const MOST_ENDED: usize = 65_536;

impl Addition {
    /// A connection has ended.
    pub(super) fn ended(&mut self, application: &Application, bytes: u64) {
        if self.ended.len() < MOST_ENDED {
            self.ended.push((application.clone(), bytes));
        }
    }

    /// This many bytes more went by this interface today.
    pub(super) fn spent(&mut self, name: &str, bytes: u64, period: Period) {
        let day = self.spent.entry((name.to_owned(), period.today)).or_insert((period, 0));
        day.1 = day.1.saturating_add(bytes);
    }

    /// This many bytes that were allotted on that day were not moved.
    pub(super) fn return_bytes(&mut self, name: &str, bytes: u64, day: u32) {
        let back = self.back.entry((name.to_owned(), day)).or_default();
        *back = back.saturating_add(bytes);
    }

    /// The current estimate of an interface.
    pub(super) fn record_estimate(
        &mut self,
        name: &str,
        estimate: &Estimate,
        (now, today): (Time, WallTime),
    ) {
        let kept = StoredEstimate::of(&estimate.recorded(now), today);
        self.estimates.insert(name.to_owned(), kept);
    }

    /// Adds what came later.
    pub(super) fn append(&mut self, later: Self) {
        later.ended.iter().for_each(|(application, bytes)| self.ended(application, *bytes));
        for ((name, _), (period, bytes)) in later.spent {
            self.spent(&name, bytes, period);
        }
        self.estimates.extend(later.estimates);
        for ((name, day), bytes) in later.back {
            self.return_bytes(&name, bytes, day);
        }
    }

    /// Whether there is nothing to add.
    pub fn is_empty(&self) -> bool {
        let of_bytes = self.spent.is_empty() && self.back.is_empty();
        of_bytes && self.ended.is_empty() && self.estimates.is_empty()
    }

    /// Adds all of it to `kept`.
    pub fn apply_to(&self, kept: &mut StoredTable) {
        for (application, bytes) in &self.ended {
            kept.applications.record_connection(application, *bytes);
        }
        for ((name, _), (period, bytes)) in &self.spent {
            kept.spend(name, *bytes, *period);
        }
        for ((name, day), bytes) in &self.back {
            kept.take_back(name, *bytes, *day);
        }
        for (name, estimate) in &self.estimates {
            kept.learn(name, *estimate);
        }
    }
}

impl StoredTable {
    /// Reads the file. If there is none, nothing is kept yet.
    ///
    /// # Errors
    /// Errors of the system, `InvalidData` if the file is damaged, `FileTooLarge` beyond 4 MiB. The file is not
    /// changed, because a cap that was forgotten costs money.
    pub fn open(file: &Path) -> io::Result<Self> {
        let Some(bytes) = durable::read(file, MAX_BYTES)? else { return Ok(Self::default()) };
        serde_json::from_slice(&bytes).map_err(io::Error::from)
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// Errors of the system; the file is unchanged then.
    pub fn save(&self, file: &Path) -> io::Result<()> {
        durable::replace(file, &serde_json::to_vec(self)?)
    }

    /// Adds to the file, under a lock that the user's processes share, and returns what it holds then. Blocks until it
    /// is synced.
    ///
    /// # Errors
    /// As [`Self::open`] and [`Self::save`], and `TimedOut` if another process holds the lock; nothing is added then.
    pub fn exchange(file: &Path, addition: &Addition) -> io::Result<Self> {
        let _turn = durable::lock_within(file, PATIENCE)?;
        let mut kept = Self::open(file)?;
        addition.apply_to(&mut kept);
        kept.save(file)?;
        Ok(kept)
    }

    /// Takes an allotment of at most `size` bytes from what is left of a cap. Returns what is kept then, and the number
    /// of bytes, which count as moved from now on. Blocks until the file is synced.
    ///
    /// # Errors
    /// As [`Self::exchange`]; nothing is allotted then.
    pub fn allot(file: &Path, name: &str, of: &AllotmentRequest) -> io::Result<(Self, u64)> {
        let _turn = durable::lock_within(file, PATIENCE)?;
        let mut kept = Self::open(file)?;
        let bytes = kept.take_allotment(name, of);
        if bytes > 0 {
            kept.save(file)?;
        }
        Ok((kept, bytes))
    }

    /// As [`Self::allot`], without a file.
    pub(super) fn take_allotment(&mut self, name: &str, of: &AllotmentRequest) -> u64 {
        let left = of.cap.saturating_sub(self.used(name, of.period));
        let bytes = left.min(of.size);
        if bytes > 0 {
            self.spend(name, bytes, of.period);
        }
        bytes
    }

    /// Takes the cost of a probe from this day's budget `most`, which all processes share. Returns what is kept then,
    /// and whether there was enough. Blocks until the file is synced.
    ///
    /// # Errors
    /// As [`Self::exchange`]; nothing is taken then.
    pub(super) fn pay_for_probe_in(
        file: &Path,
        today: u32,
        (cost, most): (u64, u64),
    ) -> io::Result<(Self, bool)> {
        let _turn = durable::lock_within(file, PATIENCE)?;
        let mut kept = Self::open(file)?;
        let is_paid = kept.pay_for_probe(today, (cost, most));
        if is_paid {
            kept.save(file)?;
        }
        Ok((kept, is_paid))
    }

    /// As [`Self::pay_for_probe_in`], without a file.
    pub(super) fn pay_for_probe(&mut self, today: u32, (cost, most): (u64, u64)) -> bool {
        let bytes = self.spent_on_probes(today).saturating_add(cost);
        if bytes <= most {
            self.probes = ProbeSpending { day: today, bytes };
        }
        bytes <= most
    }

    /// Bytes spent on probes on this day.
    pub(super) fn spent_on_probes(&self, today: u32) -> u64 {
        if self.probes.day == today { self.probes.bytes } else { 0 }
    }

    /// A new name takes the place of the one that moved something longest ago.
    fn learn(&mut self, name: &str, estimate: StoredEstimate) {
        if self.estimates.len() >= MOST_NAMES && !self.estimates.contains_key(name) {
            let moved = |name: &&String| self.used.get(*name).map_or(0, DailyUsage::last);
            let oldest = self.estimates.keys().min_by_key(moved).cloned();
            oldest.and_then(|oldest| self.estimates.remove(&oldest));
        }
        self.estimates.insert(name.to_owned(), estimate);
    }

    /// The estimate that was kept of an interface, with its age.
    pub(super) fn estimate(&self, name: &str, (now, today): (Time, WallTime)) -> Option<Estimate> {
        self.estimates.get(name).map(|kept| Estimate::restore(&kept.past(today), now))
    }

    /// This many bytes more went by this interface today.
    pub(super) fn spend(&mut self, name: &str, bytes: u64, period: Period) {
        if self.used.len() >= MOST_NAMES && !self.used.contains_key(name) {
            let oldest = self.used.iter().min_by_key(|(_, used)| used.last());
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.used.remove(&oldest);
            }
        }
        self.used.entry(name.to_owned()).or_default().add(bytes, period);
    }

    /// This many bytes that were allotted on that day were not moved.
    pub(super) fn take_back(&mut self, name: &str, bytes: u64, day: u32) {
        if let Some(used) = self.used.get_mut(name) {
            used.give_back(bytes, day);
        }
    }

    /// Bytes by this interface that count in this period.
    pub(super) fn used(&self, name: &str, period: Period) -> u64 {
        self.used.get(name).map_or(0, |used| used.within(period))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_bond::Application;

    #[test]
    fn probes_of_all_processes_share_a_days_budget() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("interfaces.json");
        let pay = |day| StoredTable::pay_for_probe_in(&file, day, (300, 700)).unwrap();
        assert_eq!([pay(5).1, pay(5).1, pay(5).1, pay(6).1], [true, true, false, true]);
        let kept = StoredTable::open(&file).unwrap();
        assert_eq!((kept.spent_on_probes(5), kept.spent_on_probes(6)), (0, 300));
    }

    #[test]
    fn an_estimate_keeps_its_age_after_a_restart_and_is_old_without_a_date() {
        let (minute, zero) = (Duration::from_secs(60), Time::ZERO);
        let day = WallTime::from_unix_nanos(1_800_000_000_000_000_000);
        let later = WallTime::from_unix_nanos(day.as_unix_nanos() + 3600 * 1_000_000_000);
        let (mut kept, mut addition) = (StoredTable::default(), Addition::default());
        let mut seen = Estimate::default();
        seen.record_probe(125_000, Duration::from_secs(1), zero);
        addition.record_estimate("lte0", &seen, (zero + minute, day));
        addition.apply_to(&mut kept);
        let text = serde_json::to_string(&kept).unwrap();
        let read: StoredTable = serde_json::from_str(&text).unwrap();
        let found = read.estimate("lte0", (zero, later)).unwrap();
        assert_eq!((found.age(zero), found.down()), (Some(61 * minute), Rate::from_mbps(1.0)));
        assert_eq!(found.newest_method(zero), Some(Method::Transfer));
        let early = WallTime::from_unix_nanos(1);
        assert_eq!(read.estimate("lte0", (zero, early)).unwrap().age(zero), Some(Duration::MAX));
        let undated = "{\"estimates\":{\"lte0\":{\"down\":\"8 Mbit/s\",\"up\":\"0 bit/s\",\"rtt\":\"20 ms\"}}}";
        let old: StoredTable = serde_json::from_str(undated).unwrap();
        let found = old.estimate("lte0", (zero, day)).unwrap();
        assert_eq!((found.age(zero), found.rtt()), (Some(Duration::MAX), minute / 3000));
    }

    #[test]
    fn a_file_is_read_again_and_damage_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("interfaces.json");
        let mut kept = StoredTable::open(&file).unwrap();
        assert_eq!(kept, StoredTable::default());
        let curl = Application { process: Some("curl".into()), port: 443 };
        kept.applications.record_connection(&curl, 8000);
        let period = Period { start: 20, end: 50, today: 27 };
        kept.spend("lte0", 70, period);
        kept.save(&file).unwrap();
        let mut read = StoredTable::open(&file).unwrap();
        assert_eq!(read.applications.expected(&curl), 8000);
        assert_eq!(read.used("lte0", period), 70);
        let next = Period { start: 50, end: 81, today: 50 };
        assert_eq!(read.used("lte0", next), 0);
        read.spend("lte0", 1, next);
        assert_eq!((read.used("lte0", next), read.used("lte0", period)), (1, 71));
        let mut addition = Addition::default();
        addition.spent("lte0", 5, next);
        addition.ended(&curl, 16_000);
        for sum in [5, 10] {
            let both = StoredTable::exchange(&file, &addition).unwrap();
            assert_eq!(both.used("lte0", next), sum);
        }
        let of = AllotmentRequest { cap: 95, period: next, size: 60 };
        let allot = || StoredTable::allot(&file, "lte0", &of).unwrap().1;
        // 10 are used.
        assert_eq!([allot(), allot(), allot()], [60, 25, 0]);
        let mut back = Addition::default();
        back.return_bytes("lte0", 12, next.today);
        back.return_bytes("lte0", 8, next.today);
        assert_eq!(StoredTable::exchange(&file, &back).unwrap().used("lte0", next), 75);
        assert_eq!(allot(), 20);
        std::fs::write(&file, "{\"used\": 1").unwrap();
        assert!(StoredTable::open(&file).is_err());
    }
}
