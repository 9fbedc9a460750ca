//! The service: accepts reports, plans in the background, and serves plans.

use super::{
    candidates::Candidates,
    decisions::Decisions,
    outline::Outline,
    state::{CLAIM_TIME, LegEnds, LegEstimates, ReportState},
};
use crate::{
    Event, Refusal,
    election::{Election, ElectionState},
    limits::{self, KeyCounts},
    measure::MeasuringService,
    registry::Registry,
};
use parking_lot::{Mutex, MutexGuard};
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng as _};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_plan::streams::{Planned, Problem};
use thalweg_units::{NodeId, Time, WallTime};
use thalweg_wire::stream::plan::{Plan, Reply, Report};
use tokio::{
    sync::{Mutex as AsyncMutex, Notify, Semaphore, watch},
    task::spawn_blocking,
    time::{sleep, timeout},
};

/// How long an oracle collects reports after its election: its first plan would drop everything that is not reported
/// yet.
const LISTEN_TIME: Duration = Duration::from_secs(3);

/// The least time between two plans, because one event causes several reports.
const MIN_INTERVAL: Duration = Duration::from_millis(50);

/// The pause after a search as a multiple of its duration, so that searching uses at most a fourth of one core.
const SHARE: u32 = 3;

/// The same factor after first routes, for which a subscriber waits: at most half of one core.
const URGENT_SHARE: u32 = 1;

/// How often the oracle looks for silent members and plans again for degraded subscribers.
const PULSE: Duration = Duration::from_secs(1);

/// The most versions of an oracle in a second, as a power of two.
const VERSIONS_A_SECOND: u32 = 16;

/// The assumed bound on the difference between two oracles' clocks; higher versions are ignored.
pub(super) const SKEW: u64 = (24 * 3600) << VERSIONS_A_SECOND;

/// The time between two log lines about the same failure.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The state, and the decisions.
#[derive(Debug, Default)]
struct Inner {
    state: ReportState,
    decided: Decisions,
    candidates: Candidates,
    /// The term in which this oracle was elected, and the time of the election.
    term: Option<(u64, Time)>,
    /// When the last search began.
    planned: Option<Time>,
    /// The number of plans in force so far.
    applied: u64,
}

/// The scheduler of streams of one oracle.
#[derive(Debug)]
pub(crate) struct Streams {
    registry: Arc<Registry>,
    election: Arc<Election>,
    measuring: Arc<MeasuringService>,
    inner: Mutex<Inner>,
    /// Held while the state is read and while a plan is applied, but not during a search.
    planning: AsyncMutex<()>,
    news: Notify,
    /// Notified when a subscriber waits for a route.
    urgent: Notify,
    /// Counts the plans that changed the plan of a member.
    plans: watch::Sender<u64>,
    waiting: Semaphore,
    waits_each: KeyCounts,
    random: Mutex<Xoshiro256PlusPlus>,
}

/// A problem, and the meaning of its indices.
type PosedProblem = (Outline, Problem);

impl Streams {
    /// Creates a scheduler that knows nothing yet.
    ///
    /// # Errors
    /// No random bytes.
    pub fn new(
        registry: Arc<Registry>,
        election: Arc<Election>,
        measuring: Arc<MeasuringService>,
    ) -> io::Result<Self> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(io::Error::other)?;
        Ok(Self {
            registry,
            election,
            measuring,
            inner: Mutex::default(),
            planning: AsyncMutex::default(),
            news: Notify::new(),
            urgent: Notify::new(),
            plans: watch::Sender::new(0),
            waiting: Semaphore::new(limits::WAITING),
            waits_each: KeyCounts::default(),
            random: Mutex::new(Xoshiro256PlusPlus::from_seed(seed)),
        })
    }

    /// Locks the state. The lock is held for at most about 10 ms, and never during planning.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Reports replace each other as a whole, and an aborted plan is repeated.
        self.inner.lock()
    }

    /// Accepts a member's report, and returns the newest plan if the member does not follow it yet.
    pub fn report(&self, who: NodeId, report: Report) -> Result<Reply, Refusal> {
        report.check().map_err(|error| Refusal::Bad(error.to_string()))?;
        let (newest, now) = (self.registry.newest(), self.measuring.now_time());
        let mut inner = self.lock();
        let Inner { state, decided, candidates, term, .. } = &mut *inner;
        state.follow(&newest.roster);
        state.is_claiming = term.is_none_or(|(_, since)| now.since(since) < CLAIM_TIME);
        if state.members.get(&who).is_none() {
            return Err(Refusal::NotMember);
        }
        let follows = report.version;
        let refused = take(state, decided, who, report, now);
        let (version, plan) = (decided.version(&who), decided.plan(&who, follows, now));
        let (held, measure) = (state.held(&who), candidates.to_measure(who, state, now));
        let (is_news, is_urgent) = (state.is_news, state.is_urgent);
        drop(inner);
        if is_urgent {
            self.urgent.notify_one();
        }
        if is_news {
            self.news.notify_one();
        }
        Ok(Reply { version, plan, held, measure, refused })
    }

    /// Returns the member's plan once its version differs from `follows`; `None` if that takes longer than `wait`.
    pub async fn plan(
        &self,
        who: NodeId,
        follows: u64,
        wait: Duration,
        mut stop: watch::Receiver<bool>,
    ) -> Result<Option<Plan>, Refusal> {
        let _place = self.place(who)?;
        let mut plans = self.plans.subscribe();
        let newer = async {
            loop {
                plans.borrow_and_update();
                if let ElectionState::Another(elected) = self.election.state() {
                    return Err(Refusal::NotElected(self.registry.name_of(&elected)));
                }
                let plan = self.lock().decided.plan(&who, follows, self.measuring.now_time());
                if plan.is_some() {
                    return Ok(plan);
                }
                tokio::select! {
                    changed = plans.changed() => if changed.is_err() { return Ok(None) },
                    () = sleep(PULSE) => {}
                    _ = stop.wait_for(|stop| *stop) => return Ok(None),
                }
            }
        };
        timeout(wait, newer).await.unwrap_or(Ok(None))
    }

    fn place(&self, who: NodeId) -> Result<impl Drop + '_, Refusal> {
        let among_all = self.waiting.try_acquire().map_err(|_| Refusal::Waiting("all"))?;
        match self.waits_each.enter(who, limits::WAITING_EACH) {
            true => Ok(WaitSlot { streams: self, who, _among_all: among_all }),
            false => Err(Refusal::Waiting("this member")),
        }
    }

    /// Plans whenever it is due; never ends.
    ///
    /// A search takes about a second if there are many subscribers. So subscribers without a route get a first one at
    /// once, and the search improves it later.
    pub async fn run(self: &Arc<Self>) {
        tokio::join!(self.keep_completing(), self.keep_searching());
    }

    async fn keep_searching(self: &Arc<Self>) {
        let mut troubles = FailureLog::default();
        loop {
            let began = Instant::now();
            if self.is_due(false)
                && let Err(why) = self.search().await
            {
                troubles.log(&self.registry, &why);
            }
            sleep(MIN_INTERVAL.max(began.elapsed() * SHARE)).await;
            tokio::select! {
                () = sleep(PULSE) => {}
                () = self.news.notified() => {}
            }
        }
    }

    async fn keep_completing(self: &Arc<Self>) {
        let mut troubles = FailureLog::default();
        loop {
            let began = Instant::now();
            if self.is_due(true)
                && let Err(why) = self.complete().await
            {
                troubles.log(&self.registry, &why);
            }
            sleep(MIN_INTERVAL.max(began.elapsed() * URGENT_SHARE)).await;
            tokio::select! {
                () = sleep(PULSE) => {}
                () = self.urgent.notified() => {}
            }
        }
    }

    /// Whether this oracle plans now. `is_urgent`: for first routes, if a subscriber waits for one; otherwise a search,
    /// if there is news or a degraded subscriber.
    fn is_due(&self, is_urgent: bool) -> bool {
        let (standing, now) = (self.election.state(), self.measuring.now_time());
        let newest = self.registry.newest();
        let mut inner = self.lock();
        let ElectionState::Elected { term } = standing else {
            // An elected oracle collects everything from the members again.
            *inner = Inner::default();
            return false;
        };
        if inner.term.is_none_or(|(known, _)| known != term) {
            inner.term = Some((term, now));
            inner.decided = Decisions::from_version(first_version(self.measuring.date()));
        }
        inner.state.follow(&newest.roster);
        inner.state.expire(now);
        let is_told = inner.term.is_some_and(|(_, since)| now.since(since) >= LISTEN_TIME);
        let is_late = inner.planned.is_none_or(|at| now.since(at) >= PULSE);
        let is_due = match is_urgent {
            true => inner.state.is_urgent,
            false => inner.state.is_news || is_late && inner.decided.is_degraded(),
        };
        is_told && is_due
    }

    /// Gives a route to each subscriber that waits for one.
    async fn complete(self: &Arc<Self>) -> Result<(), String> {
        let _planning = self.planning.lock().await;
        let is_changed = self.blocking(|this| {
            this.lock().state.is_urgent = false;
            let (outline, problem) = this.pose()?;
            let planned = problem.complete(problem.present());
            Ok(this.apply(&outline, &problem, &planned, &BTreeSet::new()))
        });
        self.publish(is_changed.await?);
        Ok(())
    }

    /// Searches for a better plan from the present state and applies it.
    async fn search(self: &Arc<Self>) -> Result<(), String> {
        let planning = self.planning.lock().await;
        let posed = self.blocking(|this| {
            let now = this.measuring.now_time();
            let mut inner = this.lock();
            inner.state.is_news = false;
            inner.planned = Some(now);
            let applied = inner.applied;
            drop(inner);
            Ok((applied, this.pose()?))
        });
        let (applied, (outline, problem)) = posed.await?;
        drop(planning);
        let searched = self.blocking(move |this| {
            let planned = problem.plan(problem.moves(), &mut this.random());
            Ok((outline, problem, planned))
        });
        let (outline, problem, planned) = searched.await?;
        let _planning = self.planning.lock().await;
        let is_changed = self.blocking(move |this| {
            let searched = outline.keys();
            if this.lock().applied == applied {
                return Ok(this.apply(&outline, &problem, &planned, &searched));
            }
            // Other subscribers got a first route during the search: keep both.
            let mut found = outline.named(&planned.configuration);
            found.add_others(this.lock().decided.configuration(), &searched);
            let (outline, problem) = this.pose()?;
            let found = problem.complete(&outline.indexed(&found));
            let kept = problem.complete(problem.present());
            let planned = if found.worth >= kept.worth { found } else { kept };
            Ok(this.apply(&outline, &problem, &planned, &searched))
        });
        self.publish(is_changed.await?);
        Ok(())
    }

    fn publish(&self, is_changed: bool) {
        if is_changed {
            self.plans.send_modify(|plans| *plans += 1);
        }
    }

    /// The present state as a problem.
    fn pose(&self) -> Result<PosedProblem, String> {
        let outline = {
            let inner = self.lock();
            Outline::of(&inner.state, &inner.decided, self.measuring.now_time())
        };
        let estimates = self.measuring.of_legs(&outline.ends);
        self.prepare(outline, &estimates)
    }

    async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let this = Arc::clone(self);
        let done = spawn_blocking(move || work(&this)).await;
        done.map_err(|error| format!("the scheduler failed: {error}"))?
    }

    fn prepare(
        &self,
        outline: Outline,
        estimates: &BTreeMap<LegEnds, LegEstimates>,
    ) -> Result<PosedProblem, String> {
        let now = self.measuring.now_time();
        let mut inner = self.lock();
        let Inner { state, decided, .. } = &mut *inner;
        for (ends, found) in estimates {
            state.estimate(*ends, found, now);
        }
        let problem = outline.problem(state, decided, estimates, now);
        Ok((outline, problem.map_err(|error| error.to_string())?))
    }

    fn apply(
        &self,
        outline: &Outline,
        problem: &Problem,
        planned: &Planned,
        searched: &BTreeSet<(NodeId, u32)>,
    ) -> bool {
        let now = self.measuring.now_time();
        let mut inner = self.lock();
        inner.applied += 1;
        let Inner { state, decided, candidates, .. } = &mut *inner;
        *candidates = Candidates::of(outline, problem, planned, state);
        decided.apply(outline, problem, (planned, searched), state, now)
    }

    /// A random generator for one plan.
    fn random(&self) -> Xoshiro256PlusPlus {
        let mut random = self.random.lock();
        let next = random.clone();
        random.jump();
        next
    }
}

/// The first version of an oracle elected at this time, above the versions of earlier oracles.
fn first_version(date: WallTime) -> u64 {
    (date.as_unix_nanos() / 1_000_000_000) << VERSIONS_A_SECOND
}

/// Accepts a report and forgets decisions about changed subscriptions. Returns what was refused, and why.
pub(super) fn take(
    state: &mut ReportState,
    decided: &mut Decisions,
    who: NodeId,
    report: Report,
    now: Time,
) -> Vec<String> {
    decided.exceed(&who, report.version, SKEW);
    if let Some(reported) = state.reported.get(&who) {
        let is_still = |id| {
            let of =
                |report: &Report| report.subscriptions.iter().find(|one| one.id == id).cloned();
            let (old, new) = (of(&reported.report), of(&report));
            old.zip(new).is_some_and(|(old, new)| old.is_same_request(&new))
        };
        decided.forget(who, is_still);
    }
    let refused = state.take(who, report, now);
    if let Some(reported) = state.reported.get(&who) {
        state.is_urgent |= !decided.has_all(who, &reported.report);
    }
    refused
}

/// Logs failures of planning, at most one each minute.
#[derive(Default)]
struct FailureLog {
    told: Option<Instant>,
}

impl FailureLog {
    fn log(&mut self, registry: &Registry, why: &str) {
        if self.told.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
            self.told = Some(Instant::now());
            registry.emit(&Event::Trouble(format!("cannot update the plan of streams: {why}")));
        }
    }
}

/// A slot for a waiting request, within the bounds for all members and for one.
struct WaitSlot<'a> {
    streams: &'a Streams,
    who: NodeId,
    _among_all: tokio::sync::SemaphorePermit<'a>,
}

impl Drop for WaitSlot<'_> {
    fn drop(&mut self) {
        self.streams.waits_each.leave(&self.who);
    }
}
