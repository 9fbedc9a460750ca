//! What cannot be measured for now.

use super::Pair;
use std::collections::BTreeSet;

/// Legs that cannot be measured for now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Excluded {
    /// Nodes that are down: no leg from or to them.
    pub nodes: BTreeSet<usize>,
    /// Single legs: their retries are used up.
    pub pairs: BTreeSet<Pair>,
}

impl Excluded {
    /// Whether this leg is one of them.
    pub fn contains(&self, pair: Pair) -> bool {
        self.nodes.contains(&pair.0) || self.nodes.contains(&pair.1) || self.pairs.contains(&pair)
    }
}
