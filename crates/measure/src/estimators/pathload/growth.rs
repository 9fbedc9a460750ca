//! The growth of delays along streams that are faster than the available bandwidth, and the bandwidth that follows from
//! it.
//!
//! A stream of rate R beside cross traffic of rate X through a queue of capacity C leaves it at R·C/(R + X), so that
//! its delays grow by (R − A)/C of the elapsed time, where A = C − X is the available bandwidth (as in TOPP: Melander,
//! Björkman and Gunningberg, 2000). C is the rate at which the first burst arrived, unless a shaper lets bursts pass,
//! or the narrowest link is not the one with the least available bandwidth; then the line through fleets at several
//! rates gives C. The line is not always used, because queues that run empty at times bend it: beside bursty traffic
//! its error is twice that of the burst's rate.
//!
//! The public tool uses the middle of the range that its fleets leave. Where much is used, by long packets, that is too
//! high, by a third at 80 % of 10 Mbit/s: streams are short compared with random variations, and delays that neither
//! grow nor shrink count as a rate below. The value from growth is a few percent too low (`tests.rs` says by how much).
//! It is worse than the middle if packets cost a link time in addition to their bytes, as on radio, and if the path has
//! no queue or several. Therefore a value that is not between half of the range's lower end and its upper end is
//! rejected.

use super::segment::Segment;

/// The minimum difference of the fleets' slopes for a line.
const MIN_SLOPE_DIFFERENCE: f64 = 0.1;

/// Fleets are weighted by their slopes up to this one. Fleets that were hardly above the available bandwidth were
/// partly selected by chance, and the line bends there.
const MAX_WEIGHTED_SLOPE: f64 = 0.1;

/// If the line's capacity differs from the burst's rate by this factor, it replaces that rate.
const MAX_RATIO: f64 = 2.0;

/// The growth of delays in a segment of a stream, or the mean of many segments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// The mean rate at which it was sent, bit/s.
    pub rate: f64,
    /// The mean growth, seconds of delay per second.
    pub slope: f64,
    /// The mean rate of hidden traffic, bit/s: it travelled with the probes, and would have been cross traffic
    /// otherwise.
    pub hidden: f64,
    /// The number of packets.
    pub packets: f64,
}

impl Growth {
    /// The growth in a segment of probes of `bits` bits, by least squares; `None`: fewer than two times are known.
    pub fn of(segment: &Segment, bits: f64, hidden: f64) -> Option<Self> {
        let slope = line(segment.delays().iter().map(|(at, late)| (*at, *late, 1.0)))?.0;
        let rate = bits / segment.gap()?;
        Some(Self { rate, slope, hidden, packets: segment.packets() as f64 })
    }

    /// The mean, weighted by packets; `None`: there is none.
    pub fn mean(all: &[Self]) -> Option<Self> {
        let packets: f64 = all.iter().map(|one| one.packets).sum();
        let of = |value: fn(&Self) -> f64| {
            all.iter().map(|one| value(one) * one.packets).sum::<f64>() / packets
        };
        let [rate, slope, hidden] = [of(|one| one.rate), of(|one| one.slope), of(|one| one.hidden)];
        (packets > 0.0).then_some(Self { rate, slope, hidden, packets })
    }
}

/// The available bandwidth and the riders' part of it, bit/s, from fleets that were faster, on a path where a burst
/// arrived at rate `burst`; `None`: there is no fleet.
pub fn available(above: &[Growth], burst: f64) -> Option<(f64, f64)> {
    let weighty = |of: &Growth| Growth {
        packets: of.packets * of.slope.clamp(0.0, MAX_WEIGHTED_SLOPE),
        ..*of
    };
    let above: Vec<Growth> = above.iter().map(weighty).collect();
    let mean = Growth::mean(&above)?;
    let slopes = above.iter().map(|one| one.slope);
    let apart = slopes.clone().fold(0.0, f64::max) - slopes.fold(f64::MAX, f64::min);
    let points = above.iter().map(|one| (one.slope, one.rate, one.packets));
    let by_line = (apart >= MIN_SLOPE_DIFFERENCE).then(|| line(points)).flatten();
    let is_other =
        |rate: &f64| *rate > 0.0 && !(burst / MAX_RATIO..=burst * MAX_RATIO).contains(rate);
    let capacity = by_line.map(|(capacity, _)| capacity).filter(is_other);
    Some((mean.rate - capacity.unwrap_or(burst) * mean.slope, mean.hidden))
}

/// The line through points (x, y, weight), by least squares: its slope, and y at 0; `None`: all x are the same.
fn line(points: impl Iterator<Item = (f64, f64, f64)> + Clone) -> Option<(f64, f64)> {
    let sum = |of: &dyn Fn((f64, f64, f64)) -> f64| points.clone().map(of).sum::<f64>();
    let all = sum(&|(_, _, weight)| weight);
    let [x, y] = [sum(&|(x, _, weight)| weight * x) / all, sum(&|(_, y, weight)| weight * y) / all];
    let both = sum(&|(a, b, weight)| weight * (a - x) * (b - y));
    let square = sum(&|(a, _, weight)| weight * (a - x).powi(2));
    (square > 0.0).then(|| (both / square, y - both / square * x))
}

#[cfg(test)]
mod tests {
    use super::{
        super::segment::{RequestedStream, usable},
        *,
    };
    use crate::train::{Flight, Stamp};
    use std::time::Duration;
    use thalweg_units::Time;

    /// The growth in a stream that is sent at 12 Mbit/s and arrives at 10.
    fn growths(change: impl Fn(&mut Flight)) -> Vec<Growth> {
        let sent = |i: u64| Time::from_nanos(i * 100_000);
        let came = |i: u64| Some(Stamp::from_unix_nanos(i * 120_000 + 5_000_000));
        let mut flight = Flight {
            sent: (0..100).map(|i| Some(sent(i))).collect(),
            arrived: (0..100).map(came).collect(),
            ..Flight::default()
        };
        change(&mut flight);
        let us = Duration::from_micros;
        let asked = RequestedStream { gap: us(100), count: 100, receive_latency: us(1) };
        usable(&flight, asked).iter().filter_map(|one| Growth::of(one, 1200.0, 3e6)).collect()
    }

    fn near(found: f64, wanted: f64) -> bool {
        (found / wanted - 1.0).abs() < 1e-6
    }

    #[test]
    fn growth_excludes_pauses_and_ignores_losses() {
        let is_it = |of: &Growth| near(of.slope, 0.2) && near(of.rate, 12e6);
        let all = growths(|_| ());
        assert!(is_it(&all[0]) && near(all[0].packets, 100.0), "{all:?}");
        let some = growths(|flight| flight.arrived[20..60].fill(None));
        assert!(is_it(&some[0]) && near(some[0].packets, 60.0), "{some:?}");
        // The queue ran empty meanwhile.
        let parts = growths(|flight| {
            let later = Duration::from_millis(50);
            flight.sent[50..].iter_mut().flatten().for_each(|at| *at += later);
            flight.arrived[50..]
                .iter_mut()
                .flatten()
                .for_each(|at| *at = *at + (later - Duration::from_millis(1)));
        });
        assert!(parts.len() == 2 && parts.iter().all(is_it), "{parts:?}");
        assert!(growths(|flight| flight.arrived[1..].fill(None)).is_empty());
    }

    #[test]
    fn fleets_at_several_rates_give_a_better_capacity_than_a_burst() {
        let one = |rate, slope| Growth { rate, slope, hidden: 1e6, packets: 100.0 };
        // A shaper of 100 Mbit/s that lets a burst pass at 1,000.
        let (found, hidden) = available(&[one(110e6, 0.1), one(200e6, 1.0)], 1e9).unwrap();
        assert!(near(found, 100e6) && near(hidden, 1e6), "{found}");
        // The slopes are too close to each other for a line.
        let (found, _) = available(&[one(12e6, 0.2), one(11.8e6, 0.21)], 10e6).unwrap();
        assert!(near(found, 9.85e6), "{found}");
        assert_eq!(available(&[], 10e6), None);
    }
}
