//! How long a level is not raised after it was lowered: longer after each rise that failed. Pure.
//!
//! A policed path passes probe trains within its burst and then drops what a raised level sends. Without a growing
//! hold-down the level would rise and fall for ever.

use super::Rules;
use std::time::Duration;
use thalweg_units::Time;

/// The rises and falls of one level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoldDown {
    /// The last rise, unless a fall followed.
    raised: Option<Time>,
    lowered: Option<Time>,
    /// The rises that failed in a row.
    failures: u32,
}

impl HoldDown {
    /// Records a rise.
    pub const fn raised(&mut self, now: Time) {
        self.raised = Some(now);
    }

    /// Records a fall. The rise before it failed if it is younger than the rules' probation, or lasted no longer than
    /// the hold before it.
    pub fn lowered(&mut self, now: Time, rules: &Rules) {
        match self.raised.take() {
            Some(at) if now.since(at) < rules.probation.max(self.length(rules)) => {
                self.failures = self.failures.saturating_add(1);
            }
            Some(_) => self.failures = 0,
            // Another step down.
            None => {}
        }
        self.lowered = Some(now);
    }

    /// When it was last lowered.
    pub const fn last_fall(&self) -> Option<Time> {
        self.lowered
    }

    /// Whether the last rise failed.
    pub const fn has_failed(&self) -> bool {
        self.failures > 0
    }

    /// Whether it may not be raised yet.
    pub fn is_held(&self, now: Time, rules: &Rules) -> bool {
        self.lowered.is_some_and(|at| now.since(at) < self.length(rules))
    }

    fn length(&self, rules: &Rules) -> Duration {
        let factor = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        rules.hold.saturating_mul(factor).min(rules.max_hold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn it_grows_with_each_failed_rise_and_begins_anew_after_one_that_lasts() {
        let (mut level, rules) = (HoldDown::default(), Rules::default());
        let held = |level: &HoldDown, now: u64| {
            (0..1000).take_while(|more| level.is_held(at(now + more), &rules)).count()
        };
        assert_eq!(held(&level, 0), 0);
        level.lowered(at(10), &rules);
        assert_eq!(held(&level, 10), 3);
        let mut now = 10;
        let lengths: Vec<_> = (0..8)
            .map(|_| {
                now += 200;
                level.raised(at(now));
                now += 5;
                level.lowered(at(now), &rules);
                level.lowered(at(now), &rules);
                held(&level, now)
            })
            .collect();
        assert_eq!(lengths, [6, 12, 24, 48, 96, 120, 120, 120]);
        level.raised(at(now + 200));
        level.lowered(at(now + 400), &rules);
        assert_eq!(held(&level, now + 400), 3);
    }
}
