//! Splits a flow of constant rates into paths.

use std::collections::BTreeMap;

/// A path and its rate.
#[derive(Clone, Debug, PartialEq)]
pub struct RatedPath {
    /// The host that has the data.
    pub source: u32,
    /// The hosts to which the data is sent, in order; the last is the destination.
    pub via: Vec<u32>,
    /// Data units a slot, greater than 0.
    pub per_slot: f64,
}

/// A flow of constant rates that is split into paths.
pub(super) struct FlowSplitter {
    /// By sender: the receivers and the flow to each.
    sent: Vec<BTreeMap<u32, u64>>,
    /// The flow that ends at each host.
    stays: Vec<u64>,
}

impl FlowSplitter {
    pub fn new(hosts: u32) -> Self {
        Self { sent: vec![BTreeMap::new(); hosts as usize], stays: vec![0; hosts as usize] }
    }

    /// Adds flow on a leg.
    pub fn sends(&mut self, from: u32, to: u32, units: u64) {
        if units > 0 {
            *self.sent[from as usize].entry(to).or_default() += units;
        }
    }

    /// Adds flow that ends at a host.
    pub fn stays(&mut self, host: u32, units: u64) {
        self.stays[host as usize] += units;
    }

    /// Splits off all paths of the supplies `own` (host, units), in their order; `scale` units are one data unit a
    /// slot.
    pub fn paths(mut self, own: impl Iterator<Item = (u32, u64)>, scale: f64) -> Vec<RatedPath> {
        let mut paths = Vec::new();
        for (source, mut own) in own {
            while let Some((via, on)) = self.path(source, own) {
                own -= on;
                paths.push(RatedPath { source, via, per_slot: on as f64 / scale });
            }
        }
        paths
    }

    /// The next path from `source`, with at most `own` on it. Cycles on the way are removed from the flow.
    fn path(&mut self, source: u32, own: u64) -> Option<(Vec<u32>, u64)> {
        if own == 0 {
            return None;
        }
        let mut way = vec![source];
        loop {
            let at = *way.last()?;
            if self.stays[at as usize] > 0 {
                let on = self.least(&way).min(own).min(self.stays[at as usize]);
                self.stays[at as usize] -= on;
                self.take(&way, on);
                return Some((way.split_off(1), on));
            }
            let Some(to) = self.sent[at as usize].keys().next().copied() else {
                // Rounded rates do not match exactly at both ends: flow that leads nowhere is dropped.
                let before = way.len().checked_sub(2).map(|before| way[before])?;
                self.sent[before as usize].remove(&at);
                way.truncate(1);
                continue;
            };
            let back = way.iter().position(|host| *host == to);
            way.push(to);
            if let Some(back) = back {
                let circle = way[back..].to_vec();
                let on = self.least(&circle);
                self.take(&circle, on);
                way.truncate(1);
            }
        }
    }

    fn least(&self, way: &[u32]) -> u64 {
        let on = |leg: &[u32]| self.sent[leg[0] as usize].get(&leg[1]).copied().unwrap_or(0);
        way.windows(2).map(on).min().unwrap_or(u64::MAX)
    }

    fn take(&mut self, way: &[u32], units: u64) {
        for leg in way.windows(2) {
            let sent = &mut self.sent[leg[0] as usize];
            if let Some(on) = sent.get_mut(&leg[1]) {
                *on -= units;
                if *on == 0 {
                    sent.remove(&leg[1]);
                }
            }
        }
    }
}
