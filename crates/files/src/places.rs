//! How many channels are served at a time, and whose.
//!
//! No member has more than a share, so that one that keeps its places leaves room for the others.
//! Who finds none free gets that of a channel that has rested for longest, or waits a while: a schedule
//! may let many transfers of one member begin at the same time.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use thalweg_wire::mesh::Name;
use tokio::{
    sync::Notify,
    time::{Instant, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;

/// A member's share of all places: one in so many.
const SHARE: usize = 4;

/// But so many in any case, if there are: a collection needs some at once.
const LEAST: usize = 4;

/// Who has just been answered may be about to ask again: its place is not taken.
const RESTED: Duration = Duration::from_secs(10);

/// A request waits so long for a place; places turn over with each request.
const PATIENCE: Duration = Duration::from_secs(60);

/// While it waits, others come to have rested.
const AGAIN: Duration = Duration::from_secs(1);

/// A member's channels that wait, for each of its places. A further one is answered *busy* at once.
const WAITING: usize = 4;

/// All places.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    taken: Mutex<Taken>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    by_number: BTreeMap<u64, Held>,
    waiting: BTreeMap<Name, usize>,
}

/// A channel that waits for a place.
struct Waiting<'a>(&'a Places, &'a Name);

#[derive(Debug)]
struct Held {
    member: Name,
    /// Since when nothing was asked; `None`: a request is under way.
    resting: Option<Instant>,
    lost: CancellationToken,
}

/// A place, until it is dropped or lost to another channel.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    number: u64,
    lost: CancellationToken,
}

impl Places {
    /// So many.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: Mutex::default(), freed: Notify::new() })
    }

    fn share(&self) -> usize {
        (self.most / SHARE).max(LEAST).min(self.most)
    }

    /// A place for a channel of this member, if there is one.
    pub fn take(self: &Arc<Self>, member: &Name) -> Option<Place> {
        let mut taken = self.lock();
        let own = taken.by_number.values().filter(|held| held.member == *member).count();
        if own >= self.share() {
            taken.free_oldest(Some(member))?;
        } else if taken.by_number.len() >= self.most {
            taken.free_oldest(None)?;
        }
        let (number, lost) = (taken.next, CancellationToken::new());
        taken.next += 1;
        let resting = Some(Instant::now());
        let held = Held { member: member.clone(), resting, lost: lost.clone() };
        taken.by_number.insert(number, held);
        Some(Place { places: Arc::clone(self), number, lost })
    }

    /// The same, waited for; `None` if there was none in a minute, or too many of this member wait.
    pub async fn wait(self: &Arc<Self>, member: &Name) -> Option<Place> {
        let _waiting = Waiting::begin(self, member)?;
        let end = Instant::now() + PATIENCE;
        loop {
            let freed = self.freed.notified();
            if let Some(place) = self.take(member) {
                return Some(place);
            }
            // Late or freed, it is tried again.
            _ = timeout_at(end, timeout(AGAIN, freed)).await.ok()?;
        }
    }

    /// A thread that panicked in here left whole entries.
    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> Waiting<'a> {
    fn begin(places: &'a Places, member: &'a Name) -> Option<Self> {
        let mut taken = places.lock();
        let waiting = taken.waiting.entry(member.clone()).or_default();
        if *waiting >= places.share() * WAITING {
            return None;
        }
        *waiting += 1;
        Some(Self(places, member))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut taken = self.0.lock();
        if let Some(waiting) = taken.waiting.get_mut(self.1) {
            *waiting -= 1;
            if *waiting == 0 {
                taken.waiting.remove(self.1);
            }
        }
    }
}

impl Taken {
    /// Frees the place that rests for longest, of this member or of all; `None`: all work, or did
    /// just now.
    fn free_oldest(&mut self, of: Option<&Name>) -> Option<()> {
        let now = Instant::now();
        let may = |held: &&Held| of.is_none_or(|member| held.member == *member);
        let resting = self.by_number.iter().filter(|(_, held)| may(held));
        let resting = resting.filter_map(|(number, held)| Some((held.resting?, *number)));
        let (since, number) = resting.min()?;
        if now.duration_since(since) < RESTED {
            return None;
        }
        self.by_number.remove(&number)?.lost.cancel();
        Some(())
    }
}

impl Place {
    /// A request is answered: the next one is waited for.
    pub fn rest(&self) {
        self.set(Some(Instant::now()));
    }

    /// A request is here; whether the place is still there for it.
    pub fn work(&self) -> bool {
        self.set(None)
    }

    /// Ends once another channel has the place.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }

    fn set(&self, resting: Option<Instant>) -> bool {
        let mut taken = self.places.lock();
        let held = taken.by_number.get_mut(&self.number);
        held.map(|held| held.resting = resting).is_some()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().by_number.remove(&self.number);
        self.places.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_has_its_share_and_others_find_room() {
        let places = Places::new(32);
        let held: Vec<Place> = (0..8).map(|_| places.take(&name("a")).unwrap()).collect();
        assert!(places.take(&name("a")).is_none(), "it has a quarter");
        let other = places.take(&name("b"));
        assert!(other.is_some());
        drop(held);
        assert!(places.take(&name("a")).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_gets_the_place_that_is_freed_and_not_for_ever() {
        let places = Places::new(4);
        let held: Vec<Place> = (0..4).map(|_| places.take(&name("a")).unwrap()).collect();
        held.iter().for_each(|place| assert!(place.work()));
        let begun = Instant::now();
        assert!(places.wait(&name("a")).await.is_none());
        assert!(begun.elapsed() >= PATIENCE);
        let waits = tokio::spawn({
            let places = Arc::clone(&places);
            async move { places.wait(&name("a")).await }
        });
        tokio::task::yield_now().await;
        drop(held);
        assert!(waits.await.unwrap().is_some());
        assert!(places.lock().waiting.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_wait() {
        let places = Places::new(4);
        let held: Vec<Place> = (0..4).map(|_| places.take(&name("a")).unwrap()).collect();
        held.iter().for_each(|place| assert!(place.work()));
        let member = name("a");
        let most = places.share() * WAITING;
        let all: Vec<_> = (0..most).map(|_| Waiting::begin(&places, &member).unwrap()).collect();
        assert!(places.wait(&member).await.is_none());
        drop(all);
        assert!(places.lock().waiting.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_place_that_rests_for_longest_goes() {
        let places = Places::new(4);
        let [first, second, third, fourth] = ["a", "a", "a", "b"].map(|member| {
            let place = places.take(&name(member)).unwrap();
            assert!(place.work());
            place
        });
        tokio::time::advance(RESTED * 100).await;
        assert!(places.take(&name("c")).is_none(), "all work");
        second.rest();
        tokio::time::advance(RESTED / 2).await;
        third.rest();
        fourth.rest();
        assert!(places.take(&name("c")).is_none(), "it may be about to ask");
        tokio::time::advance(RESTED / 2).await;
        let fifth = places.take(&name("c")).unwrap();
        second.lost().await;
        assert!(!second.work(), "it has no place any more");
        assert!(first.work() && third.work() && fourth.work() && fifth.work());
        drop(second);
        assert!(places.take(&name("c")).is_none(), "all places are taken");
    }
}
