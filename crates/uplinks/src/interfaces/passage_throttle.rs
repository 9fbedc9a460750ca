//! Makes a connection wait until the cap and the rate limit of its interface let it move more.

use super::Passage;
use std::num::NonZeroU32;
use thalweg_base::budget::{OverBudget, Scope};
use thalweg_net::pump::{Moved, Throttle, ThrottleFuture};
use thalweg_units::ByteSize;
use thiserror::Error;

/// Why nothing more may move by an interface.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CapError {
    /// The cap is used up.
    #[error(
        "the cap of {interface}, {cap}, is used up until day {reset_day}; `thalweg interfaces allow \
         {interface} --cap` sets another"
    )]
    UsedUp {
        interface: String,
        cap: ByteSize,
        /// The day of the month on which the cap begins anew.
        reset_day: u8,
    },
    /// The bytes that it moves cannot be counted.
    #[error(
        "the cap of {interface}, {cap}, cannot be enforced, so the interface is no longer used: \
         {why}; once that is repaired, it is used again within a minute"
    )]
    Uncounted {
        interface: String,
        cap: ByteSize,
        /// The file, and the system's error.
        why: String,
    },
}

impl CapError {
    /// The cap that is used up or cannot be counted.
    pub fn cap(&self) -> ByteSize {
        match self {
            Self::UsedUp { cap, .. } | Self::Uncounted { cap, .. } => *cap,
        }
    }
}

/// Charges a tunnel's bytes between its turns.
#[derive(Debug)]
pub struct PassageThrottle<'a> {
    passage: &'a Passage,
    moved: &'a Moved,
    interface: Option<NonZeroU32>,
}

impl<'a> PassageThrottle<'a> {
    /// Charges for a connection by this interface whose bytes are counted in `moved`.
    pub fn new(passage: &'a Passage, moved: &'a Moved, interface: Option<NonZeroU32>) -> Self {
        Self { passage, moved, interface }
    }
}

impl Throttle for PassageThrottle<'_> {
    /// Charges what was moved by now, rather than what is asked for.
    fn take(&self, asked: usize) -> ThrottleFuture<'_> {
        Box::pin(async move {
            self.passage.counts(self.moved);
            self.passage.wait_to_move().await.map_err(|cap_error| OverBudget {
                scope: Scope { interface: self.interface, ..Scope::ALL },
                limit: cap_error.cap(),
                spent: cap_error.cap(),
                asked: ByteSize::from_bytes(asked as u64),
            })
        })
    }
}
