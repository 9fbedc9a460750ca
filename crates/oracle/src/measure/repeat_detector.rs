//! Detects reports that a member repeats because the answer to the first was lost.

use super::nodes::Slot;
use std::collections::{HashSet, VecDeque};

/// The most remembered reports. A retry comes within minutes, and the largest mesh, whose relays report ten legs each
/// twice a minute, produces half of this per minute.
const MOST: usize = 400_000;

/// Reporters and report numbers, the oldest first.
#[derive(Debug, Default)]
pub(super) struct RepeatDetector {
    seen: HashSet<(Slot, u64)>,
    order: VecDeque<(Slot, u64)>,
}

impl RepeatDetector {
    /// Whether the report is new; remembers it. Reports with `id` 0 have no number, and always count as new.
    pub fn is_new(&mut self, who: Slot, id: u64) -> bool {
        if id == 0 {
            return true;
        }
        if !self.seen.insert((who, id)) {
            return false;
        }
        self.order.push_back((who, id));
        if self.order.len() > MOST {
            self.order.pop_front().iter().for_each(|oldest| _ = self.seen.remove(oldest));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_counts_once_for_each_member_and_memory_is_bounded() {
        let mut repeats = RepeatDetector::default();
        assert!(repeats.is_new(1, 7) && repeats.is_new(2, 7) && !repeats.is_new(1, 7));
        assert!(repeats.is_new(1, 0) && repeats.is_new(1, 0), "without a name none is the same");
        (0..MOST as u64).for_each(|id| _ = repeats.is_new(3, id + 1));
        assert_eq!((repeats.seen.len(), repeats.order.len()), (MOST, MOST));
        assert!(repeats.is_new(1, 7), "forgotten");
    }
}
