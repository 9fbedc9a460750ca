//! Streams between nodes on loopback.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod ladder;
#[path = "../fixtures/members.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod members;
mod passing;
mod planned;
mod publishers;
mod routes;
mod scene;
