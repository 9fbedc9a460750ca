//! PathChirp (Ribeiro et al., 2003) as the public tool does it: trains whose gaps shrink by a factor each, so
//! that one train tries all rates of a range.

use super::{Estimator, Finding, Progress, Quantity, Step, Unfound};
use crate::train::{Flight, Passed, Probe, Train};
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

/// Ranges are tried so often.
const MOST_RANGES: u32 = 12;

/// Chirps in a row that tell nothing end it.
const MOST_LOST: u32 = 40;

/// How it probes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathchirpSettings {
    /// Probes' size, bytes.
    pub size: u16,
    /// The factor from gap to gap, above 1.
    pub spread: f64,
    /// The range of rates at first, bit/s.
    pub range: (f64, f64),
    /// The highest rate that the host sends truthfully, bit/s.
    pub most: f64,
    /// The rate over chirps and pauses, bit/s.
    pub average: f64,
    /// Whether probes may carry riders.
    pub may_carry: bool,
}

impl Default for PathchirpSettings {
    /// The public tool's.
    fn default() -> Self {
        let (range, average) = ((10e6, 200e6), 0.3e6);
        Self { size: 1000, spread: 1.2, range, most: 1e9, average, may_carry: true }
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
        f64::from(self.settings.size) * 8.0
    }

    fn chirp(&self) -> Option<Train> {
        let PathchirpSettings { size, may_carry, .. } = self.settings;
        let probe = |gap| Probe { size, header: HEADER, gap, may_carry };
        let gap = |rate: f64| probe(Duration::from_secs_f64(self.bits() / rate));
        let first = std::iter::once(probe(Duration::ZERO));
        Train::new(first.chain(self.rates().into_iter().map(gap)).collect()).ok()
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
                Some(Ok(vec![Finding { value, is_lower_bound, ..of }]))
            }
        }
    }
}

/// What a chirp says, bit/s; `None`: probes were lost or overtaken, or came in too few pieces.
fn estimate(flight: &Flight, rates: &[f64], bits: f64) -> Option<f64> {
    let passed: Vec<Passed> = flight.passed().collect();
    if passed.len() != rates.len() + 1 || flight.is_reordered() {
        return None;
    }
    let count = until_batches(&passed);
    if count <= LEAST_EXCURSION {
        return None;
    }
    let delays: Vec<f64> = passed[..count].iter().map(|probe| probe.delay() as f64).collect();
    Some(weighted(&delays, &rates[..count - 1], bits))
}

/// Probes up to the first two in a row that came in one batch.
fn until_batches(passed: &[Passed]) -> usize {
    let is_batched: Vec<bool> =
        passed.windows(2).map(|pair| pair[1].arrived.since(pair[0].arrived) < BATCH).collect();
    is_batched.windows(2).position(|two| two == [true, true]).map_or(passed.len(), |at| at + 1)
}

/// D = ΣE·Δ / ΣΔ, over the excursions of queueing delay.
fn weighted(delays: &[f64], rates: &[f64], bits: f64) -> f64 {
    let mut each: Vec<Option<f64>> = vec![None; rates.len()];
    let (mut at, mut last) = (0, rates.len() - 1);
    while at < rates.len() {
        if delays[at] >= delays[at + 1] {
            at += 1;
            continue;
        }
        match end(&delays[at..]) {
            None => {
                last = at;
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
    sum / weights
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
        match estimate(flight, &self.rates(), self.bits()) {
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
mod tests {
    use super::*;
    use crate::path::{Cross, SimulatedPath};

    fn run(capacity: f64, cross: Cross, seed: u64) -> Result<Vec<Finding>, Unfound> {
        let settings = PathchirpSettings::default();
        SimulatedPath::new(capacity, cross, seed).run(&mut Pathchirp::new(settings)).0
    }

    #[test]
    fn beside_even_traffic_available_bandwidth_is_found_also_where_the_range_must_move() {
        for (capacity, cross) in [(10.0, 4.0), (50.0, 20.0), (100.0, 20.0), (400.0, 100.0)] {
            let found = run(capacity, Cross::even(cross), 3).unwrap();
            let over = found[0].value / 1e6 / (capacity - cross);
            println!("{capacity} {cross}: {found:?}");
            assert!((0.7..1.5).contains(&over), "{capacity} {cross}: {found:?}");
        }
    }

    /// It takes short queues of others for its own, and more often none for one that grows: it
    /// overestimates.
    #[test]
    fn beside_bursts_it_is_in_the_right_region() {
        let mut errors = Vec::new();
        for (capacity, used) in [(10.0, 0.0), (10.0, 0.4), (50.0, 0.2), (100.0, 0.5), (100.0, 0.8)]
        {
            let found = run(capacity, Cross::poisson(capacity * used), 3).unwrap();
            let truth = capacity * (1.0 - used);
            println!("{capacity} {used}: {found:?}");
            errors.push((found[0].value / 1e6 - truth).abs() / truth);
        }
        errors.sort_by(f64::total_cmp);
        assert!(errors[2] < 0.5 && errors[4] < 1.2, "{errors:?}");
    }

    #[test]
    fn chirps_try_each_rate_of_the_range() {
        let tool = Pathchirp::new(PathchirpSettings::default());
        let chirp = tool.chirp().unwrap();
        assert_eq!(chirp.probes().len(), tool.rates().len() + 1);
        assert_eq!(chirp.probes()[1].gap, Duration::from_micros(800));
        assert!((17..=18).contains(&chirp.probes().len()), "{}", chirp.probes().len());
        assert!(tool.pause(&chirp) > Duration::from_millis(400));
    }

    #[test]
    fn where_delays_grow_to_the_end_the_rate_at_which_that_began_counts() {
        let rates = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0];
        let delays = [0.0, 0.0, 0.0, 5.0, 10.0, 20.0, 40.0];
        assert!((weighted(&delays, &rates, 1.0) - 4.0).abs() < 1e-9);
        // Never: as much as was tried.
        assert!((weighted(&[0.0; 7], &rates, 1.0) - 32.0).abs() < 1e-9);
    }

    #[test]
    fn a_path_that_drops_all_says_so() {
        let mut path = SimulatedPath::new(10.0, Cross::even(0.0), 1).losing(0.5);
        let result = path.run(&mut Pathchirp::new(PathchirpSettings::default())).0;
        assert_eq!(result, Err(Unfound::Lost(MOST_LOST)));
    }
}
