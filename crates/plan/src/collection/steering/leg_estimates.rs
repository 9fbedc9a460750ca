//! Estimates of what legs, and sets of legs, can carry.

use crate::Graph;
use std::collections::{BTreeMap, BTreeSet};

/// (from, to)
pub(super) type LegEnds = (u32, u32);

/// Legs that share a bottleneck, so that their sum is limited.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedSet {
    /// The legs, as (from, to).
    pub legs: BTreeSet<(u32, u32)>,
    /// The most that they carry together, bytes/s.
    pub limit: f64,
}

/// Estimates of legs, which are corrected as the legs are used.
#[derive(Clone, Debug)]
pub(super) struct LegEstimates {
    /// Bytes/s by leg.
    known: BTreeMap<LegEnds, f64>,
    /// For each host, the set of legs into it and the set of legs out of it. An access link is taken to be as fast as
    /// its fastest leg until more is seen to pass.
    hosts: Vec<SharedSet>,
    /// Sets that were learnt, the oldest first.
    learnt: Vec<SharedSet>,
}

/// The maximum number of learnt sets: a plan has few bottlenecks that several legs share. Beyond it, the oldest set is
/// forgotten.
const MOST_SETS: usize = 64;

impl LegEstimates {
    pub(super) fn new(nodes: u32, destination: u32, estimates: &Graph) -> Self {
        let inside = |leg: &((usize, usize), _)| {
            let ((from, to), _) = *leg;
            from < nodes as usize && to < nodes as usize && from != destination as usize
        };
        let known: BTreeMap<LegEnds, f64> = estimates
            .legs()
            .map(|(leg, rate)| (leg, rate.as_bps() as f64 / 8.0))
            .filter(inside)
            .map(|((from, to), rate)| ((from as u32, to as u32), rate))
            .collect();
        let mut legs = Self { known, hosts: Vec::new(), learnt: Vec::new() };
        for host in 0..nodes {
            legs.host(nodes, |other| (other, host));
            legs.host(nodes, |other| (host, other));
        }
        legs
    }

    fn host(&mut self, nodes: u32, leg: impl Fn(u32) -> LegEnds) {
        let legs: BTreeSet<LegEnds> = (0..nodes).map(leg).filter(|leg| leg.0 != leg.1).collect();
        let limit = legs.iter().filter_map(|leg| self.known(*leg)).fold(0.0, f64::max);
        let limit = if limit > 0.0 { limit } else { f64::INFINITY };
        self.hosts.push(SharedSet { legs, limit });
    }

    /// The access limits of a host, in and out, bytes/s.
    pub(super) fn host_limits(&self, host: u32) -> (f64, f64) {
        (self.hosts[2 * host as usize].limit, self.hosts[2 * host as usize + 1].limit)
    }

    /// Sets the limit of a host's incoming access, bytes/s.
    pub(super) fn limit_into(&mut self, host: u32, rate: f64) {
        self.hosts[2 * host as usize].limit = rate;
    }

    pub(super) fn known(&self, leg: LegEnds) -> Option<f64> {
        self.known.get(&leg).copied()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (LegEnds, f64)> {
        self.known.iter().map(|(leg, rate)| (*leg, *rate))
    }

    /// The estimate of a leg, bytes/s; for an unknown leg the mean of all known legs, or 1 MB/s if none is known.
    pub(super) fn rate(&self, leg: LegEnds) -> f64 {
        self.known(leg).unwrap_or_else(|| self.usual())
    }

    fn usual(&self) -> f64 {
        if self.known.is_empty() {
            return 1e6;
        }
        self.known.values().sum::<f64>() / self.known.len() as f64
    }

    /// Raises the estimate of a leg that was seen to carry this much.
    pub(super) fn raise(&mut self, leg: LegEnds, carried: f64) {
        let known = self.known.entry(leg).or_insert(carried);
        *known = known.max(carried);
    }

    /// Sets the estimate of a leg that was seen to carry no more than this.
    pub(super) fn lower(&mut self, leg: LegEnds, carried: f64) {
        self.known.insert(leg, carried);
    }

    /// Raises the limits of sets that carried more.
    pub(super) fn raise_sets(&mut self, loads: &BTreeMap<LegEnds, f64>) {
        for set in self.hosts.iter_mut().chain(&mut self.learnt) {
            let load = load_of(set, loads);
            if load > set.limit {
                set.limit = load;
            }
        }
    }

    /// Learns that these legs carry no more than this together. A set of the same legs is replaced.
    pub(super) fn learn(&mut self, legs: BTreeSet<LegEnds>, limit: f64) {
        self.learnt.retain(|set| set.legs != legs);
        if self.learnt.len() >= MOST_SETS {
            self.learnt.remove(0);
        }
        self.learnt.push(SharedSet { legs, limit });
    }

    pub(super) fn learnt(&self) -> &[SharedSet] {
        &self.learnt
    }

    /// What one more connection over this leg may get, bytes/s: the least over the leg and its sets of what is left, or
    /// of a fair share among the existing connections, whichever is more.
    pub(super) fn room(&self, leg: LegEnds, used: &LegLoad) -> f64 {
        let own = share(self.rate(leg), used.load(leg), used.count(leg));
        let hosts = [2 * leg.1 as usize, 2 * leg.0 as usize + 1];
        let hosts = hosts.iter().filter_map(|host| self.hosts.get(*host));
        let learnt = self.learnt.iter().filter(|set| set.legs.contains(&leg));
        let room = |set: &SharedSet| {
            let load = load_of(set, &used.loads);
            share(set.limit, load, set.legs.iter().map(|leg| used.count(*leg)).sum())
        };
        let sets = hosts.chain(learnt).filter(|set| set.limit.is_finite());
        sets.map(room).fold(own, f64::min)
    }
}

fn share(limit: f64, load: f64, connections: u32) -> f64 {
    (limit - load).max(limit / f64::from(connections + 1))
}

fn load_of(set: &SharedSet, loads: &BTreeMap<LegEnds, f64>) -> f64 {
    set.legs.iter().filter_map(|leg| loads.get(leg)).sum()
}

/// The load that the open ways put on the legs.
#[derive(Clone, Debug, Default)]
pub(super) struct LegLoad {
    /// Bytes/s by leg.
    pub(super) loads: BTreeMap<LegEnds, f64>,
    /// Connections by leg.
    pub(super) counts: BTreeMap<LegEnds, u32>,
}

impl LegLoad {
    pub(super) fn put(&mut self, leg: LegEnds, rate: f64) {
        *self.loads.entry(leg).or_default() += rate;
        *self.counts.entry(leg).or_default() += 1;
    }

    pub(super) fn load(&self, leg: LegEnds) -> f64 {
        self.loads.get(&leg).copied().unwrap_or(0.0)
    }

    fn count(&self, leg: LegEnds) -> u32 {
        self.counts.get(&leg).copied().unwrap_or(0)
    }
}
