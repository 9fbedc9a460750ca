//! The planning core on meshes: graph, rankings, learning clients, assignment.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod adaptive;
mod assignment;
mod converge;
mod draws;
mod graph;
mod incremental;
mod meshes;
mod ranking;
mod robust;
