//! The slots of members and of this host's programs at a node: one for each subscriber, each remote publisher's stream,
//! and each stream that this node relays for a member.

use crate::Settings;
use parking_lot::Mutex;
use std::{collections::BTreeMap, sync::Arc};
use thalweg_wire::mesh::Name;

/// One part in so many of the bounds on streams and subscribers is reserved for this host's programs.
const OWNERS_PART: usize = 8;

/// How many of `all` slots members may use together.
pub(crate) fn member_limit(all: usize) -> usize {
    // A single slot is not reserved.
    all.saturating_sub(all.div_ceil(OWNERS_PART)).max(all.min(1))
}

/// The slots in use.
#[derive(Debug)]
pub(crate) struct Slots {
    /// Their number by member; `None`: by programs of this host.
    used: Mutex<BTreeMap<Option<Name>, usize>>,
    max: usize,
    max_each: usize,
}

/// A claimed slot; freed on drop.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Arc<Slots>,
    /// The member that uses it; `None`: a program of this host.
    member: Option<Name>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut used = self.slots.used.lock();
        if let Some(count) = used.get_mut(&self.member) {
            *count -= 1;
            if *count == 0 {
                used.remove(&self.member);
            }
        }
    }
}

impl Slots {
    /// Creates slots, all of them free. A member may use at most half of `max_streams`.
    pub fn new(settings: &Settings) -> Arc<Self> {
        let max_each = settings.max_streams.div_ceil(2);
        Arc::new(Self { used: Mutex::default(), max: settings.max_subscribers, max_each })
    }

    /// Claims a slot if one is free.
    pub fn claim(self: &Arc<Self>, member: Option<Name>) -> Option<Slot> {
        let mut used = self.used.lock();
        let (all, own) = (used.values().sum::<usize>(), used.get(&member).copied().unwrap_or(0));
        let is_full = match member {
            Some(_) => own >= self.max_each || all >= member_limit(self.max),
            None => all >= self.max,
        };
        if is_full {
            return None;
        }
        *used.entry(member.clone()).or_default() += 1;
        Some(Slot { slots: Arc::clone(self), member })
    }

    /// The number of slots in use.
    pub fn count(&self) -> usize {
        self.used.lock().values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_leave_places_to_the_owner() {
        let settings = Settings { max_streams: 64, max_subscribers: 64, ..Settings::default() };
        let slots = Slots::new(&settings);
        let mut held = Vec::new();
        for member in ["n1", "n2", "n3"] {
            let member = || Some(member.parse().unwrap());
            held.extend(std::iter::from_fn(|| slots.claim(member())));
        }
        assert_eq!((held.len(), slots.count()), (56, 56), "n1 and n2 have 32 and 24 of them");
        held.extend(std::iter::from_fn(|| slots.claim(None)));
        assert_eq!(held.len(), 64);
        drop(held);
        assert_eq!(slots.count(), 0);
        assert_eq!([0, 1, 2, 4, 9].map(member_limit), [0, 1, 1, 3, 7]);
    }
}
