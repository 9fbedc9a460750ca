//! Opens and closes paths as the steering decides, and reports their bytes to it.

use super::{
    super::{CollectContext, Event},
    FluidOutcome, Settings,
    meter::PathMeter,
    worker::{FluidState, Worker, WorkerError},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use thalweg_files::land::LandError;
use thalweg_plan::collection::steering::{Observation, Opening, Steering, Way, WayId};
use thalweg_wire::mesh::Name;
use tokio::{
    task::{AbortHandle, Id, JoinError, JoinSet},
    time::{Instant, MissedTickBehavior, interval_at},
};
use tokio_util::sync::CancellationToken;

/// A source is not given up before this many of its paths broke without a byte in between.
const BREAKS: u32 = 4;

/// The minimum time between two replacements of a broken path.
const SOONEST: Duration = Duration::from_millis(200);

/// A path's task.
struct RunningPath {
    way: Way,
    meter: Arc<PathMeter>,
    leave: CancellationToken,
    task: AbortHandle,
    /// The bytes at the last report to the steering.
    told: u64,
}

/// The health of a source.
#[derive(Clone, Default)]
struct SourceHealth {
    breaks: u32,
    /// When the last byte arrived, or the start.
    since: Option<Instant>,
    why: String,
    lost: bool,
    /// Missing bytes at the last observation.
    left: Option<u64>,
}

pub(super) struct PathConductor {
    shared: Arc<FluidState>,
    settings: Settings,
    interval: Duration,
    steering: Steering,
    tasks: JoinSet<Result<(), WorkerError>>,
    running: BTreeMap<WayId, RunningPath>,
    names: BTreeMap<Id, WayId>,
    broken: Vec<WayId>,
    health: Vec<SourceHealth>,
    told: Instant,
    outcome: FluidOutcome,
}

impl PathConductor {
    pub(super) fn new(context: CollectContext, settings: Settings) -> Self {
        let overlay = &context.overlay;
        let amounts = context.inventory.amounts(overlay.names.len());
        let relays = relays(&context);
        let steer = |settings| {
            Steering::new(settings, overlay.destination(), &amounts, &overlay.rates, &relays)
        };
        let expected = steer(settings.steering).ends_in();
        let interval = settings.interval_for(expected);
        let steering =
            steer(thalweg_plan::collection::steering::Settings { interval, ..settings.steering });
        let health = SourceHealth { since: Some(Instant::now()), ..SourceHealth::default() };
        Self {
            health: vec![health; overlay.names.len()],
            shared: Arc::new(FluidState::new(context)),
            settings,
            interval,
            steering,
            tasks: JoinSet::new(),
            running: BTreeMap::new(),
            names: BTreeMap::new(),
            broken: Vec::new(),
            told: Instant::now(),
            outcome: FluidOutcome::default(),
        }
    }

    /// Runs until everything has arrived except the data of lost sources.
    pub(super) async fn run(mut self) -> Result<FluidOutcome, LandError> {
        let stop = self.shared.context.stop.clone();
        let mut ticks = interval_at(Instant::now() + self.interval, self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.follow();
        while self.is_waiting() {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(ended) = self.tasks.join_next_with_id() => self.ended(ended)?,
                _ = ticks.tick() => self.observe(),
                () = self.shared.settled.notified() => self.leave_finished(),
            }
        }
        self.tasks.shutdown().await;
        self.outcome.duplicate_bytes = self.shared.scheduler().twice();
        self.outcome.drifts = self.steering.drifts();
        self.outcome.shared_sets = self.steering.shared_sets().to_vec();
        Ok(self.outcome)
    }

    fn is_waiting(&self) -> bool {
        let scheduler = self.shared.scheduler();
        let sources = (0..).zip(&self.health);
        let mut sources = sources.filter(|(_, health)| !health.lost);
        sources.any(|(source, _)| scheduler.remaining(source) > 0)
    }

    /// Reports received bytes to the steering, and carries out its decisions.
    fn observe(&mut self) {
        let elapsed = self.told.elapsed();
        self.told = Instant::now();
        let bytes: BTreeMap<WayId, u64> =
            self.running.iter_mut().map(|(id, running)| (*id, running.since(elapsed))).collect();
        self.see_progress();
        self.give_up_lost();
        let hosts = 0..self.health.len() as u32;
        let remaining =
            hosts.clone().map(|source| self.shared.scheduler().remaining(source)).collect();
        let lost = hosts.filter(|source| self.health[*source as usize].lost).collect();
        let broken = std::mem::take(&mut self.broken);
        let drifts = self.steering.drifts();
        let seen = Observation { bytes, remaining, broken, lost };
        self.steering.observe(elapsed, &seen);
        let changed = self.follow();
        if changed && self.steering.drifts() > drifts {
            self.tell_of_drift();
        }
    }

    /// Only stored bytes count as progress: a source that always sends wrong data also delivers bytes.
    fn see_progress(&mut self) {
        for (source, health) in (0..).zip(&mut self.health) {
            let left = self.shared.scheduler().remaining(source);
            if health.left != Some(left) {
                *health = SourceHealth {
                    breaks: 0,
                    since: Some(self.told),
                    left: Some(left),
                    ..std::mem::take(health)
                };
            }
        }
    }

    fn tell_of_drift(&self) {
        let left = self.steering.ends_in().map(|left| left.as_secs_f64());
        let why = match left {
            Some(left) => format!("paths are slower than planned; {left:.0} s are left"),
            None => "paths are slower than planned".to_owned(),
        };
        self.shared.context.events.event(Event::Replanned { why, makespan_seconds: None });
    }

    /// Gives up sources whose paths all break.
    fn give_up_lost(&mut self) {
        for source in 0..self.health.len() {
            let health = &mut self.health[source];
            let silent = health.since.is_some_and(|since| since.elapsed() > self.settings.patience);
            if health.lost || health.breaks < BREAKS || !silent {
                continue;
            }
            health.lost = true;
            let why = health.why.clone();
            let name = self.shared.context.overlay.names[source].clone();
            self.shared
                .context
                .events
                .event(Event::SourceFailed { source: name, why: why.clone() });
            self.outcome.failed.push((source as u32, why));
        }
    }

    /// Opens and closes paths as the steering decides. Returns whether anything changed.
    fn follow(&mut self) -> bool {
        let open = self.steering.open();
        let wanted: BTreeSet<WayId> = open.iter().map(|opening| opening.id).collect();
        let mut changed = false;
        for (id, running) in &self.running {
            if !wanted.contains(id) && !running.leave.is_cancelled() {
                running.leave.cancel();
                changed = true;
            }
        }
        for opening in open {
            self.shared.scheduler().weigh(opening.id, opening.weight);
            let is_new = !self.running.contains_key(&opening.id);
            if is_new && !self.broken.contains(&opening.id) {
                self.begin(opening);
                changed = true;
            }
        }
        changed
    }

    fn begin(&mut self, opening: Opening) {
        let Opening { id, way, weight, .. } = opening;
        let meter = Arc::new(PathMeter::default());
        let leave = CancellationToken::new();
        self.shared.scheduler().join(id, way.source, weight, meter.clone());
        let worker = Worker {
            shared: self.shared.clone(),
            id,
            way: way.clone(),
            meter: meter.clone(),
            leave: leave.clone(),
        };
        let task = self.tasks.spawn(worker.run());
        self.names.insert(task.id(), id);
        self.running.insert(id, RunningPath { way, meter, leave, task, told: 0 });
        self.outcome.ways += 1;
    }

    /// Stops paths whose source has no data left: their copies need not complete.
    fn leave_finished(&mut self) {
        let scheduler = self.shared.scheduler();
        let finished = |running: &&RunningPath| scheduler.remaining(running.way.source) == 0;
        self.running.values().filter(finished).for_each(|running| running.task.abort());
    }

    fn ended(
        &mut self,
        ended: Result<(Id, Result<(), WorkerError>), JoinError>,
    ) -> Result<(), LandError> {
        let (task, why) = match ended {
            Ok((task, Ok(()))) => (task, None),
            Ok((_, Err(WorkerError::Land(all)))) => return Err(all),
            Ok((task, Err(WorkerError::Lost(why)))) => (task, Some(why)),
            Err(panic) if panic.is_panic() => (panic.id(), Some("its task panicked".to_owned())),
            Err(aborted) => (aborted.id(), None),
        };
        let Some(id) = self.names.remove(&task) else { return Ok(()) };
        let Some(running) = self.running.remove(&id) else { return Ok(()) };
        self.shared.scheduler().leave(id);
        self.shared.changed.notify_waiters();
        self.tell_closed(&running.way, why.as_deref());
        if let Some(why) = why {
            self.broke(id, &running, why);
        }
        Ok(())
    }

    fn broke(&mut self, id: WayId, running: &RunningPath, why: String) {
        self.broken.push(id);
        let (source, is_direct) = (running.way.source, running.way.via.is_empty());
        // The failure of a relay says nothing about its source, which also has a direct path.
        if !is_direct && self.running.values().any(|other| other.way.is_direct_from(source)) {
            return;
        }
        let health = &mut self.health[source as usize];
        health.breaks += 1;
        if is_direct || health.why.is_empty() {
            health.why = why;
        }
        let is_first = health.breaks == 1;
        // The first break is handled at once; further ones wait for the next interval.
        if is_first && self.told.elapsed() >= SOONEST {
            self.observe();
        }
    }

    fn tell_closed(&self, way: &Way, why: Option<&str>) {
        let context = &self.shared.context;
        context.events.event(Event::WayClosed {
            source: context.overlay.names[way.source as usize].clone(),
            via: self.shared.via(way),
            why: why.unwrap_or("the path is no longer needed").to_owned(),
            failed: why.is_some(),
        });
    }
}

impl RunningPath {
    /// The bytes since the last call; also updates the rate.
    fn since(&mut self, elapsed: Duration) -> u64 {
        let bytes = self.meter.bytes();
        let since = bytes - std::mem::replace(&mut self.told, bytes);
        self.meter.see(since as f64 / elapsed.as_secs_f64().max(1e-3));
        since
    }
}

/// The participants that the roster lists as relays.
fn relays(context: &CollectContext) -> BTreeSet<u32> {
    let Ok(roster) = context.dialer.roster() else { return BTreeSet::new() };
    let names = (0..).zip(&context.overlay.names);
    let is_relay = |name: &Name| roster.relays().any(|member| member.name == *name);
    names.filter(|(_, name)| is_relay(name)).map(|(index, _)| index).collect()
}
