//! Ways, and the measured rates of those that are open.

use super::leg_estimates::LegEnds;
use std::collections::{BTreeMap, VecDeque};

/// The hosts that data passes, cut-through.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Way {
    /// The host that has the data.
    pub source: u32,
    /// The intermediates, from the source on; empty for the direct way.
    pub via: Vec<u32>,
}

impl Way {
    /// Whether the way starts at `source` and has no intermediates.
    pub fn is_direct_from(&self, source: u32) -> bool {
        self.source == source && self.via.is_empty()
    }

    /// Its legs, in order.
    pub(super) fn legs(&self, destination: u32) -> Vec<LegEnds> {
        let hosts: Vec<u32> = std::iter::once(self.source)
            .chain(self.via.iter().copied())
            .chain(std::iter::once(destination))
            .collect();
        hosts.windows(2).map(|leg| (leg[0], leg[1])).collect()
    }
}

/// The id of an open way; it is not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WayId(pub u32);

/// A way that is to be open.
#[derive(Clone, Debug, PartialEq)]
pub struct Opening {
    /// Its id as long as it is open.
    pub id: WayId,
    /// The hosts that it passes.
    pub way: Way,
    /// Its share of the source's data, 0 to 1; those of a source sum to 1.
    pub weight: f64,
    /// What it is expected to carry, bytes/s; 0: unknown.
    pub expected: f64,
}

/// The weight of a measured rate in the estimate of what a way carries alone.
const BELIEVED: f64 = 0.2;

/// An open way with its last rates.
#[derive(Clone, Debug)]
pub(super) struct OpenWay {
    pub(super) id: WayId,
    pub(super) way: Way,
    /// The planned rate, bytes/s; 0: unknown.
    pub(super) expected: f64,
    /// The estimated rate if the destination's access were free, bytes/s.
    pub(super) alone: f64,
    /// The last intervals' rates, the newest last, bytes/s.
    rates: VecDeque<f64>,
    /// For a way on trial: the rates of all ways before it was opened, bytes/s.
    pub(super) trial: Option<BTreeMap<WayId, f64>>,
}

impl OpenWay {
    pub(super) fn new(
        id: WayId,
        way: Way,
        (expected, alone): (f64, f64),
        trial: Option<BTreeMap<WayId, f64>>,
    ) -> Self {
        Self { id, way, expected, alone, rates: VecDeque::new(), trial }
    }

    pub(super) fn take(&mut self, rate: f64, samples: u32) {
        self.rates.push_back(rate);
        while self.rates.len() > samples.max(1) as usize {
            self.rates.pop_front();
        }
    }

    /// Updates the estimate of what the way carries alone. While the access is full, the measured rate is a lower
    /// bound, otherwise an estimate, which is blended in gradually because a full access may seem free for a moment.
    pub(super) fn take_alone(&mut self, is_full: bool) {
        let rate = self.rate();
        let believed = if is_full { 0.0 } else { BELIEVED };
        self.alone = rate.max(self.alone + believed * (rate - self.alone));
    }

    /// The mean of the last intervals, bytes/s.
    pub(super) fn rate(&self) -> f64 {
        let count = self.rates.len().max(1);
        self.rates.iter().sum::<f64>() / count as f64
    }

    /// The measured rate, or the expected one before anything is measured, bytes/s.
    pub(super) fn weight(&self) -> f64 {
        if self.rates.is_empty() { self.expected } else { self.rate() }
    }

    pub(super) fn seen(&self) -> u32 {
        self.rates.len() as u32
    }
}
