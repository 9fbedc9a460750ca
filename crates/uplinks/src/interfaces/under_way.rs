//! What of a connection may come yet when it is closed while its peer sends. Pure.

use std::time::{Duration, Instant};
use thalweg_net::TcpInfo;

/// Data that came a round trip and so much longer ago was the last: a busy sender pauses, too.
const LEAST_PAUSE: Duration = Duration::from_millis(20);

/// Looks at what came of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnderWay {
    /// What had come when, about a round trip ago and before that.
    marks: [(Instant, u64); 2],
}

impl UnderWay {
    /// Of one that begins now.
    pub fn new(now: Instant) -> Self {
        Self { marks: [(now, 0); 2] }
    }

    /// Whether a round trip is over since the last look that counted, and this one does.
    pub fn look(&mut self, info: &TcpInfo, now: Instant) -> bool {
        let is_due = now.duration_since(self.marks[0].0) >= info.rtt;
        if is_due {
            self.marks = [(now, info.received), self.marks[0]];
        }
        is_due
    }

    /// Bytes at most: twice as much as in the last round trip (slow start doubles), and no more than the peer was offered.
    pub fn left(&self, info: &TcpInfo) -> u64 {
        if info.since_data > info.rtt + LEAST_PAUSE || info.peer_has_ended {
            return 0;
        }
        let offered = if info.offered == 0 { u64::MAX } else { info.offered.into() };
        let lately = info.received.saturating_sub(self.marks[1].1);
        lately.saturating_mul(2).min(offered)
    }
}
