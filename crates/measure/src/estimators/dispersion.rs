//! Capacity by the dispersion of packet pairs, and the rate at which trains come out (Dovrolis et al., 2001).
//!
//! Two probes that leave together arrive as far apart as the narrowest link holds them; others' packets between
//! them spread them, or squeeze them behind it. So the most frequent distance counts, and not the mean.

use super::{Estimator, Finding, Progress, Quantity, Step, Unfound};
use crate::train::{Flight, Probe, Train, bits_of};
use std::time::Duration;

/// What the tool needs of each probe.
const HEADER: u16 = 12;

/// Distances that differ by less than this share are the same one.
const SAME: f64 = 0.05;

/// Of the pairs so many must come through.
const LEAST: usize = 5;

/// How much is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DispersionSettings {
    /// Probes' size, bytes.
    pub size: u16,
    /// What IP and UDP add to each, bytes.
    pub overhead: u32,
    /// Pairs.
    pub pairs: u32,
    /// Trains after them.
    pub trains: u32,
    /// Probes of a train, from 3.
    pub length: usize,
    /// Between two of either: the path's round trip, so that queues empty.
    pub pause: Duration,
    /// Whether probes may carry riders.
    pub may_carry: bool,
}

impl DispersionSettings {
    /// Sixty pairs and ten trains of twenty.
    pub fn new(size: u16, overhead: u32, rtt: Duration) -> Self {
        Self { size, overhead, pairs: 60, trains: 10, length: 20, pause: rtt, may_carry: true }
    }
}

/// Capacity and dispersion rate.
#[derive(Clone, Debug)]
pub struct Dispersion {
    settings: DispersionSettings,
    sent: u32,
    /// Seconds between the probes of a pair.
    pairs: Vec<f64>,
    /// bit/s.
    trains: Vec<f64>,
}

impl Dispersion {
    /// Before its first pair.
    pub fn new(settings: DispersionSettings) -> Self {
        Self { settings, sent: 0, pairs: Vec::new(), trains: Vec::new() }
    }

    fn bits(&self) -> f64 {
        bits_of(self.settings.size, self.settings.overhead)
    }

    fn result(&self) -> Result<Vec<Finding>, Unfound> {
        if self.pairs.len() < LEAST {
            return Err(Unfound::Lost(self.sent));
        }
        let (least, mode, most) = mode(&self.pairs);
        let rate = |distance: f64| self.bits() / distance;
        let capacity = Finding::corrected(Quantity::Capacity, rate(most), rate(least), 0.0);
        let mut found = vec![Finding { value: rate(mode), ..capacity }];
        let mut trains = self.trains.clone();
        trains.sort_by(f64::total_cmp);
        if let (Some(low), Some(high)) = (trains.first(), trains.last()) {
            let middle = trains[trains.len() / 2];
            let of = Finding::corrected(Quantity::DispersionRate, *low, *high, 0.0);
            found.push(Finding { value: middle, ..of });
        }
        Ok(found)
    }
}

/// The distance around which most lie, and the least and the greatest of those.
fn mode(distances: &[f64]) -> (f64, f64, f64) {
    let mut sorted = distances.to_vec();
    sorted.sort_by(f64::total_cmp);
    let near = |from: usize| {
        let end = sorted[from] * (1.0 + 2.0 * SAME);
        &sorted[from..sorted.partition_point(|distance| *distance <= end)]
    };
    // Of equals the first: squeezed pairs are rarer than spread ones.
    let best = (0..sorted.len()).rev().map(near).max_by_key(|group| group.len());
    let best = best.unwrap_or(&sorted);
    (best[0], best[best.len() / 2], best[best.len() - 1])
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
                Step::Send { train: train.over(self.settings.overhead), after }
            }
            _ => Step::Done(self.result()),
        }
    }

    fn seen(&mut self, flight: &Flight) {
        self.sent += 1;
        let arrivals: Vec<_> = flight.arrived.iter().flatten().collect();
        let is_whole = arrivals.len() == flight.arrived.len() && !flight.is_reordered();
        let ends = arrivals.first().zip(arrivals.last()).filter(|_| is_whole);
        let took = ends.map_or(0.0, |(first, last)| last.since(**first).as_secs_f64());
        match arrivals.len() {
            _ if took <= 0.0 => {}
            2 => self.pairs.push(took),
            many => self.trains.push(self.bits() * (many - 1) as f64 / took),
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
    use crate::path::{Cross, SimulatedPath};
    use crate::train::{OVERHEAD, OVERHEAD_IPV6};

    fn run(capacity: f64, cross: Cross, lost: f64) -> Result<Vec<Finding>, Unfound> {
        let settings = DispersionSettings::new(1472, OVERHEAD, Duration::from_millis(40));
        let mut path = SimulatedPath::new(capacity, cross, 11).losing(lost);
        path.run(&mut Dispersion::new(settings)).0
    }

    #[test]
    fn capacity_is_found_beside_others_traffic() {
        for (capacity, cross) in [(10.0, 0.0), (10.0, 4.0), (50.0, 30.0), (100.0, 50.0)] {
            let found = run(capacity, Cross::poisson(cross), 0.0).unwrap();
            let error = (found[0].value / 1e6 / capacity - 1.0).abs();
            assert!(error < 0.05, "{capacity} {cross}: {found:?}");
            assert!(found[1].value <= found[0].value * 1.05, "{found:?}");
            assert!(found[1].value / 1e6 >= (capacity - cross) * 0.95, "{found:?}");
        }
    }

    #[test]
    fn small_probes_over_ipv6_find_the_capacity() {
        let settings = DispersionSettings::new(200, OVERHEAD_IPV6, Duration::from_millis(40));
        let mut path = SimulatedPath::new(10.0, Cross::even(0.0), 11).over(OVERHEAD_IPV6);
        let found = path.run(&mut Dispersion::new(settings)).0.unwrap();
        assert!((found[0].value / 1e7 - 1.0).abs() < 0.01, "{found:?}");
    }

    #[test]
    fn losses_leave_pairs_out_and_too_many_end_it() {
        let found = run(10.0, Cross::even(2.0), 0.3).unwrap();
        assert!((found[0].value / 1e6 - 10.0).abs() < 0.5, "{found:?}");
        assert!(matches!(run(10.0, Cross::even(2.0), 0.99), Err(Unfound::Lost(_))));
    }
}
