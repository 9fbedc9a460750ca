//! A host's part in a mesh, with real files and channels, and clocks that the tests set.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod join;
mod membership;
mod oracle;
mod oracle_client;
mod revoked;
mod scene;
mod secrets;
mod state;
mod sync;
