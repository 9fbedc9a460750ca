//! The suite of `mesh` once more, on PostgreSQL; and what only a server can do.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../mesh/api.rs"]
mod api;
#[path = "../mesh/connections.rs"]
mod connections;
#[allow(dead_code, reason = "the tests of measuring need more of it")]
#[path = "../measure/fake.rs"]
mod fake;
#[path = "../mesh/harness.rs"]
mod harness;
#[path = "../mesh/join.rs"]
mod join;
mod measuring;
#[path = "../mesh/postgres.rs"]
mod postgres;
#[path = "../mesh/processes.rs"]
mod processes;
#[path = "../mesh/roster.rs"]
mod roster;
mod several;
mod storage;
#[path = "../mesh/strangers.rs"]
mod strangers;

/// Where a test's mesh keeps its state: in tables of its own. Without PostgreSQL, in a
/// file once more, with the reason printed.
async fn place() -> Option<String> {
    Some(postgres::shared()?.place().await)
}
