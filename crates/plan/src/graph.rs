//! The overlay graph that plans are made on, and UKAIRO's detours on it.

use std::time::Duration;
use thalweg_measure::{Bound, Estimate, Metric, Subject, Table};
use thalweg_units::{Rate, Time};

/// Estimates older than this are no longer planned with.
///
/// UKAIRO §2.1: "measurements for detour discovery have to be repeated roughly
/// every 2 weeks in order to avoid substantially stale data".
pub const MAX_AGE: Duration = Duration::from_secs(14 * 24 * 3600);

/// What is known of the rates between `n` nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    nodes: usize,
    /// `rate[i · n + j]`, n×n, from i to j; `None` = unmeasured. The diagonal is `None`.
    rate: Vec<Option<Rate>>,
}

/// The best relay for a pair of nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Detour {
    /// The relay's index.
    pub via: usize,
    /// Its [`Graph::detour_gain`], greater than 0.
    pub gain: f64,
}

impl Graph {
    /// The graph of a table's throughput estimates: the only way from estimates to plans.
    ///
    /// Per leg the youngest exact value counts; a younger lower bound above it raises
    /// it. A lower bound alone counts as unmeasured: it mostly tells of another
    /// leg's back-pressure, and planning with it would keep the leg unused, and so
    /// unmeasured, for ever. Of several interfaces the best counts. Estimates
    /// older than [`MAX_AGE`] do not count.
    ///
    /// O(n² + entries · log entries) time, 16·n² bytes.
    pub fn from_table(table: &Table, now: Time) -> Self {
        let nodes = table.nodes() as usize;
        let mut graph = Self { nodes, rate: vec![None; nodes * nodes] };
        for e in table.iter(now) {
            let Subject::Leg { from, to } = e.subject else { continue };
            if e.metric == Metric::Throughput && e.bound == Bound::Exact && from.node != to {
                let cell = from.node.0 as usize * nodes + to.0 as usize;
                graph.rate[cell] = graph.rate[cell].max(leg_rate(table, e.subject, now));
            }
        }
        graph
    }

    /// A graph from a plain matrix, for tests and published data sets; `rate[i][j]` from i to j.
    ///
    /// Rows shorter than the number of rows are filled with `None`; longer ones are cut.
    pub fn from_matrix(rate: &[Vec<Option<Rate>>]) -> Self {
        let nodes = rate.len();
        let cell = |i: usize, j: usize| rate[i].get(j).copied().flatten().filter(|_| i != j);
        let cells = (0..nodes).flat_map(|i| (0..nodes).map(move |j| (i, j)));
        Self { nodes, rate: cells.map(|(i, j)| cell(i, j)).collect() }
    }

    /// The number of nodes, n.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// The rate from `i` to `j`; `None` if unmeasured, equal or out of range.
    pub fn rate(&self, i: usize, j: usize) -> Option<Rate> {
        if i >= self.nodes || j >= self.nodes {
            return None;
        }
        self.rate[i * self.nodes + j]
    }

    /// The rate from `i` to `j` by way of `l`: the slower leg's.
    ///
    /// Source: UKAIRO §2.1, `b̂_ilj = min(b_il, b_lj)`. `None` if a leg is unmeasured.
    pub fn detour_rate(&self, i: usize, l: usize, j: usize) -> Option<Rate> {
        Some(self.rate(i, l)?.min(self.rate(l, j)?))
    }

    /// How much faster than the direct path the detour by `l` is, as a fraction of it.
    ///
    /// Source: UKAIRO §2.1 Eq. (1), `d_l(i,j) = max(b̂_ilj − b_ij, 0) / b_ij`, and
    /// `d_l(i,i) = 0`; a relay that is one of the ends gains nothing either. A direct
    /// path that moves nothing makes any detour that does infinitely better.
    /// `None` if one of the three rates is unmeasured.
    pub fn detour_gain(&self, i: usize, l: usize, j: usize) -> Option<f64> {
        if i == j || l == i || l == j {
            return Some(0.0);
        }
        let direct = self.rate(i, j)?.as_bps() as f64;
        let more = self.detour_rate(i, l, j)?.as_bps() as f64 - direct;
        Some(if more > 0.0 { more / direct } else { 0.0 })
    }

    /// The relay with the highest [`Graph::detour_gain`] (UKAIRO §2.1), the lowest index
    /// among equals; `None` if no relay is known to gain anything.
    ///
    /// Differs: compared is [`Graph::detour_rate`]. The direct rate is the same for all
    /// relays, so that it grows with the gain; and where nothing gets through directly
    /// every gain is infinite, and only the rate tells the relays apart.
    ///
    /// O(n).
    pub fn best_detour(&self, i: usize, j: usize) -> Option<Detour> {
        let gaining = (0..self.nodes).filter_map(|via| {
            let gain = self.detour_gain(i, via, j).filter(|gain| *gain > 0.0)?;
            Some((self.detour_rate(i, via, j)?, Detour { via, gain }))
        });
        gaining.reduce(|best, next| if next.0 > best.0 { next } else { best }).map(|(_, d)| d)
    }
}

/// The rate to plan a leg with; `None` without a fresh exact value.
fn leg_rate(table: &Table, leg: Subject, now: Time) -> Option<Rate> {
    let fresh = |bound| {
        table.latest(leg, Metric::Throughput, bound, now).filter(|e: &Estimate| e.age <= MAX_AGE)
    };
    let exact = fresh(Bound::Exact)?;
    let raised = fresh(Bound::AtLeast).filter(|e| e.age < exact.age);
    exact.rate().max(raised.and_then(|e| e.rate()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_measure::{Interface, Method, NodeIndex};

    const NOW: Time = Time::from_nanos(5_000_000_000);

    /// Mbit/s; 0 stands for unmeasured.
    fn matrix(mbps: &[&[u32]]) -> Graph {
        let cell = |&m: &u32| (m > 0).then(|| Rate::from_mbps(m.into()));
        Graph::from_matrix(
            &mbps.iter().map(|row| row.iter().map(cell).collect()).collect::<Vec<_>>(),
        )
    }

    fn estimate(from: u32, to: u32, mbps: f64, age_s: u64, bound: Bound) -> Estimate {
        Estimate {
            subject: Subject::leg(from, to),
            metric: Metric::Throughput,
            value: mbps * 1e6,
            spread: None,
            method: Method::Transfer,
            age: Duration::from_secs(age_s),
            reporter: NodeIndex(from),
            bound,
        }
    }

    fn graph(estimates: &[Estimate]) -> Graph {
        let mut table = Table::new(3, 100);
        for e in estimates {
            table.insert(e.clone(), NOW).unwrap();
        }
        Graph::from_table(&table, NOW)
    }

    #[test]
    fn equation_1_by_hand() {
        // 0 → 1 direct: 4. By 2: min(10, 6) = 6, gain (6 − 4)/4 = 0.5.
        // By 3: min(20, 3) = 3 < 4, gain 0. By 4: min(9, 9) = 9, gain 1.25.
        let g = matrix(&[
            &[0, 4, 10, 20, 9],
            &[5, 0, 1, 1, 1],
            &[7, 6, 0, 1, 1],
            &[1, 3, 1, 0, 1],
            &[1, 9, 1, 1, 0],
        ]);
        assert_eq!(g.detour_gain(0, 2, 1), Some(0.5));
        assert_eq!(g.detour_gain(0, 3, 1), Some(0.0));
        assert_eq!(g.detour_gain(0, 4, 1), Some(1.25));
        assert_eq!(g.best_detour(0, 1), Some(Detour { via: 4, gain: 1.25 }));
        // The other way: 1 → 0 direct is 5; by 2: min(1, 7) = 1. Directions differ.
        assert_eq!(g.best_detour(1, 0), None);
        assert_eq!(g.detour_rate(0, 3, 1), Some(Rate::from_mbps(3.0)));
    }

    #[test]
    fn the_ends_are_no_detours_and_unmeasured_legs_tell_nothing() {
        let g = matrix(&[&[0, 4, 10], &[4, 0, 4], &[4, 0, 0]]);
        assert_eq!(g.detour_gain(0, 2, 0), Some(0.0));
        assert_eq!(g.detour_gain(0, 0, 1), Some(0.0));
        assert_eq!(g.detour_gain(0, 1, 1), Some(0.0));
        assert_eq!(g.detour_gain(0, 2, 1), None, "2 → 1 is unmeasured");
        assert_eq!(g.best_detour(0, 1), None);
        assert_eq!((g.rate(0, 9), g.detour_gain(0, 9, 1)), (None, None));
    }

    #[test]
    fn any_detour_beats_a_dead_direct_path() {
        let mut rows = vec![vec![Some(Rate::from_mbps(2.0)); 3]; 3];
        rows[0][1] = Some(Rate::ZERO);
        let g = Graph::from_matrix(&rows);
        assert_eq!(g.best_detour(0, 1), Some(Detour { via: 2, gain: f64::INFINITY }));
        rows[2][1] = Some(Rate::ZERO);
        assert_eq!(Graph::from_matrix(&rows).detour_gain(0, 2, 1), Some(0.0));
    }

    #[test]
    fn around_a_dead_direct_path_the_fastest_detour_wins() {
        let mut rows = vec![vec![Some(Rate::from_mbps(2.0)); 5]; 5];
        rows[0][1] = Some(Rate::ZERO);
        rows[3][1] = Some(Rate::from_mbps(50.0));
        // By 2: min(2, 2). By 3: min(9, 50) = 9. By 4: min(20, 2) = 2.
        rows[0][3] = Some(Rate::from_mbps(9.0));
        rows[0][4] = Some(Rate::from_mbps(20.0));
        let best = Graph::from_matrix(&rows).best_detour(0, 1);
        assert_eq!(best, Some(Detour { via: 3, gain: f64::INFINITY }));
    }

    #[test]
    fn among_equals_the_first_detour_wins() {
        let g = matrix(&[&[0, 1, 5, 5], &[1, 0, 1, 1], &[1, 5, 0, 1], &[1, 5, 1, 0]]);
        assert_eq!(g.best_detour(0, 1), Some(Detour { via: 2, gain: 4.0 }));
    }

    #[test]
    fn a_lower_bound_alone_is_no_measurement_and_may_raise_an_older_one() {
        let rate = |g: Graph| g.rate(0, 1).map(|r| r.as_mbps());
        assert_eq!(rate(graph(&[estimate(0, 1, 1.0, 0, Bound::AtLeast)])), None);
        let exact = estimate(0, 1, 10.0, 60, Bound::Exact);
        assert_eq!(
            rate(graph(&[exact.clone(), estimate(0, 1, 1.0, 0, Bound::AtLeast)])),
            Some(10.0)
        );
        assert_eq!(
            rate(graph(&[exact.clone(), estimate(0, 1, 15.0, 0, Bound::AtLeast)])),
            Some(15.0)
        );
        // What was reached before the exact measurement says nothing about now.
        assert_eq!(rate(graph(&[exact, estimate(0, 1, 15.0, 90, Bound::AtLeast)])), Some(10.0));
    }

    #[test]
    fn only_fresh_throughput_of_legs_counts_and_the_best_interface() {
        let old = MAX_AGE.as_secs() + 1;
        assert_eq!(graph(&[estimate(0, 1, 5.0, old, Bound::Exact)]).rate(0, 1), None);
        let rtt = Estimate { metric: Metric::RoundTrip, ..estimate(0, 1, 5.0, 0, Bound::Exact) };
        assert_eq!(graph(&[rtt]).rate(0, 1), None);
        let second = Interface { node: NodeIndex(0), interface: 1 };
        let fast = Estimate {
            subject: Subject::Leg { from: second, to: NodeIndex(1) },
            ..estimate(0, 1, 8.0, 0, Bound::Exact)
        };
        let g = graph(&[estimate(0, 1, 5.0, 0, Bound::Exact), fast]);
        assert_eq!((g.nodes(), g.rate(0, 1)), (3, Some(Rate::from_mbps(8.0))));
        assert_eq!(g.rate(1, 0), None);
    }
}
