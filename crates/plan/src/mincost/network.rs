//! The minimum-cost flow problem: nodes with supplies, arcs with capacities and costs.

use crate::maxflow::MaxFlow;
use thiserror::Error;

/// The largest capacity, supply or sum of supplies: 2⁶⁰ units, 10⁶ times 10 TB in bytes / 8.
const MOST_UNITS: u64 = 1 << 60;
/// The largest cost of an arc, either sign, times the number of nodes: potentials stay in 62 bits.
const MOST_COST: i64 = 1 << 60;

/// One arc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arc {
    /// The node it leaves.
    pub from: u32,
    /// The node it enters.
    pub to: u32,
    /// The most units on it.
    pub capacity: u64,
    /// The cost of a unit on it; may be negative.
    pub cost: i64,
}

/// Nodes with supplies, and arcs between them. Parallel arcs are allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    supply: Vec<i64>,
    arcs: Vec<Arc>,
}

/// Why a network is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NetworkError {
    /// An arc's end is not among the nodes.
    #[error("arc {arc} ends at a node that does not exist")]
    NoSuchNode { arc: usize },
    /// Supplies and demands differ.
    #[error("the supplies exceed the demands by {0} units")]
    Unbalanced(i64),
    /// A number is too large to be added up safely.
    #[error("a supply, capacity or cost is out of range")]
    OutOfRange,
}

impl Network {
    /// Creates a network of nodes with these supplies (negative: demands) and these arcs.
    ///
    /// # Errors
    ///
    /// [`NetworkError`] if an arc ends at an unknown node, the supplies do not sum up to 0, or a number is beyond 2⁶⁰
    /// (a cost: 2⁶⁰ / (nodes + 1)). An infinite capacity is given as 2⁶⁰.
    pub fn new(supply: Vec<i64>, arcs: Vec<Arc>) -> Result<Self, NetworkError> {
        let nodes = supply.len();
        let known = |arc: &Arc| (arc.from as usize) < nodes && (arc.to as usize) < nodes;
        if let Some(arc) = arcs.iter().position(|arc| !known(arc)) {
            return Err(NetworkError::NoSuchNode { arc });
        }
        let most = MOST_COST / (nodes as i64 + 1);
        let sane = |arc: &Arc| arc.capacity <= MOST_UNITS && arc.cost.abs() <= most;
        let total: u128 = supply.iter().map(|s| u128::from(s.unsigned_abs())).sum();
        if total > u128::from(MOST_UNITS) || !arcs.iter().all(sane) {
            return Err(NetworkError::OutOfRange);
        }
        match supply.iter().sum() {
            0 => Ok(Self { supply, arcs }),
            over => Err(NetworkError::Unbalanced(over)),
        }
    }

    /// Each node's supply; a negative one is a demand. They sum up to 0.
    pub fn supply(&self) -> &[i64] {
        &self.supply
    }

    /// The arcs, in the order they were given.
    pub fn arcs(&self) -> &[Arc] {
        &self.arcs
    }

    /// How many of the supplied units can reach a demand.
    pub fn movable(&self) -> u64 {
        let (source, sink) = (self.supply.len() as u32, self.supply.len() as u32 + 1);
        let end = |(node, supply): (u32, &i64)| {
            let (from, to) = if *supply > 0 { (source, node) } else { (node, sink) };
            (from, to, supply.unsigned_abs())
        };
        let inner = self.arcs.iter().map(|arc| (arc.from, arc.to, arc.capacity));
        let ends = (0..source).zip(&self.supply).filter(|(_, supply)| **supply != 0).map(end);
        let arcs: Vec<_> = inner.chain(ends).collect();
        MaxFlow::new(self.supply.len() + 2, &arcs).run(source, sink)
    }
}
