//! A link through relays: the path beyond its first relay.
//!
//! TCP's counters of such a link describe the path to the first relay only. That relay accepts as much as its buffers
//! hold, megabytes, so that a connection to it seems fast and empty while everything waits there. Therefore the
//! acknowledgements of the far end count: they give the link's rate, and how much may be in flight on it: twice what
//! arrives in a round trip, so that it grows as long as it is too little, and no long queue stands at the relay.

use std::{collections::VecDeque, time::Duration};
use thalweg_units::{ByteSize, Rate, Time};

/// Bytes that may be in flight before anything is known, and the minimum later. A chunk beyond what may be in flight
/// waits, for this link or another.
const MIN_WINDOW: u64 = 256 << 10;

/// The best of this many rounds, and of this many answers, counts, so that a pause of the application does not make the
/// link look slow.
const ROUNDS: usize = 8;

/// The minimum duration of a round: acknowledgements come in bursts.
const LEAST_ROUND: Duration = Duration::from_millis(20);

/// What is known of a link beyond its first relay.
#[derive(Clone, Debug)]
pub struct RelayedPath {
    rtt: Duration,
    /// The round trips of the last probes that were sent while nothing was in flight.
    answers: VecDeque<Duration>,
    /// When this round began.
    began: Option<Time>,
    /// Bytes that arrived in this round.
    arrived: u64,
    /// Whether as much was in flight in this round as may be.
    was_full: bool,
    /// The rates of rounds in which the link was full, or which were faster than those.
    rounds: VecDeque<Rate>,
}

impl RelayedPath {
    /// `took`: how long the far end took for its first answer; `own`: TCP's round trip to the first relay, which is
    /// part of it.
    pub fn new(took: Duration, own: Duration) -> Self {
        let rtt = took.saturating_sub(own);
        let (answers, rounds) = (VecDeque::from([rtt]), VecDeque::new());
        Self { rtt, answers, began: None, arrived: 0, was_full: false, rounds }
    }

    /// Records another answer. The shortest counts, because longer ones waited somewhere. Of the probes that were sent
    /// while nothing was in flight it is the shortest of the last `ROUNDS`, because paths may become longer. If
    /// something was in flight (`waited`), a longer answer does not count: what is in flight depends on the round trip,
    /// and would lengthen it, so that both would grow for ever.
    pub fn record_answer(&mut self, took: Duration, own: Duration, waited: bool) {
        let took = took.saturating_sub(own);
        if waited {
            self.rtt = self.rtt.min(took);
            return;
        }
        if self.answers.len() >= ROUNDS {
            self.answers.pop_front();
        }
        self.answers.push_back(took);
        self.rtt = self.answers.iter().min().copied().unwrap_or(took);
    }

    /// The round trip beyond the first relay.
    pub fn rtt(&self) -> Duration {
        self.rtt
    }

    /// Records that the far end has `bytes` more of what this link carried; `owed` bytes were unconfirmed before.
    pub fn record_arrival(&mut self, bytes: u32, owed: u64, own: Duration, now: Time) {
        self.was_full |= owed >= self.window(own);
        // A round begins and ends with an acknowledgement, so that it does not include what arrived before.
        let Some(began) = self.began else {
            self.began = Some(now);
            return;
        };
        self.arrived = self.arrived.saturating_add(bytes.into());
        let took = now.since(began);
        if took < self.round(own) {
            return;
        }
        self.learn(Rate::over(ByteSize::from_bytes(self.arrived), took));
        (self.began, self.arrived, self.was_full) = (Some(now), 0, false);
    }

    /// A round that was not full only shows that its rate is possible.
    fn learn(&mut self, rate: Rate) {
        if !self.was_full && self.rate().is_none_or(|known| rate <= known) {
            return;
        }
        if self.rounds.len() >= ROUNDS {
            self.rounds.pop_front();
        }
        self.rounds.push_back(rate);
    }

    fn round(&self, own: Duration) -> Duration {
        self.rtt.saturating_add(own).max(LEAST_ROUND)
    }

    /// The rate at which data arrives at the far end; `None`: not known yet.
    pub fn rate(&self) -> Option<Rate> {
        self.rounds.iter().max().copied()
    }

    /// Bytes that may be in flight, on the path or in buffers.
    pub fn window(&self, own: Duration) -> u64 {
        let round = self.round(own).saturating_mul(2);
        self.rate().map_or(0, |rate| rate.bytes_in(round).as_bytes()).max(MIN_WINDOW)
    }

    /// How many of `owed` bytes that the far end has not confirmed wait in buffers; the others are on the path.
    pub fn waiting(&self, owed: u64, own: Duration) -> u64 {
        let on_their_way = self.rate().map(|rate| rate.bytes_in(self.rtt.saturating_add(own)));
        owed.saturating_sub(on_their_way.map_or(0, ByteSize::as_bytes))
    }

    /// How long the bytes that wait take to leave the buffers.
    pub fn queue(&self, owed: u64, own: Duration) -> Duration {
        let waiting = ByteSize::from_bytes(self.waiting(owed, own));
        self.rate().map_or(Duration::ZERO, |rate| rate.time_for(waiting))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Duration = Duration::from_millis(10);

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    fn path() -> RelayedPath {
        RelayedPath::new(Duration::from_millis(60), OWN)
    }

    #[test]
    fn the_shortest_answer_gives_the_round_trip() {
        let mut path = path();
        assert_eq!(path.rtt(), Duration::from_millis(50));
        path.record_answer(Duration::from_millis(300), OWN, false);
        assert_eq!(path.rtt(), Duration::from_millis(50));
        path.record_answer(Duration::from_millis(5), OWN, true);
        assert_eq!(path.rtt(), Duration::ZERO);
    }

    #[test]
    fn a_longer_path_is_detected_and_a_queue_is_not_taken_for_one() {
        let mut path = path();
        (0..100).for_each(|_| path.record_answer(Duration::from_millis(300), OWN, true));
        assert_eq!(path.rtt(), Duration::from_millis(50));
        (0..ROUNDS).for_each(|_| path.record_answer(Duration::from_millis(210), OWN, false));
        assert_eq!(path.rtt(), Duration::from_millis(200));
        path.record_answer(Duration::from_millis(160), OWN, false);
        assert_eq!(path.rtt(), Duration::from_millis(150));
    }

    #[test]
    fn the_window_grows_only_as_long_as_more_arrives() {
        let mut path = path();
        assert_eq!((path.rate(), path.window(OWN)), (None, MIN_WINDOW));
        // 80 Mbit/s: 10,000 bytes per millisecond, acknowledged every 3 ms, but no more than may be in flight.
        let (mut now, mut windows) = (0, Vec::new());
        for _ in 0..6 {
            let each = (path.window(OWN) / 20).min(30_000) as u32;
            for _ in 0..=20 {
                now += 3;
                path.record_arrival(each, path.window(OWN), OWN, at(now));
            }
            windows.push(path.window(OWN));
        }
        assert!(windows.windows(2).all(|two| two[0] <= two[1]), "{windows:?}");
        // Twice 60 ms at this rate.
        assert_eq!(windows.last(), Some(&1_200_000), "{windows:?}");
        assert_eq!(path.rate(), Some(Rate::from_mbps(80.0)));
        assert_eq!(path.waiting(900_000, OWN), 300_000);
        assert_eq!(path.queue(900_000, OWN), Duration::from_millis(30));
        assert_eq!(path.waiting(500_000, OWN), 0);
    }

    #[test]
    fn a_pause_of_the_application_is_not_a_slow_link() {
        let mut path = path();
        path.record_arrival(400, 400, OWN, at(0));
        path.record_arrival(34, 34, OWN, at(60));
        assert_eq!(path.rate(), None);
        for n in 0..=20 {
            path.record_arrival(30_000, u64::MAX, OWN, at(100 + 3 * n));
        }
        let known = path.rate();
        assert!(known.is_some());
        path.record_arrival(34, 34, OWN, at(900));
        assert_eq!(path.rate(), known);
    }

    #[test]
    fn a_link_that_became_slow_is_detected_after_some_rounds() {
        let mut path = path();
        for n in 0..=60 {
            path.record_arrival(30_000, u64::MAX, OWN, at(3 * n));
        }
        for n in 0..200 {
            path.record_arrival(3_000, u64::MAX, OWN, at(183 + 3 * n));
        }
        assert_eq!(path.rate(), Some(Rate::from_mbps(8.0)));
        assert_eq!(path.window(OWN), MIN_WINDOW);
    }
}
