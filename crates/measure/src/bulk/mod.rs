//! Detects when a bulk TCP flow is past slow start and steady, so that a test can end early (pure).
//!
//! UKAIRO measures a leg as iperf does, "until each path is likely to have reached steady-state" (§2.1, §3.2.1: 5 s).
//! Most paths are steady long before. The test uses what the *receiver's* program gets, because a deep queue hides the
//! growth of the sender's window there, and because the sender's reports need not be trusted.
//!
//! Time is cut into bins of 1.5 round trips (100 to 300 ms). The last eight are *steady* if
//!
//! 1. their second half is at most 3 % faster and 10 % slower than the first: this excludes slow start (which doubles
//!    in one round trip) and a policer whose bucket becomes empty;
//! 2. half their interquartile range is at most 15 % of the median: this excludes traffic that switches on and off;
//! 3. mean and median agree within a tenth: this excludes a stall and the jump after it (a lost segment holds back all
//!    later ones, which then arrive at once).
//!
//! The rate is the mean of these bins, so nothing before them counts, in particular not slow start. A flow that does
//! not become steady runs to a limit, and counts from where it first reached 70 % of its later rate.
//!
//! Compared with the mean of the same flows from 2 to 10 s (simulated Cubic, Reno, BBR; 2 to 200 Mbit/s, 10 to 200 ms,
//! queues of 0.2 to 5 bandwidth-delay products), the error is 1 % in the median, 11 % at the 90th percentile and 21 %
//! at the 95th; for a test from 1 to 5 s it is 1, 17 and 22 %. A test takes 2.1 s in the median and 2.5 s in the mean,
//! half of 5 s; over 40 ms it takes about 1.2 s. The tests assert this.
//!
//! Two cases are not detected: a policer whose bucket outlasts the test (16 MB at 100 Mbit/s: the burst's rate is taken
//! for the path's), and cross traffic that comes and goes over seconds (an error of a third).

#[cfg(test)]
mod flows;
#[cfg(test)]
mod tests;

use crate::Bound;
use std::time::Duration;
use thalweg_units::ByteSize;

/// The shortest bin: within less time the network delivers in bursts.
const MIN_BIN: Duration = Duration::from_millis(100);

/// The longest bin: eight of them, and slow start before them, must fit into 5 s.
const MAX_BIN: Duration = Duration::from_millis(300);

/// The number of bins that are judged together.
const WINDOW: usize = 8;

/// The maximum relative difference of mean and median, and the maximum by which the second half is slower than the
/// first.
const DRIFT: f64 = 0.1;

/// The maximum by which the second half is faster than the first: after its losses at the end of slow start a flow
/// recovers by little more than this, and would otherwise be accepted too soon.
const GROWTH: f64 = 0.03;

/// The maximum of half the interquartile range, relative to the median.
const SPREAD: f64 = 0.15;

/// If a test reaches a limit, slow start counts as over at this share of the later rate.
const REACHED: f64 = 0.7;

/// The maximum number of bins: ten times as many as 5 s have.
const MOST_BINS: usize = 512;

/// The limits of one test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkLimits {
    /// The maximum duration; UKAIRO §3.2.1: 5 s.
    pub time: Duration,
    /// The maximum number of bytes.
    pub bytes: ByteSize,
}

/// Why a test is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkEnd {
    /// The rate is steady.
    Steady,
    /// [`BulkLimits::time`].
    Time,
    /// [`BulkLimits::bytes`].
    Bytes,
    /// The sender ended first.
    Sender,
}

/// The result of a test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BulkResult {
    /// The rate after slow start, bit/s.
    pub bps: f64,
    /// Half the interquartile range of its bins, bit/s; `None`: fewer than two bins.
    pub spread_bps: Option<f64>,
    /// Why it ended.
    pub end: BulkEnd,
    /// Whether the rate is the leg's, or only a lower bound. It is a lower bound if the byte limit or the sender ended
    /// the test before the rate was steady, or if slow start took so much of the time that fewer than eight bins follow
    /// it. A rate that kept changing until the time limit is the leg's: the mean, as UKAIRO measures it (§3.2.1).
    pub bound: Bound,
    /// All bytes that arrived, including those of slow start.
    pub bytes: u64,
    /// The time from the first byte to the last sample.
    pub took: Duration,
}

impl BulkResult {
    /// Whether the rate became steady.
    pub fn is_steady(&self) -> bool {
        self.end == BulkEnd::Steady
    }
}

/// Whether the test goes on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BulkStatus {
    /// Take more samples.
    GoOn,
    /// The test is over.
    Done(BulkResult),
}

/// A period of time, and the bits that arrived in it.
#[derive(Clone, Copy, Debug)]
struct Bin {
    seconds: f64,
    bits: f64,
}

impl Bin {
    fn bps(&self) -> f64 {
        self.bits / self.seconds
    }
}

/// Judges one bulk flow from samples at its receiver.
#[derive(Clone, Debug)]
pub struct Bulk {
    limits: BulkLimits,
    width: Duration,
    bins: Vec<Bin>,
    /// Time and bytes at the beginning of the open bin.
    begun: (Duration, u64),
    /// Time and bytes of the newest sample.
    last: (Duration, u64),
}

impl Bulk {
    /// Creates a test over a path with this minimum round trip (zero: unknown).
    pub fn new(limits: BulkLimits, round_trip: Duration) -> Self {
        let width = round_trip.min(MAX_BIN).mul_f64(1.5).clamp(MIN_BIN, MAX_BIN);
        let start = (Duration::ZERO, 0);
        Self { limits, width, bins: Vec::new(), begun: start, last: start }
    }

    /// The maximum interval between samples, whether bytes arrived or not.
    pub fn width(&self) -> Duration {
        self.width
    }

    /// Records that `bytes` in total had arrived `at` after the first of them.
    ///
    /// A time or count that is lower than the previous one is replaced by that one.
    pub fn sample(&mut self, at: Duration, bytes: u64) -> BulkStatus {
        self.last = (at.max(self.last.0), bytes.max(self.last.1));
        let (now, all) = self.last;
        let (then, before) = self.begun;
        if now.saturating_sub(then) >= self.width && self.bins.len() < MOST_BINS {
            let bits = all.saturating_sub(before) as f64 * 8.0;
            self.bins.push(Bin { seconds: (now - then).as_secs_f64(), bits });
            self.begun = self.last;
            if let Some(window) = self.steady() {
                return BulkStatus::Done(self.found(window, BulkEnd::Steady));
            }
        }
        match self.limit() {
            Some(end) => self.finish(end).map_or(BulkStatus::GoOn, BulkStatus::Done),
            None => BulkStatus::GoOn,
        }
    }

    /// The result if nothing more arrives; `None`: nothing arrived.
    pub fn finish(&self, end: BulkEnd) -> Option<BulkResult> {
        let (took, bytes) = self.last;
        if bytes == 0 {
            return None;
        }
        if self.bins.is_empty() {
            // Everything arrived at once: the rate is a low guess.
            let seconds = took.max(Duration::from_millis(1)).as_secs_f64();
            let bps = bytes as f64 * 8.0 / seconds;
            let bound = Bound::AtLeast;
            return Some(BulkResult { bps, spread_bps: None, end, bound, bytes, took });
        }
        Some(self.found(self.after_slow_start(), end))
    }

    /// The result at this end if the other end judges the flow and has just ended it; `None`: nothing moved. If the
    /// other end found the rate steady, this is the rate over the same length of time here, up to the newest of
    /// `samples`, so that both ends report on the same bytes, whether those arrived steadily here or not. `samples` are
    /// all that were taken, in order.
    pub fn beside(&self, samples: &[(Duration, u64)], is_steady: bool) -> Option<BulkResult> {
        let end = match self.steady() {
            Some(_) if is_steady => BulkEnd::Steady,
            _ => self.limit().unwrap_or(BulkEnd::Sender),
        };
        let found = self.finish(end)?;
        let bps = is_steady.then(|| over_last(samples, self.width * WINDOW as u32)).flatten();
        Some(bps.map_or(found, |bps| BulkResult { bps, ..found }))
    }

    fn limit(&self) -> Option<BulkEnd> {
        let (now, all) = self.last;
        match () {
            () if all >= self.limits.bytes.as_bytes() => Some(BulkEnd::Bytes),
            () if now >= self.limits.time => Some(BulkEnd::Time),
            () => None,
        }
    }

    /// The last eight bins, if they are steady. The very first bin is never among them.
    fn steady(&self) -> Option<&[Bin]> {
        let window = self.bins.get(1..)?;
        let window = window.get(window.len().checked_sub(WINDOW)?..)?;
        let (early, late) = window.split_at(WINDOW / 2);
        let rates = sorted(window);
        let median = quantile(&rates, 0.5);
        let (first, second) = (mean(early), mean(late));
        let level = second <= first * (1.0 + GROWTH) && second >= first * (1.0 - DRIFT);
        let narrow = half_width(&rates) <= SPREAD * median;
        let even = (mean(window) - median).abs() <= DRIFT * median;
        (median > 0.0 && level && narrow && even).then_some(window)
    }

    /// The bins after the flow first reached most of the rate of its second half.
    fn after_slow_start(&self) -> &[Bin] {
        let kept = quantile(&sorted(&self.bins[self.bins.len() / 2..]), 0.5);
        let reached = self.bins.iter().position(|bin| bin.bps() >= REACHED * kept);
        // The bin in which it got there is partly slow start; it counts only if it is the last.
        let first = reached.map_or(0, |i| i + 1).min(self.bins.len() - 1);
        &self.bins[first..]
    }

    fn found(&self, counted: &[Bin], end: BulkEnd) -> BulkResult {
        let rates = sorted(counted);
        let spread_bps = (rates.len() > 1).then(|| half_width(&rates));
        let (took, bytes) = self.last;
        let bound = match end {
            BulkEnd::Steady => Bound::Exact,
            BulkEnd::Time if counted.len() >= WINDOW => Bound::Exact,
            BulkEnd::Time | BulkEnd::Bytes | BulkEnd::Sender => Bound::AtLeast,
        };
        BulkResult { bps: mean(counted), spread_bps, end, bound, bytes, took }
    }
}

/// The rate over the last `time`, bit/s; `None` if the samples do not cover it.
fn over_last(samples: &[(Duration, u64)], time: Duration) -> Option<f64> {
    let (end, all) = *samples.last()?;
    let begin = end.checked_sub(time)?;
    let (begin, before) = *samples.iter().rfind(|(at, _)| *at <= begin)?;
    let seconds = (end - begin).as_secs_f64();
    (seconds > 0.0).then(|| all.saturating_sub(before) as f64 * 8.0 / seconds)
}

/// Bits over time, not the mean of rates: a late sample makes a longer bin.
fn mean(bins: &[Bin]) -> f64 {
    let total = |part: fn(&Bin) -> f64| bins.iter().map(part).sum::<f64>();
    total(|b| b.bits) / total(|b| b.seconds)
}

fn sorted(bins: &[Bin]) -> Vec<f64> {
    let mut rates: Vec<f64> = bins.iter().map(Bin::bps).collect();
    rates.sort_by(f64::total_cmp);
    rates
}

fn half_width(sorted: &[f64]) -> f64 {
    (quantile(sorted, 0.75) - quantile(sorted, 0.25)) / 2.0
}

/// The quantile, interpolated linearly (Hyndman and Fan's type 7); 0 for an empty list.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let place = q * sorted.len().saturating_sub(1) as f64;
    let (low, high) = (place.floor() as usize, place.ceil() as usize);
    match (sorted.get(low), sorted.get(high)) {
        (Some(a), Some(b)) => a + (b - a) * (place - place.floor()),
        _ => 0.0,
    }
}
