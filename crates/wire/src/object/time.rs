//! Times of files, over all of what file systems have.

use serde::{Deserialize, Serialize};

const SECOND: i64 = 1_000_000_000;

/// When a file's content last changed: seconds since 1970, before it negative, and nanoseconds from there on.
///
/// 64 bits of nanoseconds end in 1677 and 2262; cameras, games and bugs make dates beyond.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(try_from = "(i64, u32)", into = "(i64, u32)")]
pub struct FileTime {
    seconds: i64,
    nanos: u32,
}

/// More than 999,999,999 ns: to utimensat(2) some of these mean "now" and "leave it".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a second has fewer nanoseconds")]
pub struct NanosError;

impl FileTime {
    /// So many seconds since 1970 and `nanos` ns.
    ///
    /// # Errors
    /// [`NanosError`].
    pub fn new(seconds: i64, nanos: u32) -> Result<Self, NanosError> {
        if i64::from(nanos) < SECOND { Ok(Self { seconds, nanos }) } else { Err(NanosError) }
    }

    /// As stat(2) has it; ns that cannot be count as none.
    pub fn of_stat(seconds: i64, nanos: impl TryInto<u32>) -> Self {
        Self::new(seconds, nanos.try_into().unwrap_or(0)).unwrap_or(Self { seconds, nanos: 0 })
    }

    /// ns since 1970.
    pub fn of_nanos(nanos: i64) -> Self {
        Self { seconds: nanos.div_euclid(SECOND), nanos: nanos.rem_euclid(SECOND) as u32 }
    }

    /// Seconds since 1970, rounded down.
    pub fn seconds(self) -> i64 {
        self.seconds
    }

    /// ns behind the second, less than 10⁹.
    pub fn nanos(self) -> u32 {
        self.nanos
    }

    /// ns since 1970; what is before 1677 or after 2262 is moved to the end.
    pub fn as_nanos(self) -> i64 {
        let nanos = i128::from(self.seconds) * i128::from(SECOND) + i128::from(self.nanos);
        nanos.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// Whether [`Self::as_nanos`] moves it.
    pub(super) fn is_beyond(self) -> bool {
        Self::of_nanos(self.as_nanos()) != self
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
        fn nanoseconds_go_both_ways(nanos: i64) {
            let time = FileTime::of_nanos(nanos);
            prop_assert_eq!(time.as_nanos(), nanos);
            prop_assert!(!time.is_beyond());
        }
    }

    #[test]
    fn what_64_bits_do_not_hold_is_beyond() {
        let year = |seconds| FileTime::new(seconds, 5).unwrap();
        for (seconds, end) in [(15_032_385_535, i64::MAX), (-11_644_473_600, i64::MIN)] {
            assert!(year(seconds).is_beyond());
            assert_eq!(year(seconds).as_nanos(), end);
        }
        assert_eq!(FileTime::new(0, 1_000_000_000), Err(NanosError));
        assert_eq!(FileTime::of_stat(-1, -1_i64), FileTime::new(-1, 0).unwrap());
    }
}
