//! The bytes that a node spends on measuring in any 24 hours.

use std::{collections::VecDeque, time::Duration};
use thalweg_units::Time;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Spending is recorded by the hour: at most 25 numbers a node.
const HOUR: Duration = Duration::from_secs(3600);

/// One node's spending.
#[derive(Clone, Debug, Default)]
pub(super) struct Budget {
    /// Hours since the epoch and bytes, the oldest first.
    hours: VecDeque<(u64, u64)>,
    /// Bytes reserved for the measurement under way.
    reserved: u64,
}

impl Budget {
    pub(super) const fn reserve(&mut self, bytes: u64) {
        self.reserved = self.reserved.saturating_add(bytes);
    }

    /// Releases what was reserved and records what was spent.
    pub(super) fn settle(&mut self, reserved: u64, spent: u64, now: Time) {
        self.reserved = self.reserved.saturating_sub(reserved);
        self.hours.retain(|(hour, _)| expires(*hour) > now);
        let hour = now.as_nanos() / HOUR.as_nanos() as u64;
        match self.hours.back_mut() {
            Some((last, bytes)) if *last == hour => *bytes = bytes.saturating_add(spent),
            _ if spent > 0 => self.hours.push_back((hour, spent)),
            _ => {}
        }
    }

    /// Bytes spent in the last 24 hours, rounded up to whole hours, and bytes reserved.
    pub(super) fn spent_bytes(&self, now: Time) -> u64 {
        let spent = self.hours.iter().filter(|(hour, _)| expires(*hour) > now);
        spent.fold(self.reserved, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    /// The time at which `bytes` more are within `most`; `None` if waiting alone cannot bring that.
    pub(super) fn free_at(&self, bytes: u64, most: u64, now: Time) -> Option<Time> {
        let fits = |at: &Time| self.spent_bytes(*at).saturating_add(bytes) <= most;
        let ends = self.hours.iter().map(|(hour, _)| expires(*hour)).filter(|at| *at > now);
        std::iter::once(now).chain(ends).find(fits)
    }
}

/// The time at which the last byte of that hour is a day old.
fn expires(hour: u64) -> Time {
    let end = hour.saturating_add(1).saturating_mul(HOUR.as_nanos() as u64);
    Time::from_nanos(end) + DAY
}
