//! Channels that are heard at a time.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};
use thalweg_units::NodeId;

/// Channels at a time, of which one at most is accepted: each waits 5 s at most for its hello.
/// Those beyond are closed, and their senders report that.
const ALL: usize = 16;

/// Of one peer: its flow, and the next one's hello while that ends. So no member takes up all.
const EACH: usize = 2;

/// How many channels of whom are open.
#[derive(Debug, Default)]
pub(super) struct Hearing(Mutex<BTreeMap<NodeId, usize>>);

/// A channel's place among them.
#[derive(Debug)]
pub(super) struct Heard<'a> {
    hearing: &'a Hearing,
    peer: NodeId,
}

impl Hearing {
    /// A place for one more of this peer, if there is one.
    pub fn enter(&self, peer: NodeId) -> Option<Heard<'_>> {
        let mut open = self.lock();
        let (all, own) = (open.values().sum::<usize>(), open.get(&peer).copied().unwrap_or(0));
        if all >= ALL || own >= EACH {
            return None;
        }
        open.insert(peer, own + 1);
        Some(Heard { hearing: self, peer })
    }

    /// A thread that panicked in here left whole entries.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Heard<'_> {
    fn drop(&mut self) {
        let mut open = self.hearing.lock();
        match open.get_mut(&self.peer) {
            Some(count) if *count > 1 => *count -= 1,
            _ => _ = open.remove(&self.peer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn id(n: u8) -> NodeId {
        NodeId::from_bytes([n; 32])
    }

    #[test]
    fn a_peer_has_two_places_and_all_have_sixteen() {
        let hearing = Hearing::default();
        let first = hearing.enter(id(1)).unwrap();
        let _second = hearing.enter(id(1)).unwrap();
        assert!(hearing.enter(id(1)).is_none());
        let others: Vec<_> =
            (2..=8).flat_map(|n| [hearing.enter(id(n)), hearing.enter(id(n))]).collect();
        assert!(others.iter().all(Option::is_some) && hearing.enter(id(9)).is_none());
        drop(first);
        assert!(hearing.enter(id(9)).is_some(), "a place is free again, and at once once more");
        assert!(hearing.enter(id(1)).is_some());
        drop(others);
        assert_eq!(hearing.lock().keys().collect::<Vec<_>>(), [&id(1)]);
    }
}
