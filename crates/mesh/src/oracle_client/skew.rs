//! How far two hosts' clocks are apart.

use std::{fmt, time::Duration};
use thalweg_units::{WallTime, format_duration};

/// Clocks that differ by more than a minute: one of them is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockSkew {
    /// By how much, in whole seconds.
    pub off: Duration,
    /// Whether this host's is the later one.
    pub ahead: bool,
}

impl ClockSkew {
    /// What hosts without NTP differ by, and the oracle's answer takes, is below it.
    pub const ALIKE: Duration = Duration::from_secs(60);

    /// How far `ours` is off `theirs`; `None` if they are alike.
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
    fn only_more_than_a_minute_is_told_and_in_which_direction() {
        let at = |s: u64| WallTime::from_unix_nanos(s * 1_000_000_000);
        assert_eq!(ClockSkew::between(at(1000), at(1060)), None);
        assert_eq!(ClockSkew::between(at(1060), at(1000)), None);
        let told = |ours, theirs| ClockSkew::between(at(ours), at(theirs)).unwrap().to_string();
        assert!(told(1000, 1300).starts_with("this host's clock is 300 s behind the oracle's"));
        assert!(told(1300, 1000).starts_with("this host's clock is 300 s ahead of the oracle's"));
    }
}
