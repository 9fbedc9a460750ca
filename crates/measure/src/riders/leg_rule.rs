//! When a node's own connections to a member ride on the carrier without an explicit request.

use std::time::Duration;
use thalweg_units::{Rate, Time};

/// A train of fewer probes does not test a rate: pathload's streams have 100, pathchirp's chirps 18, trains that find a
/// capacity 20.
const STREAM: usize = 50;

/// Which links carry connections as riders.
///
/// A connection rides for its whole life or not at all, and it saves as many bytes as the trains on its link have. So
/// riding pays only on links that are measured again and again, and only while the carrier, which handles each packet
/// outside of the kernel, is not the bottleneck. The trains themselves show both: a tool that searches for the
/// available bandwidth ends up sending streams at about that rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LegRule {
    /// The maximum age of the last such stream.
    pub recent: Duration,
    /// The maximum rate of such a stream.
    pub below: Rate,
}

impl Default for LegRule {
    /// 90 s, because a link in use is measured once a minute, for up to 15 s; 100 Mbit/s.
    fn default() -> Self {
        Self { recent: Duration::from_secs(90), below: Rate::from_bps(100_000_000) }
    }
}

impl LegRule {
    /// Whether a train of this many probes and bytes, sent in this time, speaks for riding on its link.
    pub fn tests_rate(&self, probes: usize, bytes: u64, took: Duration) -> bool {
        let limit = self.below.as_bps() as f64 * took.as_secs_f64();
        probes >= STREAM && bytes as f64 * 8.0 <= limit
    }

    /// Whether a connection that begins now rides, given when the last train that counted was sent.
    pub fn rides(&self, last: Option<Time>, now: Time) -> bool {
        last.is_some_and(|last| now.since(last) <= self.recent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_ride_on_links_with_recent_slow_streams() {
        let rule = LegRule::default();
        let ms = Duration::from_millis;
        // 100 probes of 1,000 bytes in 20 ms are 40 Mbit/s; in 5 ms, 160.
        assert!(rule.tests_rate(100, 100_000, ms(20)) && !rule.tests_rate(100, 100_000, ms(5)));
        assert!(!rule.tests_rate(18, 18_000, ms(20)), "a chirp");
        assert!(!rule.tests_rate(100, 100_000, ms(0)), "a burst");
        let at = Time::from_nanos(5_000_000_000);
        assert!(!rule.rides(None, at) && rule.rides(Some(at), at));
        assert!(
            rule.rides(Some(at), at + rule.recent) && !rule.rides(Some(at), at + rule.recent * 2)
        );
    }
}
