//! How many transfers of a source are on a leg at a time.

use std::collections::{BTreeMap, VecDeque};

/// Parcels of a source on a leg of its best path at a time: while one moves, the other is asked for,
/// its connection's window grows, or its end is told. More would be more than the one connection
/// that a host's own way is.
const IN_FLIGHT: usize = 2;

/// The source, and a leg of its data's way.
type Leg = (u32, u32, u32);

/// Transfers that may begin, leg by leg, in their order. Pure.
#[derive(Debug)]
pub struct Lanes {
    width: usize,
    lanes: BTreeMap<Leg, Lane>,
}

#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<usize>,
    busy: usize,
}

impl Lanes {
    /// Nothing waits.
    pub fn wide() -> Self {
        Self { width: usize::MAX, lanes: BTreeMap::new() }
    }

    /// [`IN_FLIGHT`] on each leg.
    pub fn narrow() -> Self {
        Self { width: IN_FLIGHT, ..Self::wide() }
    }

    /// A transfer may begin on its leg.
    pub fn wait(&mut self, leg: Leg, transfer: usize) {
        self.lanes.entry(leg).or_default().waiting.push_back(transfer);
    }

    /// One that begins now.
    pub fn next(&mut self) -> Option<usize> {
        let width = self.width;
        let mut free = self.lanes.values_mut().filter(|lane| lane.busy < width);
        let lane = free.find(|lane| !lane.waiting.is_empty())?;
        lane.busy += 1;
        lane.waiting.pop_front()
    }

    /// One of a leg's is over.
    pub fn leave(&mut self, leg: Leg) {
        if let Some(lane) = self.lanes.get_mut(&leg) {
            lane.busy = lane.busy.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leg_of_a_source_has_two_at_a_time_and_they_keep_their_order() {
        let mut lanes = Lanes::narrow();
        let (one, other) = ((0, 0, 2), (1, 0, 2));
        (0..4).for_each(|n| lanes.wait(one, n));
        lanes.wait(other, 9);
        let began: Vec<usize> = std::iter::from_fn(|| lanes.next()).collect();
        assert_eq!(began, [0, 1, 9]);
        lanes.leave(one);
        assert_eq!((lanes.next(), lanes.next()), (Some(2), None));
        let mut wide = Lanes::wide();
        (0..4).for_each(|n| wide.wait(one, n));
        assert_eq!(std::iter::from_fn(|| wide.next()).count(), 4);
    }
}
