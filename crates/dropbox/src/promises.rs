//! Promises: room that a box reserves for data that was committed to and has not arrived. If the box is full, some
//! promises are released, so that their room is free again.
//!
//! Keys cost nothing, and a commitment of fifty bytes is enough for a promise. So that nobody fills a box with
//! promises, a promise reserves room for an hour only. Before that, a new commitment takes the room of the party with
//! the most promises; a member's takes that of strangers first. A party is a member, or a stranger's address. The stamp
//! of a released promise stays valid: its data is accepted while there is room.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use thalweg_base::{budget::PeerKey, fair_slots::Holdings};
use thalweg_units::WallTime;

/// How long a promise reserves room: enough to push a gigabyte at 2.3 Mbit/s.
const RESERVED_FOR: Duration = Duration::from_secs(3600);

/// The weight of a promise in addition to its bytes, so that many empty promises are not free.
const WEIGHT: u64 = 1 << 10;

/// The promises that reserve room, of strangers and of members, and the released ones.
#[derive(Debug, Default)]
pub(super) struct Promises {
    strangers: Holdings<Option<PeerKey>>,
    members: Holdings<Option<PeerKey>>,
    /// The size and date of each promise that reserves room.
    kept: BTreeMap<u64, (u64, WallTime)>,
    bytes: u64,
    released: BTreeSet<u64>,
}

impl Promises {
    /// Adds a promise, which counts for `party`; `None` if that is unknown.
    pub fn insert(&mut self, number: u64, party: Option<PeerKey>, size: u64, date: WallTime) {
        let of = if matches!(party, Some(PeerKey::Node(_))) {
            &mut self.members
        } else {
            &mut self.strangers
        };
        of.insert(number, party, size.saturating_add(WEIGHT));
        self.kept.insert(number, (size, date));
        self.bytes += size;
    }

    /// Removes a promise: its data has arrived, or it was struck.
    pub fn remove(&mut self, number: u64) {
        self.free(number);
        self.released.remove(&number);
    }

    fn free(&mut self, number: u64) {
        if let Some((size, _)) = self.kept.remove(&number) {
            self.bytes -= size;
            if self.strangers.remove(number).is_none() {
                self.members.remove(number);
            }
        }
    }

    /// The bytes that are reserved.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The number of promises that reserve room.
    pub fn count(&self) -> u64 {
        self.kept.len() as u64
    }

    /// Releases one promise to make room for a submission of this party; `None` if none may be released for it.
    pub fn release(&mut self, party: PeerKey, size: u64, now: WallTime) -> Option<()> {
        let number = self.find_releasable(party, size.saturating_add(WEIGHT), now)?;
        self.free(number);
        self.released.insert(number);
        Some(())
    }

    fn find_releasable(&self, party: PeerKey, weight: u64, now: WallTime) -> Option<u64> {
        // Numbers and dates increase together, so the first promise is the oldest.
        let (first, (_, date)) = self.kept.first_key_value()?;
        if now.as_unix_nanos().saturating_sub(date.as_unix_nanos()) > RESERVED_FOR.as_nanos() as u64
        {
            return Some(*first);
        }
        let is_member = matches!(party, PeerKey::Node(_));
        let more_than = |of: &Holdings<Option<PeerKey>>, least: u64| {
            let (most, heaviest) = of.heaviest()?;
            if most > least { of.oldest_of(heaviest) } else { None }
        };
        match is_member {
            true => more_than(&self.strangers, 0).or_else(|| {
                more_than(&self.members, self.members.weight_of(Some(party)).saturating_add(weight))
            }),
            false => {
                let own = self.strangers.weight_of(Some(party));
                more_than(&self.strangers, own.saturating_add(weight))
            }
        }
    }

    /// Removes and returns the number of the oldest released promise.
    pub fn forget(&mut self) -> Option<u64> {
        self.released.pop_first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use thalweg_units::NodeId;

    const NOW: u64 = 1_800_000_000_000_000_000;

    fn stranger(n: u8) -> PeerKey {
        PeerKey::Address(Ipv4Addr::new(10, 0, 0, n).into())
    }

    fn member(n: u8) -> PeerKey {
        PeerKey::Node(NodeId::from_bytes([n; 32]))
    }

    fn at(seconds: u64) -> WallTime {
        WallTime::from_unix_nanos(NOW + seconds * 1_000_000_000)
    }

    fn of(promises: &[(u64, PeerKey, u64)]) -> Promises {
        let mut all = Promises::default();
        for (number, party, size) in promises {
            all.insert(*number, Some(*party), *size, at(*number));
        }
        all
    }

    #[test]
    fn a_newcomer_gets_room_from_the_source_with_the_most_promises() {
        let mut promises =
            of(&[(1, stranger(1), 5000), (2, stranger(2), 9000), (3, stranger(2), 9000)]);
        assert_eq!(promises.release(stranger(3), 5000, at(10)), Some(()));
        assert_eq!((promises.bytes(), promises.count()), (14_000, 2), "the second is gone");
        assert_eq!(promises.release(stranger(2), 1, at(10)), None, "its own gives not way");
        assert_eq!(promises.release(stranger(3), 9000, at(10)), None, "it would hold as much");
        assert_eq!(promises.forget(), Some(2));
    }

    #[test]
    fn members_displace_strangers_but_not_vice_versa() {
        let mut promises = of(&[(1, member(1), 90_000), (2, stranger(2), 10)]);
        assert_eq!(promises.release(stranger(3), 10, at(10)), None);
        assert_eq!(promises.release(member(1), 90_000, at(10)), Some(()));
        assert_eq!(promises.release(member(1), 1, at(10)), None, "there is no stranger any more");
        assert_eq!(promises.release(member(2), 1, at(10)), Some(()), "the heavier member");
        assert_eq!((promises.bytes(), promises.count()), (0, 0));
    }

    #[test]
    fn a_promise_without_data_expires() {
        let mut promises = of(&[(1, stranger(1), 10), (2, stranger(1), 10)]);
        assert_eq!(promises.release(stranger(1), 10, at(3600)), None);
        assert_eq!(promises.release(stranger(1), 10, at(3602)), Some(()));
        assert_eq!(
            promises.release(stranger(1), 10, at(3602)),
            None,
            "the second is a second younger"
        );
        // Its data arrives after all.
        promises.remove(1);
        promises.remove(2);
        assert_eq!((promises.bytes(), promises.forget()), (0, None));
    }
}
