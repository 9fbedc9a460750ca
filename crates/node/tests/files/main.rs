//! Files between nodes with real doors, relays and disks, on loopback.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod liars;
mod limits;
mod listing;
mod reading;
mod rights;
mod scene;
mod storing;
