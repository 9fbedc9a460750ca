//! A fleet of streams at one rate, and what it says of it.

use super::{
    growth::Growth,
    search::Verdict,
    trend::{Asked, LEAST_GROWTH, Trend, pause, trends},
};
use crate::train::Flight;
use std::time::Duration;

/// Probes of a stream.
pub const STREAM: usize = 100;

/// Streams of a fleet.
const STREAMS: usize = 12;

/// A stream that lost so much ends its fleet: the rate is too high.
const HEAVY_LOSS: f64 = 0.15;

/// So does half of a fleet that lost this much.
const LIGHT_LOSS: f64 = 0.03;

/// Of the streams that say something so many agree in a verdict.
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
    /// One more stream, of probes of so many bits with this gap.
    pub fn add(&mut self, flight: &Flight, bits: f64, gap: Duration, receive_latency: Duration) {
        self.streams += 1;
        let lost = flight.lost();
        self.lossy += usize::from(lost >= LIGHT_LOSS);
        self.is_given_up |= lost >= HEAVY_LOSS || 2 * self.lossy >= STREAMS;
        self.rates.extend(rate(flight, bits, gap));
        self.growths.extend(Growth::of(flight, bits));
        self.hidden.push(flight.tally.hidden_rate().as_bps() as f64);
        let asked = Asked { gap, count: STREAM, receive_latency };
        for trend in trends(flight, asked) {
            match trend {
                Trend::Growing => self.growing += 1,
                Trend::None => self.even += 1,
                Trend::Unclear => {}
            }
        }
    }

    /// Whether no more streams are to come: those that are left could not change its word, if each says one thing.
    pub fn is_over(&self) -> bool {
        let left = STREAMS.saturating_sub(self.streams);
        let most = AGREE * (self.growing + self.even + left) as f64;
        let is_sure = |count: usize| 2 * count >= STREAMS && count as f64 >= most;
        self.is_given_up || left == 0 || is_sure(self.growing) || is_sure(self.even)
    }

    /// Whether no stream at all could be judged.
    pub fn is_mute(&self) -> bool {
        self.growing + self.even == 0
    }

    /// What it says; `None`: too few streams could be judged.
    pub fn verdict(&self) -> Option<Verdict> {
        let usable = self.growing + self.even;
        let agree = |count: usize| count as f64 >= AGREE * usable as f64;
        match () {
            () if self.is_given_up => Some(Verdict::Above),
            () if 2 * usable < STREAMS => None,
            () if agree(self.growing) => Some(Verdict::Above),
            () if agree(self.even) => Some(Verdict::Below),
            () => Some(Verdict::Grey),
        }
    }

    /// What all streams say together where few say anything by themselves: delays that grow in steps, at each of another's long
    /// packets, have one sign of growth and not the other.
    pub fn at_large(&self) -> Verdict {
        match self.growth() {
            Some(growth) if growth.slope >= LEAST_GROWTH => Verdict::Above,
            _ => Verdict::Grey,
        }
    }

    /// The rate at which its streams were really sent, bit/s.
    pub fn rate(&self) -> Option<f64> {
        mean(&self.rates)
    }

    /// How fast its streams' delays grew; `None`: too much was lost, the queue was full.
    pub fn growth(&self) -> Option<Growth> {
        Growth::mean(&self.growths).filter(|_| !self.is_given_up)
    }

    /// What was hidden in its streams, bit/s.
    pub fn hidden(&self) -> f64 {
        mean(&self.hidden).unwrap_or(0.0)
    }
}

fn mean(of: &[f64]) -> Option<f64> {
    (!of.is_empty()).then(|| of.iter().sum::<f64>() / of.len() as f64)
}

/// A stream's rate by its mean gap, without the sending host's pauses.
///
/// The public tool leaves out the longest gaps, a seventh of all: a probe of its that is late makes those behind it late.
/// Here it makes the next gap shorter, so that without the long ones the rate would seem higher than it was.
fn rate(flight: &Flight, bits: f64, gap: Duration) -> Option<f64> {
    let pause = pause(gap);
    let sent: Vec<_> = flight.sent.iter().flatten().collect();
    let gaps = sent.windows(2).map(|pair| pair[1].since(*pair[0]));
    let kept: Vec<f64> = gaps.filter(|gap| *gap <= pause).map(|gap| gap.as_secs_f64()).collect();
    let gap = mean(&kept).filter(|gap| *gap > 0.0)?;
    Some(bits / gap)
}
