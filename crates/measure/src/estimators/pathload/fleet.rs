//! A fleet of streams at one rate, and its verdict on that rate.

use super::{
    growth::Growth,
    search::RateVerdict,
    segment::{RequestedStream, pause, usable},
    trend::{LEAST_GROWTH, Trend, trend},
};
use crate::train::Flight;
use std::time::Duration;

/// Probes per stream.
pub const STREAM: usize = 100;

/// Streams per fleet.
const STREAMS: usize = 12;

/// A stream with this loss ends its fleet: the rate is too high.
const HEAVY_LOSS: f64 = 0.15;

/// So does this loss in half of the streams.
const LIGHT_LOSS: f64 = 0.03;

/// The number of streams with growing delays that refuse a rate early, and without that accept it early.
const EARLY_GROWING: usize = 3;
const EARLY_EVEN: usize = 4;

/// A rate is refused early if so many streams have not accepted it.
const EARLY_STREAMS: usize = 6;

/// The share of the conclusive streams that must agree on a verdict.
const AGREE: f64 = 0.6;

/// The streams so far.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    streams: usize,
    growing: usize,
    even: usize,
    lossy: usize,
    is_given_up: bool,
    rates: Vec<f64>,
    hidden: Vec<f64>,
    growths: Vec<Growth>,
}

impl Fleet {
    /// Adds a stream of probes of `bits` bits with this gap.
    pub fn add(&mut self, flight: &Flight, bits: f64, gap: Duration, receive_latency: Duration) {
        self.streams += 1;
        let lost = flight.loss_share();
        self.lossy += usize::from(lost >= LIGHT_LOSS);
        self.is_given_up |= lost >= HEAVY_LOSS || 2 * self.lossy >= STREAMS;
        self.rates.extend(rate(flight, bits, gap));
        let hidden = flight.tally.hidden_rate().as_bps() as f64;
        self.hidden.push(hidden);
        for segment in usable(flight, RequestedStream { gap, count: STREAM, receive_latency }) {
            match trend(&segment, gap) {
                Trend::Growing => self.growing += 1,
                Trend::None => self.even += 1,
                Trend::Unclear => {}
            }
            // Delays do not grow where the queue is full.
            let is_whole = lost < LIGHT_LOSS;
            self.growths.extend(Growth::of(&segment, bits, hidden).filter(|_| is_whole));
        }
    }

    /// Whether the fleet is over: the remaining streams could not change its verdict, if each gives one result.
    pub fn is_over(&self) -> bool {
        let left = STREAMS.saturating_sub(self.streams);
        let most = AGREE * (self.growing + self.even + left) as f64;
        let is_sure = |count: usize| 2 * count >= STREAMS && count as f64 >= most;
        self.is_given_up || left == 0 || is_sure(self.growing) || is_sure(self.even)
    }

    /// The segments of streams without growing delays.
    pub const fn even(&self) -> usize {
        self.even
    }

    /// The verdict on one rate from fewer streams than a fleet has: each further stream of a rate that is not available
    /// harms other traffic, and a wrong verdict costs no more than another test. `None`: more streams are needed.
    pub fn early_verdict(&self) -> Option<RateVerdict> {
        let is_doubtful = self.streams >= EARLY_STREAMS && 2 * self.even <= self.streams;
        match () {
            () if self.growing >= EARLY_GROWING && self.growing >= self.even => {
                Some(RateVerdict::Above)
            }
            () if self.is_given_up || is_doubtful => Some(RateVerdict::Above),
            () if self.even >= EARLY_EVEN && self.growing == 0 => Some(RateVerdict::Below),
            () => None,
        }
    }

    /// The verdict; `None`: too few streams were conclusive.
    pub fn verdict(&self) -> Option<RateVerdict> {
        let usable = self.growing + self.even;
        let agree = |count: usize| count as f64 >= AGREE * usable as f64;
        match () {
            () if self.is_given_up => Some(RateVerdict::Above),
            () if 2 * usable < STREAMS => None,
            () if agree(self.growing) => Some(RateVerdict::Above),
            () if agree(self.even) => Some(RateVerdict::Below),
            () => Some(RateVerdict::Grey),
        }
    }

    /// The verdict of all streams together, if few are conclusive by themselves: delays that grow in steps, at each
    /// long packet of other traffic, pass one test of growth and not the other. `None`: there is nothing to judge.
    pub fn at_large(&self) -> Option<RateVerdict> {
        let grows = self.growth().is_some_and(|growth| growth.slope >= LEAST_GROWTH);
        match (grows, self.growing + self.even) {
            (true, _) => Some(RateVerdict::Above),
            (false, 0) => None,
            (false, _) => Some(RateVerdict::Grey),
        }
    }

    /// The mean rate at which the streams were really sent, bit/s.
    pub fn rate(&self) -> Option<f64> {
        mean(&self.rates)
    }

    /// The mean growth of the streams' delays; `None`: no stream arrived with few enough losses.
    pub fn growth(&self) -> Option<Growth> {
        Growth::mean(&self.growths)
    }

    /// The traffic that was hidden in the streams, bit/s.
    pub fn hidden(&self) -> f64 {
        mean(&self.hidden).unwrap_or(0.0)
    }
}

fn mean(of: &[f64]) -> Option<f64> {
    (!of.is_empty()).then(|| of.iter().sum::<f64>() / of.len() as f64)
}

/// A stream's rate from its mean gap, without the sending host's pauses.
///
/// The public tool leaves out the longest gaps, a seventh of all: there a late probe makes the following ones late,
/// too. Here a late probe makes the next gap shorter, so that without the long gaps the rate would seem higher than it
/// was.
fn rate(flight: &Flight, bits: f64, gap: Duration) -> Option<f64> {
    let pause = pause(gap);
    let sent: Vec<_> = flight.sent.iter().flatten().collect();
    let gaps = sent.windows(2).map(|pair| pair[1].since(*pair[0]));
    let kept: Vec<f64> = gaps.filter(|gap| *gap <= pause).map(|gap| gap.as_secs_f64()).collect();
    let gap = mean(&kept).filter(|gap| *gap > 0.0)?;
    Some(bits / gap)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::Stamp;
    use thalweg_units::Time;

    const GAP: Duration = Duration::from_micros(100);

    /// Twelve streams with these delays, µs; the probes for which `is_lost` is true are lost.
    fn fleet(delay: impl Fn(u64) -> u64, is_lost: impl Fn(u64) -> bool) -> Fleet {
        let arrived = (0..100).map(|i| {
            (!is_lost(i)).then(|| Stamp::from_unix_nanos(i * 100_000 + 1000 * (5000 + delay(i))))
        });
        let sent = (0..100).map(|i| Some(Time::from_nanos(i * 100_000))).collect();
        let flight = Flight { sent, arrived: arrived.collect(), ..Flight::default() };
        let mut fleet = Fleet::default();
        (0..STREAMS).for_each(|_| fleet.add(&flight, 1200.0, GAP, Duration::from_micros(1)));
        fleet
    }

    #[test]
    fn inconclusive_streams_are_judged_together() {
        // A step at every 34th packet: most groups have the same median as the previous one.
        let steps = fleet(|i| i / 34 * 500, |_| false);
        assert_eq!((steps.verdict(), steps.at_large()), (None, Some(RateVerdict::Above)));
        let none = fleet(|i| i * 3, |i| i % 3 > 0);
        assert!(none.is_given_up && none.verdict() == Some(RateVerdict::Above));
        assert_eq!(Fleet::default().at_large(), None);
    }

    #[test]
    fn streams_that_fill_the_queue_have_no_growth() {
        let full = fleet(|i| i.min(50) * 20, |i| i > 50 && i % 10 == 0);
        assert_eq!((full.growth(), full.verdict()), (None, Some(RateVerdict::Above)));
        assert!(fleet(|i| i * 20, |_| false).growth().is_some());
    }
}
