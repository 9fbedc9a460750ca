//! Finds the connections that a timetable will need, so that they are opened in time.

use std::collections::{BTreeMap, BTreeSet};
use thalweg_plan::collection::Timetable;

/// A leg: from and to.
type Leg = (u32, u32);

/// When each leg is first used, and the number of concurrent transfers of each participant.
#[derive(Debug, Default)]
pub struct ConnectionPlan {
    /// Legs by the slot of their first use.
    first: BTreeMap<u32, BTreeSet<Leg>>,
    /// The maximum number of transfers to a participant in a slot.
    orders: BTreeMap<u32, usize>,
    /// The maximum number of transfers over a leg in a slot.
    legs: BTreeMap<Leg, usize>,
}

impl ConnectionPlan {
    /// Computes them from a timetable.
    pub fn new(timetable: &Timetable) -> Self {
        let mut begins: BTreeMap<Leg, u32> = BTreeMap::new();
        let mut slots: BTreeMap<(u32, Leg), usize> = BTreeMap::new();
        for (slot, from, to) in timetable.paths.iter().flat_map(|path| path.transfers()) {
            let begin = begins.entry((from, to)).or_insert(slot);
            *begin = slot.min(*begin);
            *slots.entry((slot, (from, to))).or_default() += 1;
        }
        let mut plan = Self::default();
        for (leg, slot) in begins {
            plan.first.entry(slot).or_default().insert(leg);
        }
        let mut received: BTreeMap<(u32, u32), usize> = BTreeMap::new();
        for ((slot, leg), count) in slots {
            let most = plan.legs.entry(leg).or_default();
            *most = count.max(*most);
            *received.entry((slot, leg.1)).or_default() += count;
        }
        for ((_, to), count) in received {
            let most = plan.orders.entry(to).or_default();
            *most = count.max(*most);
        }
        plan
    }

    /// Returns the legs first used in slots up to this one; each is returned once.
    pub fn due(&mut self, slot: u32) -> Vec<Leg> {
        let later = self.first.split_off(&slot.saturating_add(1));
        std::mem::replace(&mut self.first, later).into_values().flatten().collect()
    }

    /// The maximum number of concurrent transfers to a participant.
    pub fn orders(&self, to: u32) -> usize {
        self.orders.get(&to).copied().unwrap_or(0)
    }

    /// The maximum number of concurrent transfers over a leg.
    pub fn transfers(&self, leg: Leg) -> usize {
        self.legs.get(&leg).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_plan::collection::TimedPath;

    #[test]
    fn legs_are_due_once_and_counted_by_slot() {
        let path =
            |source, start, via: &[u32]| TimedPath { source, start, via: via.into(), units: 1 };
        let paths =
            vec![path(0, 0, &[2, 3]), path(1, 0, &[2, 3]), path(0, 4, &[3]), path(0, 5, &[3])];
        let mut plan = ConnectionPlan::new(&Timetable { slots: 6, paths });
        assert_eq!((plan.orders(2), plan.orders(3), plan.transfers((2, 3))), (2, 2, 2));
        assert_eq!(plan.due(1), [(0, 2), (1, 2), (2, 3)]);
        assert_eq!((plan.due(3), plan.due(4)), (vec![], vec![(0, 3)]));
    }
}
