//! The bytes that a node spends on measuring in a day.

use crate::budget::{Budget, PeerKey, Purpose, Scope};
use crate::relay::today;
use std::sync::{Arc, Mutex, PoisonError};
use thalweg_units::{ByteSize, NodeId};

/// Counts both directions in [`Budget`] as [`Purpose::Probe`], by the UTC day.
///
/// Counts live as long as the process; a clock that is set back renews nothing.
#[derive(Debug)]
pub struct Purse {
    budget: Arc<Budget>,
    per_day: ByteSize,
    day: Mutex<u64>,
}

const PROBE: Scope = Scope::purpose(Purpose::Probe);

impl Purse {
    /// At most so many bytes a day, counted in `budget`.
    pub fn new(budget: Arc<Budget>, per_day: ByteSize) -> Self {
        budget.set_limit(PROBE, Some(per_day));
        Self { budget, per_day, day: Mutex::new(today().0) }
    }

    /// What is left of today.
    pub fn left(&self) -> ByteSize {
        self.turn(today().0);
        let spent = self.budget.spent(PROBE).as_bytes();
        ByteSize::from_bytes(self.per_day.as_bytes().saturating_sub(spent))
    }

    /// Counts what was moved to or from this node; it was within [`Purse::left`] before.
    pub fn charge(&self, peer: NodeId, bytes: u64) {
        let scope = Scope { peer: Some(PeerKey::Node(peer)), ..PROBE };
        self.budget.charge(scope, ByteSize::from_bytes(bytes));
    }

    fn turn(&self, today: u64) {
        // A thread that panicked in here left a whole number.
        let mut day = self.day.lock().unwrap_or_else(PoisonError::into_inner);
        if today > *day {
            *day = today;
            self.budget.renew(PROBE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_its_bytes_and_only_a_later_one_has_new_ones() {
        let budget = Arc::new(Budget::new());
        let purse = Purse::new(budget.clone(), ByteSize::from_bytes(1000));
        let peer = NodeId::from_bytes([1; 32]);
        purse.charge(peer, 900);
        assert_eq!(purse.left(), ByteSize::from_bytes(100));
        purse.charge(peer, 900);
        assert_eq!(purse.left(), ByteSize::ZERO, "the last flow may go beyond");
        purse.turn(0);
        assert_eq!(purse.left(), ByteSize::ZERO);
        purse.turn(u64::MAX);
        assert_eq!(purse.left(), ByteSize::from_bytes(1000));
        let all = Scope { peer: Some(PeerKey::Node(peer)), ..PROBE };
        assert_eq!(budget.spent(all), ByteSize::from_bytes(1800));
    }
}
