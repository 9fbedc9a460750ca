//! Live media between nodes: the protocol of a leg, and what nodes and the oracle tell each other of it.

pub mod leg;
pub mod plan;
