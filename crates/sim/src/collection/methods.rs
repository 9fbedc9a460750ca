//! The methods that are compared, as a run drives them.

use super::run::Transfer;
use crate::random::Stream;
use std::{collections::BTreeMap, time::Duration};
use thalweg_plan::collection::{Direct, DirectRelease, Release, Rule, Timetable};

/// A method of collection, driven by a run.
pub trait Method {
    /// The transfers that begin now.
    fn start_due(&mut self, now: f64) -> Vec<Transfer>;
    /// A transfer is complete.
    fn complete(&mut self, id: usize, now: f64);
    /// Takes what its running transfers have moved so far, Mbit by id; for methods that adapt.
    fn observe(&mut self, _now: f64, _moved: &BTreeMap<usize, f64>) {}
    /// Transfers that end now, complete or not.
    fn take_ended(&mut self) -> Vec<usize> {
        Vec::new()
    }
    /// A later time at which it may have more transfers even if none completes.
    fn next_wake(&self, now: f64) -> Option<f64>;
    /// Whether all data has arrived.
    fn is_finished(&self) -> bool;
    /// The most of others' data that each host has held so far, Mbit by host; missing hosts held none.
    fn storage(&self) -> BTreeMap<usize, f64> {
        BTreeMap::new()
    }
}

/// The kind of a method.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MethodKind {
    /// PathSyncX, the share X/100.
    PathSync(f64),
    PathDelay,
    /// Each host uses its own best path.
    BestPath,
    Direct(Direct),
    /// Ours: the adaptive fluid plan, with this many ways a source.
    Fluid(usize),
    /// All at once, each host over this many connections.
    AllAtOnceOver(usize),
}

/// A timetable that is carried out by a rule.
pub struct TimetableMethod {
    release: Release,
    /// Mbit in a data unit.
    unit: f64,
    /// Others' data by host, in units: (now, most).
    held: BTreeMap<u32, (u64, u64)>,
}

impl TimetableMethod {
    pub fn new(timetable: &Timetable, rule: Rule, unit: f64) -> Self {
        Self { release: Release::new(timetable, rule), unit, held: BTreeMap::new() }
    }

    /// Counts the data that a hop brought as held until the next hop of its path is complete.
    fn hold(&mut self, id: usize) {
        let transfers = self.release.transfers();
        let hop = transfers[id];
        let same = |other: Option<usize>| {
            other.and_then(|other| transfers.get(other)).is_some_and(|other| other.path == hop.path)
        };
        if same(id.checked_sub(1)) {
            let held = self.held.entry(hop.from).or_default();
            held.0 = held.0.saturating_sub(hop.units);
        }
        if same(Some(id + 1)) {
            let held = self.held.entry(hop.to).or_default();
            held.0 += hop.units;
            held.1 = held.1.max(held.0);
        }
    }
}

impl Method for TimetableMethod {
    fn start_due(&mut self, now: f64) -> Vec<Transfer> {
        let due = self.release.due(Duration::from_secs_f64(now + 1e-9));
        let sending = |id: usize| {
            let transfer = self.release.transfers()[id];
            let hosts = vec![transfer.from as usize, transfer.to as usize];
            Transfer { id, hosts, size: transfer.units as f64 * self.unit }
        };
        due.into_iter().map(sending).collect()
    }

    fn complete(&mut self, id: usize, _now: f64) {
        self.hold(id);
        self.release.done(id);
    }

    fn storage(&self) -> BTreeMap<usize, f64> {
        let mbit = |(host, held): (&u32, &(u64, u64))| (*host as usize, held.1 as f64 * self.unit);
        self.held.iter().map(mbit).collect()
    }

    fn next_wake(&self, now: f64) -> Option<f64> {
        self.release.wakes(Duration::from_secs_f64(now + 1e-9)).map(|at| at.as_secs_f64())
    }

    fn is_finished(&self) -> bool {
        self.release.is_finished()
    }
}

/// Hosts that send to the destination themselves.
pub struct DirectMethod {
    release: DirectRelease,
    random: Stream,
    /// Mbit by host; the destination is last.
    amounts: Vec<f64>,
    /// Connections of each host.
    over: usize,
    /// By host: the number of connections that are not done.
    left: Vec<usize>,
}

impl DirectMethod {
    pub fn new(method: Direct, amounts: Vec<f64>, over: usize, random: Stream) -> Self {
        let hosts = (0..amounts.len() as u32 - 1).collect();
        let left = vec![over; amounts.len()];
        Self { release: DirectRelease::new(method, hosts), random, amounts, over, left }
    }
}

impl Method for DirectMethod {
    fn start_due(&mut self, now: f64) -> Vec<Transfer> {
        let due = self.release.due(Duration::from_secs_f64(now + 1e-9), &mut self.random);
        let to = self.amounts.len() - 1;
        let sending = |host: u32| {
            let host = host as usize;
            let size = self.amounts[host] / self.over as f64;
            std::iter::repeat_n(Transfer { id: host, hosts: vec![host, to], size }, self.over)
        };
        due.into_iter().flat_map(sending).collect()
    }

    fn complete(&mut self, host: usize, _now: f64) {
        self.left[host] -= 1;
        if self.left[host] == 0 {
            self.release.done();
        }
    }

    fn next_wake(&self, _now: f64) -> Option<f64> {
        self.release.wakes().map(|at| at.as_secs_f64())
    }

    fn is_finished(&self) -> bool {
        self.release.is_finished()
    }
}
