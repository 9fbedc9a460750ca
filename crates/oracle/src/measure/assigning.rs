//! The load-aware assignment, on a thread of its own: it computes for a millisecond where the
//! others look up, and remembers who was given what.

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

/// Questions that wait: a second's, so that a longer queue would be one of answers that
/// nobody waits for any more. When it is full, relays are drawn from the better half of the
/// ranking.
const WAITING: usize = 1024;

/// An answer is given again to the same client for this part of the time that it may use it.
const AGAIN: u32 = 4;

/// Relays, by slot; the better first.
type Relays = Arc<[Slot]>;

#[derive(Debug)]
enum Ask {
    Renew(Arc<Offer>),
    For(Client, oneshot::Sender<Relays>),
}

/// Who asks, for how many; none: no node of the mesh.
type Client = (Option<Slot>, usize);

/// The way to the thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Assigning {
    asks: SyncSender<Ask>,
    /// It panicked; whoever asked has no answer, and it went on with the next one.
    broken: Arc<AtomicBool>,
}

impl Assigning {
    /// Starts the thread. Candidates are used for `valid`.
    ///
    /// # Errors
    /// The system's, if it gives no thread.
    pub fn start(valid: Duration, random: Xoshiro256PlusPlus) -> io::Result<Self> {
        let (ask, asked) = sync_channel(WAITING);
        let name = "thalweg-assign".to_owned();
        let (given, users) = (HashMap::new(), HashMap::new());
        let offer = Arc::new(Offer::nothing());
        let mut desk = Desk { asked, valid, random, offer, given, users };
        let broken = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&broken);
        let run = move || {
            // What it remembers of clients is whole after each of them.
            while panic::catch_unwind(AssertUnwindSafe(|| desk.run())).is_err() {
                flag.store(true, Ordering::Relaxed);
            }
        };
        thread::Builder::new().name(name).spawn(run)?;
        Ok(Self { asks: ask, broken })
    }

    /// Whether it has panicked since this was asked last.
    pub fn has_broken(&self) -> bool {
        self.broken.swap(false, Ordering::Relaxed)
    }

    /// From now on this is offered. False if too many wait: then try again.
    pub fn renew(&self, offer: Arc<Offer>) -> bool {
        !matches!(self.asks.try_send(Ask::Renew(offer)), Err(TrySendError::Full(_)))
    }

    /// Relays for this client; none if too many ask, or nothing is offered yet.
    pub async fn ask(&self, client: Client) -> Option<Relays> {
        let (reply, answer) = oneshot::channel();
        self.asks.try_send(Ask::For(client, reply)).ok()?;
        answer.await.ok()
    }
}

struct Desk {
    asked: Receiver<Ask>,
    valid: Duration,
    random: Xoshiro256PlusPlus,
    offer: Arc<Offer>,
    /// What each client was given last, and when.
    given: HashMap<Client, (Relays, Instant)>,
    /// How many were given each relay of late, by slot.
    users: HashMap<Slot, f64>,
}

impl Desk {
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

    /// Those who were given relays long ago use them no more.
    fn fade(&mut self, passed: Duration) {
        let rest = (-passed.as_secs_f64() / self.valid.as_secs_f64().max(1e-3)).exp();
        self.users.retain(|_, users| {
            *users *= rest;
            *users > 0.01
        });
        let valid = self.valid / AGAIN;
        self.given.retain(|_, (_, at)| at.elapsed() < valid);
    }

    /// Answers by this offer, until there is a newer one; none: nobody asks any more.
    fn serve(&mut self, offer: &Offer) -> Option<Arc<Offer>> {
        let assigner = Assigner::new(&offer.ranked.graph, &offer.ranking);
        let mut loads = offer.loads.clone();
        loads.iter_mut().zip(0..).for_each(|(load, slot)| load.assigned = self.assigned(slot));
        loop {
            match self.asked.recv().ok()? {
                Ask::Renew(newer) => return Some(newer),
                Ask::For(client, reply) => {
                    let relays = self.relays(&assigner, client, &mut loads);
                    // Whoever asked may have gone.
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
            && at.elapsed() < self.valid / AGAIN
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
    use crate::measure::ranked::Ranked;
    use rand_xoshiro::rand_core::SeedableRng as _;
    use thalweg_plan::{
        Graph,
        ranking::{Ranking, Score},
    };

    #[tokio::test]
    async fn a_panic_is_told_and_the_next_offer_is_served() {
        let random = Xoshiro256PlusPlus::seed_from_u64(1);
        let assigning = Assigning::start(Duration::from_secs(60), random).unwrap();
        assert_eq!(assigning.ask((None, 3)).await.unwrap().len(), 0);
        // A relay without a load breaks the index.
        let mut broken = Offer::nothing();
        broken.ranking = Ranking::from_scores(vec![Score { relay: 7, score: 1.0, evidence: 1 }]);
        let mut ranked = Ranked::nothing();
        ranked.graph = Graph::new(8);
        broken.ranked = Arc::new(ranked);
        assert!(assigning.renew(Arc::new(broken)));
        assert_eq!(assigning.ask((None, 3)).await, None);
        assert!(assigning.renew(Arc::new(Offer::nothing())));
        assert_eq!(assigning.ask((None, 3)).await.unwrap().len(), 0);
        assert!(assigning.has_broken() && !assigning.has_broken());
    }
}
