//! The oracle as its callers see it: requests over HTTP, files on a disk that fails.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod api;
mod connections;
mod harness;
mod join;
mod processes;
mod roster;
mod storage;
mod strangers;

/// Where a test's mesh keeps its state: in a file of its directory.
async fn place() -> Option<String> {
    None
}
