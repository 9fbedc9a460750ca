//! How fast delays grow along streams that are faster than what is available, and what that says of it.
//!
//! A stream of rate R beside others' X through a queue of capacity C comes out at R·C/(R + X), so that its delays grow by
//! (R − A)/C of the time that passes, where A = C − X is what is available. The public tool has the middle of the range in which its
//! fleets' words lie; of a path that is mostly used and by long packets that is too high, by 40 % at 80 % of 10 Mbit/s: streams are
//! short against what comes by chance, and delays that neither grow nor shrink count as a rate that is below. The growth of all
//! streams that were above tells the same rate without that bias (as TOPP does, Melander, Björkman and Gunningberg, 2000).

use crate::train::{Flight, Passed};

/// How fast delays grew in a fleet's streams, or in one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// The rate at which they were sent, all the sender's pauses in it, bit/s: the mean.
    pub rate: f64,
    /// Seconds of delay in a second, the mean.
    pub slope: f64,
    /// So many streams.
    pub streams: usize,
}

impl Growth {
    /// A stream's, of probes of so many bits, by least squares; `None` where fewer than two times are known.
    pub fn of(flight: &Flight, bits: f64) -> Option<Self> {
        let passed: Vec<Passed> = flight.passed().collect();
        let (first, last) = (passed.first()?, passed.last()?);
        let at = |one: &Passed| one.sent.since(first.sent).as_secs_f64();
        let late = |one: &Passed| (one.delay() - first.delay()) as f64 * 1e-9;
        let mean =
            |of: &dyn Fn(&Passed) -> f64| passed.iter().map(of).sum::<f64>() / passed.len() as f64;
        let (middle, usual) = (mean(&at), mean(&late));
        let both = mean(&|one| (at(one) - middle) * (late(one) - usual));
        let square = mean(&|one| (at(one) - middle).powi(2));
        let rate = bits * (last.place - first.place) as f64 / at(last);
        (square > 0.0).then(|| Self { rate, slope: both / square, streams: 1 })
    }

    /// Of all of them; `None` without any.
    pub fn mean(all: &[Self]) -> Option<Self> {
        let streams: usize = all.iter().map(|one| one.streams).sum();
        let of = |value: fn(&Self) -> f64| {
            all.iter().map(|one| value(one) * one.streams as f64).sum::<f64>() / streams as f64
        };
        (streams > 0).then(|| Self {
            rate: of(|one| one.rate),
            slope: of(|one| one.slope),
            streams,
        })
    }

    /// What is available, bit/s, where they were faster than that, on a path of this capacity.
    pub fn available(&self, capacity: f64) -> f64 {
        self.rate - capacity * self.slope
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::Stamp;
    use thalweg_units::Time;

    #[test]
    fn growth_tells_what_is_available() {
        let sent = |i: u64| Time::from_nanos(i * 100_000);
        let came = |i: u64| Some(Stamp::from_unix_nanos(i * 120_000 + 5_000_000));
        let mut flight = Flight {
            sent: (0..100).map(|i| Some(sent(i))).collect(),
            arrived: (0..100).map(came).collect(),
            ..Flight::default()
        };
        let of = |flight: &Flight| Growth::of(flight, 1200.0);
        let all = of(&flight).unwrap();
        assert!((all.slope - 0.2).abs() < 1e-9 && (all.rate - 12e6).abs() < 1e-3, "{all:?}");
        // 12 Mbit/s that come out at 10 have an idle path of 10 before them.
        assert!((all.available(10e6) - 10e6).abs() < 1e-3);
        flight.arrived[20..60].fill(None);
        let some = of(&flight).unwrap();
        assert!((some.slope - 0.2).abs() < 1e-9 && (some.rate - 12e6).abs() < 1e-3, "{some:?}");
        flight.arrived[1..].fill(None);
        assert_eq!(of(&flight), None);
        let one = |rate, slope, streams| Growth { rate, slope, streams };
        let mean = Growth::mean(&[one(14e6, 1.0, 1), one(6e6, 0.4, 3)]).unwrap();
        assert!((mean.available(10e6) - 2.5e6).abs() < 1e-3 && mean.streams == 4);
        assert_eq!(Growth::mean(&[]), None);
    }
}
