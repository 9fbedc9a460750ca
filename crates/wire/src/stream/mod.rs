//! Live media between nodes: the protocol of a leg, and the messages between nodes and the oracle.

pub mod leg;
pub mod plan;
