//! Whether the far end of a link still answers.

use std::time::Duration;
use thalweg_units::Time;

/// A link is asked before it is given up, and not given up before this, however short its round
/// trip: a busy host answers late.
const LEAST: Duration = Duration::from_millis(100);

/// While no round trip is known.
const FIRST: Duration = Duration::from_millis(500);

/// How a link does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing is owed, or it is not late yet.
    Alive,
    /// What is owed is late by one probe timeout: it is to be asked.
    Late,
    /// By two: what it carries goes elsewhere. It may come back.
    Silent,
}

/// Watches one link.
///
/// The probe timeout is that of RFC 9002 §6.2.1, the smoothed round trip and four times its
/// variation, and what the kernel holds unsent at the link's rate.
#[derive(Clone, Debug, Default)]
pub struct Liveness {
    smoothed: Option<Duration>,
    variation: Duration,
    /// Since when something is owed of which no sign came.
    owed_since: Option<Time>,
}

impl Liveness {
    /// Something was sent that will be answered.
    pub fn sent(&mut self, now: Time) {
        self.owed_since.get_or_insert(now);
    }

    /// A sign of life came; `owes`: whether something is still owed.
    pub fn heard(&mut self, now: Time, owes: bool) {
        self.owed_since = owes.then_some(now);
    }

    /// For so long until now this host could not hear anything: it was not running. That time is nobody's silence.
    pub fn excuse(&mut self, time: Duration, now: Time) {
        self.owed_since = self.owed_since.map(|since| (since + time).min(now));
    }

    /// A round trip was measured (RFC 6298 §2's gains).
    pub fn sample(&mut self, rtt: Duration) {
        let Some(smoothed) = self.smoothed else {
            (self.smoothed, self.variation) = (Some(rtt), rtt / 2);
            return;
        };
        self.variation = (self.variation * 3 + smoothed.abs_diff(rtt)) / 4;
        self.smoothed = Some((smoothed * 7 + rtt) / 8);
    }

    /// The smoothed round trip.
    pub fn round_trip(&self) -> Option<Duration> {
        self.smoothed
    }

    /// One probe timeout, with `queue` before what is sent now.
    pub fn timeout(&self, queue: Duration) -> Duration {
        match self.smoothed {
            None => FIRST + queue,
            Some(smoothed) => (smoothed + self.variation * 4).max(LEAST) + queue,
        }
    }

    /// How it does.
    pub fn state(&self, queue: Duration, now: Time) -> State {
        let Some(since) = self.owed_since else { return State::Alive };
        let (owed, timeout) = (now.since(since), self.timeout(queue));
        if owed >= timeout * 2 {
            State::Silent
        } else if owed >= timeout {
            State::Late
        } else {
            State::Alive
        }
    }

    /// When the state will be another one if nothing is heard.
    pub fn next_change(&self, queue: Duration, now: Time) -> Option<Time> {
        let since = self.owed_since?;
        let timeout = self.timeout(queue);
        [since + timeout, since + timeout * 2].into_iter().find(|at| *at > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn silence_is_two_timeouts_of_what_is_owed() {
        let mut link = Liveness::default();
        let none = Duration::ZERO;
        assert_eq!(link.state(none, at(1_000_000)), State::Alive);
        link.sample(Duration::from_millis(80));
        // 80 + 4 · 40.
        assert_eq!(link.timeout(none), Duration::from_millis(240));
        link.sent(at(0));
        link.sent(at(200));
        assert_eq!(link.state(none, at(239)), State::Alive);
        assert_eq!(link.next_change(none, at(239)), Some(at(240)));
        assert_eq!(link.state(none, at(240)), State::Late);
        assert_eq!(link.state(none, at(480)), State::Silent);
        assert_eq!(link.next_change(none, at(480)), None);
        assert_eq!(link.state(Duration::from_millis(300), at(480)), State::Alive);
        link.heard(at(500), true);
        assert_eq!(link.state(none, at(739)), State::Alive);
        link.heard(at(740), false);
        assert_eq!(link.state(none, at(9999)), State::Alive);
    }

    #[test]
    fn who_did_not_run_heard_no_silence() {
        let mut link = Liveness::default();
        link.excuse(Duration::from_secs(9), at(0));
        assert_eq!(link.next_change(Duration::ZERO, at(0)), None);
        link.sample(Duration::from_millis(80));
        link.sent(at(0));
        link.excuse(Duration::from_millis(400), at(600));
        assert_eq!(link.state(Duration::ZERO, at(600)), State::Alive);
        assert_eq!(link.state(Duration::ZERO, at(880)), State::Silent);
        link.sent(at(900));
        link.excuse(Duration::from_secs(9), at(1000));
        assert_eq!(link.state(Duration::ZERO, at(1479)), State::Late);
        assert_eq!(link.state(Duration::ZERO, at(1480)), State::Silent);
    }

    #[test]
    fn a_short_round_trip_is_given_time() {
        let mut link = Liveness::default();
        (0..50).for_each(|_| link.sample(Duration::from_micros(100)));
        assert_eq!(link.timeout(Duration::ZERO), LEAST);
    }
}
