//! Means of gains that are exact in whatever order gains are added and removed.

use crate::graph::gain;
use thalweg_units::Rate;

/// Gains count in units of 2⁻⁴⁰, about 10⁻¹².
const UNITS: f64 = (1_u64 << 40) as f64;

/// The sum of some pairs' gains, as whole numbers: one gain can be removed again, and after a thousand changes the sum
/// is what it would be if computed anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gains {
    sum: u128,
    pairs: u64,
}

/// One pair's gain, clipped at `most`, in [`UNITS`].
pub(crate) fn units(direct: Rate, detour: Rate, most: f64) -> u64 {
    (gain(direct, detour).min(most) * UNITS).round() as u64
}

impl Gains {
    pub(crate) fn add(&mut self, gain: u64) {
        self.sum += u128::from(gain);
        self.pairs += 1;
    }

    /// Removes a gain that was added before.
    pub(crate) fn remove(&mut self, gain: u64) {
        self.sum -= u128::from(gain);
        self.pairs -= 1;
    }

    /// What remains without `some` of them.
    pub(crate) fn without(self, some: Self) -> Self {
        Self { sum: self.sum - some.sum, pairs: self.pairs - some.pairs }
    }

    /// By how much the sum exceeds that of as many pairs of this mean.
    pub(crate) fn surplus(self, mean: f64) -> f64 {
        self.sum as f64 / UNITS - mean * self.pairs as f64
    }

    pub(crate) const fn pairs(self) -> u64 {
        self.pairs
    }

    /// The mean gain; 0 without pairs.
    pub(crate) fn mean(self) -> f64 {
        if self.pairs == 0 { 0.0 } else { self.sum as f64 / UNITS / self.pairs as f64 }
    }
}
