//! Places with a limit for each peer, so that no peer takes all of them.

use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;

/// The places, and how many each peer has taken.
#[derive(Debug)]
pub struct PeerSlots<Peer: Ord> {
    all: usize,
    each: usize,
    taken: Mutex<BTreeMap<Peer, usize>>,
}

/// A place, which is free again when it is dropped.
#[derive(Debug)]
pub struct PeerSlot<'a, Peer: Ord> {
    of: &'a PeerSlots<Peer>,
    peer: Peer,
}

impl<Peer: Ord + Clone> PeerSlots<Peer> {
    /// Creates `all` places, of which each peer may take at most `each`.
    pub fn new(all: usize, each: usize) -> Self {
        Self { all, each, taken: Mutex::default() }
    }

    /// Takes a place for this peer; `None` if none is left for it.
    pub fn enter(&self, peer: Peer) -> Option<PeerSlot<'_, Peer>> {
        let mut taken = self.lock();
        let (all, own) = (taken.values().sum::<usize>(), taken.get(&peer).copied().unwrap_or(0));
        if all >= self.all || own >= self.each {
            return None;
        }
        taken.insert(peer.clone(), own + 1);
        Some(PeerSlot { of: self, peer })
    }
}

impl<Peer: Ord> PeerSlots<Peer> {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Peer, usize>> {
        self.taken.lock()
    }
}

impl<Peer: Ord> Drop for PeerSlot<'_, Peer> {
    fn drop(&mut self) {
        let mut taken = self.of.lock();
        match taken.get_mut(&self.peer) {
            Some(count) if *count > 1 => *count -= 1,
            _ => _ = taken.remove(&self.peer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_peer_and_all_peers_together_are_limited() {
        let shares = PeerSlots::new(16, 2);
        let first = shares.enter(1).unwrap();
        let _second = shares.enter(1).unwrap();
        assert!(shares.enter(1).is_none());
        let others: Vec<_> = (2..=8).flat_map(|n| [shares.enter(n), shares.enter(n)]).collect();
        assert!(others.iter().all(Option::is_some) && shares.enter(9).is_none());
        drop(first);
        assert!(shares.enter(9).is_some(), "a place is free again, and at once once more");
        assert!(shares.enter(1).is_some());
        drop(others);
        assert_eq!(shares.lock().keys().collect::<Vec<_>>(), [&1]);
    }
}
