//! From estimates to plans (pure).

pub mod graph;
pub mod selection;

pub use graph::Graph;
