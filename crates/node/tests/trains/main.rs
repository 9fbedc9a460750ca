//! Probe trains between two members, over loopback: what the network does to datagrams, what hosts refuse, and trains
//! of other programs.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod datagrams;
mod mangler;
#[allow(dead_code, reason = "shared with other tests")]
#[path = "../fixtures/members.rs"]
mod members;
mod refusals;
mod scene;
mod service;
