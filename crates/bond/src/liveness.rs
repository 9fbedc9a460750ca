//! Whether the far end of a link still answers.

use std::time::Duration;
use thalweg_units::Time;

/// The minimum of the probe timeout, however short the round trip: a busy host answers late. A link is probed before it
/// is given up.
const MIN_TIMEOUT: Duration = Duration::from_millis(100);

/// The probe timeout while no round trip is known.
const FIRST_TIMEOUT: Duration = Duration::from_millis(500);

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No answer is owed, or it is not late yet.
    Alive,
    /// The answer that is owed is late by one probe timeout: the link is to be probed.
    Late,
    /// It is late by two: other links carry the link's data. It may come back.
    Silent,
}

/// Watches one link.
///
/// The probe timeout is that of RFC 9002 §6.2.1, the smoothed round trip plus four times its variation, plus the time
/// for what the kernel holds unsent, at the link's rate.
#[derive(Clone, Debug, Default)]
pub struct Liveness {
    smoothed: Option<Duration>,
    variation: Duration,
    /// Since when an answer is owed without any sign of life.
    owed_since: Option<Time>,
}

impl Liveness {
    /// Data was sent that will be answered.
    pub fn record_sent(&mut self, now: Time) {
        self.owed_since.get_or_insert(now);
    }

    /// A sign of life arrived; `owes`: whether an answer is still owed.
    pub fn record_heard(&mut self, now: Time, owes: bool) {
        self.owed_since = owes.then_some(now);
    }

    /// This host was not running for `time` until now, and could not hear anything: that time does not count as
    /// silence.
    pub fn excuse(&mut self, time: Duration, now: Time) {
        self.owed_since = self.owed_since.map(|since| (since + time).min(now));
    }

    /// Records a measured round trip (with the gains of RFC 6298 §2).
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

    /// One probe timeout, if data that is sent now has to wait for `queue`.
    pub fn timeout(&self, queue: Duration) -> Duration {
        match self.smoothed {
            None => FIRST_TIMEOUT + queue,
            Some(smoothed) => (smoothed + self.variation * 4).max(MIN_TIMEOUT) + queue,
        }
    }

    /// The state of the link.
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

    /// When the state will change if nothing is heard.
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
    fn a_link_is_silent_after_two_timeouts_without_an_owed_answer() {
        let mut link = Liveness::default();
        let none = Duration::ZERO;
        assert_eq!(link.state(none, at(1_000_000)), State::Alive);
        link.sample(Duration::from_millis(80));
        // 80 + 4 · 40.
        assert_eq!(link.timeout(none), Duration::from_millis(240));
        link.record_sent(at(0));
        link.record_sent(at(200));
        assert_eq!(link.state(none, at(239)), State::Alive);
        assert_eq!(link.next_change(none, at(239)), Some(at(240)));
        assert_eq!(link.state(none, at(240)), State::Late);
        assert_eq!(link.state(none, at(480)), State::Silent);
        assert_eq!(link.next_change(none, at(480)), None);
        assert_eq!(link.state(Duration::from_millis(300), at(480)), State::Alive);
        link.record_heard(at(500), true);
        assert_eq!(link.state(none, at(739)), State::Alive);
        link.record_heard(at(740), false);
        assert_eq!(link.state(none, at(9999)), State::Alive);
    }

    #[test]
    fn time_in_which_this_host_did_not_run_is_not_silence() {
        let mut link = Liveness::default();
        link.excuse(Duration::from_secs(9), at(0));
        assert_eq!(link.next_change(Duration::ZERO, at(0)), None);
        link.sample(Duration::from_millis(80));
        link.record_sent(at(0));
        link.excuse(Duration::from_millis(400), at(600));
        assert_eq!(link.state(Duration::ZERO, at(600)), State::Alive);
        assert_eq!(link.state(Duration::ZERO, at(880)), State::Silent);
        link.record_sent(at(900));
        link.excuse(Duration::from_secs(9), at(1000));
        assert_eq!(link.state(Duration::ZERO, at(1479)), State::Late);
        assert_eq!(link.state(Duration::ZERO, at(1480)), State::Silent);
    }

    #[test]
    fn a_short_round_trip_has_the_minimum_timeout() {
        let mut link = Liveness::default();
        (0..50).for_each(|_| link.sample(Duration::from_micros(100)));
        assert_eq!(link.timeout(Duration::ZERO), MIN_TIMEOUT);
    }
}
