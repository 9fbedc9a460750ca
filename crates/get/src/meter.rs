//! How far a download is, told and charged a few times a second.

use std::time::Duration;
use thalweg_base::{
    budget::{Budget, Purpose, Scope},
    job::{Event, EventSink, PathRate},
};
use thalweg_paths::candidates::Candidate;
use thalweg_units::{ByteSize, PathId, Rate};
use tokio::time::Instant;

/// Between two progress events: often enough for an eye, rarely enough for a log.
pub(super) const INTERVAL: Duration = Duration::from_millis(250);

/// Counts bytes by path, and tells them.
pub(super) struct Meter {
    lanes: Vec<Lane>,
    since: Instant,
    done: u64,
    total: Option<u64>,
    /// All bytes that came over the network, useful or not.
    pub(super) fetched: u64,
}

/// One path's counts.
struct Lane {
    name: String,
    scope: Scope,
    /// In all, of the file.
    useful: u64,
    /// In all, asked of two paths and brought second.
    hedged: u64,
    /// In all, too late or not to be believed.
    late: u64,
    /// Of these, what was charged already.
    charged: (u64, u64),
    /// Came, and may yet turn out useful or useless.
    held: u64,
    /// All that came since it was told.
    came: u64,
}

impl Meter {
    /// For these paths, of a file of which `done` bytes are there.
    pub(super) fn new(paths: &[Candidate], done: u64, total: Option<u64>) -> Self {
        let lanes = paths.iter().map(Lane::new).collect();
        Self { lanes, since: Instant::now(), done, total, fetched: 0 }
    }

    fn lane(&mut self, path: PathId) -> Option<&mut Lane> {
        self.lanes.get_mut(path.0 as usize)
    }

    /// `n` bytes of the file.
    pub(super) fn useful(&mut self, path: PathId, n: u64) {
        self.took(path, n, 0, false);
    }

    /// `new` bytes of the file, and `old` ones that came over another path before; `held`: they
    /// were counted as held already.
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

    /// `n` bytes that may be of the file.
    pub(super) fn held(&mut self, path: PathId, n: u64) {
        self.fetched += n;
        if let Some(lane) = self.lane(path) {
            lane.held += n;
            lane.came += n;
        }
    }

    /// What is still held of this path is lost.
    pub(super) fn lost(&mut self, path: PathId) {
        if let Some(lane) = self.lane(path) {
            lane.late += std::mem::take(&mut lane.held);
        }
    }

    /// `n` bytes that came too late.
    pub(super) fn late(&mut self, path: PathId, n: u64) {
        self.fetched += n;
        if let Some(lane) = self.lane(path) {
            lane.late += n;
        }
    }

    /// The bytes of the file that are there.
    pub(super) fn done(&self) -> u64 {
        self.done
    }

    /// The bytes of the file that this path brought.
    pub(super) fn useful_of(&self, path: PathId) -> u64 {
        self.lanes.get(path.0 as usize).map_or(0, |l| l.useful)
    }

    /// Tells the rates since the last call, and charges the bytes.
    pub(super) fn tell(&mut self, sink: &dyn EventSink, budget: &Budget) {
        let took = self.since.elapsed();
        self.since = Instant::now();
        let bps = |n: u64| Rate::over(ByteSize::from_bytes(n), took).as_bps();
        let rate = |l: &Lane| PathRate {
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

    /// Tells what each path brought in all, those that brought nothing left out.
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

    /// Charges what was counted since the last call.
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

impl Lane {
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
    use std::sync::Mutex;
    use thalweg_net::Route;

    #[derive(Default)]
    struct Told(Mutex<Vec<Event>>);

    impl EventSink for Told {
        fn event(&self, event: &Event) {
            self.0.lock().unwrap().push(event.clone());
        }
    }

    #[test]
    fn every_byte_is_counted_once_and_by_its_cause() {
        let path = Candidate { name: "a".into(), route: Route::direct(), mirror: None };
        let mut meter = Meter::new(&[path], 0, None);
        let (budget, told, a) = (Budget::new(), Told::default(), PathId(0));
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
        assert_eq!(*told.0.lock().unwrap(), [total]);
    }
}
