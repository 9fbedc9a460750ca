//! Minimum-cost flow by the network simplex method.
//!
//! Source: Ahuja, Magnanti, Orlin, *Network Flows* (1993), chapter 11: strongly feasible
//! spanning trees (§11.6), so that it ends; block search for the entering arc (§11.5).
//! The paper on data collection (§III) uses Goldberg's scaling code for the same problem.
//!
//! ```text
//! all supply over artificial arcs ─► pivot while an arc has a bad reduced cost ─► flow, potentials
//! ```
//!
//! Every answer carries its proof, the potentials: [`Flow::is_optimal_for`] checks it without
//! trusting the search.

mod network;
mod proof;
mod simplex;
#[cfg(test)]
mod tests;
mod tree;

pub use network::{Arc, Network, NetworkError};

/// A cheapest flow, and the potentials that prove it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Units on each arc, in the network's order; 0 to the arc's capacity.
    pub on: Vec<u64>,
    /// Each node's potential: the price of a unit there, up to a constant.
    pub potential: Vec<i64>,
}

/// The supplies cannot all reach demands within the capacities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{stranded} of the supplied units cannot reach a demand")]
pub struct Infeasible {
    /// Supplied units that find no way, at least 1.
    pub stranded: u64,
}

impl Network {
    /// The cheapest flow that meets all supplies and demands.
    ///
    /// O(V·E) time at each of the pivots, far less on average; for 10,000 nodes and 500,000
    /// arcs some 1 s. 60 bytes an arc.
    ///
    /// # Errors
    ///
    /// [`Infeasible`] if there is no flow at all.
    pub fn cheapest(&self) -> Result<Flow, Infeasible> {
        simplex::solve(self)
    }
}

impl Flow {
    /// The sum of units times cost over all arcs; needs not fit 64 bits.
    pub fn cost(&self, network: &Network) -> i128 {
        let cost = |(arc, on): (&Arc, &u64)| i128::from(arc.cost) * i128::from(*on);
        network.arcs().iter().zip(&self.on).map(cost).sum()
    }
}
