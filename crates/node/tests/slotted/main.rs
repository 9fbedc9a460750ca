//! Schedules carried out by real daemons on loopback: two sources, an intermediate, and this host as the destination.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod broken;
mod failures;
mod fake;
mod land;
#[path = "../fixtures/members.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod members;
mod methods;
mod resumed;
mod scene;
mod tickets;
