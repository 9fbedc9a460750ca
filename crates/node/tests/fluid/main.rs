//! The fluid plan carried out by real daemons on loopback: two sources, a relay, and this host as the destination.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod collecting;
mod failures;
mod gated;
#[path = "../fixtures/members.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod members;
#[path = "../files/scene.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod nodes;
mod scene;
