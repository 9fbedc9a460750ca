//! Limits the concurrent transfers of a source on a leg.

use std::collections::{BTreeMap, VecDeque};

/// The number of concurrent parcels of a source on a leg of its best path. While one moves, the other is requested, its
/// connection's window grows, or its end is reported. More would exceed the single connection that the paper gives a
/// best path.
const IN_FLIGHT: usize = 2;

/// The source, and a leg of its data's path.
type SourceLeg = (u32, u32, u32);

/// Transfers that may begin, queued by leg in order. Pure.
#[derive(Debug)]
pub struct Lanes {
    width: usize,
    lanes: BTreeMap<SourceLeg, Lane>,
}

#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<usize>,
    busy: usize,
}

impl Lanes {
    /// Creates empty queues without a limit.
    pub fn wide() -> Self {
        Self { width: usize::MAX, lanes: BTreeMap::new() }
    }

    /// Creates empty queues with [`IN_FLIGHT`] transfers on each leg.
    pub fn narrow() -> Self {
        Self { width: IN_FLIGHT, ..Self::wide() }
    }

    /// Queues a transfer that may begin on its leg.
    pub fn wait(&mut self, leg: SourceLeg, transfer: usize) {
        self.lanes.entry(leg).or_default().waiting.push_back(transfer);
    }

    /// Takes a transfer that begins now.
    pub fn next(&mut self) -> Option<usize> {
        let width = self.width;
        let mut free = self.lanes.values_mut().filter(|lane| lane.busy < width);
        let lane = free.find(|lane| !lane.waiting.is_empty())?;
        lane.busy += 1;
        lane.waiting.pop_front()
    }

    /// Marks a transfer on this leg as over.
    pub fn leave(&mut self, leg: SourceLeg) {
        if let Some(lane) = self.lanes.get_mut(&leg) {
            lane.busy = lane.busy.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_transfers_of_a_source_run_on_a_leg_in_order() {
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
