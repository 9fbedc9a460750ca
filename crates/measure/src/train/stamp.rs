//! When something came, by a kernel's stamp.

use std::{ops, time::Duration};
use thalweg_units::Time;

/// A kernel's stamp of what came: its host's wall clock, ns since 1970.
///
/// No [`Time`]: another clock, mostly another host's, which may be set meanwhile. Differences of two stamps of one
/// train mean something, and differences of [`Stamp::delay`]; one alone does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(u64);

impl Stamp {
    /// So many ns after 1970.
    pub const fn from_unix_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since 1970.
    pub const fn as_unix_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The one-way delay of what left then by the sender's clock, ns, plus a constant that nobody knows: it is the same
    /// for all of a train, and may make this negative.
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
    fn delays_differ_by_what_stamps_differ() {
        let (sent, came) = (Time::from_nanos(u64::MAX), Stamp::from_unix_nanos(100));
        let later = came + Duration::from_nanos(7);
        assert_eq!(later.since(came), Duration::from_nanos(7));
        assert_eq!(came.since(later), Duration::ZERO);
        assert_eq!(later.delay(sent) - came.delay(sent), 7);
    }
}
