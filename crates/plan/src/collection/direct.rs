//! The direct methods (§V): each host sends to the destination itself. They differ in when a host may begin.

use crate::draw;
use rand_core::Rng;
use std::time::Duration;

/// A direct method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direct {
    /// All hosts at the same time.
    AllAtOnce,
    /// One host at a time, drawn from those left.
    OneByOne,
    /// Spread-in-time-GT: at the beginning of each time slot of this length a group of this size is drawn and begins,
    /// "regardless of whether the data transfers from the previous time slot have completed".
    SpreadInTime {
        /// G, at least 1.
        group: usize,
        /// T.
        slot: Duration,
    },
    /// Concurrent-G: always this many at a time; "as soon as one of these hosts completes", another is drawn.
    Concurrent(usize),
}

/// The state of a direct method under way.
#[derive(Clone, Debug)]
pub struct DirectRelease {
    method: Direct,
    /// Hosts that have not begun.
    waiting: Vec<u32>,
    under_way: usize,
    /// The next slot of spread-in-time.
    slot: u32,
}

impl DirectRelease {
    /// Creates the state before any host has begun; `hosts` have data.
    pub fn new(method: Direct, hosts: Vec<u32>) -> Self {
        Self { method, waiting: hosts, under_way: 0, slot: 0 }
    }

    /// The hosts that begin now, drawn with `rng`; `now` is the time since the start.
    pub fn due(&mut self, now: Duration, rng: &mut impl Rng) -> Vec<u32> {
        let places = self.places(now).min(self.waiting.len());
        self.under_way += places;
        let mut drawn = || self.waiting.swap_remove(draw::below(self.waiting.len(), rng));
        (0..places).map(|_| drawn()).collect()
    }

    /// Records that all data of one host has arrived.
    pub fn done(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// Whether all data has arrived.
    pub fn is_finished(&self) -> bool {
        self.waiting.is_empty() && self.under_way == 0
    }

    /// The time at which [`due`](Self::due) may return more hosts even if none completes before.
    pub fn wakes(&self) -> Option<Duration> {
        match self.method {
            Direct::SpreadInTime { slot, .. } if !self.waiting.is_empty() => Some(slot * self.slot),
            _ => None,
        }
    }

    /// The number of hosts that may begin now.
    fn places(&mut self, now: Duration) -> usize {
        match self.method {
            Direct::AllAtOnce => self.waiting.len(),
            Direct::OneByOne => 1_usize.saturating_sub(self.under_way),
            Direct::Concurrent(group) => group.max(1).saturating_sub(self.under_way),
            Direct::SpreadInTime { group, slot } => {
                let mut places = 0;
                while now >= slot * self.slot && places < self.waiting.len() {
                    places += group.max(1);
                    self.slot += 1;
                }
                places
            }
        }
    }
}
