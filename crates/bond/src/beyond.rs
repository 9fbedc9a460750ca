//! A link through relays: what lies beyond the first of them.
//!
//! TCP's counters of such a link are true up to the first relay. That one takes what its buffers hold, megabytes,
//! so that a connection to it seems fast and empty while all that it was given waits there. What counts is what
//! the far end says that it has: from that come the link's rate, and how much may be under way on it, twice what
//! arrives in a round trip, so that it grows while it is not enough and no long queue stands at the relay.

use std::{collections::VecDeque, time::Duration};
use thalweg_units::{ByteSize, Rate, Time};

/// Bytes that may be under way before anything is known, and at the least. A chunk beyond what may
/// be under way waits, for this link or another.
const FIRST: u64 = 256 << 10;

/// Of so many rounds, and answers, the best one counts: a pause of the application's is no slower link.
const ROUNDS: usize = 8;

/// A round takes so long at least: acknowledgements come in bursts.
const LEAST_ROUND: Duration = Duration::from_millis(20);

/// What is known of a link beyond its first relay.
#[derive(Clone, Debug)]
pub struct Beyond {
    rtt: Duration,
    /// The last answers to questions that waited for nothing.
    answers: VecDeque<Duration>,
    /// When this round began.
    began: Option<Time>,
    /// Bytes that arrived in it.
    arrived: u64,
    /// As much was under way in it as may be.
    was_full: bool,
    /// What rounds brought in which the link was full, or more than those.
    rounds: VecDeque<Rate>,
}

impl Beyond {
    /// The far end answered after so long once; `own` of it was TCP's round trip to the first relay.
    pub fn new(took: Duration, own: Duration) -> Self {
        let rtt = took.saturating_sub(own);
        let (answers, rounds) = (VecDeque::from([rtt]), VecDeque::new());
        Self { rtt, answers, began: None, arrived: 0, was_full: false, rounds }
    }

    /// The same another time; the shortest counts, as the others waited somewhere. Of those that were asked while
    /// nothing was under way (`waited`: something was) it is the shortest of the last `ROUNDS`, since ways become
    /// longer. The others say nothing of that: as much as is under way by what is taken for the round trip would be
    /// taken for the round trip, and so grow for ever.
    pub fn answered(&mut self, took: Duration, own: Duration, waited: bool) {
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

    /// The far end has so many bytes more of what went by this link, of which `owed` were not confirmed before.
    pub fn arrived(&mut self, bytes: u32, owed: u64, own: Duration, now: Time) {
        self.was_full |= owed >= self.window(own);
        // A round begins and ends with a word of the far end's, so that what came before it is not in it.
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

    /// What came of less than might have been sent says no more than that it is possible.
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

    /// What arrives at the far end; `None`: not known yet.
    pub fn rate(&self) -> Option<Rate> {
        self.rounds.iter().max().copied()
    }

    /// Bytes that may be under way, on their way or in buffers.
    pub fn window(&self, own: Duration) -> u64 {
        let round = self.round(own).saturating_mul(2);
        self.rate().map_or(0, |rate| rate.bytes_in(round).as_bytes()).max(FIRST)
    }

    /// Of `owed` bytes that the far end has not confirmed, those that wait somewhere: the others are on their way.
    pub fn waiting(&self, owed: u64, own: Duration) -> u64 {
        let on_their_way = self.rate().map(|rate| rate.bytes_in(self.rtt.saturating_add(own)));
        owed.saturating_sub(on_their_way.map_or(0, ByteSize::as_bytes))
    }

    /// How long what waits does so.
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

    fn beyond() -> Beyond {
        Beyond::new(Duration::from_millis(60), OWN)
    }

    #[test]
    fn the_shortest_answer_says_how_far_it_is() {
        let mut beyond = beyond();
        assert_eq!(beyond.rtt(), Duration::from_millis(50));
        beyond.answered(Duration::from_millis(300), OWN, false);
        assert_eq!(beyond.rtt(), Duration::from_millis(50));
        beyond.answered(Duration::from_millis(5), OWN, true);
        assert_eq!(beyond.rtt(), Duration::ZERO);
    }

    #[test]
    fn a_way_that_becomes_longer_is_found_out_and_a_queue_is_none() {
        let mut beyond = beyond();
        (0..100).for_each(|_| beyond.answered(Duration::from_millis(300), OWN, true));
        assert_eq!(beyond.rtt(), Duration::from_millis(50));
        (0..ROUNDS).for_each(|_| beyond.answered(Duration::from_millis(210), OWN, false));
        assert_eq!(beyond.rtt(), Duration::from_millis(200));
        beyond.answered(Duration::from_millis(160), OWN, false);
        assert_eq!(beyond.rtt(), Duration::from_millis(150));
    }

    #[test]
    fn what_is_under_way_grows_as_long_as_more_arrives_and_no_further() {
        let mut beyond = beyond();
        assert_eq!((beyond.rate(), beyond.window(OWN)), (None, FIRST));
        // 80 Mbit/s: 10,000 bytes a millisecond, told every 3 ms, of at most what may be under way.
        let (mut now, mut windows) = (0, Vec::new());
        for _ in 0..6 {
            let each = (beyond.window(OWN) / 20).min(30_000) as u32;
            for _ in 0..=20 {
                now += 3;
                beyond.arrived(each, beyond.window(OWN), OWN, at(now));
            }
            windows.push(beyond.window(OWN));
        }
        assert!(windows.windows(2).all(|two| two[0] <= two[1]), "{windows:?}");
        // Twice 60 ms of it.
        assert_eq!(windows.last(), Some(&1_200_000), "{windows:?}");
        assert_eq!(beyond.rate(), Some(Rate::from_mbps(80.0)));
        assert_eq!(beyond.waiting(900_000, OWN), 300_000);
        assert_eq!(beyond.queue(900_000, OWN), Duration::from_millis(30));
        assert_eq!(beyond.waiting(500_000, OWN), 0);
    }

    #[test]
    fn an_application_that_pauses_is_no_slow_link() {
        let mut beyond = beyond();
        beyond.arrived(400, 400, OWN, at(0));
        beyond.arrived(34, 34, OWN, at(60));
        assert_eq!(beyond.rate(), None);
        for n in 0..=20 {
            beyond.arrived(30_000, u64::MAX, OWN, at(100 + 3 * n));
        }
        let known = beyond.rate();
        assert!(known.is_some());
        beyond.arrived(34, 34, OWN, at(900));
        assert_eq!(beyond.rate(), known);
    }

    #[test]
    fn a_link_that_became_slow_is_found_out_after_some_rounds() {
        let mut beyond = beyond();
        for n in 0..=60 {
            beyond.arrived(30_000, u64::MAX, OWN, at(3 * n));
        }
        for n in 0..200 {
            beyond.arrived(3_000, u64::MAX, OWN, at(183 + 3 * n));
        }
        assert_eq!(beyond.rate(), Some(Rate::from_mbps(8.0)));
        assert_eq!(beyond.window(OWN), FIRST);
    }
}
