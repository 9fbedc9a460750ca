//! Places for connections and requests of peers: bounded in total and for each party. When all are taken, the party
//! that holds the most loses one.
//!
//! A place has a weight: 1 for a connection, the number of its bytes for a request. When all places are taken, a
//! newcomer gets one of the party that holds the most, provided that this party then still holds at least as much as
//! the newcomer. So a party with many connections cannot keep out a party with few, however fast it renews them. Among
//! parties of equal weight the oldest place is evicted, once it is as old as [`Bounds::grace`].
//!
//! Pure except for its lock: times are arguments.

use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// The bounds of a [`FairSlots`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The total weight of all places.
    pub all: usize,
    /// The most weight of one party's places.
    pub each: usize,
    /// The age from which a place may be evicted for the same party or for one of equal weight; `None`: never.
    pub grace: Option<Duration>,
}

/// The places; cheap to clone.
#[derive(Debug)]
pub struct FairSlots<Party: Ord + Copy> {
    bounds: Bounds,
    state: Arc<Mutex<State<Party>>>,
}

#[derive(Debug)]
struct State<Party: Ord> {
    next: u64,
    holdings: Holdings<Party>,
    taken: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    since: Instant,
    /// Dropped when the place is evicted, which notifies its holder.
    _held: watch::Sender<()>,
}

/// What each party holds, under increasing numbers; finds the party that holds the most in logarithmic time.
#[derive(Clone, Debug)]
pub struct Holdings<Party: Ord> {
    all: u64,
    /// The party and weight of each entry.
    by_number: BTreeMap<u64, (Party, u64)>,
    /// The entries of each party, the oldest first, and their total weight.
    parties: BTreeMap<Party, (u64, BTreeSet<u64>)>,
    by_weight: BTreeSet<(u64, Party)>,
}

impl<Party: Ord> Default for Holdings<Party> {
    fn default() -> Self {
        let (by_number, parties, by_weight) = Default::default();
        Self { all: 0, by_number, parties, by_weight }
    }
}

impl<Party: Ord + Copy> Holdings<Party> {
    /// Adds an entry of the party under a number that was not used before.
    pub fn insert(&mut self, number: u64, party: Party, weight: u64) {
        self.change(party, |sum, numbers| {
            *sum += weight;
            numbers.insert(number);
        });
        self.by_number.insert(number, (party, weight));
        self.all += weight;
    }

    /// Removes an entry. Returns its party and weight, or `None` if there is none with this number.
    pub fn remove(&mut self, number: u64) -> Option<(Party, u64)> {
        let (party, weight) = self.by_number.remove(&number)?;
        self.change(party, |sum, numbers| {
            *sum -= weight;
            numbers.remove(&number);
        });
        self.all -= weight;
        Some((party, weight))
    }

    fn change(&mut self, party: Party, change: impl FnOnce(&mut u64, &mut BTreeSet<u64>)) {
        let (sum, numbers) = self.parties.entry(party).or_default();
        self.by_weight.remove(&(*sum, party));
        change(sum, numbers);
        if numbers.is_empty() {
            self.parties.remove(&party);
        } else {
            self.by_weight.insert((*sum, party));
        }
    }

    /// The total weight of all parties.
    pub fn all(&self) -> u64 {
        self.all
    }

    /// The weight of one party.
    pub fn weight_of(&self, party: Party) -> u64 {
        self.parties.get(&party).map_or(0, |(weight, _)| *weight)
    }

    /// The party that holds the most, and its weight.
    pub fn heaviest(&self) -> Option<(u64, Party)> {
        self.by_weight.last().copied()
    }

    /// The smallest number of all entries.
    pub fn oldest(&self) -> Option<u64> {
        self.by_number.first_key_value().map(|(number, _)| *number)
    }

    /// The smallest number of one party's entries.
    pub fn oldest_of(&self, party: Party) -> Option<u64> {
        self.parties.get(&party)?.1.first().copied()
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.by_number.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }
}

/// A place; freed when it is dropped.
#[derive(Debug)]
pub struct Slot<Party: Ord + Copy> {
    slots: FairSlots<Party>,
    number: u64,
    held: watch::Receiver<()>,
}

impl<Party: Ord + Copy> Slot<Party> {
    /// Completes when the place is evicted; the caller must then drop the work.
    pub async fn evicted(&self) {
        let mut held = self.held.clone();
        // Nothing is ever sent.
        while held.changed().await.is_ok() {}
    }

    /// Reduces the weight of the place.
    pub fn shrink(&self, weight: usize) {
        let mut state = self.slots.lock();
        if let Some((party, before)) = state.holdings.remove(self.number) {
            state.holdings.insert(self.number, party, before.min(weight as u64));
        }
    }

    /// Whether the place was evicted.
    pub fn is_evicted(&self) -> bool {
        self.held.has_changed().is_err()
    }
}

impl<Party: Ord + Copy> Drop for Slot<Party> {
    fn drop(&mut self) {
        self.slots.lock().remove(self.number);
    }
}

impl<Party: Ord + Copy> Clone for FairSlots<Party> {
    fn clone(&self) -> Self {
        Self { bounds: self.bounds, state: Arc::clone(&self.state) }
    }
}

impl<Party: Ord + Copy> FairSlots<Party> {
    /// Creates places within these bounds.
    pub fn new(bounds: Bounds) -> Self {
        let state = State { next: 0, holdings: Holdings::default(), taken: BTreeMap::new() };
        Self { bounds, state: Arc::new(Mutex::new(state)) }
    }

    /// Takes a place of this weight for the party, evicting others if necessary; `None` if there is no room.
    pub fn enter(&self, party: Party, weight: usize, now: Instant) -> Option<Slot<Party>> {
        let mut state = self.lock();
        state.make_room(party, weight, self.bounds, now)?;
        let (number, (keep, held)) = (state.next, watch::channel(()));
        state.next += 1;
        state.holdings.insert(number, party, weight as u64);
        state.taken.insert(number, Entry { since: now, _held: keep });
        Some(Slot { slots: self.clone(), number, held })
    }

    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// The number of places that are taken.
    pub fn len(&self) -> usize {
        self.lock().taken.len()
    }

    /// Whether no place is taken.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The total weight of a party's places.
    pub fn weight_of(&self, party: Party) -> usize {
        self.lock().holdings.weight_of(party) as usize
    }

    fn lock(&self) -> MutexGuard<'_, State<Party>> {
        self.state.lock()
    }
}

impl<Party: Ord + Copy> State<Party> {
    /// Evicts places until the newcomer fits. Returns `None`, and evicts nobody, if it cannot fit.
    fn make_room(
        &mut self,
        party: Party,
        weight: usize,
        bounds: Bounds,
        now: Instant,
    ) -> Option<()> {
        let mut leaving = Vec::new();
        let fits = self.choose(&mut leaving, party, weight, bounds, now);
        match fits {
            Some(()) => leaving.iter().for_each(|(number, ..)| drop(self.taken.remove(number))),
            None => {
                for (number, party, weight) in leaving {
                    self.holdings.insert(number, party, weight);
                }
            }
        }
        fits
    }

    /// Removes from the holdings the entries that would have to be evicted.
    fn choose(
        &mut self,
        leaving: &mut Vec<(u64, Party, u64)>,
        party: Party,
        weight: usize,
        bounds: Bounds,
        now: Instant,
    ) -> Option<()> {
        if weight > bounds.each.min(bounds.all) {
            return None;
        }
        let [weight, each, all] = [weight, bounds.each, bounds.all].map(|n| n as u64);
        while self.holdings.weight_of(party) + weight > each {
            let oldest = self.holdings.oldest_of(party)?;
            self.evict_aged(leaving, oldest, bounds, now)?;
        }
        while self.holdings.all() + weight > all {
            let (most, heaviest) = self.holdings.heaviest()?;
            if most > self.holdings.weight_of(party) + weight {
                let oldest = self.holdings.oldest_of(heaviest)?;
                self.evict(leaving, oldest);
            } else {
                let oldest = self.holdings.oldest()?;
                self.evict_aged(leaving, oldest, bounds, now)?;
            }
        }
        Some(())
    }

    fn evict(&mut self, leaving: &mut Vec<(u64, Party, u64)>, number: u64) {
        let known = self.holdings.remove(number);
        leaving.extend(known.map(|(party, weight)| (number, party, weight)));
    }

    /// Removes an entry if it is older than the grace; `None` if it is not.
    fn evict_aged(
        &mut self,
        leaving: &mut Vec<(u64, Party, u64)>,
        number: u64,
        bounds: Bounds,
        now: Instant,
    ) -> Option<()> {
        let since = self.taken.get(&number)?.since;
        if now.saturating_duration_since(since) < bounds.grace? {
            return None;
        }
        self.evict(leaving, number);
        Some(())
    }

    /// Dropping the entry notifies its holder.
    fn remove(&mut self, number: u64) {
        self.taken.remove(&number);
        self.holdings.remove(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GRACE: Duration = Duration::from_secs(2);

    fn slots(all: usize, each: usize) -> FairSlots<u8> {
        FairSlots::new(Bounds { all, each, grace: Some(GRACE) })
    }

    #[test]
    fn a_newcomer_gets_a_place_of_the_party_that_holds_the_most() {
        let (slots, now) = (slots(6, 4), Instant::now());
        let many: Vec<_> = (0..4).map(|_| slots.enter(1, 1, now).unwrap()).collect();
        let few: Vec<_> = (0..2).map(|_| slots.enter(2, 1, now).unwrap()).collect();
        assert!(slots.enter(1, 1, now).is_none(), "it has its share");
        let third = slots.enter(3, 1, now).unwrap();
        assert!(many[0].is_evicted() && !many[1].is_evicted() && !third.is_evicted());
        assert!(few.iter().all(|slot| !slot.is_evicted()));
        drop(many);
        assert_eq!((slots.len(), slots.weight_of(1)), (3, 0), "an evicted place is freed once");
    }

    #[test]
    fn among_equals_the_oldest_place_is_evicted_after_the_grace_time() {
        let (slots, now) = (slots(3, 3), Instant::now());
        let held = [1, 2, 3].map(|party| slots.enter(party, 1, now).unwrap());
        assert!(slots.enter(4, 1, now + GRACE - Duration::from_millis(1)).is_none());
        let _late = slots.enter(4, 1, now + GRACE).unwrap();
        assert!(held[0].is_evicted() && !held[1].is_evicted());
        // A party that renews its connections does not evict parties that hold one.
        assert!(slots.enter(4, 1, now + GRACE / 2).is_none());
    }

    #[test]
    fn weights_are_bounded_and_nothing_larger_fits() {
        let (slots, now) = (slots(100, 60), Instant::now());
        assert!(slots.enter(1, 61, now).is_none());
        let [a, b] = [30, 30].map(|weight| slots.enter(1, weight, now).unwrap());
        let _other = slots.enter(2, 40, now).unwrap();
        assert!(slots.enter(2, 20, now).is_none(), "it would hold as much as the first");
        let _third = slots.enter(3, 10, now).unwrap();
        assert!(a.is_evicted() && !b.is_evicted());
    }

    #[test]
    fn a_place_that_became_lighter_leaves_room() {
        let (slots, now) = (slots(100, 60), Instant::now());
        let slot = slots.enter(1, 60, now).unwrap();
        assert!(slots.enter(1, 20, now).is_none());
        slot.shrink(30);
        slot.shrink(50);
        assert_eq!(slots.weight_of(1), 30, "never heavier");
        let _second = slots.enter(1, 20, now).unwrap();
        drop(slot);
        assert_eq!(slots.weight_of(1), 20);
    }

    #[test]
    fn nobody_is_evicted_for_a_newcomer_that_does_not_fit() {
        let (slots, now) = (slots(100, 60), Instant::now());
        let first = [20, 20, 20].map(|weight| slots.enter(1, weight, now).unwrap());
        let other = slots.enter(2, 40, now).unwrap();
        // One place of the first party is not enough, and the others must not be evicted.
        assert!(slots.enter(3, 45, now).is_none());
        assert!(first.iter().chain([&other]).all(|slot| !slot.is_evicted()));
        assert_eq!((slots.weight_of(1), slots.weight_of(2), slots.len()), (60, 40, 4));
        // The order of arrival is unchanged.
        let third = slots.enter(3, 20, now).unwrap();
        assert!(first[0].is_evicted() && !first[1].is_evicted() && !third.is_evicted());
    }

    #[tokio::test]
    async fn an_evicted_holder_is_notified() {
        let (slots, now) = (slots(2, 2), Instant::now());
        let [first, second] = [1, 1].map(|party| slots.enter(party, 1, now).unwrap());
        let _third = slots.enter(2, 1, now);
        // The second party would then hold more than the first.
        assert!(!second.is_evicted());
        first.evicted().await;
    }

    proptest! {
        #[test]
        fn no_bound_is_passed_and_the_sums_are_right(
            steps in prop::collection::vec((0_u8..6, 1_usize..5, any::<bool>()), 0..200)
        ) {
            let (slots, mut now) = (slots(20, 8), Instant::now());
            let mut held = Vec::new();
            for (party, weight, leaves) in steps {
                now += Duration::from_millis(300);
                if leaves && !held.is_empty() {
                    held.swap_remove(weight % held.len());
                }
                held.extend(slots.enter(party, weight, now));
                let state = slots.lock();
                let Holdings { all, by_number, parties, by_weight } = &state.holdings;
                let sum: u64 = by_number.values().map(|(_, weight)| weight).sum();
                prop_assert!(sum <= 20 && sum == *all && by_number.len() == state.taken.len());
                let of_parties: u64 = parties.values().map(|(weight, _)| weight).sum();
                prop_assert!(of_parties == sum && parties.values().all(|(w, _)| *w <= 8));
                prop_assert_eq!(by_weight.len(), parties.len());
            }
            drop(held);
            prop_assert!(slots.is_empty() && slots.lock().holdings.parties.is_empty());
        }
    }
}
