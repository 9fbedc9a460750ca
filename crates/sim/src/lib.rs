//! A flow-level simulator that drives the product's own planning code (pure).
//!
//! What it models and what it does not: docs/simulation.md.
//!
//! ```text
//! a network (matrix or generated), a workload, a seed ─► crowd, collection, cast ─► figures
//!                                        thalweg_plan decides, as it does in nodes
//! ```

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
pub mod world;
