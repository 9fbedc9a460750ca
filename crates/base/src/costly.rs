//! Turns for costly work that peers request: hashing, listing, compiling patterns.
//!
//! Such work never runs on a thread of the runtime, and starts only after the peer's rights were checked. Each peer has
//! at most one turn at a time, however many channels it uses. All peers together have turns for half of the processors,
//! or `LEAST` turns if that is more, because some of the work waits for disks. The work runs on threads of lower
//! priority than those of the runtime, so that short requests overtake it; that of peers that requested much of it
//! recently runs at a still lower one. A turn is short ([`SLICE`]): longer work ends its turn and waits for the next
//! one. A turn that lasts far longer is assumed to wait for a disk that does not answer; it is then replaced, so that
//! waiting peers get a turn.

use super::budget::PeerKey;
use parking_lot::{Mutex, MutexGuard};
use rustix::{
    process::{getpriority_process, setpriority_process},
    thread::gettid,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZero,
    pin::pin,
    sync::{Arc, LazyLock, Weak},
    thread,
    time::Duration,
};
use tokio::{
    runtime::{Builder, Runtime},
    sync::{Mutex as AsyncMutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore},
    task::{JoinError, spawn_blocking},
    time::{Instant, sleep},
};

/// The longest turn. A waiting peer waits for one turn of each peer ahead of it, so a turn must be short.
pub const SLICE: Duration = Duration::from_millis(100);

/// The least number of turns for all peers on hosts with few processors, because a slow disk may hold a turn for long.
const LEAST: usize = 4;

/// A turn of this age is assumed to be stuck on a disk.
const STUCK: Duration = Duration::from_secs(10);

/// How often a waiting peer checks for stuck turns.
const LOOK: Duration = Duration::from_secs(1);

/// The most turns that are replaced at a time: each holds a thread.
const REPLACED: usize = 64;

/// The most threads: turns for all peers on 384 processors, and those that were replaced.
const THREADS: usize = 256;

/// The nice value of threads with costly work, relative to that of the process: about a third of the weight. More would
/// starve transfers on a busy host.
const NICE: i32 = 5;

/// How long a thread without work stays.
const KEPT: Duration = Duration::from_secs(10);

/// The same for peers that requested much work recently, so that the work of others overtakes theirs.
const NICE_FOR_HEAVY: i32 = 15;

/// A peer with more recent work than this waits behind others.
const HEAVY: Duration = Duration::from_millis(100);

/// The half-life of recent work.
const HALVED: Duration = Duration::from_secs(1);

/// The most peers whose recent work is remembered. If there are more, the peer with the least is forgotten.
const REMEMBERED: usize = 1024;

/// The runtime whose blocking pool does the work; `None` if it cannot be made, and then the caller's pool does it.
static POOL: LazyLock<Option<Runtime>> = LazyLock::new(|| pool(NICE));

/// The same for peers that requested much work recently.
static POOL_FOR_HEAVY: LazyLock<Option<Runtime>> = LazyLock::new(|| pool(NICE_FOR_HEAVY));

fn pool(nice: i32) -> Option<Runtime> {
    let mut pool = Builder::new_current_thread();
    pool.thread_name("costly").thread_keep_alive(KEPT).max_blocking_threads(THREADS);
    pool.on_thread_start(move || lower_priority(nice)).build().ok()
}

/// Lowers the calling thread's priority.
fn lower_priority(by: i32) {
    let thread = Some(gettid());
    let nice = getpriority_process(None).unwrap_or(0);
    // If the system refuses, the work has the same priority as short requests.
    _ = setpriority_process(thread, nice.saturating_add(by).min(19));
}

/// The recent work of all peers.
static RECENT: LazyLock<Mutex<RecentWork>> = LazyLock::new(Mutex::default);

/// The recent work of each peer, decaying.
#[derive(Debug, Default)]
struct RecentWork(BTreeMap<PeerKey, (Instant, Duration)>);

impl RecentWork {
    fn of(&self, who: PeerKey, now: Instant) -> Duration {
        self.0.get(&who).map_or(Duration::ZERO, |(at, work)| {
            let halves = now.saturating_duration_since(*at).div_duration_f64(HALVED);
            work.mul_f64(0.5_f64.powf(halves))
        })
    }

    fn add(&mut self, who: PeerKey, took: Duration, now: Instant) {
        let work = self.of(who, now) + took;
        self.0.insert(who, (now, work));
        if self.0.len() > REMEMBERED {
            let least = self.0.keys().copied().min_by_key(|who| self.of(*who, now));
            least.map(|who| self.0.remove(&who));
        }
    }
}

/// The turns of this process.
static TURNS: LazyLock<Turns> = LazyLock::new(|| {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    Turns::new(processors.div_ceil(2).max(LEAST))
});

/// Turns: at most one for each peer and a fixed number for all. Waiting peers are served in order of arrival, so each
/// waits for at most one turn of every other peer, however much work these request.
#[derive(Debug)]
pub struct Turns {
    all: Arc<Semaphore>,
    held: Arc<Mutex<HeldTurns>>,
    own: Mutex<BTreeMap<PeerKey, Weak<AsyncMutex<()>>>>,
}

/// The turns that are held, with their start times, and those that were replaced.
#[derive(Debug, Default)]
struct HeldTurns {
    next: u64,
    since: BTreeMap<u64, Instant>,
    replaced: BTreeSet<u64>,
}

/// A turn; ends when it is dropped.
#[derive(Debug)]
pub struct Turn {
    all: Option<OwnedSemaphorePermit>,
    held: Arc<Mutex<HeldTurns>>,
    number: u64,
    _own: OwnedMutexGuard<()>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut held = lock(&self.held);
        held.since.remove(&self.number);
        if held.replaced.remove(&self.number) {
            // A replaced turn has given its permit to another one.
            self.all.take().into_iter().for_each(OwnedSemaphorePermit::forget);
        }
    }
}

fn lock(held: &Mutex<HeldTurns>) -> MutexGuard<'_, HeldTurns> {
    held.lock()
}

/// Waits for a turn of this peer.
pub async fn turn(who: PeerKey) -> Turn {
    TURNS.turn(who).await
}

/// Does the work in a turn of this peer, on a thread of low priority.
///
/// # Errors
/// If it panics.
pub async fn run<T: Send + 'static>(
    who: PeerKey,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    let turn = turn(who).await;
    let recent = || RECENT.lock();
    let is_heavy = recent().of(who, Instant::now()) > HEAVY;
    let work = move || {
        // The turn is held until the work ends, even if the caller no longer waits for it.
        let _turn = turn;
        let began = Instant::now();
        let done = work();
        recent().add(who, began.elapsed(), Instant::now());
        done
    };
    match if is_heavy { &*POOL_FOR_HEAVY } else { &*POOL } {
        Some(pool) => pool.spawn_blocking(work).await,
        None => spawn_blocking(work).await,
    }
}

impl Turns {
    /// Creates a scheduler with this number of turns.
    pub fn new(all: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), held: Arc::default(), own: Mutex::default() }
    }

    /// Waits for a turn of this peer. The peer's own permit comes first, so that one peer has at most one request in
    /// the common queue.
    pub async fn turn(&self, who: PeerKey) -> Turn {
        let own = self.own(who).lock_owned().await;
        let mut acquiring = pin!(Arc::clone(&self.all).acquire_owned());
        loop {
            tokio::select! {
                biased;
                // The semaphore is never closed.
                Ok(all) = &mut acquiring => return self.begin(all, own),
                () = sleep(LOOK) => self.replace_stuck(Instant::now()),
            }
        }
    }

    fn begin(&self, all: OwnedSemaphorePermit, own: OwnedMutexGuard<()>) -> Turn {
        let mut held = lock(&self.held);
        let number = held.next;
        held.next += 1;
        held.since.insert(number, Instant::now());
        Turn { all: Some(all), held: Arc::clone(&self.held), number, _own: own }
    }

    /// Replaces each turn that is stuck by a new one.
    fn replace_stuck(&self, now: Instant) {
        let mut held = lock(&self.held);
        let is_stuck = |since: &Instant| now.saturating_duration_since(*since) >= STUCK;
        let stuck: Vec<u64> = held
            .since
            .iter()
            .filter(|(_, since)| is_stuck(since))
            .map(|(number, _)| *number)
            .collect();
        for number in stuck {
            if held.replaced.len() < REPLACED && held.replaced.insert(number) {
                self.all.add_permits(1);
            }
        }
    }

    fn own(&self, who: PeerKey) -> Arc<AsyncMutex<()>> {
        let mut all = self.own.lock();
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

    /// The output of a future if it is ready at the next poll.
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
    async fn a_peer_has_one_turn_and_all_peers_have_a_limited_number() {
        let turns = Turns::new(2);
        let first = turns.turn(peer(1)).await;
        let mut second = pin!(turns.turn(peer(1)));
        assert!(polled(&mut second).await.is_none(), "it has one already");
        let _other = turns.turn(peer(2)).await;
        let mut third = pin!(turns.turn(peer(3)));
        assert!(polled(&mut third).await.is_none(), "all are taken");
        drop(first);
        // The waiting peer comes before the peer that just had a turn.
        let third = polled(&mut third).await;
        assert!(third.is_some() && polled(&mut second).await.is_none());
        drop(third);
        assert!(polled(&mut second).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn turns_that_wait_for_a_disk_do_not_block_others() {
        let turns = Turns::new(2);
        let stuck = [turns.turn(peer(1)).await, turns.turn(peer(2)).await];
        // The paused clock advances while it waits.
        let third = turns.turn(peer(3)).await;
        let mut again = pin!(turns.turn(peer(1)));
        assert!(polled(&mut again).await.is_none(), "it has its own turn still");
        let fourth = turns.turn(peer(4)).await;
        // Stuck turns that end late do not add places.
        drop(stuck);
        let mut fifth = pin!(turns.turn(peer(5)));
        assert!(polled(&mut fifth).await.is_none() && polled(&mut again).await.is_none());
        drop((third, fourth));
        assert!(polled(&mut again).await.is_some() && polled(&mut fifth).await.is_some());
        assert_eq!(turns.all.available_permits(), 2);
    }

    #[tokio::test]
    async fn work_runs_at_a_lower_priority_than_the_runtime() {
        let priority = || getpriority_process(Some(gettid())).unwrap();
        let lowered = run(peer(250), priority).await.unwrap();
        assert_eq!(lowered, (priority() + NICE).min(19));
    }

    #[test]
    fn recent_work_decays_and_takes_bounded_memory() {
        let (mut recent, now) = (RecentWork::default(), Instant::now());
        recent.add(peer(1), Duration::from_millis(400), now);
        assert_eq!(recent.of(peer(1), now + 2 * HALVED), Duration::from_millis(100));
        assert_eq!(recent.of(peer(2), now), Duration::ZERO);
        for n in 0..2 * REMEMBERED as u32 {
            let other = PeerKey::Address(Ipv4Addr::from_bits(n).into());
            recent.add(other, Duration::from_millis(1), now);
        }
        assert!(recent.0.len() <= REMEMBERED);
        assert_eq!(recent.of(peer(1), now), Duration::from_millis(400));
    }

    #[tokio::test]
    async fn peers_without_work_are_forgotten() {
        let turns = Turns::new(2);
        for n in 0..100 {
            drop(turns.turn(peer(n)).await);
        }
        assert!(turns.own.lock().len() <= 1);
    }
}
