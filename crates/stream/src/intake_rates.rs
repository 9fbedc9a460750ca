//! The rates at which a stream arrives at a node, over the last seconds. Pure.

use std::{collections::VecDeque, time::Duration};
use thalweg_units::Time;
use thalweg_wire::stream::leg::{CLASSES, MAX_TRACKS};

/// The averaging window: at least two groups of pictures, which usually last half a second to two seconds.
const WINDOW: Duration = Duration::from_secs(4);

/// Bytes by track and class.
type Bytes = [[u64; CLASSES]; MAX_TRACKS];

/// The incoming rates of a stream, by track and class.
#[derive(Clone, Debug, Default)]
pub struct IntakeRates {
    /// One entry a second, the newest last.
    seconds: VecDeque<(Time, Box<Bytes>)>,
}

impl IntakeRates {
    /// Counts a frame.
    pub fn add(&mut self, now: Time, track: u8, class: u8, bytes: usize) {
        let is_new = |(at, _): &(Time, _)| now.since(*at) >= Duration::from_secs(1);
        if self.seconds.back().is_none_or(is_new) {
            self.seconds.push_back((now, Box::default()));
        }
        let newest = self.seconds.back_mut();
        let by_class = newest.and_then(|(_, all)| all.get_mut(usize::from(track)));
        if let Some(sum) = by_class.and_then(|all| all.get_mut(usize::from(class))) {
            *sum += bytes as u64;
        }
        while self.seconds.front().is_some_and(|(at, _)| now.since(*at) > WINDOW) {
            self.seconds.pop_front();
        }
    }

    /// The length of the window so far.
    pub fn span(&self, now: Time) -> Duration {
        self.seconds.front().map_or(Duration::ZERO, |(at, _)| now.since(*at))
    }

    /// The rates of a track by class, bit/s.
    pub fn rates(&self, now: Time, track: u8) -> [u64; CLASSES] {
        let seconds = self.span(now).as_secs_f64().max(1.0);
        let mut rates = [0; CLASSES];
        for (_, all) in &self.seconds {
            let of_track = all.get(usize::from(track)).into_iter().flatten();
            for (rate, bytes) in rates.iter_mut().zip(of_track) {
                *rate += bytes;
            }
        }
        rates.map(|bytes| (bytes as f64 * 8.0 / seconds) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn intake_is_the_mean_of_the_last_seconds() {
        let mut intake = IntakeRates::default();
        for ms in (0..20_000).step_by(100) {
            intake.add(at(ms), 1, 2, if ms < 10_000 { 1250 } else { 2500 });
        }
        let rates = intake.rates(at(20_000), 1);
        assert!((190_000..=210_000).contains(&rates[2]), "{rates:?}");
        assert_eq!(
            (rates[3], intake.rates(at(20_000), 0), intake.rates(at(1), 99)),
            (0, [0; 5], [0; 5])
        );
    }
}
