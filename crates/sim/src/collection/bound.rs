//! The bound of a run: the least time in which its data could have arrived.

use super::topology::Topology;
use thalweg_plan::maxflow::MaxFlow;

/// Seconds between two notes of a record.
const EVERY: f64 = 2.0;

/// The number of whole units that stand for all data of a flow.
const UNITS: f64 = 1e9;

/// The longest time that is searched, s.
const NEVER: f64 = 1e7;

/// The number of halvings of the search: to a billionth of its start.
const STEPS: u32 = 30;

/// The traffic of a run's background over each link, noted periodically.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackgroundRecord {
    /// (time in s, Mbit moved until then by link)
    notes: Vec<(f64, Vec<f64>)>,
}

impl BackgroundRecord {
    /// When the next note is due, s.
    pub(super) fn next_due(&self) -> f64 {
        self.notes.last().map_or(0.0, |last| last.0 + EVERY)
    }

    pub(super) fn add(&mut self, now: f64, carried: Vec<f64>) {
        self.notes.push((now, carried));
    }

    /// The traffic moved until `then`, interpolated between notes; after the last note, the background continues at its
    /// average rate.
    fn carried_until(&self, then: f64) -> Vec<f64> {
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

/// The bound of a run in the simulator, from its record; s.
pub(super) fn bound_of_run(
    net: &Topology,
    hosts: &[usize],
    mbit: &[f64],
    record: &BackgroundRecord,
) -> f64 {
    let links: Vec<_> = (0..net.capacity.len() as u32).map(|link| net.ends(link)).collect();
    let left = |seconds: f64| {
        let carried = record.carried_until(seconds);
        let carried = |link: usize| carried.get(link).copied().unwrap_or(0.0);
        let left = |(link, capacity): (usize, &f64)| capacity * seconds - carried(link);
        net.capacity.iter().enumerate().map(left).collect()
    };
    let guess = record.notes.last().map_or(1.0, |note| note.0);
    shortest(&links, hosts, mbit, left, guess)
}

/// The least T at which the capacity that the background left on the links until then admits the flow of all data to
/// the last host; s. Infinite if it is beyond 10⁷ s.
///
/// `links` are pairs of nodes, `amounts` are by host in any unit, and `left` returns what each link has left until a
/// time, in the same unit. The search begins at `guess`, s.
///
/// Ours. Any routes over the links are allowed, not only IP's between hosts, and links can save up capacity that they
/// do not use: no method is faster with that background.
pub fn shortest(
    links: &[(usize, usize)],
    hosts: &[usize],
    amounts: &[f64],
    left: impl Fn(f64) -> Vec<f64>,
    guess: f64,
) -> f64 {
    let fits = |seconds: f64| admits(links, hosts, amounts, &left(seconds));
    let mut high = guess.max(1e-3);
    while !fits(high) {
        high *= 1.5;
        if high > NEVER {
            return f64::INFINITY;
        }
    }
    let mut low = 0.0;
    for _ in 0..STEPS {
        let middle = f64::midpoint(low, high);
        if fits(middle) { high = middle } else { low = middle }
    }
    high
}

fn admits(links: &[(usize, usize)], hosts: &[usize], amounts: &[f64], left: &[f64]) -> bool {
    let Some(destination) = hosts.last() else { return true };
    let scale = UNITS / amounts.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let units = |amount: f64| (amount.max(0.0) * scale) as u64;
    let nodes = links.iter().map(|(from, to)| *from.max(to)).chain(hosts.iter().copied()).max();
    let source = nodes.unwrap_or(0) as u32 + 1;
    let arc =
        |((from, to), left): (&(usize, usize), &f64)| (*from as u32, *to as u32, units(*left));
    let mut arcs: Vec<(u32, u32, u64)> = links.iter().zip(left).map(arc).collect();
    arcs.extend(
        hosts.iter().zip(amounts).map(|(host, amount)| (source, *host as u32, units(*amount))),
    );
    let wanted: u64 = amounts.iter().map(|amount| units(*amount)).sum();
    MaxFlow::new(source as usize + 1, &arcs).run(source, *destination as u32) >= wanted
}
