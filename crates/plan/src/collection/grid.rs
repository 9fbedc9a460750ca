//! Converts rates and bytes to slots and data units, and back.

use super::{Leg, Problem, ProblemError};
use crate::Graph;
use std::time::Duration;
use thalweg_units::ByteSize;

/// The steps of the plan: §VI, "time unit" and "data unit size".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// t, the time unit. The paper takes 8 s, 100 of its longest round trips of 80 ms.
    pub slot: Duration,
    /// The data unit. The paper takes a bit more than rate times round trip, 64 kB.
    pub unit: ByteSize,
}

impl Grid {
    /// The paper's: 8 s and 64 KiB (§VI, "Construction of Corresponding Graph").
    pub const PAPER: Self =
        Self { slot: Duration::from_secs(8), unit: ByteSize::from_bytes(65_536) };

    /// The data units that `rate` moves in a slot, rounded down so that a plan fits.
    pub fn units_per_slot(&self, rate: thalweg_units::Rate) -> u64 {
        let bits = u128::from(rate.as_bps()) * self.slot.as_nanos() / 1_000_000_000;
        let unit = u128::from(self.unit.as_bytes().max(1)) * 8;
        u64::try_from(bits / unit).unwrap_or(u64::MAX)
    }

    /// The data units that hold `bytes`, rounded up so that a remainder has a place too.
    pub fn units(&self, bytes: ByteSize) -> u64 {
        bytes.as_bytes().div_ceil(self.unit.as_bytes().max(1))
    }

    /// The problem of collecting `amounts` (per node of `graph`) at `destination`.
    ///
    /// # Errors
    ///
    /// As [`Problem::collect`].
    pub fn collect(
        &self,
        graph: &Graph,
        amounts: &[ByteSize],
        destination: u32,
    ) -> Result<Problem, ProblemError> {
        let units: Vec<u64> = amounts.iter().map(|bytes| self.units(*bytes)).collect();
        Problem::collect(&units, destination, &self.legs(graph))
    }

    /// The legs of a graph that carry at least one unit a slot.
    pub fn legs(&self, graph: &Graph) -> Vec<Leg> {
        let leg = |((from, to), rate)| Leg {
            from: from as u32,
            to: to as u32,
            per_slot: self.units_per_slot(rate),
        };
        graph.legs().map(leg).filter(|leg| leg.per_slot > 0).collect()
    }
}
