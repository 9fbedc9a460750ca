//! Tests of the oracle's HTTP API and of failing storage.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod api;
mod connections;
mod harness;
mod join;
mod processes;
mod reach;
mod roster;
mod storage;
mod strangers;

/// The URL of an empty database for a mesh; `None`: a file in the mesh's directory.
async fn database_url() -> Option<String> {
    None
}
