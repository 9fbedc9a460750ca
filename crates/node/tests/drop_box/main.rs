//! Drop boxes at real nodes: commitments, data, receipts, and what goes wrong.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod breaks;
mod refusals;
mod scene;
mod steps;
