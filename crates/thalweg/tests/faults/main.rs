//! Faults around a relay, with real daemons; docs/faults/relay.md lists them.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod flows;
mod member;
mod members;
mod messages;
mod oracle;
mod paths;
mod roster;

#[allow(dead_code, reason = "shared with the tests of the mesh")]
#[path = "../mesh/host.rs"]
mod host;
#[path = "../mesh/in_lab.rs"]
mod in_lab;
