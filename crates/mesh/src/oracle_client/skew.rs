//! How far the clocks of two hosts differ.

use std::{fmt, time::Duration};
use thalweg_units::{WallTime, format_duration};

/// The difference of two clocks, if it exceeds a minute: one of them is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockSkew {
    /// The difference, in whole seconds.
    pub off: Duration,
    /// Whether this host's clock is ahead.
    pub ahead: bool,
}

impl ClockSkew {
    /// A smaller difference is ignored: hosts without NTP differ by less, with the time that the oracle's answer takes.
    pub const ALIKE: Duration = Duration::from_secs(60);

    /// How far `ours` differs from `theirs`; `None` if by no more than [`Self::ALIKE`].
    pub fn between(ours: WallTime, theirs: WallTime) -> Option<Self> {
        let (a, b) = (ours.as_unix_nanos(), theirs.as_unix_nanos());
        let off = Duration::from_secs(a.abs_diff(b) / 1_000_000_000);
        (off > Self::ALIKE).then_some(Self { off, ahead: a > b })
    }
}

impl fmt::Display for ClockSkew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = if self.ahead { "ahead of" } else { "behind" };
        let off = format_duration(self.off);
        write!(f, "this host's clock is {off} {way} the oracle's: set the one that is wrong")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_difference_above_a_minute_is_reported_with_its_direction() {
        let at = |s: u64| WallTime::from_unix_nanos(s * 1_000_000_000);
        assert_eq!(ClockSkew::between(at(1000), at(1060)), None);
        assert_eq!(ClockSkew::between(at(1060), at(1000)), None);
        let told = |ours, theirs| ClockSkew::between(at(ours), at(theirs)).unwrap().to_string();
        assert!(told(1000, 1300).starts_with("this host's clock is 300 s behind the oracle's"));
        assert!(told(1300, 1000).starts_with("this host's clock is 300 s ahead of the oracle's"));
    }
}
