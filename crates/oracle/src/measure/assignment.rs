//! The load-aware assignment, on a thread of its own: one answer takes about a millisecond of computation, and answers
//! depend on earlier ones.

use super::{nodes::Slot, offer::Offer};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::{
    collections::HashMap,
    io,
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};
use thalweg_plan::{
    assignment::{self, Assigner, RelayLoad},
    ranking::End,
};
use tokio::sync::oneshot;

/// The most queued requests: about a second's worth, since callers would give up on answers behind a longer queue. When
/// the queue is full, relays are drawn from the better half of the ranking instead.
const WAITING: usize = 1024;

/// A client gets the same answer again for this fraction of the answer's validity.
const REUSE_FRACTION: u32 = 4;

/// Relays by slot, the best first.
type Relays = Arc<[Slot]>;

#[derive(Debug)]
enum Request {
    Renew(Arc<Offer>),
    For(Client, oneshot::Sender<Relays>),
}

/// The client and the number of relays that it requests; `None`: not a node of the mesh.
type Client = (Option<Slot>, usize);

/// A handle of the thread, which ends when the handle is dropped.
#[derive(Debug)]
pub(super) struct AssignmentService {
    asks: SyncSender<Request>,
    /// The thread has panicked. The caller got no answer, and the thread continued with the next request.
    broken: Arc<AtomicBool>,
}

impl AssignmentService {
    /// Starts the thread. Clients use candidates for `valid`.
    ///
    /// # Errors
    /// The system's error, if it cannot start a thread.
    pub fn start(valid: Duration, random: Xoshiro256PlusPlus) -> io::Result<Self> {
        let (ask, asked) = sync_channel(WAITING);
        let name = "thalweg-assign".to_owned();
        let (given, users) = (HashMap::new(), HashMap::new());
        let offer = Arc::new(Offer::nothing());
        let mut thread_state = AssignmentThread { asked, valid, random, offer, given, users };
        let broken = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&broken);
        let run = move || {
            // The memory of clients is consistent after each request.
            while panic::catch_unwind(AssertUnwindSafe(|| thread_state.run())).is_err() {
                flag.store(true, Ordering::Relaxed);
            }
        };
        thread::Builder::new().name(name).spawn(run)?;
        Ok(Self { asks: ask, broken })
    }

    /// Whether the thread has panicked since the last call.
    pub fn has_broken(&self) -> bool {
        self.broken.swap(false, Ordering::Relaxed)
    }

    /// Replaces the offer. Returns false if the queue is full; then try again.
    pub fn renew(&self, offer: Arc<Offer>) -> bool {
        !matches!(self.asks.try_send(Request::Renew(offer)), Err(TrySendError::Full(_)))
    }

    /// Relays for this client; `None` if the queue is full or the thread panicked.
    pub async fn ask(&self, client: Client) -> Option<Relays> {
        let (reply, answer) = oneshot::channel();
        self.asks.try_send(Request::For(client, reply)).ok()?;
        answer.await.ok()
    }
}

struct AssignmentThread {
    asked: Receiver<Request>,
    valid: Duration,
    random: Xoshiro256PlusPlus,
    offer: Arc<Offer>,
    /// The last answer to each client, and its time.
    given: HashMap<Client, (Relays, Instant)>,
    /// Recent assignments to each relay, decaying with time.
    users: HashMap<Slot, f64>,
}

impl AssignmentThread {
    fn run(&mut self) {
        let mut last = Instant::now();
        loop {
            self.fade(last.elapsed());
            last = Instant::now();
            match self.serve(&Arc::clone(&self.offer)) {
                Some(newer) => self.offer = newer,
                None => return,
            }
        }
    }

    /// Decays the number of assignments, since clients stop using relays after a while.
    fn fade(&mut self, passed: Duration) {
        let rest = (-passed.as_secs_f64() / self.valid.as_secs_f64().max(1e-3)).exp();
        self.users.retain(|_, users| {
            *users *= rest;
            *users > 0.01
        });
        let valid = self.valid / REUSE_FRACTION;
        self.given.retain(|_, (_, at)| at.elapsed() < valid);
    }

    /// Answers requests by this offer. Returns the next offer, or `None` when the handle is dropped.
    fn serve(&mut self, offer: &Offer) -> Option<Arc<Offer>> {
        let assigner = Assigner::new(&offer.ranked.graph, &offer.ranking);
        let mut loads = offer.loads.clone();
        loads.iter_mut().zip(0..).for_each(|(load, slot)| load.assigned = self.assigned(slot));
        loop {
            match self.asked.recv().ok()? {
                Request::Renew(newer) => return Some(newer),
                Request::For(client, reply) => {
                    let relays = self.relays(&assigner, client, &mut loads);
                    // The caller may be gone.
                    let _ = reply.send(relays);
                }
            }
        }
    }

    fn assigned(&self, slot: Slot) -> u32 {
        self.users.get(&slot).map_or(0, |users| users.round() as u32)
    }

    fn relays(&mut self, by: &Assigner<'_>, client: Client, loads: &mut [RelayLoad]) -> Relays {
        if let Some((relays, at)) = self.given.get(&client)
            && at.elapsed() < self.valid / REUSE_FRACTION
            && client.0.is_some()
        {
            return Arc::clone(relays);
        }
        let node = client.0.map(|slot| (slot as usize, End::Sink));
        let asks = assignment::Client { node, seen: &[] };
        let relays = by.assign(&asks, loads, client.1, &mut self.random);
        let relays: Relays = relays.into_iter().map(|relay| relay as Slot).collect();
        for slot in relays.iter() {
            *self.users.entry(*slot).or_default() += 1.0;
            loads[*slot as usize].assigned = self.assigned(*slot);
        }
        self.given.insert(client, (Arc::clone(&relays), Instant::now()));
        relays
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::ranking::RankingSnapshot;
    use rand_xoshiro::rand_core::SeedableRng as _;
    use thalweg_plan::{
        Graph,
        ranking::{Ranking, Score},
    };

    #[tokio::test]
    async fn a_panic_is_reported_and_the_next_offer_is_served() {
        let random = Xoshiro256PlusPlus::seed_from_u64(1);
        let assigning = AssignmentService::start(Duration::from_secs(60), random).unwrap();
        assert_eq!(assigning.ask((None, 3)).await.unwrap().len(), 0);
        // A relay without a load makes an index out of range.
        let mut broken = Offer::nothing();
        broken.ranking = Ranking::from_scores(vec![Score { relay: 7, score: 1.0, evidence: 1 }]);
        let mut ranked = RankingSnapshot::nothing();
        ranked.graph = Graph::new(8);
        broken.ranked = Arc::new(ranked);
        assert!(assigning.renew(Arc::new(broken)));
        assert_eq!(assigning.ask((None, 3)).await, None);
        assert!(assigning.renew(Arc::new(Offer::nothing())));
        assert_eq!(assigning.ask((None, 3)).await.unwrap().len(), 0);
        assert!(assigning.has_broken() && !assigning.has_broken());
    }
}
