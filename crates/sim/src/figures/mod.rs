//! The paper's figures, computed on an [`Input`](crate::input::Input) by the product's own planning code.

pub mod adaptive;
pub mod budget;
pub mod crowd;
pub mod population;
pub mod properties;
pub mod rankings;
pub mod relayed;
mod report;
pub mod sets;
mod strategy;
mod vivaldi;

pub use report::Report;
use strategy::Oracle;
pub use strategy::{Strategy, UnknownStrategy};

use crate::matrix::Matrix;
use thalweg_plan::{
    Graph,
    ranking::{ROBUST_MOST_GAIN, Ranking},
    schedule::{LegRtts, Pair},
};

/// The ranking that the oracle uses by default; here both ends vouch for each leg.
fn default_ranking(graph: &Graph) -> Ranking {
    Ranking::robust(graph, ROBUST_MOST_GAIN, |_, _| None)
}

/// Round trips from pings between nodes, ms.
#[derive(Clone, Debug)]
struct RoundTrips(Matrix);

impl LegRtts for RoundTrips {
    fn rtt_s(&self, (from, to): Pair) -> Option<f64> {
        self.0.get(from, to).map(|ms| ms / 1000.0)
    }
}

/// `d_l(i,j)` on these rates (UKAIRO Eq. 1), 0 for the ends; NaN where one is unknown.
fn gain(rates: &Matrix, i: usize, l: usize, j: usize) -> f64 {
    if l == i || l == j {
        return 0.0;
    }
    let direct = rates.raw(i, j);
    let (first, second) = (rates.raw(i, l), rates.raw(l, j));
    // f64::min would return the known one if the other is unknown.
    let detour = if first <= second { first } else { second };
    let gain = (detour - direct) / direct;
    if gain < 0.0 { 0.0 } else { gain }
}

/// The relay among `relays` with the highest gain, and the gain; `None` if none gains.
fn best_relay(rates: &Matrix, relays: &[usize], i: usize, j: usize) -> Option<(usize, f64)> {
    let gains = relays.iter().map(|&l| (l, gain(rates, i, l, j)));
    gains.filter(|(_, gain)| *gain > 0.0).reduce(|a, b| if b.1 > a.1 { b } else { a })
}

/// The ordered pairs of these nodes.
fn pairs(nodes: &[usize]) -> impl Iterator<Item = (usize, usize)> + '_ {
    nodes.iter().flat_map(move |&i| nodes.iter().filter(move |&&j| j != i).map(move |&j| (i, j)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_is_equation_1_and_unknown_legs_have_none() {
        let mut rates = Matrix::from_fn(4, |_, _| Some(8.0));
        rates.set(0, 1, Some(4.0));
        rates.set(0, 2, Some(6.0));
        rates.set(3, 1, None);
        assert_eq!((gain(&rates, 0, 2, 1), gain(&rates, 2, 0, 3)), (0.5, 0.0));
        assert_eq!((gain(&rates, 0, 1, 1), gain(&rates, 0, 0, 1)), (0.0, 0.0));
        assert!(gain(&rates, 0, 3, 1).is_nan() && gain(&rates, 3, 0, 1).is_nan());
        assert_eq!(best_relay(&rates, &[2, 3], 0, 1), Some((2, 0.5)));
        assert_eq!(best_relay(&rates, &[0, 1, 3], 0, 1), None);
        assert_eq!(pairs(&[5, 7]).collect::<Vec<_>>(), [(5, 7), (7, 5)]);
    }
}
