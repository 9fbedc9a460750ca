//! One-to-many delivery: trees that say from which parent each receiver gets the object, and at what rate.
//!
//! Source: Kwon and Byers, *Reliable Overlay Multicast with Loosely Coupled TCP Connections*
//! (ROMA), §V (model) and §VI-C (widest-path tree).
//!
//! ```text
//! Graph + Host… = Overlay ─ widest ─► WidestTree: the paper's tree, each way as wide as can be
//!                         ├ bounded ─► PlannedTree: a tree whose nodes share their egress ─ candidates ─► other parents
//!                         ├ several ─► SeveralParents: best simultaneous rates with several parents, shares of each
//!                         └ rates, min_hop, forecast: what a tree gives, and when all are done
//! ```
//!
//! [`model`] is TCP's throughput over chains (Eq. (1) to (3)), [`depth`] the loss of rings by depth and buffer size,
//! and [`delivery`] simulates a delivery event by event.

mod bounded;
mod candidates;
pub mod delivery;
pub mod depth;
pub mod model;
mod overlay;
mod rates;
mod several;
mod shape;
#[cfg(test)]
mod table;
mod widest;

pub use bounded::{EFFORT, PlannedTree};
pub use overlay::{Access, Host, Overlay, Role, Storage};
pub use several::{MOST_LEGS, SeveralError, SeveralParents, Share};
pub use shape::{Layout, Tree};
pub use widest::WidestTree;
