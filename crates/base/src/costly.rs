//! Turns for costly work that peers order: hashing, listing, compiling patterns.
//!
//! Such work never runs on a thread of the runtime, and never before the peer's rights are checked. Each peer has one turn
//! at a time, however many channels it uses, and all together have half of the processors, or [`LEAST`] turns: some of the work
//! waits for disks. A turn is short ([`SLICE`]): longer work gives it back in between, and waits for the next one.

use super::budget::PeerKey;
use std::{
    collections::BTreeMap,
    num::NonZero,
    sync::{Arc, LazyLock, Mutex, PoisonError, Weak},
    thread,
    time::Duration,
};
use tokio::{
    sync::{Mutex as AsyncMutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore},
    task::{JoinError, spawn_blocking},
};

/// How long a turn may last: a tenth of a second is what others wait for each peer before them.
pub const SLICE: Duration = Duration::from_millis(100);

/// Turns of all peers on hosts with few processors: a disk that does not answer holds a turn for long.
const LEAST: usize = 4;

/// The turns of this process.
static TURNS: LazyLock<Turns> = LazyLock::new(|| {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    Turns::new(processors.div_ceil(2).max(LEAST))
});

/// Turns: one at a time for each peer, and so many for all. Peers that wait get theirs in the order in which they came, so
/// that each waits for one turn of every other one at most, however much these want.
#[derive(Debug)]
pub struct Turns {
    all: Arc<Semaphore>,
    own: Mutex<BTreeMap<PeerKey, Weak<AsyncMutex<()>>>>,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub struct Turn {
    _all: OwnedSemaphorePermit,
    _own: OwnedMutexGuard<()>,
}

/// Waits for a turn of this peer.
pub async fn turn(who: PeerKey) -> Turn {
    TURNS.turn(who).await
}

/// Does the work in a turn of this peer, off the runtime.
///
/// # Errors
/// If it panics.
pub async fn run<T: Send + 'static>(
    who: PeerKey,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    let turn = turn(who).await;
    spawn_blocking(move || {
        // Held to the end of the work, also if nobody waits for it any more.
        let _turn = turn;
        work()
    })
    .await
}

impl Turns {
    /// So many turns at a time.
    pub fn new(all: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), own: Mutex::default() }
    }

    /// Waits for a turn of this peer. Its own turn comes first, so that it waits among all with one request only.
    pub async fn turn(&self, who: PeerKey) -> Turn {
        let own = self.own(who).lock_owned().await;
        loop {
            // Nobody closes it.
            if let Ok(all) = Arc::clone(&self.all).acquire_owned().await {
                return Turn { _all: all, _own: own };
            }
        }
    }

    fn own(&self, who: PeerKey) -> Arc<AsyncMutex<()>> {
        // Each change of the map is complete, even if a thread panicked.
        let mut all = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(&who).and_then(Weak::upgrade) {
            return known;
        }
        all.retain(|_, own| own.strong_count() > 0);
        let own = Arc::default();
        all.insert(who, Arc::downgrade(&own));
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        future::{Future, poll_fn},
        net::Ipv4Addr,
        pin::{Pin, pin},
        task::Poll,
    };

    /// What a future gives at its next poll, if it is ready then.
    async fn polled<F: Future>(future: &mut Pin<&mut F>) -> Option<F::Output> {
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    fn peer(n: u8) -> PeerKey {
        PeerKey::Address(Ipv4Addr::new(10, 0, 0, n).into())
    }

    #[tokio::test]
    async fn a_peer_has_one_turn_and_all_have_so_many() {
        let turns = Turns::new(2);
        let first = turns.turn(peer(1)).await;
        let mut second = pin!(turns.turn(peer(1)));
        assert!(polled(&mut second).await.is_none(), "it has one already");
        let _other = turns.turn(peer(2)).await;
        let mut third = pin!(turns.turn(peer(3)));
        assert!(polled(&mut third).await.is_none(), "all are taken");
        drop(first);
        // The peer that waited among all is before the one that had a turn.
        let third = polled(&mut third).await;
        assert!(third.is_some() && polled(&mut second).await.is_none());
        drop(third);
        assert!(polled(&mut second).await.is_some());
    }

    #[tokio::test]
    async fn peers_without_work_are_forgotten() {
        let turns = Turns::new(2);
        for n in 0..100 {
            drop(turns.turn(peer(n)).await);
        }
        assert!(turns.own.lock().unwrap().len() <= 1);
    }
}
