//! The overlay graph on which plans are made, and UKAIRO's detours on it.

mod row;
mod sparse;
mod table;

pub use sparse::Sparse;
pub use table::{available, leg_rate};

use row::Row;
use std::time::Duration;
use thalweg_measure::Table;
use thalweg_units::{Rate, Time};

/// The age from which on estimates are no longer used for planning.
///
/// UKAIRO §2.1: "measurements for detour discovery have to be repeated roughly every 2 weeks in order to avoid
/// substantially stale data".
pub const MAX_AGE: Duration = Duration::from_secs(14 * 24 * 3600);

/// The known rates between `n` nodes, n < 2³².
///
/// Only measured legs are stored, by sender and by receiver, so that 10,000 nodes with one leg in a hundred measured
/// take some 50 MB. Well-filled rows also have a cell for each node, so that in a small or well-measured mesh a look-up
/// is one access. A copy costs O(n): see [`Sparse`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    rates: Sparse<Rate>,
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
    /// Creates a graph of `nodes` nodes in which nothing is measured.
    pub fn new(nodes: usize) -> Self {
        Self { rates: Sparse::new(nodes) }
    }

    /// Grows to `nodes` nodes; it does not shrink.
    pub fn grow(&mut self, nodes: usize) {
        self.rates.grow(nodes);
    }

    /// Creates the graph of a table's estimates of rates: the only way from estimates to plans.
    ///
    /// For each leg, the youngest exact value counts, raised by a younger lower bound above it. A lower bound alone
    /// counts as unmeasured: it mostly tells of another leg's back-pressure, and planning with it would keep the leg
    /// unused, and so unmeasured, for ever. If trains have found the available bandwidth since then, that counts
    /// ([`thalweg_measure::planned_rate`]). Of several interfaces, the best counts. Estimates older than [`MAX_AGE`] do
    /// not count.
    ///
    /// O(entries · d) time for d legs a node, O(entries) if each node has one interface.
    pub fn from_table(table: &Table, now: Time) -> Self {
        table::graph(table, now)
    }

    /// Creates a graph from a plain matrix, for tests and published data sets; `rate[i][j]` is from i to j.
    ///
    /// Rows shorter than the number of rows are filled with `None`; longer ones are cut.
    pub fn from_matrix(rate: &[Vec<Option<Rate>>]) -> Self {
        let mut graph = Self::new(rate.len());
        for (i, row) in rate.iter().enumerate() {
            for (j, rate) in row.iter().enumerate().take(graph.nodes()) {
                graph.set(i, j, *rate);
            }
        }
        graph
    }

    /// Sets the rate from `i` to `j`, or removes it. Returns the previous rate.
    ///
    /// Ends that are equal or out of range are ignored. O(d) for d legs at these ends.
    pub fn set(&mut self, i: usize, j: usize, rate: Option<Rate>) -> Option<Rate> {
        self.rates.set(i, j, rate)
    }

    /// The number of nodes, n.
    pub fn nodes(&self) -> usize {
        self.rates.nodes()
    }

    /// The number of measured legs, 0 to n·(n−1).
    pub fn measured(&self) -> usize {
        self.rates.pairs()
    }

    /// The rate from `i` to `j`; `None` if unmeasured, equal or out of range.
    pub fn rate(&self, i: usize, j: usize) -> Option<Rate> {
        self.rates.get(i, j)
    }

    /// The measured legs from `i` as (receiver, rate), ascending.
    pub fn outs(&self, i: usize) -> impl Iterator<Item = (usize, Rate)> {
        self.rates.outs(i)
    }

    /// The measured legs to `j` as (sender, rate), ascending.
    pub fn ins(&self, j: usize) -> impl Iterator<Item = (usize, Rate)> {
        self.rates.ins(j)
    }

    /// All measured legs, by sender, then by receiver.
    pub fn legs(&self) -> impl Iterator<Item = ((usize, usize), Rate)> {
        let of = |i| self.outs(i).map(move |(j, rate)| ((i, j), rate));
        (0..self.nodes()).flat_map(of)
    }

    /// The number of measured legs from `i`.
    pub fn out_degree(&self, i: usize) -> usize {
        self.rates.row_out(i).map_or(0, Row::len)
    }

    /// The number of measured legs to `j`.
    pub fn in_degree(&self, j: usize) -> usize {
        self.rates.row_in(j).map_or(0, Row::len)
    }

    /// The rate from `i` to `j` by way of `l`: that of the slower leg.
    ///
    /// Source: UKAIRO §2.1, `b̂_ilj = min(b_il, b_lj)`. `None` if a leg is unmeasured.
    pub fn detour_rate(&self, i: usize, l: usize, j: usize) -> Option<Rate> {
        Some(self.rate(i, l)?.min(self.rate(l, j)?))
    }

    /// The relays with both legs from `i` to `j` measured, each with its [`Graph::detour_rate`]; ascending. O(d).
    pub fn detours(&self, i: usize, j: usize) -> impl Iterator<Item = (usize, Rate)> {
        let rows = self.rates.row_out(i).zip(self.rates.row_in(j));
        rows.into_iter().flat_map(|(a, b)| a.shared(b)).map(|(l, a, b)| (l, a.min(b)))
    }

    /// The destinations to which both `i` and `l` have a measured leg, as (destination, rate from `i`, rate from `l`),
    /// ascending. O(d).
    pub(crate) fn shared_outs(
        &self,
        i: usize,
        l: usize,
    ) -> impl Iterator<Item = (usize, Rate, Rate)> {
        let rows = self.rates.row_out(i).zip(self.rates.row_out(l));
        rows.into_iter().flat_map(|(a, b)| a.shared(b))
    }

    /// The sources that have a measured leg to both `j` and `l`, as (source, rate to `j`, rate to `l`), ascending.
    /// O(d).
    pub(crate) fn shared_ins(
        &self,
        j: usize,
        l: usize,
    ) -> impl Iterator<Item = (usize, Rate, Rate)> {
        let rows = self.rates.row_in(j).zip(self.rates.row_in(l));
        rows.into_iter().flat_map(|(a, b)| a.shared(b))
    }

    /// The receivers of `i`'s measured legs, ascending, for hot loops.
    pub(crate) fn out_ends(&self, i: usize) -> &[u32] {
        self.rates.row_out(i).map_or(&[], Row::ends)
    }

    /// The rates of `i`'s legs, in the order of [`Graph::out_ends`].
    pub(crate) fn out_rates(&self, i: usize) -> &[Rate] {
        self.rates.row_out(i).map_or(&[], Row::values)
    }

    /// Whether `i` has the same outgoing legs in both graphs; see [`Sparse`] for the cost.
    pub(crate) fn has_same_outs(&self, other: &Self, i: usize) -> bool {
        self.rates.has_same_outs(&other.rates, i)
    }

    /// The gain of the detour by `l` over the direct path, as a fraction of the direct rate.
    ///
    /// Source: UKAIRO §2.1 Eq. (1), `d_l(i,j) = max(b̂_ilj − b_ij, 0) / b_ij`, and `d_l(i,i) = 0`; a relay that is one
    /// of the ends gains nothing either. If the direct path moves nothing, a detour that moves something is infinitely
    /// better. `None` if one of the three rates is unmeasured.
    pub fn detour_gain(&self, i: usize, l: usize, j: usize) -> Option<f64> {
        if i == j || l == i || l == j {
            return Some(0.0);
        }
        Some(gain(self.rate(i, j)?, self.detour_rate(i, l, j)?))
    }

    /// The relay with the highest [`Graph::detour_gain`] (UKAIRO §2.1), the lowest index among equals; `None` if no
    /// relay is known to gain anything.
    ///
    /// Differs: it compares [`Graph::detour_rate`]. The direct rate is the same for all relays, so the gain grows with
    /// the detour's rate; and if nothing gets through directly, every gain is infinite and only the rate tells the
    /// relays apart.
    ///
    /// O(d).
    pub fn best_detour(&self, i: usize, j: usize) -> Option<Detour> {
        let direct = self.rate(i, j)?;
        let best =
            self.detours(i, j).reduce(|best, next| if next.1 > best.1 { next } else { best });
        let (via, rate) = best.filter(|(_, rate)| *rate > direct)?;
        Some(Detour { via, gain: gain(direct, rate) })
    }
}

/// UKAIRO Eq. (1): from 0 up; infinite if the direct path moves nothing and the detour does.
pub(crate) fn gain(direct: Rate, detour: Rate) -> f64 {
    let (direct, detour) = (direct.as_bps() as f64, detour.as_bps() as f64);
    if detour > direct { (detour - direct) / direct } else { 0.0 }
}
