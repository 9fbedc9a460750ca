//! A host's part in a mesh, on real files, channels and clocks of the tests' own.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod membership;
mod revoked;
mod scene;
