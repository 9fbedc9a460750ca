//! Schedules carried out by real daemons on loopback: two sources, an intermediate, and this host
//! as the destination.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod broken;
mod failures;
mod fake;
mod land;
mod methods;
mod resumed;
mod scene;
mod tickets;
