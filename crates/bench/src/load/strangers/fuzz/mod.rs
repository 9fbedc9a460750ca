//! Arbitrary targets and messages: the relay's verdict on each is compared with an independent one.
//!
//! `thalweg-bench load strangers` runs a million of each; the tests fewer. Cases come from a seed alone.

mod cases;
mod messages;
mod targets;
#[cfg(test)]
mod tests;

pub use messages::messages;
pub use targets::{World, targets};

use cases::Chance;

/// What a run has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// How many cases.
    pub cases: u64,
    /// Those that passed: addresses that may be dialled, messages that were requests.
    pub passed: u64,
}
