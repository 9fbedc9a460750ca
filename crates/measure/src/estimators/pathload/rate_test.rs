//! Tests whether one rate is available, with a single pathload fleet. Streams test the rate of their next level.

use super::{
    super::{Estimator, EstimatorError, Finding, Progress, Quantity, Step},
    Fleet, HEADER, LEAST_SIZE, LONGEST_GAP, PathloadSettings, RateVerdict, packets,
};
use crate::train::{Flight, Probe, Train, bits_of, rate_of};
use std::time::Duration;

/// Probes in a stream of a test: half as many as pathload's, because tests recur while a path is short of room, where
/// each probe takes the place of other traffic.
const STREAM: usize = 50;

/// A test of one rate. If the rate is available, the finding has it as a lower bound; otherwise as the upper end of a
/// range from zero. Riders hidden in the trains are subtracted.
#[derive(Clone, Debug)]
pub struct RateTest {
    settings: PathloadSettings,
    rate: f64,
    fleet: Fleet,
    trains: u32,
    /// Whether the last stream may have left a queue on the path.
    is_queued: bool,
    done: Option<Result<Vec<Finding>, EstimatorError>>,
}

impl RateTest {
    /// Creates a test whether `rate` bit/s are available; the rate is clamped to what trains and hosts can send.
    pub fn new(settings: PathloadSettings, rate: f64) -> Self {
        let PathloadSettings { largest, overhead, host, .. } = settings;
        let most = host.highest(largest, overhead).as_bps() as f64;
        let least = rate_of(LEAST_SIZE, overhead, LONGEST_GAP).as_bps() as f64;
        let rate = rate.clamp(least, most.max(least));
        Self { settings, rate, fleet: Fleet::default(), trains: 0, is_queued: false, done: None }
    }

    fn finding(&self) -> Result<Vec<Finding>, EstimatorError> {
        let verdict = self.fleet.early_verdict();
        let verdict = verdict.or_else(|| self.fleet.verdict()).or_else(|| self.fleet.at_large());
        let (sent, hidden) = (self.fleet.rate().unwrap_or(self.rate), self.fleet.hidden());
        let found = |low| Finding::corrected(Quantity::AvailableBandwidth, low, sent, hidden);
        match verdict {
            Some(RateVerdict::Below) => Ok(vec![Finding { is_lower_bound: true, ..found(sent) }]),
            Some(_) => Ok(vec![found(0.0)]),
            None => Err(EstimatorError::Unclear),
        }
    }
}

impl Estimator for RateTest {
    fn name(&self) -> &'static str {
        "pathload-fits"
    }

    fn next(&mut self) -> Step {
        if let Some(done) = &self.done {
            return Step::Done(done.clone());
        }
        let (size, gap) = packets(self.rate, &self.settings);
        let probe = Probe { size, header: HEADER, gap, may_carry: self.settings.may_carry };
        match Train::uniform(probe, STREAM) {
            Ok(train) => {
                let train = train.with_overhead(self.settings.overhead);
                // The results of the last stream took half a round trip, in which an available rate leaves no queue.
                let after = if self.is_queued { self.settings.rtt } else { Duration::ZERO };
                Step::Send { train, after }
            }
            Err(_) => Step::Done(Err(EstimatorError::Unclear)),
        }
    }

    fn record(&mut self, flight: &Flight) {
        let (size, gap) = packets(self.rate, &self.settings);
        let bits = bits_of(size, self.settings.overhead);
        self.trains += 1;
        let even = self.fleet.even();
        self.fleet.add(flight, bits, gap, self.settings.host.receive_latency);
        self.is_queued = self.fleet.even() == even;
        if self.fleet.is_over() || self.fleet.early_verdict().is_some() {
            self.done = Some(self.finding());
        }
    }

    fn progress(&self) -> Progress {
        Progress { trains: self.trains, between: None, phase: "one fleet of streams" }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Pace, *};
    use crate::train::{Calibration, OVERHEAD, Stamp};
    use thalweg_units::{Rate, Time};

    /// Tests `rate` on a link with `free` bit/s available, modelled as a fluid.
    fn test_rate(rate: f64, free: f64) -> (Finding, u32) {
        let host = Calibration {
            send_latency: Duration::from_micros(3),
            receive_latency: Duration::from_micros(3),
            gap_error: [Duration::from_micros(1); 2],
            honest: Rate::from_mbps(500.0),
            is_valid: true,
        };
        let rtt = Duration::from_millis(40);
        let settings = PathloadSettings {
            pace: Pace::Fast,
            rtt,
            largest: 1472,
            overhead: OVERHEAD,
            host,
            may_carry: true,
        };
        let mut tool = RateTest::new(settings, rate);
        loop {
            match tool.next() {
                Step::Done(found) => return (found.unwrap()[0], tool.trains),
                Step::Send { train, .. } => {
                    let (mut sent, mut arrived, mut at) = (Vec::new(), Vec::new(), 0.0);
                    for probe in train.probes() {
                        at += probe.gap.as_secs_f64();
                        // Beyond the free rate the queue grows with time.
                        let late = if rate > free { at * (rate / free - 1.0) } else { 0.0 };
                        sent.push(Some(Time::from_nanos((at * 1e9) as u64)));
                        let came = at + late + 0.02;
                        arrived.push(Some(Stamp::from_unix_nanos((came * 1e9) as u64)));
                    }
                    tool.record(&Flight { sent, arrived, ..Flight::default() });
                }
            }
        }
    }

    #[test]
    fn the_test_tells_whether_a_rate_is_available() {
        let (yes, trains) = test_rate(2e6, 3e6);
        assert_eq!(trains, 4);
        assert!(yes.is_lower_bound && (yes.low - 2e6).abs() < 5e4, "{yes:?}");
        let (no, trains) = test_rate(2e6, 1e6);
        assert_eq!(trains, 3, "a rate that is not available is tested no longer");
        assert!(!no.is_lower_bound && no.low == 0.0 && (no.high - 2e6).abs() < 5e4, "{no:?}");
    }
}
