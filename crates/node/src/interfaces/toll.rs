//! What a connection pays for its interface: it moves on when the cap and the rate limit let it.

use super::Passage;
use crate::{
    budget::{OverBudget, Scope},
    relay::pump::{Moved, Taken, Throttle},
};
use std::num::NonZeroU32;
use thalweg_units::ByteSize;
use thiserror::Error;

/// An interface's cap is used up.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "the cap of {interface}, {cap}, is used up until day {reset_day}; `thalweg bond allow \
     {interface} --cap` sets another"
)]
pub struct UsedUp {
    /// Its name.
    pub interface: String,
    /// The cap.
    pub cap: ByteSize,
    /// The day of the month on which it begins anew.
    pub reset_day: u8,
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
            self.passage.may().await.map_err(|used_up| OverBudget {
                scope: Scope { interface: self.interface, ..Scope::ALL },
                limit: used_up.cap,
                spent: used_up.cap,
                asked: ByteSize::from_bytes(asked as u64),
            })
        })
    }
}
