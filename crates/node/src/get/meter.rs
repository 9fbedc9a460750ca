//! How far a download is, told and charged a few times a second.

use super::paths::Candidate;
use crate::{
    budget::{Budget, Purpose, Scope},
    job::{Event, EventSink, PathRate},
};
use std::time::Duration;
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

/// One path's counts since they were last told.
struct Lane {
    name: String,
    scope: Scope,
    useful: u64,
    useless: u64,
    /// Came, and may yet turn out useful or useless.
    held: u64,
    /// All that came since it was told.
    came: u64,
}

impl Meter {
    /// For these paths, of a file of which `done` bytes are there.
    pub(super) fn new(paths: &[Candidate], done: u64, total: Option<u64>) -> Self {
        let lane = |path: &Candidate| Lane {
            name: path.name.clone(),
            scope: Scope { interface: path.route.interface(), ..Scope::ALL },
            useful: 0,
            useless: 0,
            held: 0,
            came: 0,
        };
        let lanes = paths.iter().map(lane).collect();
        Self { lanes, since: Instant::now(), done, total, fetched: 0 }
    }

    /// `n` bytes of the file.
    pub(super) fn useful(&mut self, path: PathId, n: u64) {
        self.done += n;
        self.fetched += n;
        if let Some(lane) = self.lanes.get_mut(path.0 as usize) {
            lane.useful += n;
            lane.came += n;
        }
    }

    /// `n` bytes that may be of the file.
    pub(super) fn held(&mut self, path: PathId, n: u64) {
        self.fetched += n;
        if let Some(lane) = self.lanes.get_mut(path.0 as usize) {
            lane.held += n;
            lane.came += n;
        }
    }

    /// `n` bytes that were held are of the file.
    pub(super) fn verified(&mut self, path: PathId, n: u64) {
        self.done += n;
        if let Some(lane) = self.lanes.get_mut(path.0 as usize) {
            lane.held = lane.held.saturating_sub(n);
            lane.useful += n;
        }
    }

    /// What is still held of this path is lost.
    pub(super) fn lost(&mut self, path: PathId) {
        if let Some(lane) = self.lanes.get_mut(path.0 as usize) {
            lane.useless += std::mem::take(&mut lane.held);
        }
    }

    /// `n` bytes that came too late.
    pub(super) fn useless(&mut self, path: PathId, n: u64) {
        self.fetched += n;
        if let Some(lane) = self.lanes.get_mut(path.0 as usize) {
            lane.useless += n;
        }
    }

    /// Tells the rates since the last call, and charges the bytes.
    pub(super) fn tell(&mut self, sink: &dyn EventSink, budget: &Budget) {
        let took = self.since.elapsed();
        self.since = Instant::now();
        let bps = |n: u64| Rate::over(ByteSize::from_bytes(n), took).as_bps();
        let rate = |l: &Lane| PathRate { path: l.name.clone(), rate_bps: bps(l.came) };
        sink.event(&Event::Progress {
            done_bytes: self.done,
            total_bytes: self.total,
            rate_bps: bps(self.lanes.iter().map(|l| l.came).sum()),
            paths: self.lanes.iter().map(rate).collect(),
        });
        self.lanes.iter_mut().for_each(|l| l.came = 0);
        self.charge(budget);
    }

    /// Charges what was counted since the last call.
    pub(super) fn charge(&mut self, budget: &Budget) {
        for lane in &mut self.lanes {
            for (purpose, n) in
                [(Purpose::Data, &mut lane.useful), (Purpose::Duplicate, &mut lane.useless)]
            {
                let scope = Scope { purpose: Some(purpose), ..lane.scope };
                budget.charge(scope, ByteSize::from_bytes(std::mem::take(n)));
            }
        }
    }
}
