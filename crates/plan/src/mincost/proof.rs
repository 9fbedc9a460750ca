//! Whether a flow is a flow, and the cheapest.

use super::{Flow, Network};

impl Flow {
    /// It keeps every capacity and meets every supply and demand exactly.
    pub fn is_flow_for(&self, network: &Network) -> bool {
        let mut left: Vec<i128> = network.supply().iter().map(|s| i128::from(*s)).collect();
        let mut within = self.on.len() == network.arcs().len();
        for (arc, on) in network.arcs().iter().zip(&self.on) {
            within &= *on <= arc.capacity;
            left[arc.from as usize] -= i128::from(*on);
            left[arc.to as usize] += i128::from(*on);
        }
        within && left.iter().all(|left| *left == 0)
    }

    /// No flow is cheaper: by its potentials every arc with room has a reduced cost of at least 0,
    /// every arc that is used at most 0 (*Network Flows*, theorem 9.3). False if it is no flow.
    pub fn is_optimal_for(&self, network: &Network) -> bool {
        let price = |node: u32| self.potential.get(node as usize).copied().map(i128::from);
        let holds = |(arc, on): (&super::Arc, &u64)| {
            let (Some(from), Some(to)) = (price(arc.from), price(arc.to)) else { return false };
            let reduced = i128::from(arc.cost) + from - to;
            (reduced >= 0 || *on == arc.capacity) && (reduced <= 0 || *on == 0)
        };
        self.is_flow_for(network) && network.arcs().iter().zip(&self.on).all(holds)
    }
}
