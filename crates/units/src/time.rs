//! Monotonic and wall time, as different types.

use serde::{Deserialize, Serialize};
use std::{fmt, ops, time::Duration};

/// A time of the monotonic clock of one process, in nanoseconds since an epoch of that process.
///
/// Comparable only within the process (or the simulation) that created it, and never sent to others. Pure crates take
/// it as an argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The epoch.
    pub const ZERO: Self = Self(0);
    /// The latest time.
    pub const MAX: Self = Self(u64::MAX);

    /// Creates the time `ns` nanoseconds after the epoch.
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the epoch.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The duration since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl ops::Add<Duration> for Time {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl ops::AddAssign<Duration> for Time {
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}

impl ops::Sub<Duration> for Time {
    type Output = Self;
    fn sub(self, d: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6} s", self.as_secs_f64())
    }
}

/// A date: nanoseconds since 1970-01-01T00:00:00Z, leap seconds not counted.
///
/// For records that other processes or hosts read. The clock may jump, so never measure an interval with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WallTime(u64);

impl WallTime {
    /// Creates the date `ns` nanoseconds after 1970.
    pub const fn from_unix_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since 1970, for the canonical encoding of signed objects with an expiry (the roster), and for
    /// databases.
    pub const fn as_unix_nanos(self) -> u64 {
        self.0
    }
}
