//! The tests of `mesh` on PostgreSQL, and tests that need a server.

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

/// The URL of an empty schema for a mesh. `None`, and so a file, without PostgreSQL; then the reason is printed.
async fn database_url() -> Option<String> {
    Some(postgres::shared()?.new_schema().await)
}
