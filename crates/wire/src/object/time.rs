//! Times of files, in the whole range of file systems.

use serde::{Deserialize, Serialize};

const SECOND: i64 = 1_000_000_000;

/// When a file's content last changed: seconds since 1970, negative before it, and additional nanoseconds.
///
/// Nanoseconds in 64 bits cover only 1677 to 2262; cameras, games and bugs produce dates beyond.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(try_from = "(i64, u32)", into = "(i64, u32)")]
pub struct FileTime {
    seconds: i64,
    nanos: u32,
}

/// There are more than 999,999,999 ns. For utimensat(2) some such values mean "now" or "unchanged".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a time has 1,000,000,000 nanoseconds or more")]
pub struct NanosError;

impl FileTime {
    /// Creates a time from seconds since 1970 and additional nanoseconds.
    ///
    /// # Errors
    /// [`NanosError`].
    pub fn new(seconds: i64, nanos: u32) -> Result<Self, NanosError> {
        if i64::from(nanos) < SECOND { Ok(Self { seconds, nanos }) } else { Err(NanosError) }
    }

    /// Creates a time from the fields of stat(2); invalid nanoseconds count as 0.
    pub fn from_stat(seconds: i64, nanos: impl TryInto<u32>) -> Self {
        Self::new(seconds, nanos.try_into().unwrap_or(0)).unwrap_or(Self { seconds, nanos: 0 })
    }

    /// Creates a time from nanoseconds since 1970.
    pub fn from_nanos(nanos: i64) -> Self {
        Self { seconds: nanos.div_euclid(SECOND), nanos: nanos.rem_euclid(SECOND) as u32 }
    }

    /// Seconds since 1970, rounded down.
    pub fn seconds(self) -> i64 {
        self.seconds
    }

    /// The additional nanoseconds, less than 10⁹.
    pub fn nanos(self) -> u32 {
        self.nanos
    }

    /// Nanoseconds since 1970; times before 1677 or after 2262 are clamped.
    pub fn as_nanos(self) -> i64 {
        let nanos = i128::from(self.seconds) * i128::from(SECOND) + i128::from(self.nanos);
        nanos.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// Whether [`Self::as_nanos`] clamps it.
    pub(super) fn is_beyond(self) -> bool {
        Self::from_nanos(self.as_nanos()) != self
    }
}

impl TryFrom<(i64, u32)> for FileTime {
    type Error = NanosError;

    fn try_from((seconds, nanos): (i64, u32)) -> Result<Self, NanosError> {
        Self::new(seconds, nanos)
    }
}

impl From<FileTime> for (i64, u32) {
    fn from(time: FileTime) -> Self {
        (time.seconds, time.nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nanoseconds_round_trip(nanos: i64) {
            let time = FileTime::from_nanos(nanos);
            prop_assert_eq!(time.as_nanos(), nanos);
            prop_assert!(!time.is_beyond());
        }
    }

    #[test]
    fn times_beyond_64_bits_of_nanoseconds_are_clamped() {
        let year = |seconds| FileTime::new(seconds, 5).unwrap();
        for (seconds, end) in [(15_032_385_535, i64::MAX), (-11_644_473_600, i64::MIN)] {
            assert!(year(seconds).is_beyond());
            assert_eq!(year(seconds).as_nanos(), end);
        }
        assert_eq!(FileTime::new(0, 1_000_000_000), Err(NanosError));
        assert_eq!(FileTime::from_stat(-1, -1_i64), FileTime::new(-1, 0).unwrap());
    }
}
