//! A host's part in a mesh, on real files, channels and clocks of the tests' own.

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
