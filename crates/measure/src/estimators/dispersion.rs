//! Capacity from the dispersion of packet pairs, and the rate at which trains arrive (Dovrolis et al., 2001).
//!
//! Two probes that leave together arrive as far apart as the narrowest link spaces them. Packets of other traffic widen
//! this distance, or narrow it behind that link. So the most frequent distance counts, not the mean.

use super::{Estimator, EstimatorError, Finding, Progress, Quantity, Step};
use crate::train::{ArrivedProbe, Flight, Probe, Train, bits_of};
use std::time::Duration;

/// The bytes that the tool needs of each probe.
const HEADER: u16 = 12;

/// Distances that differ by less than this share count as the same.
const SAME: f64 = 0.05;

/// Probes that arrive within this multiple of the time in which they left came as fast as the host sends them.
const HOSTS: f64 = 1.25;

/// The minimum number of pairs that must arrive.
const MIN_PAIRS: usize = 5;

/// Settings of the tool: how much is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DispersionSettings {
    /// The size of a probe, bytes.
    pub size: u16,
    /// IP and UDP header bytes per probe.
    pub overhead: u32,
    /// The number of pairs.
    pub pairs: u32,
    /// The number of trains after the pairs.
    pub trains: u32,
    /// Probes per train, at least 3.
    pub length: usize,
    /// The pause between two pairs or trains: the path's round trip, so that queues drain.
    pub pause: Duration,
    /// Whether probes may carry riders.
    pub may_carry: bool,
}

impl DispersionSettings {
    /// Sixty pairs, and ten trains of twenty probes.
    pub fn new(size: u16, overhead: u32, rtt: Duration) -> Self {
        Self { size, overhead, pairs: 60, trains: 10, length: 20, pause: rtt, may_carry: true }
    }
}

/// Capacity and dispersion rate.
#[derive(Clone, Debug)]
pub struct Dispersion {
    settings: DispersionSettings,
    sent: u32,
    /// The time between the two probes of each pair, s.
    pairs: Vec<Spread>,
    /// The time from the first probe of each train to its last, divided by the number of gaps, s.
    trains: Vec<Spread>,
}

/// The time between two probes, s.
#[derive(Clone, Copy, Debug)]
struct Spread {
    /// At departure, as fast as the host sends.
    left: f64,
    /// At arrival; no less than at departure, so that no path seems faster than it was tried.
    came: f64,
}

impl Spread {
    /// Whether the host was as slow as the path.
    fn is_limited_by_host(&self) -> bool {
        self.came <= self.left * HOSTS
    }
}

impl Dispersion {
    /// Creates the tool before its first pair.
    pub fn new(settings: DispersionSettings) -> Self {
        Self { settings, sent: 0, pairs: Vec::new(), trains: Vec::new() }
    }

    fn bits(&self) -> f64 {
        bits_of(self.settings.size, self.settings.overhead)
    }

    fn result(&self) -> Result<Vec<Finding>, EstimatorError> {
        if self.pairs.len() < MIN_PAIRS {
            return Err(EstimatorError::Lost(self.sent));
        }
        let mut found = Vec::from_iter(self.finding(Quantity::Capacity, &mode(&self.pairs)));
        found.extend(self.finding(Quantity::DispersionRate, &sorted(&self.trains)));
        Ok(found)
    }

    /// The median rate, in the range from the lowest to the highest; `None` without samples.
    fn finding(&self, of: Quantity, sorted: &[Spread]) -> Option<Finding> {
        let rate = |spread: &Spread| self.bits() / spread.came;
        let (low, high) = (rate(sorted.last()?), rate(sorted.first()?));
        // Of an even number the faster of the two in the middle.
        let middle = sorted[(sorted.len() - 1) / 2];
        let hosts = sorted.iter().filter(|spread| spread.is_limited_by_host()).count();
        let range = Finding::corrected(of, low, high, 0.0);
        let is_lower_bound = 2 * hosts > sorted.len();
        Some(Finding { value: rate(&middle), is_lower_bound, ..range })
    }
}

/// The mean time from one to the next of the probes that arrived.
fn spread(passed: &[ArrivedProbe]) -> Option<Spread> {
    let (first, last) = passed.first().zip(passed.last())?;
    let gaps = passed.len().saturating_sub(1).max(1) as f64;
    let left = last.sent.since(first.sent).as_secs_f64() / gaps;
    let came = last.arrived.since(first.arrived).as_secs_f64() / gaps;
    (came > 0.0).then(|| Spread { left, came: came.max(left) })
}

/// The largest group of samples with the same distance.
fn mode(distances: &[Spread]) -> Vec<Spread> {
    let sorted = sorted(distances);
    let near = |from: usize| {
        let end = sorted[from].came * (1.0 + 2.0 * SAME);
        &sorted[from..sorted.partition_point(|distance| distance.came <= end)]
    };
    // Of equal groups the one with the shortest distances: narrowed pairs are rarer than widened ones.
    let best = (0..sorted.len()).rev().map(near).max_by_key(|group| group.len());
    best.unwrap_or(&sorted).to_vec()
}

/// Sorts the samples, the shortest first.
fn sorted(distances: &[Spread]) -> Vec<Spread> {
    let mut sorted = distances.to_vec();
    sorted.sort_by(|one, other| one.came.total_cmp(&other.came));
    sorted
}

impl Estimator for Dispersion {
    fn name(&self) -> &'static str {
        "capacity"
    }

    fn next(&mut self) -> Step {
        let DispersionSettings { size, pairs, trains, length, pause, may_carry, .. } =
            self.settings;
        let count = if self.sent < pairs { 2 } else { length.max(3) };
        let probe = Probe { size, header: HEADER, gap: Duration::ZERO, may_carry };
        let after = if self.sent == 0 { Duration::ZERO } else { pause };
        match Train::uniform(probe, count) {
            Ok(train) if self.sent < pairs + trains => {
                Step::Send { train: train.with_overhead(self.settings.overhead), after }
            }
            _ => Step::Done(self.result()),
        }
    }

    fn record(&mut self, flight: &Flight) {
        self.sent += 1;
        let passed: Vec<ArrivedProbe> = flight.arrived_probes().collect();
        let is_whole = passed.len() == flight.arrived.len() && !flight.is_reordered();
        match spread(&passed).filter(|_| is_whole) {
            None => {}
            Some(pair) if passed.len() == 2 => self.pairs.push(pair),
            Some(train) => self.trains.push(train),
        }
    }

    fn progress(&self) -> Progress {
        let is_pairs = self.sent < self.settings.pairs;
        let phase = if is_pairs { "pairs" } else { "trains" };
        Progress { trains: self.sent, between: None, phase }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated_path::{CrossTraffic, SimulatedPath};
    use crate::train::{OVERHEAD, OVERHEAD_IPV6};

    fn run(capacity: f64, cross: CrossTraffic, lost: f64) -> Result<Vec<Finding>, EstimatorError> {
        let settings = DispersionSettings::new(1472, OVERHEAD, Duration::from_millis(40));
        let mut path = SimulatedPath::new(capacity, cross, 11).with_loss(lost);
        path.run(&mut Dispersion::new(settings)).0
    }

    #[test]
    fn capacity_is_found_beside_cross_traffic() {
        for (capacity, cross) in [(10.0, 0.0), (10.0, 4.0), (50.0, 30.0), (100.0, 50.0)] {
            let found = run(capacity, CrossTraffic::poisson(cross), 0.0).unwrap();
            let error = (found[0].value / 1e6 / capacity - 1.0).abs();
            assert!(error < 0.05, "{capacity} {cross}: {found:?}");
            assert!(found[1].value <= found[0].value * 1.05, "{found:?}");
            assert!(found[1].value / 1e6 >= (capacity - cross) * 0.95, "{found:?}");
        }
    }

    #[test]
    fn small_probes_over_ipv6_find_the_capacity() {
        let settings = DispersionSettings::new(200, OVERHEAD_IPV6, Duration::from_millis(40));
        let mut path =
            SimulatedPath::new(10.0, CrossTraffic::even(0.0), 11).with_overhead(OVERHEAD_IPV6);
        let found = path.run(&mut Dispersion::new(settings)).0.unwrap();
        assert!((found[0].value / 1e7 - 1.0).abs() < 0.01, "{found:?}");
    }

    /// The simulated host sends at 1 Gbit/s.
    #[test]
    fn a_path_that_is_faster_than_the_host_gives_a_lower_bound() {
        let found = run(5000.0, CrossTraffic::even(0.0), 0.0).unwrap();
        for finding in found {
            assert!(finding.is_lower_bound, "{finding:?}");
            assert!((finding.value / 1e9 - 1.0).abs() < 0.02, "{finding:?}");
        }
        let slow = run(100.0, CrossTraffic::even(0.0), 0.0).unwrap();
        assert!(slow.iter().all(|finding| !finding.is_lower_bound), "{slow:?}");
    }

    #[test]
    fn pairs_with_losses_are_ignored_and_too_many_losses_are_an_error() {
        let found = run(10.0, CrossTraffic::even(2.0), 0.3).unwrap();
        assert!((found[0].value / 1e6 - 10.0).abs() < 0.5, "{found:?}");
        assert!(matches!(run(10.0, CrossTraffic::even(2.0), 0.99), Err(EstimatorError::Lost(_))));
    }
}
