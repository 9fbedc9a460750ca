//! Places that peers have a share of each, so that none takes up all.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// So many places, and of whom they are.
#[derive(Debug)]
pub struct Shares<Peer: Ord> {
    all: usize,
    each: usize,
    taken: Mutex<BTreeMap<Peer, usize>>,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub struct Share<'a, Peer: Ord> {
    of: &'a Shares<Peer>,
    peer: Peer,
}

impl<Peer: Ord + Clone> Shares<Peer> {
    /// So many in all, and so many at most of each peer.
    pub fn new(all: usize, each: usize) -> Self {
        Self { all, each, taken: Mutex::default() }
    }

    /// One more for this peer, if there is one.
    pub fn enter(&self, peer: Peer) -> Option<Share<'_, Peer>> {
        let mut taken = self.lock();
        let (all, own) = (taken.values().sum::<usize>(), taken.get(&peer).copied().unwrap_or(0));
        if all >= self.all || own >= self.each {
            return None;
        }
        taken.insert(peer.clone(), own + 1);
        Some(Share { of: self, peer })
    }
}

impl<Peer: Ord> Shares<Peer> {
    /// A thread that panicked in here left whole entries.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Peer, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Peer: Ord> Drop for Share<'_, Peer> {
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
    fn a_peer_has_its_share_and_all_have_so_many() {
        let shares = Shares::new(16, 2);
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
