//! Trains that do not adapt: MGRP's pktrain with Table 1's parameters, to load a path as tools do.

use super::{Estimator, Progress, Step};
use crate::train::{Flight, OVERHEAD, Probe, Train, TrainError};
use std::time::Duration;

/// A row of Table 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    name: &'static str,
    probe: Probe,
    count: usize,
    pause: Duration,
    /// Trains so far, and how many are wanted.
    trains: (u32, u32),
}

/// What the tool needs of each probe.
const HEADER: u16 = 12;

const fn row(name: &'static str, bytes: u16, count: usize, gap_us: u64, pause_ms: u64) -> Fixed {
    let (size, gap) = (bytes - OVERHEAD as u16, Duration::from_micros(gap_us));
    let probe = Probe { size, header: HEADER, gap, may_carry: true };
    Fixed { name, probe, count, pause: Duration::from_millis(pause_ms), trains: (0, 1) }
}

/// Bursts of 12 Mbit/s, 1.1 Mbit/s on average: like the sub-trains of pathload.
pub const PK1: Fixed = row("pk1", 300, 10, 200, 20);
/// Trains of 4 Mbit/s, 2.0 Mbit/s on average.
pub const PK2: Fixed = row("pk2", 500, 20, 1000, 20);
/// Ten probes back to back, 2.3 Mbit/s on average: like estimators of capacity.
pub const PK3: Fixed = row("pk3", 300, 10, 0, 10);

impl Fixed {
    /// So many trains.
    pub fn times(self, trains: u32) -> Self {
        Self { trains: (0, trains), ..self }
    }

    /// The same, none of whose probes carries riders.
    pub fn bare(self) -> Self {
        Self { probe: Probe { may_carry: false, ..self.probe }, ..self }
    }

    /// Its train.
    ///
    /// # Errors
    /// None for Table 1's.
    pub fn train(&self) -> Result<Train, TrainError> {
        Train::uniform(self.probe, self.count)
    }
}

impl Estimator for Fixed {
    fn name(&self) -> &'static str {
        self.name
    }

    fn next(&mut self) -> Step {
        let after = if self.trains.0 == 0 { Duration::ZERO } else { self.pause };
        match self.train() {
            Ok(train) if self.trains.0 < self.trains.1 => Step::Send { train, after },
            _ => Step::Done(Ok(Vec::new())),
        }
    }

    fn seen(&mut self, _: &Flight) {
        self.trains.0 += 1;
    }

    fn progress(&self) -> Progress {
        Progress { trains: self.trains.0, between: None, phase: "trains that tell nothing" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// While a train goes, and on average, Mbit/s.
    fn rates(row: &Fixed) -> [f64; 2] {
        let train = row.train().unwrap();
        let bits = train.bytes() as f64 * 8.0;
        let one = bits / train.probes().len() as f64;
        let inst = one / row.probe.gap.as_secs_f64();
        [inst / 1e6, bits / (train.takes() + row.pause).as_secs_f64() / 1e6]
    }

    #[test]
    fn they_are_table_1() {
        let is = |row: &Fixed, inst: f64, average: f64| {
            let [a, b] = rates(row);
            assert!((a - inst).abs() < 0.05 && (b - average).abs() < 0.1, "{}: {a} {b}", row.name);
        };
        is(&PK1, 12.0, 1.1);
        is(&PK2, 4.0, 2.0);
        let [_, average] = rates(&PK3);
        // 0.24 ms of the paper's link of 100 Mbit/s on top make 2.3.
        assert!((average - 2.4).abs() < 0.01, "{average}");
    }

    #[test]
    fn they_end() {
        let mut row = PK3.times(2).bare();
        for n in 0..2 {
            let Step::Send { train, after } = row.next() else { panic!("{n}") };
            assert_eq!(after.is_zero(), n == 0);
            assert!(!train.probes()[0].may_carry);
            row.seen(&Flight::default());
        }
        assert_eq!(row.next(), Step::Done(Ok(Vec::new())));
    }
}
