//! When a node's own connections to a member go by the carrier without having been told to.

use std::time::Duration;
use thalweg_units::{Rate, Time};

/// A train of fewer probes is no rate that somebody tries: pathload's streams have 100, pathchirp's chirps 18, those
/// that find a capacity 20.
const STREAM: usize = 50;

/// Which links' connections ride.
///
/// A connection rides for all its life or not at all, and what it saves is what trains on its link take. So it is worth it
/// on links that are measured again and again, and there only while the carrier, which handles each packet outside of the
/// kernel, is not what holds it back. Both are seen in the trains themselves: a tool that looks for the available
/// bandwidth comes to send streams at about that rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LegRule {
    /// The last such stream was so long ago at most.
    pub recent: Duration,
    /// And no faster than this.
    pub below: Rate,
}

impl Default for LegRule {
    /// A link in use is measured once a minute, and for up to 15 s. 100 Mbit/s.
    fn default() -> Self {
        Self { recent: Duration::from_secs(90), below: Rate::from_bps(100_000_000) }
    }
}

impl LegRule {
    /// Whether a train of so many probes and bytes, in so long, speaks for the link.
    pub fn counts(&self, probes: usize, bytes: u64, took: Duration) -> bool {
        let limit = self.below.as_bps() as f64 * took.as_secs_f64();
        probes >= STREAM && bytes as f64 * 8.0 <= limit
    }

    /// Whether a connection that begins now rides, where the last train that counted went then.
    pub fn rides(&self, last: Option<Time>, now: Time) -> bool {
        last.is_some_and(|last| now.since(last) <= self.recent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_on_which_slow_streams_went_of_late_carries_connections() {
        let rule = LegRule::default();
        let ms = Duration::from_millis;
        // 100 probes of 1,000 bytes in 20 ms are 40 Mbit/s; in 5 ms, 160.
        assert!(rule.counts(100, 100_000, ms(20)) && !rule.counts(100, 100_000, ms(5)));
        assert!(!rule.counts(18, 18_000, ms(20)), "a chirp");
        assert!(!rule.counts(100, 100_000, ms(0)), "a burst");
        let at = Time::from_nanos(5_000_000_000);
        assert!(!rule.rides(None, at) && rule.rides(Some(at), at));
        assert!(
            rule.rides(Some(at), at + rule.recent) && !rule.rides(Some(at), at + rule.recent * 2)
        );
    }
}
