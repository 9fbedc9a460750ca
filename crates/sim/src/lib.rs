//! A flow-level simulator that drives the product's own planning code (pure).
//!
//! Input: networks, workloads and a seed. Output: the figures of the papers. The same seed gives the same figures.
//!
//! ```text
//! grid of rates, or planetlab(seed) ─► input, matrix ─► figures ── thalweg_plan: rankings, schedules
//! downloads ─► crowd, world ─► engine: fair shares of links, event by event ── thalweg_plan: selection
//! collections ─► collection ─► engine                                       ── thalweg_plan: flows
//! casts ─► cast                                                             ── thalweg_plan: trees
//! all of them ─► stats ─► figures
//! ```
//!
//! What it models and what it does not: docs/simulation.md.

pub mod cast;
pub mod collection;
pub mod crowd;
pub mod engine;
pub mod fair;
pub mod figures;
pub mod input;
pub mod matrix;
pub mod planetlab;
pub mod planning;
pub mod random;
pub mod stats;
pub mod streams;
pub mod world;
