//! Measuring as nodes see it: orders, reports, candidates and paths over HTTP.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod adversary;
mod api;
mod fake;
#[allow(dead_code, reason = "the tests of the mesh need more of it")]
#[path = "../mesh/harness.rs"]
mod harness;
mod mesh;
mod small;
mod storage;
mod streams;
mod tickets;

/// Where a test's mesh keeps its state: in a file of its directory.
async fn place() -> Option<String> {
    None
}
