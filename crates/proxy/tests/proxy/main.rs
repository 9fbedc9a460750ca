//! The proxy over real sockets on loopback: raw programs on one side, raw origins on the other.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod early_answers;
mod closing;
mod expectations;
mod fields;
mod framing;
mod slow_path;
mod proxy_pages;
mod authentication;
mod refusals;
mod revocation;
mod scene;
#[allow(dead_code, reason = "shared with the tests of `get`")]
#[path = "../../../get/tests/get/server.rs"]
mod server;
mod silence;
mod smuggling;
mod socks;
mod split;
mod targets;
mod tunnels;
mod races;
