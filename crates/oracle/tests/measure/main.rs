//! Measurements over the HTTP API: orders, reports, candidates and paths.

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

/// The URL of an empty database for a mesh; `None`: a file in the mesh's directory.
async fn database_url() -> Option<String> {
    None
}
