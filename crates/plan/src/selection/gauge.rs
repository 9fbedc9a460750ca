//! One path's goodput while it is sampled, in bins of one round trip.

use std::time::Duration;
use thalweg_units::Time;

/// The shortest bin: deliveries come in bursts of the sender's pacing and of the caller's reads.
pub(super) const SHORTEST: Duration = Duration::from_millis(20);
/// The longest bin: ten of them fit into the window of 5 s.
const LONGEST: Duration = Duration::from_millis(500);
/// BBR's full-pipe test: the pipe is full if three rounds in a row bring less than 25 % more.
const GROWTH: f64 = 1.25;
const ROUNDS: u32 = 3;
/// The beginning is the bins before the first one of at least this part of the mean from there on: if the rate doubles,
/// only the last two bins remain.
const GROWN: f64 = 0.6;
/// The most bins that are kept: the window holds 250 of the shortest.
const MOST: usize = 512;
/// Bins after slow start from which a bound is computed.
pub(super) const ENOUGH: usize = 4;
/// The bound is this many standard errors wide, because neighbouring bins are correlated.
const ERRORS: f64 = 3.0;
/// The bins' standard deviation counts as at least this part of their mean.
const LEAST_SPREAD: f64 = 0.05;

/// Measures a path's goodput. Rates are in bytes per second throughout.
#[derive(Clone, Default)]
pub(super) struct Gauge {
    /// When the first request left.
    start: Option<Time>,
    /// When the clock stopped.
    end: Option<Time>,
    bytes: u64,
    /// The length of a bin: the first request's time to its first byte, corrected upwards while bins in slow start stay
    /// empty. Zero before the first byte.
    width: Duration,
    /// When the current bin began; `None` while the first byte of a request is awaited.
    open: Option<Time>,
    /// Bytes in the current bin.
    filling: u64,
    bins: Vec<u64>,
    /// The highest rate of the full-pipe test.
    peak: f64,
    /// Bins in a row without growth.
    flat: u32,
    /// The first bin after slow start.
    steady: Option<usize>,
}

impl Gauge {
    /// Creates the gauge of a path in the middle of a request, whose round trip is known.
    pub(super) fn running(width: Duration, now: Time) -> Self {
        let width = width.clamp(SHORTEST, LONGEST);
        Self { start: Some(now), open: Some(now), width, ..Self::default() }
    }

    /// Records that a request leaves; the first one starts the clock.
    pub(super) fn sent(&mut self, now: Time) {
        self.start.get_or_insert(now);
        self.rest();
    }

    /// Records that nothing is owed: the time until the next request's first byte fills no bin.
    pub(super) fn rest(&mut self) {
        (self.open, self.filling) = (None, 0);
    }

    pub(super) fn add(&mut self, n: u64, now: Time) {
        let (Some(start), None) = (self.start, self.end) else { return };
        if self.width.is_zero() {
            self.width = now.since(start).clamp(SHORTEST, LONGEST);
        }
        self.advance(now);
        self.bytes += n;
        self.filling += n;
        self.open.get_or_insert(now);
    }

    /// Closes the bins that are over.
    pub(super) fn advance(&mut self, now: Time) {
        while let (Some(open), None) = (self.open, self.end) {
            if now.since(open) < self.width || self.bins.len() >= MOST {
                return;
            }
            self.open = Some(open + self.width);
            self.bins.push(std::mem::take(&mut self.filling));
            if self.bins.last() == Some(&0) && self.steady.is_none() && self.width < LONGEST {
                self.widen();
            } else {
                self.test_bin(self.bins.len() - 1);
            }
        }
    }

    /// Widens the bins after an empty one in slow start: the round trip is longer than it seemed.
    fn widen(&mut self) {
        // Pairs are joined, counted from the latest bin; an odd first one is dropped.
        self.bins = self.bins.rchunks_exact(2).rev().map(|p| p.iter().sum()).collect();
        self.width = (self.width * 2).min(LONGEST);
        (self.peak, self.flat, self.steady) = (0.0, 0, None);
        (0..self.bins.len()).for_each(|i| self.test_bin(i));
    }

    /// Applies the full-pipe test to bin `i`.
    fn test_bin(&mut self, i: usize) {
        if let Some(from) = self.steady {
            return self.recheck(from, i);
        }
        let rate = self.rate_of(i);
        if rate > self.peak * GROWTH {
            (self.peak, self.flat) = (rate, 0);
            return;
        }
        self.flat += 1;
        if self.flat >= ROUNDS {
            self.steady = Some(i + 1 - ROUNDS as usize);
        }
    }

    /// Returns to slow start if two bins are well above the steady mean: it was a pause, and the path still grows.
    fn recheck(&mut self, from: usize, i: usize) {
        let known = &self.bins[from..(i - 1).max(from)];
        let high = |i: usize| self.rate_of(i) >= GROWTH * self.mean(known);
        let grows = known.len() >= 2 && self.flat == ROUNDS && high(i) && high(i - 1);
        if grows && self.rate_of(i) >= self.peak * GROWTH {
            (self.steady, self.flat, self.peak) = (None, 0, self.rate_of(i));
        }
    }

    fn rate_of(&self, i: usize) -> f64 {
        self.bins.get(i).map_or(0.0, |n| *n as f64 / self.width.as_secs_f64())
    }

    fn mean(&self, bins: &[u64]) -> f64 {
        bins.iter().sum::<u64>() as f64 / bins.len().max(1) as f64 / self.width.as_secs_f64()
    }

    /// Stops the clock; only the first call counts.
    pub(super) fn close(&mut self, now: Time) {
        self.advance(now);
        self.end.get_or_insert(now);
    }

    pub(super) fn paused(&mut self, d: Duration) {
        if self.end.is_none() {
            self.start.iter_mut().chain(&mut self.open).for_each(|t| *t += d);
        }
    }

    /// The round trip, as far as it is known.
    pub(super) fn rtt(&self) -> Option<Duration> {
        (!self.width.is_zero()).then_some(self.width)
    }

    /// The time since the first request.
    pub(super) fn age(&self, now: Time) -> Option<Duration> {
        self.start.map(|t| self.end.unwrap_or(now).since(t))
    }

    /// All bytes over the time from the first request: the paper's rate.
    pub(super) fn overall(&self, now: Time) -> Option<f64> {
        // A clock that has not moved would make any rate infinite.
        let took = self.age(now)?.max(Duration::from_nanos(1));
        Some(self.bytes as f64 / took.as_secs_f64())
    }

    /// The number of bins after slow start.
    pub(super) fn steady_bins(&self) -> usize {
        self.steady.map_or(0, |from| self.bins.len() - from)
    }

    /// The rate that the path is expected to keep: the median bin after slow start. In slow start, the rate of the
    /// latest bins, at most one step of growth above the median bin.
    ///
    /// The median, not the mean: behind a lost packet, bins stay empty until it is sent again, and the next one holds
    /// what they lack. BBR loses most when its start overshoots, which says little about its rate later.
    pub(super) fn judged_rate(&self, now: Time) -> Option<f64> {
        match self.steady {
            Some(from) => Some(self.median(from)),
            None if self.bins.is_empty() => self.overall(now),
            None => Some(self.latest().min(GROWTH * self.median(self.grown_bins()))),
        }
    }

    /// The first bin that is not small compared with the mean of itself and those behind it.
    fn grown_bins(&self) -> usize {
        let high = |i: &usize| self.rate_of(*i) >= GROWN * self.mean(&self.bins[*i..]);
        (0..self.bins.len()).find(high).unwrap_or(0)
    }

    fn median(&self, from: usize) -> f64 {
        let mut bins = self.bins[from..].to_vec();
        bins.sort_unstable();
        let n = bins.len();
        self.mean(&bins[n.saturating_sub(1) / 2..(n / 2 + 1).min(n)])
    }

    /// The rate of the latest two bins, or of the latest if that is higher.
    pub(super) fn latest(&self) -> f64 {
        let from = self.bins.len().saturating_sub(2);
        let last = self.bins.last().map_or(0.0, |_| self.rate_of(self.bins.len() - 1));
        self.mean(&self.bins[from..]).max(last)
    }

    /// Bounds on the steady rate; `None` in slow start and shortly after.
    pub(super) fn bounds(&self) -> Option<(f64, f64)> {
        let steady = &self.bins[self.steady?..];
        if steady.len() < ENOUGH {
            return None;
        }
        let (mean, width) = (self.mean(steady), self.width.as_secs_f64());
        let square = |n: &u64| (*n as f64 / width - mean).powi(2);
        let variance = steady.iter().map(square).sum::<f64>() / (steady.len() - 1) as f64;
        let spread = variance.sqrt().max(LEAST_SPREAD * mean);
        let error = ERRORS * spread / (steady.len() as f64).sqrt();
        Some((mean - error, mean + error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(rates: &[u64], rtt: Duration) -> Gauge {
        let mut gauge = Gauge::default();
        gauge.sent(Time::ZERO);
        let mut now = Time::ZERO + rtt;
        for rate in rates {
            for _ in 0..4 {
                gauge.add(rate / 4, now);
                now += rtt / 4;
            }
        }
        gauge.close(now);
        gauge
    }

    #[test]
    fn slow_start_is_over_after_three_rounds_without_growth() {
        let rtt = Duration::from_millis(40);
        assert_eq!(fed(&[10, 20, 40, 80, 160].map(|k| k * 1000), rtt).steady_bins(), 0);
        let gauge = fed(&[10, 20, 40, 80, 80, 80, 80, 80].map(|k| k * 1000), rtt);
        assert_eq!(gauge.steady_bins(), 4);
        assert!((gauge.judged_rate(Time::ZERO).unwrap() - 2e6).abs() < 1e5);
        let (low, high) = gauge.bounds().unwrap();
        assert!(low > 1.8e6 && high < 2.2e6);
    }

    #[test]
    fn a_gap_and_its_backlog_do_not_change_the_rate() {
        let rtt = Duration::from_millis(40);
        let steady = [10, 20, 40, 80, 80, 80, 80, 20, 0, 180, 80, 80].map(|k| k * 1000);
        assert!((fed(&steady, rtt).judged_rate(Time::ZERO).unwrap() - 2e6).abs() < 1e5);
        // There is no steady part yet, and the gap has just been filled.
        let young = [10, 20, 40, 80, 80, 5, 155, 155].map(|k| k * 1000);
        let gauge = fed(&young, rtt);
        assert_eq!(gauge.steady_bins(), 0);
        let judged = gauge.judged_rate(Time::ZERO).unwrap();
        assert!(judged > 1.8e6 && judged < 2.6e6, "{judged}");
    }

    #[test]
    fn a_rate_that_doubles_is_judged_by_its_end() {
        let rtt = Duration::from_millis(40);
        let gauge = fed(&[10, 20, 40, 80, 160].map(|k| k * 1000), rtt);
        let judged = gauge.judged_rate(Time::ZERO).unwrap();
        assert!(judged > 0.9 * 4e6 && judged <= 4e6, "{judged}");
    }

    #[test]
    fn bins_widen_while_slow_start_leaves_them_empty() {
        // Bursts every 160 ms, and a first byte after 1 ms.
        let mut gauge = Gauge::default();
        gauge.sent(Time::ZERO);
        for round in 0..8u64 {
            gauge.add(1000 << round, Time::from_nanos(1_000_000 + round * 160_000_000));
        }
        assert_eq!(gauge.steady_bins(), 0);
        assert_eq!(gauge.rtt(), Some(Duration::from_millis(160)));
    }

    #[test]
    fn the_wait_for_a_further_request_fills_no_bin() {
        let mut gauge = fed(&[80_000; 8], Duration::from_millis(40));
        gauge.end = None;
        let before = gauge.judged_rate(Time::ZERO);
        let later = Time::ZERO + Duration::from_secs(3);
        gauge.sent(later);
        gauge.advance(later + Duration::from_secs(1));
        assert_eq!(gauge.judged_rate(later), before);
    }
}
