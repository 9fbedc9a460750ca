//! `thalweg get` as a program, when something breaks; docs/get-faults.md is the list.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod answers;
mod disk;
