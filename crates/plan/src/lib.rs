//! From estimates to plans (pure).

pub mod adaptive;
pub mod advice;
pub mod assignment;
pub mod collection;
pub mod completion;
pub mod dispatch;
pub mod draw;
pub mod graph;
pub mod maxflow;
pub mod mincost;
pub mod ranking;
pub mod schedule;
pub mod selection;
pub mod tree;

pub use graph::Graph;
