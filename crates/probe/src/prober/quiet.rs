//! Log lines that a peer can cause as often as it likes.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use thalweg_units::NodeId;
use tokio::time::Instant;

/// Between two lines about one peer.
const EACH: Duration = Duration::from_secs(60);

/// Peers that get a line in this time; those beyond are in the metrics alone.
const PEERS: usize = 256;

/// One line a minute about each peer, so that nobody fills the log, or hides another in it.
#[derive(Debug, Default)]
pub(super) struct Quiet(Mutex<BTreeMap<NodeId, (Instant, u64)>>);

impl Quiet {
    /// Whether to write a line about this peer now; with how many were not since the last.
    pub fn passes(&self, peer: NodeId) -> Option<u64> {
        let now = Instant::now();
        // A thread that panicked in here left whole entries.
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = |since: Instant| now.duration_since(since) >= EACH;
        let unsaid = match told.get_mut(&peer) {
            Some((since, unsaid)) if !is_due(*since) => {
                *unsaid += 1;
                return None;
            }
            Some((_, unsaid)) => *unsaid,
            None => 0,
        };
        told.retain(|_, (since, _)| !is_due(*since));
        let fits = told.len() < PEERS;
        fits.then(|| told.insert(peer, (now, 0)));
        fits.then_some(unsaid)
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
    async fn one_line_a_minute_and_peer_says_how_many_there_were() {
        let quiet = Quiet::default();
        assert_eq!(quiet.passes(id(1)), Some(0));
        assert!((0..400).all(|_| quiet.passes(id(1)).is_none()));
        assert_eq!(quiet.passes(id(2)), Some(0), "another's are not hidden");
        tokio::time::advance(EACH).await;
        assert_eq!((quiet.passes(id(1)), quiet.passes(id(1))), (Some(400), None));
    }

    #[tokio::test(start_paused = true)]
    async fn many_peers_get_so_many_lines() {
        let quiet = Quiet::default();
        let lines = || (0..2 * PEERS as u16).filter(|n| quiet.passes(id(*n)).is_some()).count();
        assert_eq!((lines(), lines()), (PEERS, 0));
        tokio::time::advance(EACH).await;
        assert_eq!(lines(), PEERS);
    }
}
