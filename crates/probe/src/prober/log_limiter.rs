//! Limits log lines that a peer can cause as often as it likes.

use parking_lot::Mutex;
use std::{collections::BTreeMap, time::Duration};
use thalweg_units::NodeId;
use tokio::time::Instant;

/// The time between two lines about one peer.
const EACH: Duration = Duration::from_secs(60);

/// The most peers that get a line in this time; further peers appear only in the metrics.
const PEERS: usize = 256;

/// Permits one line a minute about each peer, so that no peer fills the log or hides another in it.
#[derive(Debug, Default)]
pub(super) struct LogLimiter(Mutex<BTreeMap<NodeId, (Instant, u64)>>);

impl LogLimiter {
    /// Whether to write a line about this peer now; if so, the number of lines that were suppressed since the last one.
    pub fn passes(&self, peer: NodeId) -> Option<u64> {
        let now = Instant::now();
        let mut lines = self.0.lock();
        let is_due = |since: Instant| now.duration_since(since) >= EACH;
        let suppressed = match lines.get_mut(&peer) {
            Some((since, suppressed)) if !is_due(*since) => {
                *suppressed += 1;
                return None;
            }
            Some((_, suppressed)) => *suppressed,
            None => 0,
        };
        lines.retain(|_, (since, _)| !is_due(*since));
        let fits = lines.len() < PEERS;
        fits.then(|| lines.insert(peer, (now, 0)));
        fits.then_some(suppressed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u16) -> NodeId {
        let mut bytes = [0; 32];
        bytes[..2].copy_from_slice(&n.to_be_bytes());
        NodeId::from_bytes(bytes)
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_gets_one_line_a_minute_with_the_number_suppressed() {
        let quiet = LogLimiter::default();
        assert_eq!(quiet.passes(id(1)), Some(0));
        assert!((0..400).all(|_| quiet.passes(id(1)).is_none()));
        assert_eq!(quiet.passes(id(2)), Some(0), "another's are not hidden");
        tokio::time::advance(EACH).await;
        assert_eq!((quiet.passes(id(1)), quiet.passes(id(1))), (Some(400), None));
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_peers_with_a_line_is_bounded() {
        let quiet = LogLimiter::default();
        let lines = || (0..2 * PEERS as u16).filter(|n| quiet.passes(id(*n)).is_some()).count();
        assert_eq!((lines(), lines()), (PEERS, 0));
        tokio::time::advance(EACH).await;
        assert_eq!(lines(), PEERS);
    }
}
