//! Splits a flow over time into paths (§IV, "Splitting the flow into paths").

use super::{Problem, TimedPath, time_expanded::TimeExpandedNetwork};
use crate::mincost::NetworkFlow;
use std::collections::BTreeMap;

/// What remains of a flow, by vertex (host, slot).
struct RemainingFlow {
    /// Units sent from a vertex, by the receiver's index.
    sent: BTreeMap<(u32, u32), BTreeMap<u32, u64>>,
    /// Units that stay at a destination's vertex.
    stays: BTreeMap<(u32, u32), u64>,
}

/// A path of the flow before it is subtracted.
struct FoundPath {
    path: TimedPath,
    /// Whether the source holds its data back until its start.
    held: bool,
}

/// The paths of a flow, by the smallest index: "We start from a source host which has the smallest index number.
/// Consider now all hosts that receive non-zero flows from it. Among those we then choose the one with the smallest
/// index number … until the virtual destination is reached."
///
/// A host that holds its data back counts as receiving from itself. Of several vertices of one host, which the paper
/// leaves open, the earliest is taken. Each path carries the least flow along it.
pub fn decompose(
    problem: &Problem,
    expanded: &TimeExpandedNetwork,
    flow: &NetworkFlow,
) -> Vec<TimedPath> {
    let mut left = RemainingFlow::new(problem, expanded, flow);
    let mut held: Vec<BTreeMap<u32, u64>> = vec![BTreeMap::new(); problem.supplies.len()];
    expanded.held(flow).for_each(|(supply, slot, units)| {
        held[supply].insert(slot, units);
    });
    let mut paths = Vec::new();
    for supply in by_host(problem) {
        let source = problem.supplies[supply];
        let back: u64 = held[supply].values().sum();
        // Units that are not held back leave the source's first vertex at once.
        let mut at_once = source.units - back;
        while let Some(found) = left.path(source.host, source.ready, at_once, &held[supply]) {
            left.take(&found.path);
            if found.held {
                subtract(&mut held[supply], found.path.start, found.path.units);
            } else {
                at_once -= found.path.units;
            }
            paths.push(found.path);
        }
    }
    paths
}

fn by_host(problem: &Problem) -> Vec<usize> {
    let mut order: Vec<usize> = (0..problem.supplies.len()).collect();
    order.sort_by_key(|supply| problem.supplies[*supply].host);
    order
}

impl RemainingFlow {
    fn new(problem: &Problem, expanded: &TimeExpandedNetwork, flow: &NetworkFlow) -> Self {
        let mut left = Self { sent: BTreeMap::new(), stays: BTreeMap::new() };
        for (slot, leg, units) in expanded.sent(flow) {
            let leg = &problem.legs[leg];
            // Parallel legs are one leg to the schedule.
            *left.sent.entry((leg.from, slot)).or_default().entry(leg.to).or_default() += units;
        }
        for (demand, slot, units) in expanded.delivered(flow) {
            *left.stays.entry((problem.demands[demand].0, slot)).or_default() += units;
        }
        left
    }

    /// The next path from a source. It starts at once if its first receiver has a smaller index than the source or if
    /// nothing is held back, otherwise after the hold.
    fn path(
        &self,
        host: u32,
        ready: u32,
        at_once: u64,
        held: &BTreeMap<u32, u64>,
    ) -> Option<FoundPath> {
        let first = self.sent.get(&(host, ready)).and_then(|to| to.keys().next());
        let hold = held.iter().next();
        let (start, most, held) = match (first.filter(|_| at_once > 0), hold) {
            (Some(to), Some((slot, units))) if *to > host => (*slot, *units, true),
            (Some(_), _) => (ready, at_once, false),
            (None, Some((slot, units))) => (*slot, *units, true),
            // The supply of a host that is itself a destination: it stays without a transfer.
            (None, None) if at_once > 0 => (ready, at_once, false),
            (None, None) => return None,
        };
        self.follow(host, start, most).map(|path| FoundPath { path, held })
    }

    fn follow(&self, source: u32, start: u32, most: u64) -> Option<TimedPath> {
        let mut path = TimedPath { source, start, via: Vec::new(), units: most };
        loop {
            let at = (path.last(), path.end());
            if let Some(units) = self.stays.get(&at) {
                path.units = path.units.min(*units);
                return Some(path);
            }
            let (to, units) = self.sent.get(&at)?.iter().next()?;
            path.units = path.units.min(*units);
            path.via.push(*to);
        }
    }

    fn take(&mut self, path: &TimedPath) {
        for (slot, from, to) in path.transfers() {
            let at = (from, slot);
            if let Some(sent) = self.sent.get_mut(&at) {
                subtract(sent, to, path.units);
                if sent.is_empty() {
                    self.sent.remove(&at);
                }
            }
        }
        subtract(&mut self.stays, (path.last(), path.end()), path.units);
    }
}

/// Subtracts from an entry, and removes it at 0.
fn subtract<K: Ord>(map: &mut BTreeMap<K, u64>, key: K, units: u64) {
    if let Some(left) = map.get_mut(&key) {
        *left = left.saturating_sub(units);
        if *left == 0 {
            map.remove(&key);
        }
    }
}
