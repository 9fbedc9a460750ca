//! Slots for channels: the number of channels that are served at a time is bounded, in all and for each member.
//!
//! No member has more than its share of the slots, so that a member that holds its slots leaves room for the others. If
//! no slot is free, a new request takes the slot of the channel that has been idle longest, or waits up to a minute: a
//! schedule may let many transfers of one member begin at the same time.

use parking_lot::{Mutex, MutexGuard};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use thalweg_wire::mesh::Name;
use tokio::{
    sync::Notify,
    time::{Instant, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;

/// A member may have one in this many of all slots.
const SHARE_DIVISOR: usize = 4;

/// A member may have at least this many slots, because a collection needs several at once.
const MIN_SHARE: usize = 4;

/// A channel keeps its slot this long after its last answer, since its peer may be about to send the next request.
const MIN_IDLE: Duration = Duration::from_secs(10);

/// How long a request waits for a slot. Slots change hands with each request.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// How often a waiting request tries again, since further channels become idle meanwhile.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The most waiting channels of a member, per slot of its share. Further ones are answered *busy* at once.
const MAX_WAITING_PER_SLOT: usize = 4;

/// All slots.
#[derive(Debug)]
pub(super) struct Slots {
    most: usize,
    taken: Mutex<SlotTable>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct SlotTable {
    next: u64,
    by_number: BTreeMap<u64, TakenSlot>,
    waiting: BTreeMap<Name, usize>,
}

/// A channel that waits for a slot; dropping it ends the wait.
struct SlotWait<'a>(&'a Slots, &'a Name);

#[derive(Debug)]
struct TakenSlot {
    member: Name,
    /// Since when the channel is idle; `None` while a request is in progress.
    idle_since: Option<Instant>,
    lost: CancellationToken,
}

/// A slot, held until it is dropped or lost to another channel.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Arc<Slots>,
    number: u64,
    lost: CancellationToken,
}

impl Slots {
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: Mutex::default(), freed: Notify::new() })
    }

    fn share(&self) -> usize {
        (self.most / SHARE_DIVISOR).max(MIN_SHARE).min(self.most)
    }

    /// Takes a slot for a channel of this member; `None` if none is free.
    pub fn take(self: &Arc<Self>, member: &Name) -> Option<Slot> {
        let mut taken = self.lock();
        let own = taken.by_number.values().filter(|held| held.member == *member).count();
        if own >= self.share() {
            taken.free_oldest(Some(member))?;
        } else if taken.by_number.len() >= self.most {
            taken.free_oldest(None)?;
        }
        let (number, lost) = (taken.next, CancellationToken::new());
        taken.next += 1;
        let idle_since = Some(Instant::now());
        let held = TakenSlot { member: member.clone(), idle_since, lost: lost.clone() };
        taken.by_number.insert(number, held);
        Some(Slot { slots: Arc::clone(self), number, lost })
    }

    /// Waits for a slot; `None` if none became free within [`MAX_WAIT`], or if too many channels of this member wait
    /// already.
    pub async fn wait(self: &Arc<Self>, member: &Name) -> Option<Slot> {
        let _waiting = SlotWait::begin(self, member)?;
        let end = Instant::now() + MAX_WAIT;
        loop {
            let freed = self.freed.notified();
            if let Some(slot) = self.take(member) {
                return Some(slot);
            }
            // Try again after [`RETRY_INTERVAL`] as well as after a slot was freed.
            _ = timeout_at(end, timeout(RETRY_INTERVAL, freed)).await.ok()?;
        }
    }

    fn lock(&self) -> MutexGuard<'_, SlotTable> {
        self.taken.lock()
    }
}

impl<'a> SlotWait<'a> {
    fn begin(slots: &'a Slots, member: &'a Name) -> Option<Self> {
        let mut taken = slots.lock();
        let waiting = taken.waiting.entry(member.clone()).or_default();
        if *waiting >= slots.share() * MAX_WAITING_PER_SLOT {
            return None;
        }
        *waiting += 1;
        Some(Self(slots, member))
    }
}

impl Drop for SlotWait<'_> {
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

impl SlotTable {
    /// Frees the slot that has been idle longest, of this member or of all; `None` if every channel is busy or was
    /// until just now.
    fn free_oldest(&mut self, of: Option<&Name>) -> Option<()> {
        let now = Instant::now();
        let may = |held: &&TakenSlot| of.is_none_or(|member| held.member == *member);
        let idle = self.by_number.iter().filter(|(_, held)| may(held));
        let idle = idle.filter_map(|(number, held)| Some((held.idle_since?, *number)));
        let (since, number) = idle.min()?;
        if now.duration_since(since) < MIN_IDLE {
            return None;
        }
        self.by_number.remove(&number)?.lost.cancel();
        Some(())
    }
}

impl Slot {
    /// Marks the channel as idle: its request is answered.
    pub fn set_idle(&self) {
        self.set(Some(Instant::now()));
    }

    /// Marks the channel as busy with a request. Returns false if the slot is lost.
    pub fn set_busy(&self) -> bool {
        self.set(None)
    }

    /// Completes once another channel has taken the slot.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }

    fn set(&self, idle_since: Option<Instant>) -> bool {
        let mut taken = self.slots.lock();
        let held = taken.by_number.get_mut(&self.number);
        held.map(|held| held.idle_since = idle_since).is_some()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.lock().by_number.remove(&self.number);
        self.slots.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_gets_at_most_its_share() {
        let slots = Slots::new(32);
        let held: Vec<Slot> = (0..8).map(|_| slots.take(&name("a")).unwrap()).collect();
        assert!(slots.take(&name("a")).is_none(), "it has a quarter");
        let other = slots.take(&name("b"));
        assert!(other.is_some());
        drop(held);
        assert!(slots.take(&name("a")).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_channel_gets_a_freed_slot_or_times_out() {
        let slots = Slots::new(4);
        let held: Vec<Slot> = (0..4).map(|_| slots.take(&name("a")).unwrap()).collect();
        held.iter().for_each(|slot| assert!(slot.set_busy()));
        let begun = Instant::now();
        assert!(slots.wait(&name("a")).await.is_none());
        assert!(begun.elapsed() >= MAX_WAIT);
        let waits = tokio::spawn({
            let slots = Arc::clone(&slots);
            async move { slots.wait(&name("a")).await }
        });
        tokio::task::yield_now().await;
        drop(held);
        assert!(waits.await.unwrap().is_some());
        assert!(slots.lock().waiting.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_channels_are_bounded() {
        let slots = Slots::new(4);
        let held: Vec<Slot> = (0..4).map(|_| slots.take(&name("a")).unwrap()).collect();
        held.iter().for_each(|slot| assert!(slot.set_busy()));
        let member = name("a");
        let most = slots.share() * MAX_WAITING_PER_SLOT;
        let all: Vec<_> = (0..most).map(|_| SlotWait::begin(&slots, &member).unwrap()).collect();
        assert!(slots.wait(&member).await.is_none());
        drop(all);
        assert!(slots.lock().waiting.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_slot_that_is_idle_longest_is_taken() {
        let slots = Slots::new(4);
        let [first, second, third, fourth] = ["a", "a", "a", "b"].map(|member| {
            let slot = slots.take(&name(member)).unwrap();
            assert!(slot.set_busy());
            slot
        });
        tokio::time::advance(MIN_IDLE * 100).await;
        assert!(slots.take(&name("c")).is_none(), "all work");
        second.set_idle();
        tokio::time::advance(MIN_IDLE / 2).await;
        third.set_idle();
        fourth.set_idle();
        assert!(slots.take(&name("c")).is_none(), "it may be about to ask");
        tokio::time::advance(MIN_IDLE / 2).await;
        let fifth = slots.take(&name("c")).unwrap();
        second.lost().await;
        assert!(!second.set_busy(), "it has no place any more");
        assert!(first.set_busy() && third.set_busy() && fourth.set_busy() && fifth.set_busy());
        drop(second);
        assert!(slots.take(&name("c")).is_none(), "all places are taken");
    }
}
