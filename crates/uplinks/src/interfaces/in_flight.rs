//! What may still arrive on a connection that is closed while its peer sends. Pure.

use std::time::{Duration, Instant};
use thalweg_net::TcpInfo;

/// If no data came for a round trip and this much longer, the last data was the end: a busy sender pauses, too.
const LEAST_PAUSE: Duration = Duration::from_millis(20);

/// Follows what arrives on one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    /// Bytes that had arrived, and when: about a round trip ago, and before that.
    marks: [(Instant, u64); 2],
}

impl InFlight {
    /// For a connection that begins now.
    pub fn new(now: Instant) -> Self {
        Self { marks: [(now, 0); 2] }
    }

    /// Takes a look if a round trip is over since the last one; returns whether it did.
    pub fn update(&mut self, info: &TcpInfo, now: Instant) -> bool {
        let is_due = now.duration_since(self.marks[0].0) >= info.rtt;
        if is_due {
            self.marks = [(now, info.received), self.marks[0]];
        }
        is_due
    }

    /// Bytes at most: twice as many as in the last round trip (slow start doubles), and no more than the peer was
    /// offered.
    pub fn upper_bound(&self, info: &TcpInfo) -> u64 {
        if info.since_data > info.rtt + LEAST_PAUSE || info.peer_has_ended {
            return 0;
        }
        let offered = if info.offered == 0 { u64::MAX } else { info.offered.into() };
        let lately = info.received.saturating_sub(self.marks[1].1);
        lately.saturating_mul(2).min(offered)
    }
}
