//! Arbitrary targets and messages: compares the relay's verdict on each with an independent implementation.
//!
//! `thalweg-bench load strangers` runs a million of each, the tests fewer. All cases come from a seed.

mod cases;
mod messages;
mod targets;
#[cfg(test)]
mod tests;

pub use messages::messages;
pub use targets::{RelayPolicy, targets};

use cases::Chance;

/// The counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The number of cases.
    pub cases: u64,
    /// The number of cases that passed: addresses that may be dialled, and messages that were requests.
    pub passed: u64,
}
