//! Counts the bytes of a download by path; reports and charges them a few times a second.

use super::facts::Waits;
use std::time::Duration;
use thalweg_base::{
    budget::{Budget, Purpose, Scope},
    job::{Event, EventSink, PathRate},
};
use thalweg_paths::candidates::Candidate;
use thalweg_units::{ByteSize, PathId, Rate};
use tokio::time::Instant;

/// The time between two progress events: short enough for a person watching, long enough for a log.
pub(super) const INTERVAL: Duration = Duration::from_millis(250);

/// Counts bytes by path, and reports them.
pub(super) struct Meter {
    lanes: Vec<PathCounts>,
    since: Instant,
    done: u64,
    total: Option<u64>,
    /// All bytes received over the network, useful or not.
    pub(super) fetched: u64,
    /// The times in which no bytes were taken.
    pub(super) waits: Waits,
}

/// One path's counts.
struct PathCounts {
    name: String,
    scope: Scope,
    /// Bytes of the file, total.
    useful: u64,
    /// Bytes requested from two paths and delivered second, total.
    hedged: u64,
    /// Bytes that were late or cannot be trusted, total.
    late: u64,
    /// The useful bytes and the useless bytes that were already charged.
    charged: (u64, u64),
    /// Received bytes that may turn out to be useful or useless.
    held: u64,
    /// All bytes received since the last report.
    came: u64,
}

impl Meter {
    /// Creates a meter for these paths and a file of which `done` bytes are already there.
    pub(super) fn new(paths: &[Candidate], done: u64, total: Option<u64>) -> Self {
        let lanes = paths.iter().map(PathCounts::new).collect();
        Self { lanes, since: Instant::now(), done, total, fetched: 0, waits: Waits::default() }
    }

    fn lane(&mut self, path: PathId) -> Option<&mut PathCounts> {
        self.lanes.get_mut(path.0 as usize)
    }

    /// Counts `n` bytes of the file.
    pub(super) fn useful(&mut self, path: PathId, n: u64) {
        self.took(path, n, 0, false);
    }

    /// Counts `new` bytes of the file, and `old` bytes that another path had delivered before. With `held`, they were
    /// counted as held already.
    pub(super) fn took(&mut self, path: PathId, new: u64, old: u64, held: bool) {
        self.done += new;
        if !held {
            self.fetched += new + old;
        }
        let Some(lane) = self.lane(path) else { return };
        lane.useful += new;
        lane.hedged += old;
        match held {
            true => lane.held = lane.held.saturating_sub(new + old),
            false => lane.came += new + old,
        }
    }

    /// Counts `n` bytes that may belong to the file.
    pub(super) fn held(&mut self, path: PathId, n: u64) {
        self.fetched += n;
        if let Some(lane) = self.lane(path) {
            lane.held += n;
            lane.came += n;
        }
    }

    /// Counts the bytes of this path that are still held: they are late now.
    pub(super) fn lost(&mut self, path: PathId) {
        if let Some(lane) = self.lane(path) {
            lane.late += std::mem::take(&mut lane.held);
        }
    }

    /// Counts `n` bytes that were late.
    pub(super) fn late(&mut self, path: PathId, n: u64) {
        self.fetched += n;
        if let Some(lane) = self.lane(path) {
            lane.late += n;
        }
    }

    /// Bytes of the file that are there.
    pub(super) fn done(&self) -> u64 {
        self.done
    }

    /// Bytes of the file that this path delivered.
    pub(super) fn useful_of(&self, path: PathId) -> u64 {
        self.lanes.get(path.0 as usize).map_or(0, |l| l.useful)
    }

    /// Reports the rates since the last call, and charges the bytes.
    pub(super) fn tell(&mut self, sink: &dyn EventSink, budget: &Budget) {
        let took = self.since.elapsed();
        self.since = Instant::now();
        let bps = |n: u64| Rate::over(ByteSize::from_bytes(n), took).as_bps();
        let rate = |l: &PathCounts| PathRate {
            path: l.name.clone(),
            rate_bps: bps(l.came),
            bytes: l.useful + l.held,
        };
        sink.event(&Event::Progress {
            done_bytes: self.done,
            total_bytes: self.total,
            rate_bps: bps(self.lanes.iter().map(|l| l.came).sum()),
            paths: self.lanes.iter().map(rate).collect(),
        });
        self.lanes.iter_mut().for_each(|l| l.came = 0);
        self.charge(budget);
    }

    /// Reports the totals of each path that delivered anything.
    pub(super) fn tell_totals(&self, sink: &dyn EventSink) {
        for lane in self.lanes.iter().filter(|l| l.useful + l.hedged + l.late > 0) {
            sink.event(&Event::PathTotal {
                path: lane.name.clone(),
                bytes: lane.useful,
                hedged_bytes: lane.hedged,
                late_bytes: lane.late,
            });
        }
    }

    /// Charges the bytes counted since the last call.
    pub(super) fn charge(&mut self, budget: &Budget) {
        for lane in &mut self.lanes {
            let (useful, useless) = (lane.useful, lane.hedged + lane.late);
            let (before, wasted) = std::mem::replace(&mut lane.charged, (useful, useless));
            for (purpose, n) in
                [(Purpose::Data, useful - before), (Purpose::Duplicate, useless - wasted)]
            {
                let scope = Scope { purpose: Some(purpose), ..lane.scope };
                budget.charge(scope, ByteSize::from_bytes(n));
            }
        }
    }
}

impl PathCounts {
    fn new(path: &Candidate) -> Self {
        Self {
            name: path.name.clone(),
            scope: Scope { interface: path.route.interface(), ..Scope::ALL },
            useful: 0,
            hedged: 0,
            late: 0,
            charged: (0, 0),
            held: 0,
            came: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use thalweg_net::Route;

    #[derive(Default)]
    struct RecordedEvents(Mutex<Vec<Event>>);

    impl EventSink for RecordedEvents {
        fn event(&self, event: &Event) {
            self.0.lock().push(event.clone());
        }
    }

    #[test]
    fn every_byte_is_counted_once_by_its_cause() {
        let path = Candidate { name: "a".into(), route: Route::direct(), mirror: None };
        let mut meter = Meter::new(&[path], 0, None);
        let (budget, told, a) = (Budget::new(), RecordedEvents::default(), PathId(0));
        meter.took(a, 100, 20, false);
        meter.held(a, 50);
        meter.took(a, 10, 5, true);
        meter.charge(&budget);
        meter.late(a, 7);
        meter.lost(a);
        meter.charge(&budget);
        let spent = |p| budget.spent(Scope::purpose(p)).as_bytes();
        assert_eq!((spent(Purpose::Data), spent(Purpose::Duplicate)), (110, 25 + 7 + 35));
        assert_eq!((meter.fetched, meter.useful_of(a)), (177, 110));
        meter.tell_totals(&told);
        let total =
            Event::PathTotal { path: "a".into(), bytes: 110, hedged_bytes: 25, late_bytes: 42 };
        assert_eq!(*told.0.lock(), [total]);
    }
}
