//! Arrival times by a kernel's clock.

use std::{ops, time::Duration};
use thalweg_units::Time;

/// An arrival time by a kernel: its host's wall clock, ns since 1970.
///
/// Not a [`Time`], because it comes from another clock, usually another host's, which may be set in the meantime. Only
/// differences of two stamps of one train, and differences of [`Stamp::delay`], are meaningful.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(u64);

impl Stamp {
    /// A stamp from nanoseconds since 1970.
    pub const fn from_unix_nanos(ns: u64) -> Self {
        Self(ns)
    }

    pub const fn as_unix_nanos(self) -> u64 {
        self.0
    }

    /// The time since `earlier`; zero if that is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The one-way delay, ns, of a packet that left at `sent` by the sender's clock, plus an unknown constant. The
    /// constant is the same for a whole train and may make the value negative.
    pub const fn delay(self, sent: Time) -> i64 {
        (self.0 as i64).wrapping_sub(sent.as_nanos() as i64)
    }
}

impl ops::Add<Duration> for Stamp {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_differ_as_much_as_stamps_do() {
        let (sent, came) = (Time::from_nanos(u64::MAX), Stamp::from_unix_nanos(100));
        let later = came + Duration::from_nanos(7);
        assert_eq!(later.since(came), Duration::from_nanos(7));
        assert_eq!(came.since(later), Duration::ZERO);
        assert_eq!(later.delay(sent) - came.delay(sent), 7);
    }
}
