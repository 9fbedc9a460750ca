//! PathChirp (Ribeiro et al., 2003) as the public tool does it: trains whose gaps shrink by a factor each, so
//! that one train tries all rates of a range.
//!
//! Where this differs from the public tool, for hosts that are busy: rates count the headers that the path carries. What
//! arrived in one batch has the delay between those of the ends of this batch and the one before, and only a long batch
//! cuts a chirp, as does a pause of the sender; a chirp that was cut before delays grew says nothing.

use super::{Estimator, Finding, Progress, Quantity, Step, Unfound};
use crate::train::{Flight, OVERHEAD, Passed, Probe, Train, bits_of};
use std::{collections::VecDeque, time::Duration};

/// What the tool needs of each probe.
const HEADER: u16 = 12;

/// The mean is of so many chirps.
const WINDOW: usize = 11;

/// An excursion that is shorter is noise, in probes.
const LEAST_EXCURSION: usize = 5;

/// One ends when its queueing delay has fallen to this part of its highest.
const DECREASE: f64 = 1.5;

/// So often in a row a mean must be near an end of the range for another range.
const NEAR: u32 = 3;

/// The mean is near the lower end below this multiple of it, near the upper above this share.
const ENDS: (f64, f64) = (1.5, 0.66);

/// The new range goes so far to both sides of the old end.
const SHIFT: f64 = 7.0;

/// Probes that arrive nearer to each other than this came in one batch of the host's.
const BATCH: Duration = Duration::from_micros(10);

/// A batch that is longer cuts a chirp: what is between its ends is not known.
const LONGEST_BATCH: usize = 6;

/// A sender that is later than this, and than a gap, paused.
const PAUSE: Duration = Duration::from_micros(500);

/// Ranges are tried so often.
const MOST_RANGES: u32 = 12;

/// Chirps in a row that tell nothing end it.
const MOST_LOST: u32 = 40;

/// How it probes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathchirpSettings {
    /// Probes' size, bytes.
    pub size: u16,
    /// What IP and UDP add to each, bytes.
    pub overhead: u32,
    /// The factor from gap to gap, above 1.
    pub spread: f64,
    /// The range of rates at first, bit/s.
    pub range: (f64, f64),
    /// The highest rate that the host sends truthfully, bit/s.
    pub most: f64,
    /// The rate over chirps and pauses, bit/s.
    pub average: f64,
    /// What receiving one takes: what arrives within two and a half times that came in one batch.
    pub receive_latency: Duration,
    /// Whether probes may carry riders.
    pub may_carry: bool,
}

impl Default for PathchirpSettings {
    /// The public tool's, over IPv4.
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
    /// Means in a row near the lower and the upper end.
    near: (u32, u32),
    /// Means since the range is what it is.
    means: u32,
    ranges: u32,
    lost: u32,
    chirps: u32,
}

impl Pathchirp {
    /// Before its first chirp.
    pub fn new(settings: PathchirpSettings) -> Self {
        let (window, hidden) = (VecDeque::new(), VecDeque::new());
        let (near, means, ranges, lost, chirps) = ((0, 0), 0, 0, 0, 0);
        let range = settings.range;
        Self { settings, range, window, hidden, near, means, ranges, lost, chirps }
    }

    /// The rates between two probes each, bit/s.
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
        Some(chirp.ok()?.over(self.settings.overhead))
    }

    fn pause(&self, chirp: &Train) -> Duration {
        let bits = chirp.probes().len() as f64 * self.bits();
        let between = Duration::from_secs_f64(bits / self.settings.average);
        // From beginning to beginning.
        between.max(2 * chirp.takes()).saturating_sub(chirp.takes())
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

    fn result(&self) -> Option<Result<Vec<Finding>, Unfound>> {
        match () {
            () if self.lost >= MOST_LOST => Some(Err(Unfound::Lost(self.lost))),
            () if self.ranges > MOST_RANGES => Some(Err(Unfound::Endless(self.chirps))),
            () if self.means < NEAR => None,
            () => {
                let mut sorted: Vec<f64> = self.window.iter().copied().collect();
                sorted.sort_by(f64::total_cmp);
                let [low, high] = [WINDOW / 4, WINDOW * 3 / 4].map(|at| sorted[at]);
                let hidden = self.hidden.iter().sum::<f64>() / WINDOW as f64;
                let of = Finding::corrected(Quantity::AvailableBandwidth, low, high, hidden);
                let value = (self.mean() - hidden).max(0.0);
                let is_lower_bound = self.mean() > ENDS.1 * self.settings.most;
                // The mean of a skewed few lies beyond their quartiles.
                let (low, high) = (of.low.min(value), of.high.max(value));
                Some(Ok(vec![Finding { value, low, high, is_lower_bound, ..of }]))
            }
        }
    }
}

/// What a chirp says, bit/s; `None`: probes were lost or overtaken, or the hosts cut it before delays grew.
fn estimate(flight: &Flight, rates: &[f64], bits: f64, together: Duration) -> Option<f64> {
    let passed: Vec<Passed> = flight.passed().collect();
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

/// Probes up to the first that the sender was so late with that the queue ran empty meanwhile.
fn until_pause(passed: &[Passed], rates: &[f64], bits: f64) -> usize {
    let is_pause = |(pair, rate): (&[Passed], &f64)| {
        let gap = Duration::from_secs_f64(bits / rate);
        pair[1].sent.since(pair[0].sent) > (2 * gap).max(gap + PAUSE)
    };
    let pause = passed.windows(2).zip(rates).position(is_pause);
    pause.map_or(passed.len(), |at| at + 1)
}

/// Queueing delays, ns, plus a constant, up to the first long batch. Of a batch only the last one's stamp says when it came;
/// those before it lie between it and the one before the batch.
fn delays(passed: &[Passed], together: Duration) -> Vec<f64> {
    let mut delays: Vec<f64> = Vec::with_capacity(passed.len());
    let is_batch = |pair: &Passed, next: &Passed| next.arrived.since(pair.arrived) < together;
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

/// D = ΣE·Δ / ΣΔ, over the excursions of queueing delay; whether delays grow to the end.
fn weighted(delays: &[f64], rates: &[f64], bits: f64) -> (f64, bool) {
    let mut each: Vec<Option<f64>> = vec![None; rates.len()];
    let (mut at, mut last, mut grows) = (0, rates.len() - 1, false);
    while at < rates.len() {
        if delays[at] >= delays[at + 1] {
            at += 1;
            continue;
        }
        match end(&delays[at..]) {
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

/// How many probes on an excursion that begins here ends; `None`: it does not.
fn end(delays: &[f64]) -> Option<usize> {
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
            None => Step::Done(Err(Unfound::Unclear)),
        }
    }

    fn seen(&mut self, flight: &Flight) {
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
