//! Measurements between real nodes, on an oracle's order, with real channels and flows.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod flows;
mod lab;
mod liars;
mod oracle;
mod orders;
mod scene;
mod uninvited;
