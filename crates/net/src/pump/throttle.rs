//! The interface of a peer's quota to the pump.

use std::{fmt, pin::Pin};
use thalweg_base::budget::OverBudget;

/// The future that [`Throttle::take`] returns.
pub type ThrottleFuture<'a> = Pin<Box<dyn Future<Output = Result<(), OverBudget>> + Send + 'a>>;

/// Slows or stops a connection whose peer has a quota. All connections of the peer share it.
///
/// The pump pays *after* each turn and moves nothing more in that direction until the future completes. So a quota may
/// be overdrawn by [`THROTTLED_TURN`] per direction of each connection, and bytes taken on credit are paid by waiting.
/// A connection without a throttle pays nothing.
pub trait Throttle: Send + Sync + fmt::Debug {
    /// Accounts for `bytes` that were moved, and waits until more may be.
    ///
    /// # Errors
    /// [`OverBudget`] if the peer may move no more at all; the pump then resets both legs.
    fn take(&self, bytes: usize) -> ThrottleFuture<'_>;
}

/// The most that a throttled direction moves between two payments: one buffer.
pub const THROTTLED_TURN: usize = 64 * 1024;
