//! A cache of recently computed hashes of file parts, and the computations in progress.
//!
//! A peer may request the hash of the same file many times. Its equal requests share one computation. Requests of other
//! peers do not, since a peer can slow its own computation down. All peers share the results. A hash is cached only if
//! the file had not changed for [`MIN_REST`] before it was read: two writes within the resolution of timestamps may
//! leave the same times.

use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use thalweg_base::budget::PeerKey;
use thalweg_wire::object::{Snapshot, TransferHash};

/// The most cached hashes; 200 bytes each.
const MAX_CACHED: usize = 8192;

/// How long a file must be unchanged: twice the coarsest timestamp resolution of a file system.
const MIN_REST: Duration = Duration::from_secs(4);

/// A range of bytes of a file with this content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FilePart {
    pub snapshot: Snapshot,
    pub from: u64,
    pub bytes: u64,
}

/// The cache for all offered files; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Hashes(Arc<Mutex<HashState>>);

#[derive(Debug, Default)]
struct HashState {
    known: HashMap<FilePart, TransferHash>,
    /// The keys of `known`, the oldest first.
    order: VecDeque<FilePart>,
    running: HashSet<(PeerKey, FilePart)>,
}

/// The state of a requested hash.
#[derive(Debug)]
pub(super) enum Lookup {
    /// The hash is cached.
    Known(TransferHash),
    /// The caller must compute it.
    Own(HashClaim),
    /// Another request of the same peer computes it.
    Running,
}

/// The right to compute a hash. If it is dropped before the result, another request may compute the hash.
#[derive(Debug)]
pub(super) struct HashClaim {
    hashes: Hashes,
    peer: PeerKey,
    part: FilePart,
    is_rested: bool,
}

impl Hashes {
    /// Looks up a range whose file was just found to have this content; `peer` is the requesting peer.
    pub fn ask(&self, part: FilePart, peer: PeerKey, now: SystemTime) -> Lookup {
        let mut state = self.lock();
        if let Some(check) = state.known.get(&part) {
            return Lookup::Known(*check);
        }
        if !state.running.insert((peer, part)) {
            return Lookup::Running;
        }
        let is_rested = has_rested(part.snapshot, now);
        Lookup::Own(HashClaim { hashes: self.clone(), peer, part, is_rested })
    }

    fn lock(&self) -> MutexGuard<'_, HashState> {
        self.0.lock()
    }
}

/// Whether the last change is older than timestamp resolution. Programs cannot set the inode's change time.
fn has_rested(snapshot: Snapshot, now: SystemTime) -> bool {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let changed = u128::try_from(snapshot.changed_ns).unwrap_or(0);
    now.saturating_sub(changed) > MIN_REST.as_nanos()
}

impl HashClaim {
    /// Stores the hash of bytes that were read while the file did not change.
    pub fn finish(self, check: TransferHash) {
        if !self.is_rested {
            return;
        }
        let mut state = self.hashes.lock();
        if state.known.insert(self.part, check).is_none() {
            state.order.push_back(self.part);
        }
        if state.order.len() > MAX_CACHED
            && let Some(oldest) = state.order.pop_front()
        {
            state.known.remove(&oldest);
        }
    }
}

impl Drop for HashClaim {
    fn drop(&mut self) {
        self.hashes.lock().running.remove(&(self.peer, self.part));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    const NOW: Duration = Duration::from_secs(1_000_000);
    const ONE: PeerKey = PeerKey::Address(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));
    const OTHER: PeerKey = PeerKey::Address(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)));

    fn part(inode: u64, changed: Duration) -> FilePart {
        let changed_ns = changed.as_nanos() as i64;
        let snapshot = Snapshot { device: 1, inode, size: 10, modified_ns: 0, changed_ns };
        FilePart { snapshot, from: 0, bytes: 10 }
    }

    fn ask(hashes: &Hashes, part: FilePart) -> Lookup {
        hashes.ask(part, ONE, UNIX_EPOCH + NOW)
    }

    #[test]
    fn equal_requests_share_one_computation() {
        let (hashes, part) = (Hashes::default(), part(1, Duration::ZERO));
        let Lookup::Own(claim) = ask(&hashes, part) else { panic!("nobody has asked before") };
        assert!(matches!(ask(&hashes, part), Lookup::Running));
        // The first request may take any time.
        assert!(matches!(hashes.ask(part, OTHER, UNIX_EPOCH + NOW), Lookup::Own(_)));
        // The computing request was dropped.
        drop(claim);
        let Lookup::Own(claim) = ask(&hashes, part) else { panic!("nobody computes it") };
        claim.finish(TransferHash([7; 32]));
        assert!(matches!(ask(&hashes, part), Lookup::Known(TransferHash(hash)) if hash == [7; 32]));
        assert!(matches!(ask(&hashes, FilePart { from: 1, ..part }), Lookup::Own(_)));
    }

    #[test]
    fn a_file_that_was_just_written_is_read_again() {
        let hashes = Hashes::default();
        for (age, is_kept) in [(MIN_REST, false), (MIN_REST * 2, true), (Duration::ZERO, false)] {
            let part = part(1, NOW - age);
            let Lookup::Own(claim) = ask(&hashes, part) else { panic!("it was never kept") };
            claim.finish(TransferHash([7; 32]));
            assert_eq!(matches!(ask(&hashes, part), Lookup::Known(_)), is_kept, "{age:?}");
        }
    }

    #[test]
    fn the_cache_is_bounded() {
        let hashes = Hashes::default();
        for inode in 0..MAX_CACHED as u64 + 10 {
            let Lookup::Own(claim) = ask(&hashes, part(inode, Duration::ZERO)) else { panic!() };
            claim.finish(TransferHash([7; 32]));
        }
        let state = hashes.lock();
        assert_eq!(
            (state.known.len(), state.order.len(), state.running.len()),
            (MAX_CACHED, MAX_CACHED, 0)
        );
    }
}
