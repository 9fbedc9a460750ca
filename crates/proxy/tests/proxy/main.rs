//! The proxy over real sockets on loopback: raw programs on one side, raw origins on the other.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod authentication;
mod closing;
mod early_answers;
mod expectations;
#[allow(dead_code, reason = "shared with the tests of the node's metrics")]
#[path = "../../../thalweg/tests/mesh/exposition.rs"]
mod exposition;
mod fields;
mod framing;
mod proxy_pages;
mod races;
mod refusals;
mod revocation;
mod scene;
#[allow(dead_code, reason = "shared with the tests of `get`")]
#[path = "../../../get/tests/get/server.rs"]
mod server;
mod silence;
mod slow_path;
mod smuggling;
mod socks;
mod split;
mod targets;
mod tunnels;
