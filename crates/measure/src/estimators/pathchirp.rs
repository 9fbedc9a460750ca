//! PathChirp (Ribeiro et al., 2003), as the public tool does it: trains whose gaps shrink by a constant factor, so that
//! one train tries all rates of a range.
//!
//! Differences from the public tool, for busy hosts: rates count the headers that the path carries. The delays of
//! packets that arrived in one batch are interpolated between the end of the previous batch and the end of this one.
//! Only a long batch or a pause of the sender cuts a chirp, and a chirp that was cut before delays grew gives no
//! estimate.

use super::{Estimator, EstimatorError, Finding, Progress, Quantity, Step};
use crate::train::{ArrivedProbe, Flight, OVERHEAD, Probe, Train, bits_of};
use std::{collections::VecDeque, time::Duration};

/// The bytes that the tool needs of each probe.
const HEADER: u16 = 12;

/// The number of chirps in the mean.
const WINDOW: usize = 11;

/// A shorter excursion is noise, in probes.
const LEAST_EXCURSION: usize = 5;

/// An excursion ends when its queueing delay has fallen to its maximum divided by this.
const DECREASE: f64 = 1.5;

/// The number of means in a row near an end of the range that moves the range.
const NEAR: u32 = 3;

/// The mean is near the lower end below this multiple of it, and near the upper end above this share of it.
const ENDS: (f64, f64) = (1.5, 0.66);

/// The new range extends from the old end by this factor to both sides.
const SHIFT: f64 = 7.0;

/// Probes that arrive closer together than this came in one batch.
const BATCH: Duration = Duration::from_micros(10);

/// A longer batch cuts a chirp, because the delays between its ends are not known.
const LONGEST_BATCH: usize = 6;

/// A sender that is late by more than this, and by more than a gap, paused.
const PAUSE: Duration = Duration::from_micros(500);

/// The maximum number of moves of the range.
const MOST_RANGES: u32 = 12;

/// The number of chirps in a row without an estimate that ends the measurement.
const MOST_LOST: u32 = 40;

/// Settings of the tool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathchirpSettings {
    /// The size of a probe, bytes.
    pub size: u16,
    /// IP and UDP header bytes per probe.
    pub overhead: u32,
    /// The factor from gap to gap, above 1.
    pub spread: f64,
    /// The initial range of rates, bit/s.
    pub range: (f64, f64),
    /// The highest rate that the host sends truthfully, bit/s.
    pub most: f64,
    /// The mean rate over chirps and pauses, bit/s.
    pub average: f64,
    /// The time to receive one probe: probes that arrive within 2.5 times this came in one batch.
    pub receive_latency: Duration,
    /// Whether probes may carry riders.
    pub may_carry: bool,
}

impl Default for PathchirpSettings {
    /// The public tool's settings, over IPv4.
    fn default() -> Self {
        let (range, average) = ((10e6, 200e6), 0.3e6);
        let (most, receive_latency) = (1e9, Duration::ZERO);
        let (size, overhead, spread, may_carry) = (1000, OVERHEAD, 1.2, true);
        Self { size, overhead, spread, range, most, average, receive_latency, may_carry }
    }
}

/// Available bandwidth.
#[derive(Clone, Debug)]
pub struct Pathchirp {
    settings: PathchirpSettings,
    range: (f64, f64),
    window: VecDeque<f64>,
    hidden: VecDeque<f64>,
    /// The number of means in a row near the lower and near the upper end.
    near: (u32, u32),
    /// The number of means since the range moved.
    means: u32,
    ranges: u32,
    lost: u32,
    chirps: u32,
}

impl Pathchirp {
    /// Creates the tool before its first chirp.
    pub fn new(settings: PathchirpSettings) -> Self {
        let (window, hidden) = (VecDeque::new(), VecDeque::new());
        let (near, means, ranges, lost, chirps) = ((0, 0), 0, 0, 0, 0);
        let range = settings.range;
        Self { settings, range, window, hidden, near, means, ranges, lost, chirps }
    }

    /// The rates of the gaps of a chirp, bit/s.
    fn rates(&self) -> Vec<f64> {
        let (low, high) = self.range;
        let rates = std::iter::successors(Some(low), |rate| Some(rate * self.settings.spread));
        rates.take_while(|rate| *rate <= high.min(self.settings.most)).collect()
    }

    fn bits(&self) -> f64 {
        bits_of(self.settings.size, self.settings.overhead)
    }

    fn chirp(&self) -> Option<Train> {
        let PathchirpSettings { size, may_carry, .. } = self.settings;
        let probe = |gap| Probe { size, header: HEADER, gap, may_carry };
        let gap = |rate: f64| probe(Duration::from_secs_f64(self.bits() / rate));
        let first = std::iter::once(probe(Duration::ZERO));
        let chirp = Train::new(first.chain(self.rates().into_iter().map(gap)).collect());
        Some(chirp.ok()?.with_overhead(self.settings.overhead))
    }

    fn pause(&self, chirp: &Train) -> Duration {
        let bits = chirp.probes().len() as f64 * self.bits();
        let between = Duration::from_secs_f64(bits / self.settings.average);
        // The period is from the beginning of one chirp to the beginning of the next.
        between.max(2 * chirp.duration()).saturating_sub(chirp.duration())
    }

    fn mean(&self) -> f64 {
        self.window.iter().sum::<f64>() / self.window.len().max(1) as f64
    }

    fn learn(&mut self, estimate: f64, hidden: f64) {
        self.window.push_back(estimate);
        self.hidden.push_back(hidden);
        if self.window.len() > WINDOW {
            self.window.pop_front();
            self.hidden.pop_front();
        }
        if self.window.len() == WINDOW {
            self.means += 1;
            let (mean, (low, high)) = (self.mean(), self.range);
            let again = |is_near: bool, times: u32| if is_near { times + 1 } else { 0 };
            let near_high = mean > ENDS.1 * high && high < self.settings.most;
            self.near = (again(mean < ENDS.0 * low, self.near.0), again(near_high, self.near.1));
            match self.near {
                (NEAR.., _) => self.shift(low),
                (_, NEAR..) => self.shift(high),
                _ => {}
            }
        }
    }

    fn shift(&mut self, to: f64) {
        self.range = (to / SHIFT, to * SHIFT);
        self.window.clear();
        self.hidden.clear();
        (self.near, self.means) = ((0, 0), 0);
        self.ranges += 1;
    }

    fn result(&self) -> Option<Result<Vec<Finding>, EstimatorError>> {
        match () {
            () if self.lost >= MOST_LOST => Some(Err(EstimatorError::Lost(self.lost))),
            () if self.ranges > MOST_RANGES => Some(Err(EstimatorError::Endless(self.chirps))),
            () if self.means < NEAR => None,
            () => {
                let mut sorted: Vec<f64> = self.window.iter().copied().collect();
                sorted.sort_by(f64::total_cmp);
                let [low, high] = [WINDOW / 4, WINDOW * 3 / 4].map(|at| sorted[at]);
                let hidden = self.hidden.iter().sum::<f64>() / WINDOW as f64;
                let of = Finding::corrected(Quantity::AvailableBandwidth, low, high, hidden);
                let value = (self.mean() - hidden).max(0.0);
                let is_lower_bound = self.mean() > ENDS.1 * self.settings.most;
                // The mean of a few skewed values may lie beyond their quartiles.
                let (low, high) = (of.low.min(value), of.high.max(value));
                Some(Ok(vec![Finding { value, low, high, is_lower_bound, ..of }]))
            }
        }
    }
}

/// The estimate of one chirp, bit/s; `None`: probes were lost or reordered, or the hosts cut the chirp before delays
/// grew.
fn estimate(flight: &Flight, rates: &[f64], bits: f64, together: Duration) -> Option<f64> {
    let passed: Vec<ArrivedProbe> = flight.arrived_probes().collect();
    if passed.len() != rates.len() + 1 || flight.is_reordered() {
        return None;
    }
    let delays = delays(&passed[..until_pause(&passed, rates, bits)], together);
    let count = delays.len();
    if count <= LEAST_EXCURSION {
        return None;
    }
    let (estimate, grows) = weighted(&delays, &rates[..count - 1], bits);
    (grows || count == passed.len()).then_some(estimate)
}

/// The number of probes up to the first pause of the sender in which the queue may have run empty.
fn until_pause(passed: &[ArrivedProbe], rates: &[f64], bits: f64) -> usize {
    let is_pause = |(pair, rate): (&[ArrivedProbe], &f64)| {
        let gap = Duration::from_secs_f64(bits / rate);
        pair[1].sent.since(pair[0].sent) > (2 * gap).max(gap + PAUSE)
    };
    let pause = passed.windows(2).zip(rates).position(is_pause);
    pause.map_or(passed.len(), |at| at + 1)
}

/// Queueing delays, ns, plus a constant, up to the first long batch. Only the stamp of a batch's last probe says when
/// it arrived; the delays of those before it are interpolated from the end of the previous batch.
fn delays(passed: &[ArrivedProbe], together: Duration) -> Vec<f64> {
    let mut delays: Vec<f64> = Vec::with_capacity(passed.len());
    let is_batch =
        |pair: &ArrivedProbe, next: &ArrivedProbe| next.arrived.since(pair.arrived) < together;
    for batch in passed.chunk_by(is_batch) {
        if batch.len() > LONGEST_BATCH {
            break;
        }
        let end = batch.last().map_or(0.0, |last| last.delay() as f64);
        let before = delays.last().copied().unwrap_or(end);
        let step = (end - before) / batch.len() as f64;
        delays.extend((1..=batch.len()).map(|n| step.mul_add(n as f64, before)));
    }
    delays
}

/// D = ΣE·Δ / ΣΔ, over the excursions of queueing delay; and whether delays grow to the end.
fn weighted(delays: &[f64], rates: &[f64], bits: f64) -> (f64, bool) {
    let mut each: Vec<Option<f64>> = vec![None; rates.len()];
    let (mut at, mut last, mut grows) = (0, rates.len() - 1, false);
    while at < rates.len() {
        if delays[at] >= delays[at + 1] {
            at += 1;
            continue;
        }
        match excursion_end(&delays[at..]) {
            None => {
                (last, grows) = (at, true);
                break;
            }
            Some(long) => {
                for k in (at..at + long).filter(|_| long >= LEAST_EXCURSION) {
                    each[k] = (delays[k] < delays[k + 1]).then_some(rates[k]);
                }
                at += long;
            }
        }
    }
    let terms = each.iter().zip(rates).map(|(e, rate)| (e.unwrap_or(rates[last]), bits / rate));
    let (sum, weights) = terms.fold((0.0, 0.0), |(sum, all), (e, gap)| (sum + e * gap, all + gap));
    (sum / weights, grows)
}

/// The number of probes after which an excursion that begins here ends; `None`: it does not end.
fn excursion_end(delays: &[f64]) -> Option<usize> {
    let mut highest: f64 = 0.0;
    for (k, delay) in delays.iter().enumerate().skip(1) {
        let height = delay - delays[0];
        if height < highest / DECREASE {
            return Some(k);
        }
        highest = highest.max(height);
    }
    None
}

impl Estimator for Pathchirp {
    fn name(&self) -> &'static str {
        "pathchirp"
    }

    fn next(&mut self) -> Step {
        if let Some(result) = self.result() {
            return Step::Done(result);
        }
        match self.chirp() {
            Some(train) => {
                let after = if self.chirps == 0 { Duration::ZERO } else { self.pause(&train) };
                Step::Send { train, after }
            }
            None => Step::Done(Err(EstimatorError::Unclear)),
        }
    }

    fn record(&mut self, flight: &Flight) {
        self.chirps += 1;
        let together = BATCH.max(self.settings.receive_latency * 5 / 2);
        match estimate(flight, &self.rates(), self.bits(), together) {
            Some(estimate) => {
                self.lost = 0;
                self.learn(estimate, flight.tally.hidden_rate().as_bps() as f64);
            }
            None => self.lost += 1,
        }
    }

    fn progress(&self) -> Progress {
        let between = (!self.window.is_empty()).then(|| (self.mean(), Some(self.mean())));
        Progress { trains: self.chirps, between, phase: "chirps" }
    }
}

#[cfg(test)]
#[path = "pathchirp_tests.rs"]
mod tests;
