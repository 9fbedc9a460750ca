//! Trains that do not adapt: MGRP's pktrain with the parameters of Table 1, to load a path as tools do.
//!
//! A transaction holds as many trains as possible; the pauses between them are gaps. If each train were a transaction,
//! the next one would wait for its report, a round trip and more, but the rates of Table 1 require pauses of 10 and 20
//! ms.

use super::{Estimator, EstimatorError, Finding, Progress, Quantity, Step};
use crate::train::{Flight, MAX_PROBES, OVERHEAD, Probe, Train, TrainError};
use std::time::Duration;

/// A row of Table 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedTrains {
    name: &'static str,
    probe: Probe,
    overhead: u32,
    count: usize,
    pause: Duration,
    /// The number of trains so far, and of trains that are wanted.
    trains: (u32, u32),
    /// The number of probes that left, and of those that arrived.
    probes: (u64, u64),
    /// The number of loss episodes.
    episodes: u32,
}

/// The bytes that the tool needs of each probe.
const HEADER: u16 = 12;

/// The maximum duration of a transaction, which is the interval at which losses are reported.
const SERIES: Duration = Duration::from_secs(2);

const fn row(
    name: &'static str,
    bytes: u16,
    count: usize,
    gap_us: u64,
    pause_ms: u64,
) -> FixedTrains {
    let (size, gap) = (bytes - OVERHEAD as u16, Duration::from_micros(gap_us));
    let probe = Probe { size, header: HEADER, gap, may_carry: true };
    let pause = Duration::from_millis(pause_ms);
    FixedTrains {
        name,
        probe,
        overhead: OVERHEAD,
        count,
        pause,
        trains: (0, 1),
        probes: (0, 0),
        episodes: 0,
    }
}

/// Bursts of 12 Mbit/s, 1.1 Mbit/s on average: like the sub-trains of pathload.
pub const PK1: FixedTrains = row("pk1", 300, 10, 200, 20);
/// Trains of 4 Mbit/s, 2.0 Mbit/s on average.
pub const PK2: FixedTrains = row("pk2", 500, 20, 1000, 20);
/// Ten probes back to back, 2.3 Mbit/s on average: like estimators of capacity.
pub const PK3: FixedTrains = row("pk3", 300, 10, 0, 10);

impl FixedTrains {
    /// The same row with this number of trains.
    pub fn with_trains(self, trains: u32) -> Self {
        Self { trains: (0, trains), ..self }
    }

    /// The same row with this many IP and UDP header bytes per probe. The sizes of Table 1 are those of whole packets,
    /// so probes shrink.
    pub fn with_overhead(self, overhead: u32) -> Self {
        let bytes = u32::from(self.probe.size) + self.overhead;
        let size = bytes.saturating_sub(overhead) as u16;
        Self { probe: Probe { size, ..self.probe }, overhead, ..self }
    }

    /// The same row without riders.
    pub fn without_riders(self) -> Self {
        Self { probe: Probe { may_carry: false, ..self.probe }, ..self }
    }

    /// The time from the beginning of one train to the beginning of the next.
    pub fn period(&self) -> Duration {
        self.probe.gap * (self.count.saturating_sub(1) as u32) + self.pause
    }

    /// The loss, which is all that such trains tell.
    fn result(&self) -> Result<Vec<Finding>, EstimatorError> {
        match self.probes {
            (0, _) => Err(EstimatorError::Unclear),
            (_, 0) => Err(EstimatorError::Lost(self.trains.0)),
            (left, came) => {
                let lost = 1.0 - came as f64 / left as f64;
                Ok(vec![Finding::share(Quantity::Loss, lost, (self.episodes, left as f64))])
            }
        }
    }

    /// One train of this row.
    ///
    /// # Errors
    /// None for the rows of Table 1.
    pub fn train(&self) -> Result<Train, TrainError> {
        Ok(Train::uniform(self.probe, self.count)?.with_overhead(self.overhead))
    }

    /// As many trains, one after the other, as fit into one transaction.
    ///
    /// # Errors
    /// None for the rows of Table 1.
    pub fn series(&self) -> Result<Train, TrainError> {
        self.of(u32::MAX)
    }

    /// This many trains, or as many as fit into one transaction.
    fn of(&self, trains: u32) -> Result<Train, TrainError> {
        let first = |train| if train == 0 { Duration::ZERO } else { self.pause };
        let one = |train| {
            (0..self.count).map(move |place| Probe {
                gap: if place == 0 { first(train) } else { self.probe.gap },
                ..self.probe
            })
        };
        let train = Train::new((0..trains.min(self.most())).flat_map(one).collect())?;
        Ok(train.with_overhead(self.overhead))
    }

    /// The maximum number of trains per transaction.
    fn most(&self) -> u32 {
        let by_time = SERIES.as_nanos() / self.period().as_nanos().max(1);
        (MAX_PROBES / self.count.max(1)).min(by_time as usize).max(1) as u32
    }
}

/// The number of loss episodes: losses in a row count as one, because they have one cause.
fn episodes(flight: &Flight) -> u32 {
    let probes = flight.sent.iter().zip(&flight.arrived).filter(|(sent, _)| sent.is_some());
    let came: Vec<bool> = probes.map(|(_, arrived)| arrived.is_some()).collect();
    came.chunk_by(|one, next| one == next).filter(|run| !run[0]).count() as u32
}

impl Estimator for FixedTrains {
    fn name(&self) -> &'static str {
        self.name
    }

    fn next(&mut self) -> Step {
        let after = if self.trains.0 == 0 { Duration::ZERO } else { self.pause };
        let left = self.trains.1.saturating_sub(self.trains.0);
        match self.of(left) {
            Ok(train) if left > 0 => Step::Send { train, after },
            _ => Step::Done(self.result()),
        }
    }

    fn record(&mut self, flight: &Flight) {
        self.trains.0 += (flight.sent.len() / self.count.max(1)).max(1) as u32;
        self.probes.0 += flight.sent_count() as u64;
        self.probes.1 += flight.arrived_probes().count() as u64;
        self.episodes += episodes(flight);
    }

    fn partial_findings(&self) -> Option<Vec<Finding>> {
        self.result().ok()
    }

    fn progress(&self) -> Progress {
        Progress { trains: self.trains.0, between: None, phase: "load" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rate within a train, and on average, Mbit/s.
    fn rates(row: &FixedTrains) -> [f64; 2] {
        let train = row.train().unwrap();
        let bits = train.bytes() as f64 * 8.0;
        let one = bits / train.probes().len() as f64;
        let inst = one / row.probe.gap.as_secs_f64();
        [inst / 1e6, bits / (train.duration() + row.pause).as_secs_f64() / 1e6]
    }

    #[test]
    fn rates_are_those_of_table_1() {
        let is = |row: &FixedTrains, inst: f64, average: f64| {
            let [a, b] = rates(row);
            assert!((a - inst).abs() < 0.05 && (b - average).abs() < 0.1, "{}: {a} {b}", row.name);
        };
        is(&PK1, 12.0, 1.1);
        is(&PK2, 4.0, 2.0);
        is(&PK2.with_overhead(48), 4.0, 2.0);
        let [_, average] = rates(&PK3);
        // With 0.24 ms on the paper's link of 100 Mbit/s it is 2.3.
        assert!((average - 2.4).abs() < 0.01, "{average}");
    }

    #[test]
    fn trains_end_and_report_what_was_lost() {
        let time = |ns| Some(thalweg_units::Time::from_nanos(ns));
        // A series of 2 s holds 51 trains at intervals of 39 ms.
        let mut row = PK2.with_trains(53).without_riders();
        for n in 0..2 {
            let Step::Send { train, after } = row.next() else { panic!("{n}") };
            assert_eq!(after.is_zero(), n == 0);
            let probes = train.probes();
            assert_eq!(probes.len(), if n == 0 { 51 * 20 } else { 2 * 20 });
            assert!(
                !probes[0].may_carry && probes[0].gap.is_zero() && probes[1].gap == row.probe.gap
            );
            assert!(probes[20].gap == row.pause && probes[21].gap == row.probe.gap);
            let mut flight = Flight { sent: vec![time(1); probes.len()], ..Flight::default() };
            let came = Some(crate::train::Stamp::from_unix_nanos(9));
            let arrived = |place| came.filter(|_| place % 20 > 2 * n);
            flight.arrived = (0..probes.len()).map(arrived).collect();
            row.record(&flight);
        }
        let Step::Done(Ok(found)) = row.next() else { panic!("no end") };
        assert_eq!(found[0].of, Quantity::Loss);
        let lost = (51.0 + 2.0 * 3.0) / (53.0 * 20.0);
        assert!((found[0].value - lost).abs() < 1e-9, "{found:?}");
        // Each of the 53 trains lost its first probes.
        let range = [found[0].low, found[0].high].map(|end| end / lost);
        assert!((0.70..0.80).contains(&range[0]) && (1.25..1.35).contains(&range[1]), "{range:?}");
        let mut dead = PK1.with_trains(1);
        let sent = vec![time(1); 10];
        dead.record(&Flight { sent, arrived: vec![None; 10], ..Flight::default() });
        assert_eq!(dead.next(), Step::Done(Err(EstimatorError::Lost(1))));
    }

    #[test]
    fn a_series_has_the_average_rates_of_table_1() {
        for (row, mbps) in [(PK1, 1.1), (PK2, 2.0), (PK3, 2.3)] {
            let series = row.series().unwrap();
            let average = series.bytes() as f64 * 8.0 / series.duration().as_secs_f64() / 1e6;
            assert!((average / mbps - 1.0).abs() < 0.06, "{}: {average}", row.name);
            assert!(series.duration() <= SERIES && series.duration() > SERIES * 9 / 10);
        }
    }
}
