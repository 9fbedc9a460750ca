//! Decides whether a relay requests all renditions at once for subscribers that take one each. Pure.
//!
//! A parent that chooses a rendition for a relay chooses it for all subscribers behind the relay. With all renditions
//! the relay can choose for each of its legs, but they need a higher rate on the leg to the relay. If frames are lost
//! there because it is too slow, the relay lets the parent choose, and tries again later.

use std::collections::VecDeque;
use thalweg_plan::streams::{HoldDown, LIMITED_SECONDS, Rules, SECONDS};
use thalweg_units::Time;

/// The recent losses, and the last decision.
#[derive(Clone, Debug, Default)]
pub struct AllRenditionsPolicy {
    /// Total frames lost on the leg to this node.
    lost: u64,
    /// For each of the last seconds, whether frames were lost.
    lossy: VecDeque<bool>,
    hold: HoldDown,
    is_suspended: bool,
}

impl AllRenditionsPolicy {
    /// Whether the leg to this node was too slow for all renditions.
    pub const fn is_suspended(&self) -> bool {
        self.is_suspended
    }

    /// Ends a second. `lost`: the total of frames that the parent has dropped because the leg is too slow; `is_all`:
    /// whether all renditions are requested. Returns whether the request changes.
    pub fn tick(&mut self, now: Time, lost: u64, is_all: bool) -> bool {
        let is_lossy = lost > std::mem::replace(&mut self.lost, lost);
        let rules = Rules::default();
        if self.is_suspended && !self.hold.is_held(now, &rules) {
            self.hold.raised(now);
            self.is_suspended = false;
            return true;
        }
        self.lossy.push_back(is_lossy && is_all);
        if self.lossy.len() > SECONDS {
            self.lossy.pop_front();
        }
        if self.is_suspended || self.lossy.iter().filter(|is| **is).count() < LIMITED_SECONDS {
            return false;
        }
        self.hold.lowered(now, &rules);
        self.lossy.clear();
        self.is_suspended = true;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_falls_back_while_there_is_no_room_and_tries_ever_less_often() {
        let (mut policy, mut lost, mut falls) = (AllRenditionsPolicy::default(), 0, Vec::new());
        for second in 0..400 {
            let is_all = !policy.is_suspended();
            // Until the 200th second all renditions never fit.
            lost += u64::from(is_all && second < 200);
            let is_changed = policy.tick(Time::from_nanos(second * 1_000_000_000), lost, is_all);
            if is_changed && policy.is_suspended() {
                falls.push(second);
            }
        }
        assert_eq!(falls[0], 1);
        assert!((4..=8).contains(&falls.len()), "{falls:?}");
        let pauses: Vec<u64> = falls.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(pauses.is_sorted(), "{pauses:?}");
        assert!(!policy.is_suspended(), "it has room again");
    }
}
