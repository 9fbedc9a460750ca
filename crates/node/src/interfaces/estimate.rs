//! What an interface brings, from the traffic that goes by it anyway.

use std::{collections::VecDeque, time::Duration};
use thalweg_units::{ByteSize, Rate, Time};

/// Fewer bytes in a second are a program's chatting and say nothing of the interface.
const TELLING: u64 = 16 << 10;

/// Of what was sent and sent again this counts of the newest look: 1/8, as of round trips.
const GAIN: f64 = 0.125;

/// The best of so long counts: in single seconds the program or the server is the slower side.
const WINDOW: Duration = Duration::from_secs(30);

/// Passive estimates of one interface. Rates are lower bounds: nobody says that a program
/// wanted more than it got.
#[derive(Clone, Debug, Default)]
pub struct Estimate {
    down: Peak,
    up: Peak,
    rtt: Option<Duration>,
    loss: Option<f64>,
}

#[derive(Clone, Debug, Default)]
struct Peak(VecDeque<(Time, Rate)>);

impl Estimate {
    /// As it was when this was last kept; what comes counts more from the first sample on.
    pub(super) fn kept(down: Rate, up: Rate, rtt: Duration) -> Self {
        let peak = |rate: Rate| {
            Peak((rate > Rate::ZERO).then_some((Time::ZERO, rate)).into_iter().collect())
        };
        let rtt = (!rtt.is_zero()).then_some(rtt);
        Self { down: peak(down), up: peak(up), rtt, loss: None }
    }

    /// So many bytes came and went by it, over all connections, in the time `took` that ends
    /// at `now`.
    pub fn carried(&mut self, down: u64, up: u64, took: Duration, now: Time) {
        self.down.carried(down, took, now);
        self.up.carried(up, took, now);
    }

    /// A connection's round trip; smoothed by an eighth (RFC 6298 §2).
    pub fn round_trip(&mut self, rtt: Duration) {
        self.rtt = Some(self.rtt.map_or(rtt, |old| (old * 7 + rtt) / 8));
    }

    /// Of so many bytes that TCP sent it sent so many again.
    pub fn sent_again(&mut self, again: u64, all: u64) {
        if all >= TELLING {
            let share = (again as f64 / all as f64).min(1.0);
            self.loss = Some(self.loss.map_or(share, |old| old + (share - old) * GAIN));
        }
    }

    /// The share of sent bytes that were sent again, from 0 to 1; `None`: not known. Of what comes
    /// TCP does not tell the receiver.
    pub fn loss(&self) -> Option<f64> {
        self.loss
    }

    /// When the newest sample of a rate came.
    pub fn heard(&self) -> Option<Time> {
        self.down.newest().max(self.up.newest())
    }

    /// The rate to this host; zero: not known.
    pub fn down(&self) -> Rate {
        self.down.best()
    }

    /// The rate from this host; zero: not known.
    pub fn up(&self) -> Rate {
        self.up.best()
    }

    /// The round trip to whom connections went; zero: not known.
    pub fn rtt(&self) -> Duration {
        self.rtt.unwrap_or_default()
    }
}

impl Peak {
    /// What is old is forgotten only when there is something new.
    fn carried(&mut self, bytes: u64, took: Duration, now: Time) {
        if bytes < TELLING || took.is_zero() {
            return;
        }
        let rate = Rate::over(ByteSize::from_bytes(bytes), took);
        while self.0.front().is_some_and(|(at, _)| now.since(*at) > WINDOW) {
            self.0.pop_front();
        }
        // A smaller one before a greater one never counts again.
        while self.0.back().is_some_and(|(_, less)| *less <= rate) {
            self.0.pop_back();
        }
        self.0.push_back((now, rate));
    }

    fn newest(&self) -> Option<Time> {
        self.0.back().map(|(at, _)| *at)
    }

    fn best(&self) -> Rate {
        self.0.front().map_or(Rate::ZERO, |(_, rate)| *rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(s: u64) -> Time {
        Time::from_nanos(s * 1_000_000_000)
    }

    #[test]
    fn the_best_of_the_window_counts_and_outlives_silence() {
        let mut seen = Estimate::default();
        seen.carried(1_000_000, 0, SECOND, at(1));
        seen.carried(250_000, 0, SECOND, at(2));
        assert_eq!((seen.down(), seen.up()), (Rate::from_mbps(8.0), Rate::ZERO));
        seen.carried(1000, 1000, SECOND, at(100));
        assert_eq!(seen.down(), Rate::from_mbps(8.0), "chatting is no news");
        seen.carried(125_000, 0, SECOND, at(101));
        assert_eq!(seen.down(), Rate::from_mbps(1.0));
    }

    #[test]
    fn round_trips_are_smoothed() {
        let mut seen = Estimate::default();
        assert_eq!(seen.rtt(), Duration::ZERO);
        seen.round_trip(Duration::from_millis(80));
        seen.round_trip(Duration::from_millis(160));
        assert_eq!(seen.rtt(), Duration::from_millis(90));
    }
}
