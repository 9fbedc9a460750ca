//! Meshes for tests.

pub use super::draws::seeded;

use super::draws::normal;
use proptest::prelude::*;
use rand_core::Rng;
use thalweg_plan::Graph;
use thalweg_units::Rate;

/// A graph from cells of a matrix, Mbit/s; 0 stands for unmeasured.
pub fn matrix(mbps: &[&[u32]]) -> Graph {
    let cell = |&m: &u32| (m > 0).then(|| Rate::from_mbps(m.into()));
    Graph::from_matrix(&mbps.iter().map(|row| row.iter().map(cell).collect()).collect::<Vec<_>>())
}

/// A positive number with median 1: e^(σ·z), z approximately normal.
pub fn log_normal(sigma: f64, random: &mut impl Rng) -> f64 {
    (sigma * normal(random)).exp()
}

/// A mesh in which each leg is the least of the sender's rate, the receiver's rate and its own luck, Mbit/s, so that
/// relays differ and pairs do too.
pub fn mesh(nodes: usize, random: &mut impl Rng) -> Graph {
    let access: Vec<f64> = (0..nodes).map(|_| 30.0 * log_normal(0.8, random)).collect();
    let mut graph = Graph::new(nodes);
    for (i, j) in (0..nodes).flat_map(|i| (0..nodes).map(move |j| (i, j))) {
        let rate = access[i].min(access[j]).min(20.0 * log_normal(1.0, random));
        graph.set(i, j, Some(Rate::from_mbps(rate)));
    }
    graph
}

/// A cell: unmeasured, dead, or a rate from few different ones, so that ties are common.
pub fn cell() -> impl Strategy<Value = Option<Rate>> {
    let rate = prop_oneof![1 => Just(0), 8 => 1_u64..40, 2 => any::<u64>().prop_map(|r| r >> 8)];
    prop::option::weighted(0.6, rate.prop_map(Rate::from_bps))
}

/// Square matrices of 1 to `most` nodes.
pub fn cells(most: usize) -> impl Strategy<Value = Vec<Vec<Option<Rate>>>> {
    (1..=most).prop_flat_map(|n| prop::collection::vec(prop::collection::vec(cell(), n), n))
}
