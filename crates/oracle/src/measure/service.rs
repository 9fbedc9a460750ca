//! The measuring service: the table of measurements, and the offer made of it.

use super::{
    MeasureConfig, MeasureCounts,
    assignment::AssignmentService,
    history::HistoryBuffer,
    nodes::Slot,
    offer::{MOST, Offer},
    orders::PendingOrder,
    paths::LEGS,
    ranking::{RankingInput, RankingKind, RankingSnapshot},
    settings,
    state::{CurrentTime, MeasureState},
    tally::Tally,
};
use crate::{
    Refusal,
    limits::{self, KeyCounts},
    registry::later,
    streams::LegEstimates,
};
use parking_lot::{Mutex as Lock, RwLock};
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng as _};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_net::PrivateKey;
use thalweg_plan::ranking::Score;
use thalweg_units::{NodeId, Time, WallTime};
use thalweg_wire::mesh::{
    Roster,
    measure::{Candidate, CandidatesReply, Order, Orders, PathsReply, Strategy},
    measure_ticket::Ticket,
};
use tokio::{
    sync::{Mutex, Notify, Semaphore, SemaphorePermit},
    task::spawn_blocking,
};

/// The service's time at the start of the process, large enough that measurements from before, read from the database,
/// have a time as well.
pub(super) const BEGIN: Time = Time::from_nanos(2 * thalweg_plan::graph::MAX_AGE.as_nanos() as u64);

/// The pause after a ranking, in multiples of its duration: ranking takes at most an eighth of one core.
const RANK_PAUSE: u32 = 7;

/// A ranking is renewed after this time even if nothing changed, because legs expire.
const OLD: Duration = Duration::from_secs(3600);

/// The pause after a ranking or an offer panicked, and between two reports about it.
const PANIC_PAUSE: Duration = Duration::from_secs(60);

/// The measuring service of one oracle.
#[derive(Debug)]
pub(crate) struct MeasuringService {
    pub(super) config: MeasureConfig,
    clock: crate::Clock,
    start: Instant,
    /// An async lock, because the largest meshes hold it for some 100 ms.
    pub(super) state: Mutex<MeasureState>,
    offer: RwLock<Arc<Offer>>,
    /// The last ranking, on which the next one builds.
    ranked: Lock<Arc<RankingSnapshot>>,
    pub(super) assigning: AssignmentService,
    pub(super) history: HistoryBuffer,
    pub(super) tally: Arc<Tally>,
    /// Wakes the scheduler's pulse.
    pub(super) news: Notify,
    /// Limits requests that wait for orders.
    waiting: Semaphore,
    waits_each: KeyCounts,
    random: Lock<Xoshiro256PlusPlus>,
}

impl MeasuringService {
    /// Creates the service with an empty table.
    ///
    /// # Errors
    /// No random bytes, or no thread.
    pub fn new(config: MeasureConfig, clock: crate::Clock) -> io::Result<Self> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(io::Error::other)?;
        let mut random = Xoshiro256PlusPlus::from_seed(seed);
        let mut another = || {
            let next = random.clone();
            random.long_jump();
            next
        };
        let state = MeasureState::new(&config, another());
        Ok(Self {
            tally: Arc::clone(&state.tally),
            state: Mutex::new(state),
            assigning: AssignmentService::start(config.pace.candidates, another())?,
            random: Lock::new(another()),
            offer: RwLock::new(Arc::new(Offer::nothing())),
            ranked: Lock::new(Arc::new(RankingSnapshot::nothing())),
            history: HistoryBuffer::default(),
            news: Notify::new(),
            waiting: Semaphore::new(limits::WAITING),
            waits_each: KeyCounts::default(),
            start: Instant::now(),
            config,
            clock,
        })
    }

    /// Now: ages use this process's monotonic clock; only the history has dates.
    pub(super) fn now(&self) -> CurrentTime {
        CurrentTime { time: BEGIN + self.start.elapsed(), wall: self.clock.now() }
    }

    /// The date by the oracle's clock.
    pub fn date(&self) -> WallTime {
        self.clock.now()
    }

    /// Now, by the clock for ages.
    pub fn now_time(&self) -> Time {
        self.now().time
    }

    /// The table's estimates of these legs, where it has any. Blocks on the table's lock.
    pub fn of_legs(&self, legs: &[(NodeId, NodeId)]) -> BTreeMap<(NodeId, NodeId), LegEstimates> {
        let state = self.state.blocking_lock();
        let now = self.now().time;
        let found = legs.iter().filter_map(|(from, to)| {
            let leg = (state.nodes.by_key(from)?, state.nodes.by_key(to)?);
            let found = state.known.estimated(leg, now);
            (found != LegEstimates::default()).then_some(((*from, *to), found))
        });
        found.collect()
    }

    /// The counts so far.
    pub fn counts(&self) -> MeasureCounts {
        self.tally.read()
    }

    fn offer(&self) -> Arc<Offer> {
        self.offer.read().clone()
    }

    /// The slot of a key's member; `None` if there is no such member, or if the offer does not show this roster yet.
    pub fn slot(&self, key: &NodeId, roster: &Roster) -> Option<u32> {
        let offer = self.offer();
        offer.shows(roster).then(|| offer.nodes.by_key(key)).flatten()
    }

    fn set_offer(&self, offer: Arc<Offer>) {
        *self.offer.write() = offer;
    }

    /// A result drawn with this service's random generator.
    fn drawn<T>(&self, draw: impl FnOnce(&mut Xoshiro256PlusPlus) -> T) -> T {
        draw(&mut self.random.lock())
    }

    /// At most `m` relays for this client. `client` is `None` if it is not a member, or not one yet.
    pub async fn candidates(
        &self,
        client: Option<Slot>,
        strategy: Option<Strategy>,
        m: usize,
    ) -> CandidatesReply {
        let strategy = strategy.unwrap_or(self.config.strategy);
        let (offer, m) = (self.offer(), m.min(MOST));
        let scores = match strategy {
            Strategy::Oblivious => self.best(&offer, vec![], client, m),
            Strategy::Specific => {
                let own = client.map(|client| offer.specific(client).to_vec());
                self.best(&offer, own.unwrap_or_default(), client, m)
            }
            Strategy::Balanced => self.balanced(&offer, client, m),
            Strategy::LoadAware => self.load_aware(&offer, client, m).await,
        };
        let now = self.now().time;
        CandidatesReply {
            strategy,
            candidates: scores.iter().filter_map(|score| candidate(&offer, *score, now)).collect(),
            valid_for: self.config.pace.candidates,
            measured: offer.measured,
            pairs: offer.pairs,
        }
    }

    /// `first`, then the best of the mesh. Equal scores are in random order, so that clients do not all begin with the
    /// same relays while nothing is known (UKAIRO §4.3).
    fn best(&self, offer: &Offer, first: Vec<Score>, client: Option<Slot>, m: usize) -> Vec<Score> {
        let own = |relay: usize| client == Some(relay as Slot);
        let mut best: Vec<Score> = first.into_iter().filter(|s| !own(s.relay)).take(m).collect();
        let taken: BTreeSet<usize> = best.iter().map(|s| s.relay).collect();
        // The client and the relays of `first` may be among them.
        let some = m + taken.len() + 1;
        let more = self.drawn(|random| offer.ranking.top_of_ties(some, random));
        let more = more.into_iter().filter(|relay| !own(*relay) && !taken.contains(relay));
        best.extend(more.filter_map(|relay| offer.score(relay as Slot)));
        best.truncate(m);
        best
    }

    /// Relays drawn uniformly from the better half (UKAIRO §3.1.2).
    fn balanced(&self, offer: &Offer, client: Option<Slot>, m: usize) -> Vec<Score> {
        // The client may be among them.
        let relays = self.drawn(|random| offer.ranking.balanced(m + 1, random));
        let relays = relays.into_iter().map(|relay| relay as Slot);
        let others = relays.filter(|relay| client != Some(*relay)).take(m);
        let mut drawn: Vec<Score> = others.filter_map(|relay| offer.score(relay)).collect();
        drawn.sort_by(|a, b| b.score.total_cmp(&a.score));
        drawn
    }

    async fn load_aware(&self, offer: &Offer, client: Option<Slot>, m: usize) -> Vec<Score> {
        let Some(relays) = self.assigning.ask((client, m)).await else {
            // The queue is full: fall back to a strategy that costs nothing.
            return self.balanced(offer, client, m);
        };
        // A relay that was assigned a moment ago may no longer be offered.
        let scores: Vec<Score> = relays.iter().filter_map(|slot| offer.score(*slot)).collect();
        if scores.len() < m.min(relays.len()) || relays.is_empty() {
            return self.best(offer, scores, client, m);
        }
        scores
    }

    /// The page of at most `most` legs after this cursor. Blocks on the table's lock.
    pub fn paths(&self, after: Option<u64>, most: usize) -> PathsReply {
        let state = self.state.blocking_lock();
        let now = self.now().time;
        let page = state.paths(after, most.clamp(1, LEGS), now);
        PathsReply { measuring: state.measuring(self.config.enabled, now), ..page }
    }

    /// Notes that a member polls. Returns its slot and its notifier; `None` if it is not a member yet.
    pub(super) async fn begin_poll(&self, key: &NodeId) -> Option<(Slot, Arc<Notify>)> {
        let mut state = self.state.lock().await;
        let slot = state.nodes.by_key(key)?;
        state.presence.record_contact(slot, self.now().time);
        let wake = state.orders.wake(slot);
        Some((slot, wake))
    }

    /// The waiting orders of a member, signed with the mesh's key.
    pub(super) async fn fetch(&self, slot: Slot, mesh: &PrivateKey) -> Orders {
        let mut state = self.state.lock().await;
        let now = self.now();
        let fetched = state.orders.fetch(slot, now.time);
        let order = |order: PendingOrder| {
            let (from, to) = (state.nodes.get(order.leg.0)?, state.nodes.get(order.leg.1)?);
            let (valid_for, bytes) =
                (order.until.since(now.time), self.config.test_bytes.as_bytes());
            let expiry = later(now.wall, valid_for);
            let ticket = Ticket { order: order.id, from: from.key, to: to.key, bytes, expiry };
            Some(Order {
                id: order.id,
                to: to.name.clone(),
                max_bytes: bytes,
                max_time: self.config.test_time,
                congestion_control: self.config.congestion_control.clone(),
                valid_for,
                ticket: ticket.sign(mesh),
            })
        };
        Orders { orders: fetched.into_iter().filter_map(order).collect() }
    }

    /// Renews the ranking and the offer if something changed and the last ones are old enough.
    ///
    /// # Errors
    /// The name of the part that panicked. The previous ranking and offer stay in use.
    pub(super) async fn refresh(
        self: &Arc<Self>,
        made: &mut RefreshState,
    ) -> Result<(), &'static str> {
        let least = self.config.pace.rank;
        let is_due = |last: Option<Instant>, took: Duration| {
            last.is_none_or(|last| last.elapsed() >= least.max(took * RANK_PAUSE))
        };
        let offer = self.offer();
        let (changes, offered, version) = {
            let state = self.state.lock().await;
            (state.known.changes(), state.changes, state.nodes.version())
        };
        let is_old = made.ranked.is_some_and(|at| at.elapsed() >= OLD);
        let mut ranked = Arc::clone(&offer.ranked);
        let began = Instant::now();
        if (changes != ranked.changes || is_old) && is_due(made.ranked, made.took.0) {
            ranked = self.rank().await.ok_or("ranking the relays")?;
            made.took.0 = began.elapsed();
            self.tally.ranked(ranked.graph.measured(), made.took.0);
            made.ranked = Some(Instant::now());
        }
        let is_new = !Arc::ptr_eq(&ranked, &offer.ranked);
        let is_changed = offered != offer.changes && is_due(made.offered, made.took.1);
        if is_new || is_changed || version != offer.nodes.version() {
            let began = Instant::now();
            self.renew_offer(ranked).await.ok_or("making the list of candidates")?;
            (made.offered, made.took.1) = (Some(Instant::now()), began.elapsed());
        }
        Ok(())
    }

    async fn rank(self: &Arc<Self>) -> Option<Arc<RankingSnapshot>> {
        let this = Arc::clone(self);
        let work = spawn_blocking(move || this.rank_now());
        work.await.ok()
    }

    /// Ranks the table. The table is locked while it is copied, not while it is ranked.
    pub(super) fn rank_now(&self) -> Arc<RankingSnapshot> {
        let mut last = self.ranked.lock();
        // A ranking that panics loses the changes that it took, and leaves nothing, so that everything is ranked again.
        let before = std::mem::replace(&mut *last, Arc::new(RankingSnapshot::nothing()));
        let picture = {
            let mut state = self.state.blocking_lock();
            let MeasureState { known, planner, .. } = &mut *state;
            let picture = RankingInput::next(known, self.now().time);
            planner.renew(picture.graph(), &picture.changed);
            picture
        };
        let by = match self.config.schedule {
            settings::ScheduleKind::Thrifty => RankingKind::Completed,
            settings::ScheduleKind::Algorithm1 | settings::ScheduleKind::Random => {
                RankingKind::Measured
            }
        };
        let ranked = Arc::new(picture.after(&before, by));
        self.state.blocking_lock().planner.set_ranking(&ranked.ranking);
        *last = Arc::clone(&ranked);
        ranked
    }

    async fn renew_offer(self: &Arc<Self>, ranked: Arc<RankingSnapshot>) -> Option<()> {
        let this = Arc::clone(self);
        let work = spawn_blocking(move || {
            let offer = {
                let state = this.state.blocking_lock();
                Arc::new(Offer::of(&state, ranked, this.now().time))
            };
            this.set_offer(Arc::clone(&offer));
            // If the queue is full, the next offer replaces this one.
            let _ = this.assigning.renew(offer);
        });
        work.await.ok()
    }
}

fn candidate(offer: &Offer, score: Score, now: Time) -> Option<Candidate> {
    let slot = score.relay as Slot;
    Some(Candidate {
        relay: offer.nodes.get(slot)?.name.clone(),
        score: score.score,
        evidence: score.evidence,
        age: offer.ranked.age(slot, now),
        load: offer.share(slot, now),
    })
}

/// A waiting request, counted among all and among those of its member.
pub(super) struct PollPermit<'a> {
    measuring: &'a MeasuringService,
    key: NodeId,
    _among_all: SemaphorePermit<'a>,
}

impl<'a> PollPermit<'a> {
    pub(super) fn take(measuring: &'a MeasuringService, key: NodeId) -> Result<Self, Refusal> {
        let full = |_| Refusal::Waiting("all");
        let among_all = measuring.waiting.try_acquire().map_err(full)?;
        match measuring.waits_each.enter(key, limits::WAITING_EACH) {
            true => Ok(Self { measuring, key, _among_all: among_all }),
            false => Err(Refusal::Waiting("this member")),
        }
    }
}

impl Drop for PollPermit<'_> {
    fn drop(&mut self) {
        self.measuring.waits_each.leave(&self.key);
    }
}

/// When the ranking and the offer were last made.
pub(super) struct RefreshState {
    pub(super) ranked: Option<Instant>,
    pub(super) offered: Option<Instant>,
    /// How long the last ranking and the last offer took.
    pub(super) took: (Duration, Duration),
    /// When one of them last panicked, and when a panic of the assignment was last reported.
    pub(super) broken: Option<Instant>,
    pub(super) assignment_broken: Option<Instant>,
}

/// Whether a panic is long enough ago to retry, or to report again.
pub(super) fn may_retry(broken: Option<Instant>) -> bool {
    broken.is_none_or(|at| at.elapsed() >= PANIC_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_from_before_the_process_start_keep_their_age() {
        let now =
            MeasuringService::new(MeasureConfig::default(), crate::Clock::system()).unwrap().now();
        let days = std::time::Duration::from_secs(10 * 24 * 3600);
        let date = now.wall.as_unix_nanos() - days.as_nanos() as u64;
        assert_eq!(now.time.since(now.time_of(WallTime::from_unix_nanos(date))), days);
    }
}
