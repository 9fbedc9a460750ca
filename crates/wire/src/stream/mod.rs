//! Live media between nodes.

pub mod leg;
