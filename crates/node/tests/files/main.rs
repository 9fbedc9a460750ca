//! Files between nodes with real doors, relays and disks, on loopback.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

#[path = "../fixtures/access_list.rs"]
mod access_list;
mod delivering;
mod fidelity;
mod liars;
mod limits;
mod listing;
#[path = "../fixtures/members.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod members;
mod reading;
mod removing;
mod rights;
mod scene;
mod storing;
