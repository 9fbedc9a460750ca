//! What a connection pays for its interface: it moves on when the cap and the rate limit let it.

use super::Passage;
use std::num::NonZeroU32;
use thalweg_base::budget::{OverBudget, Scope};
use thalweg_net::pump::{Moved, Taken, Throttle};
use thalweg_units::ByteSize;
use thiserror::Error;

/// Why nothing more goes by an interface.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoMore {
    /// Its cap is used up.
    #[error(
        "the cap of {interface}, {cap}, is used up until day {reset_day}; `thalweg interfaces allow \
         {interface} --cap` sets another"
    )]
    UsedUp {
        /// Its name.
        interface: String,
        /// The cap.
        cap: ByteSize,
        /// The day of the month on which it begins anew.
        reset_day: u8,
    },
    /// What it moves cannot be counted.
    #[error(
        "the cap of {interface}, {cap}, cannot be kept to, and nothing more goes by it: {why}; once \
         that is mended it is used again within a minute"
    )]
    Uncounted {
        /// Its name.
        interface: String,
        /// The cap.
        cap: ByteSize,
        /// On which file, and what the system says.
        why: String,
    },
}

impl NoMore {
    /// The cap.
    pub fn cap(&self) -> ByteSize {
        match self {
            Self::UsedUp { cap, .. } | Self::Uncounted { cap, .. } => *cap,
        }
    }
}

/// A tunnel's payments, between its turns.
#[derive(Debug)]
pub struct Toll<'a> {
    passage: &'a Passage,
    moved: &'a Moved,
    interface: Option<NonZeroU32>,
}

impl<'a> Toll<'a> {
    /// Of a connection by this interface, whose bytes are counted there.
    pub fn new(passage: &'a Passage, moved: &'a Moved, interface: Option<NonZeroU32>) -> Self {
        Self { passage, moved, interface }
    }
}

impl Throttle for Toll<'_> {
    /// The counts say what was moved.
    fn take(&self, asked: usize) -> Taken<'_> {
        Box::pin(async move {
            self.passage.counts(self.moved);
            self.passage.may().await.map_err(|no_more| OverBudget {
                scope: Scope { interface: self.interface, ..Scope::ALL },
                limit: no_more.cap(),
                spent: no_more.cap(),
                asked: ByteSize::from_bytes(asked as u64),
            })
        })
    }
}
