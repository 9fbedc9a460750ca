//! Plans from estimates (pure): paths, relays, flows, trees, and what to measure next.
//!
//! Input: estimates of legs, events of transfers, and the time. Output: actions and plans.
//!
//! ```text
//! estimates ─► Graph ─┬─► ranking, completion, assignment ─► relays that a client is offered
//!                     ├─► collection: maxflow, mincost    ─► flows over time to one destination
//!                     ├─► tree                            ─► the tree over which a cast is sent
//!                     ├─► advice                          ─► where one more relay helps most
//!                     └─► schedule ─► dispatch            ─► orders to measure ─► estimates
//! offers, results  ─► adaptive  ─► relays that a client tries
//! events of a path ─► selection ─► which range of an object comes by which path
//! ```
//!
//! The drawing shows the main modules. None of them reads a clock or draws from a global generator: time and random
//! numbers are arguments.

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
pub mod streams;
pub mod tree;

pub use graph::Graph;
