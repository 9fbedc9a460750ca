//! Hashes of parts of files that were computed of late, and those that are computed just now.
//!
//! A peer may ask for the hash of one file again and again. So its equal requests share one computation; requests of other
//! peers do not, since a peer may slow its own down. All share what was computed. A hash is kept only of a file that had rested before it was read: two writes of one moment may leave
//! the same times.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use thalweg_base::budget::PeerKey;
use thalweg_wire::object::{Check, Snapshot};

/// Hashes that are kept, the newest; 200 bytes each.
const MOST: usize = 8192;

/// How long a file must have rested: twice the coarsest time of a file system.
const RESTED: Duration = Duration::from_secs(4);

/// Which bytes of which content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Part {
    pub snapshot: Snapshot,
    pub from: u64,
    pub bytes: u64,
}

/// The hashes of all files that are offered here; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Hashes(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    known: HashMap<Part, Check>,
    /// The same, the oldest first.
    order: VecDeque<Part>,
    running: HashSet<(PeerKey, Part)>,
}

/// What is known of a hash.
#[derive(Debug)]
pub(super) enum Asked {
    /// It was computed before.
    Known(Check),
    /// Who asks is to compute it.
    Own(Claim),
    /// Another request of the same peer computes it.
    Running,
}

/// A computation that others wait for; dropped before its end, it is another's.
#[derive(Debug)]
pub(super) struct Claim {
    hashes: Hashes,
    who: PeerKey,
    part: Part,
    is_rested: bool,
}

impl Hashes {
    /// What is known of this part, of a file that was just found to have this content; `who` asks.
    pub fn ask(&self, part: Part, who: PeerKey, now: SystemTime) -> Asked {
        let mut state = self.lock();
        if let Some(check) = state.known.get(&part) {
            return Asked::Known(*check);
        }
        if !state.running.insert((who, part)) {
            return Asked::Running;
        }
        let is_rested = has_rested(part.snapshot, now);
        Asked::Own(Claim { hashes: self.clone(), who, part, is_rested })
    }

    /// A thread that panicked in here left whole entries.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the last change is older than the resolution of file times, so that a later change gets another time. Uses the
/// inode's change time, which programs cannot set.
fn has_rested(snapshot: Snapshot, now: SystemTime) -> bool {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let changed = u128::try_from(snapshot.changed_ns).unwrap_or(0);
    now.saturating_sub(changed) > RESTED.as_nanos()
}

impl Claim {
    /// The hash of bytes that were read while the file had the same content from the first to the last.
    pub fn computed(self, check: Check) {
        if !self.is_rested {
            return;
        }
        let mut state = self.hashes.lock();
        if state.known.insert(self.part, check).is_none() {
            state.order.push_back(self.part);
        }
        if state.order.len() > MOST
            && let Some(oldest) = state.order.pop_front()
        {
            state.known.remove(&oldest);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.hashes.lock().running.remove(&(self.who, self.part));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    const NOW: Duration = Duration::from_secs(1_000_000);
    const ONE: PeerKey = PeerKey::Address(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));
    const OTHER: PeerKey = PeerKey::Address(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)));

    fn part(inode: u64, changed: Duration) -> Part {
        let changed_ns = changed.as_nanos() as i64;
        let snapshot = Snapshot { device: 1, inode, size: 10, modified_ns: 0, changed_ns };
        Part { snapshot, from: 0, bytes: 10 }
    }

    fn ask(hashes: &Hashes, part: Part) -> Asked {
        hashes.ask(part, ONE, UNIX_EPOCH + NOW)
    }

    #[test]
    fn equal_requests_share_one_computation() {
        let (hashes, part) = (Hashes::default(), part(1, Duration::ZERO));
        let Asked::Own(claim) = ask(&hashes, part) else { panic!("nobody has asked before") };
        assert!(matches!(ask(&hashes, part), Asked::Running));
        // It may be as slow as it likes.
        assert!(matches!(hashes.ask(part, OTHER, UNIX_EPOCH + NOW), Asked::Own(_)));
        // Whoever computed it has left.
        drop(claim);
        let Asked::Own(claim) = ask(&hashes, part) else { panic!("nobody computes it") };
        claim.computed(Check([7; 32]));
        assert!(matches!(ask(&hashes, part), Asked::Known(Check(hash)) if hash == [7; 32]));
        assert!(matches!(ask(&hashes, Part { from: 1, ..part }), Asked::Own(_)));
    }

    #[test]
    fn a_file_that_was_just_written_is_read_again() {
        let hashes = Hashes::default();
        for (age, is_kept) in [(RESTED, false), (RESTED * 2, true), (Duration::ZERO, false)] {
            let part = part(1, NOW - age);
            let Asked::Own(claim) = ask(&hashes, part) else { panic!("it was never kept") };
            claim.computed(Check([7; 32]));
            assert_eq!(matches!(ask(&hashes, part), Asked::Known(_)), is_kept, "{age:?}");
        }
    }

    #[test]
    fn only_so_many_are_kept() {
        let hashes = Hashes::default();
        for inode in 0..MOST as u64 + 10 {
            let Asked::Own(claim) = ask(&hashes, part(inode, Duration::ZERO)) else { panic!() };
            claim.computed(Check([7; 32]));
        }
        let state = hashes.lock();
        assert_eq!((state.known.len(), state.order.len(), state.running.len()), (MOST, MOST, 0));
    }
}
