//! The overlay's share of the bytes that measurements may cost in a day.

use crate::prober::ProbeBudget;
use parking_lot::Mutex;
use std::sync::Arc;
use thalweg_units::ByteSize;

/// A share of a [`ProbeBudget`]. The trains themselves are charged to the budget; this only counts the overlay's part
/// of it, by the budget's day. After a restart the count begins at zero again, but the budget still bounds what is
/// left.
#[derive(Debug)]
pub(super) struct OverlayBudget {
    probe_budget: Arc<ProbeBudget>,
    most: u64,
    /// The number of the day, and the bytes spent on it.
    spent: Mutex<(u64, u64)>,
}

impl OverlayBudget {
    /// Creates a budget: the share, from 0 to 1, of the whole budget's bytes per day.
    pub fn new(probe_budget: Arc<ProbeBudget>, share: f64) -> Self {
        let most = probe_budget.per_day().as_bytes() as f64 * share.clamp(0.0, 1.0);
        Self { probe_budget, most: most as u64, spent: Mutex::default() }
    }

    /// The bytes left today.
    pub fn left(&self) -> ByteSize {
        let spent = self.note(0);
        self.probe_budget.left().min(ByteSize::from_bytes(self.most.saturating_sub(spent)))
    }

    /// Counts bytes that the overlay spent.
    pub fn spend(&self, bytes: u64) {
        self.note(bytes);
    }

    fn note(&self, bytes: u64) -> u64 {
        let today = self.probe_budget.day();
        let mut spent = self.spent.lock();
        if spent.0 != today {
            *spent = (today, 0);
        }
        spent.1 = spent.1.saturating_add(bytes);
        spent.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_base::budget::Budget;
    use thalweg_units::NodeId;

    #[test]
    fn the_share_is_per_day_and_bounded_by_the_purse() {
        let probe_budget = ProbeBudget::new(Arc::new(Budget::new()), ByteSize::from_bytes(1000));
        let probe_budget = Arc::new(probe_budget);
        let overlay_budget = OverlayBudget::new(Arc::clone(&probe_budget), 0.25);
        assert_eq!(overlay_budget.left(), ByteSize::from_bytes(250));
        overlay_budget.spend(100);
        assert_eq!(overlay_budget.left(), ByteSize::from_bytes(150));
        probe_budget.charge(NodeId::from_bytes([1; 32]), 950);
        assert_eq!(overlay_budget.left(), ByteSize::from_bytes(50), "others have spent the rest");
        overlay_budget.spend(1000);
        assert_eq!(overlay_budget.left(), ByteSize::ZERO);
    }
}
