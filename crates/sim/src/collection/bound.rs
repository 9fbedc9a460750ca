//! The bound of a run: the least time in which its data could have come.

use super::topology::Topology;
use thalweg_plan::maxflow::MaxFlow;

/// s between two notes of a record.
const EVERY: f64 = 2.0;

/// Whole units of a Mbit in the flow.
const UNITS: f64 = 1e6;

/// What the background of a run moved over each link, again and again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// When, s; and by link what was moved until then, Mbit.
    notes: Vec<(f64, Vec<f64>)>,
}

impl Record {
    /// When the next note is due, s.
    pub(super) fn next(&self) -> f64 {
        self.notes.last().map_or(0.0, |last| last.0 + EVERY)
    }

    pub(super) fn add(&mut self, now: f64, carried: Vec<f64>) {
        self.notes.push((now, carried));
    }

    /// What was moved until then, between the notes in proportion; after the last the background goes
    /// on as on average.
    fn at(&self, then: f64) -> Vec<f64> {
        let after = self.notes.partition_point(|note| note.0 <= then);
        let Some(from) = after.checked_sub(1).map(|at| &self.notes[at]) else {
            return self.notes.first().map(|note| vec![0.0; note.1.len()]).unwrap_or_default();
        };
        match self.notes.get(after) {
            Some(to) => {
                let share = (then - from.0) / (to.0 - from.0);
                from.1.iter().zip(&to.1).map(|(a, b)| a + share * (b - a)).collect()
            }
            None => from.1.iter().map(|a| a * then / from.0.max(1e-9)).collect(),
        }
    }
}

/// The least T at which what the links carried until then beside the background, added up, admits the
/// flow of all data to the last host; s.
///
/// Ours. Any routes over the links are allowed, not only those of IP between hosts, and links can
/// save up what they do not use: no method is faster with that background.
pub(super) fn shortest(net: &Topology, hosts: &[usize], mbit: &[f64], record: &Record) -> f64 {
    let fits = |seconds: f64| flow(net, hosts, mbit, &record.at(seconds), seconds);
    let mut high = record.notes.last().map_or(1.0, |note| note.0).max(1.0);
    while !fits(high) && high < 1e7 {
        high *= 1.5;
    }
    let mut low = 0.0;
    for _ in 0..30 {
        let middle = f64::midpoint(low, high);
        if fits(middle) { high = middle } else { low = middle }
    }
    high
}

fn flow(net: &Topology, hosts: &[usize], mbit: &[f64], carried: &[f64], seconds: f64) -> bool {
    let units = |mbit: f64| (mbit.max(0.0) * UNITS) as u64;
    let link = |link: usize| {
        let (from, to) = net.ends(link as u32);
        let left = net.capacity[link] * seconds - carried.get(link).copied().unwrap_or(0.0);
        (from as u32, to as u32, units(left))
    };
    let mut arcs: Vec<(u32, u32, u64)> = (0..net.capacity.len()).map(link).collect();
    let source = net.nodes() as u32;
    let supplies = hosts.iter().zip(mbit).map(|(host, mbit)| (source, *host as u32, units(*mbit)));
    arcs.extend(supplies);
    let wanted: u64 = mbit.iter().map(|mbit| units(*mbit)).sum();
    let Some(destination) = hosts.last() else { return true };
    MaxFlow::new(net.nodes() + 1, &arcs).run(source, *destination as u32) >= wanted
}
