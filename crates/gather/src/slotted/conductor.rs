//! Executes the schedule: begins each transfer that may begin, and updates the agenda when one ends.

use super::{
    ScheduledRun, TransferTime,
    agenda::{Agenda, Hop, TransferLoad, TransferStart},
    connection_plan::ConnectionPlan,
    entry::SpoolEntry,
    hop::fetch,
    parcel::{Parcel, parts},
    schedule_state::ScheduleState,
    source_transfer::{TransferResult, transfer},
    tickets::prepare,
    verify::deliver,
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};
use thalweg_files::land::LandError;
use tokio::{
    task::JoinSet,
    time::{Instant, interval_at, sleep_until},
};

/// The number of parcels per source that have tickets but have not left: enough for a slot of small transfers, and few
/// enough that no parcel is stale when it leaves.
const READY: usize = 8;

/// Their maximum number of parts: a fifth of what a node lends to one member at a time.
const READS: usize = 20_000;

/// Tickets are drawn this many slots ahead, while transfers of earlier slots are under way.
const AHEAD: u32 = 2;

/// Channels to a node besides those for orders: one for drops, and one for tickets or hashes of sent data.
const OTHERS: usize = 2;

/// How often intermediates are told that the data they hold is still wanted.
const KEEP: Duration = Duration::from_secs(120);

/// The execution of a schedule.
pub struct ScheduleConductor {
    state: Arc<ScheduleState>,
    agenda: Agenda,
    connection_plan: ConnectionPlan,
    tasks: JoinSet<TaskResult>,
    /// By source: paths through intermediates whose data has not been taken yet, ordered by start.
    queues: BTreeMap<u32, VecDeque<usize>>,
    /// Sources whose parcels are being prepared.
    preparing: BTreeSet<u32>,
    /// Parcels by path: ready at their source, or held by a node on their path.
    parcels: BTreeMap<usize, Parcel>,
    /// First transfers that are due while their parcel is not ready.
    wanted: BTreeMap<usize, (TransferStart, Instant)>,
    start: Instant,
}

/// The result of a task.
enum TaskResult {
    /// Prepared parcels of a source, by path.
    Ready(u32, Vec<(usize, Parcel)>),
    /// An ended transfer: when it was allowed to begin, and its parcel if that is still on its way.
    Ended(TransferStart, Instant, Option<Box<Parcel>>, Result<TransferResult, LandError>),
}

impl ScheduleConductor {
    /// Creates the conductor and contacts the nodes that take part; unreachable ones are left out.
    pub async fn new(state: Arc<ScheduleState>, schedule: ScheduledRun) -> Self {
        let (overlay, to) = (&state.context.overlay, state.context.overlay.destination());
        let sources = (0..overlay.sources as u32).filter(|s| state.waiting(*s) > 0).collect();
        let agenda = Agenda::new(schedule.scheme, sources, to, schedule.seed);
        let connection_plan =
            agenda.paths().map(|p| ConnectionPlan::new(p.timetable())).unwrap_or_default();
        greet(&state, &agenda, &connection_plan).await;
        let mut conductor = Self {
            state,
            agenda,
            connection_plan,
            tasks: JoinSet::new(),
            queues: BTreeMap::new(),
            preparing: BTreeSet::new(),
            parcels: BTreeMap::new(),
            wanted: BTreeMap::new(),
            start: Instant::now(),
        };
        conductor.queue();
        conductor
    }

    /// Runs until all transfers are over.
    ///
    /// # Errors
    /// [`LandError::All`].
    pub async fn run(mut self) -> Result<(), LandError> {
        let mut keep = interval_at(Instant::now() + KEEP, KEEP);
        loop {
            self.prepare();
            self.warm();
            self.begin();
            if self.agenda.is_finished() {
                break;
            }
            let wakes = self.agenda.wakes(self.start.elapsed()).map(|at| self.start + at);
            if self.tasks.is_empty() && wakes.is_none() {
                // Nothing more can begin; the remaining data is fetched after the schedule.
                break;
            }
            tokio::select! {
                Some(done) = self.tasks.join_next() => {
                    // A panic has already been printed. Its pieces are never marked as done, and are reported.
                    if let Ok(done) = done { self.handle_result(done)? }
                }
                () = sleep_until(wakes.unwrap_or(self.start)), if wakes.is_some() => {}
                _ = keep.tick() => drop(tokio::spawn(self.state.clone().keep_alive())),
            }
        }
        std::mem::take(&mut self.parcels)
            .into_values()
            .for_each(|parcel| self.state.abandon_parcel(parcel));
        Ok(())
    }

    /// Queues the paths whose first hop is an intermediate: their data travels as parcels.
    fn queue(&mut self) {
        let Some(paths) = self.agenda.paths() else { return };
        let timetable = paths.timetable();
        let mut order: Vec<usize> = (0..timetable.paths.len()).collect();
        order.retain(|path| timetable.paths[*path].via.len() > 1);
        order.sort_by_key(|path| timetable.paths[*path].start);
        let mut queues: BTreeMap<u32, VecDeque<usize>> = BTreeMap::new();
        for path in order {
            queues.entry(timetable.paths[path].source).or_default().push_back(path);
        }
        self.queues = queues;
    }

    /// Has connections opened whose first transfer comes soon.
    fn warm(&mut self) {
        let Some(paths) = self.agenda.paths() else { return };
        let here = self.state.context.overlay.destination();
        for (from, to) in self.connection_plan.due(paths.slot().saturating_add(AHEAD)) {
            if to == here {
                let transfers = self.connection_plan.transfers((from, to));
                self.state.spares.prepare_for(self.state.name(from), transfers);
            } else if !self.state.avoids_way(from, &[from, to, here]) {
                tokio::spawn(self.state.clone().prepare_connection(from, to));
            }
        }
    }

    /// Draws tickets for parcels that leave soon.
    fn prepare(&mut self) {
        let sources: Vec<u32> = self.queues.keys().copied().collect();
        for source in sources {
            if self.preparing.contains(&source) {
                continue;
            }
            let batch = self.batch(source);
            if batch.is_empty() {
                continue;
            }
            self.preparing.insert(source);
            let state = self.state.clone();
            self.tasks.spawn(async move {
                let (paths, parcels): (Vec<usize>, Vec<(u32, Parcel)>) = batch.into_iter().unzip();
                let ready = prepare(&state, source, parcels).await;
                TaskResult::Ready(source, paths.into_iter().zip(ready).collect())
            });
        }
    }

    /// Returns the next paths of a source, each with the node that fetches its data first and with its parcel.
    fn batch(&mut self, source: u32) -> Vec<(usize, (u32, Parcel))> {
        let mut batch = Vec::new();
        let at_source = |parcel: &&Parcel| parcel.source == source && parcel.held.is_empty();
        let ready: Vec<usize> =
            self.parcels.values().filter(at_source).map(|parcel| parcel.parts.len()).collect();
        let mut room = READY.saturating_sub(ready.len());
        let mut reads = READS.saturating_sub(ready.iter().sum());
        while let Some(path) = self.next(source, room > 0 && reads > 0) {
            let Some(timed) = self.agenda.paths().map(|p| p.timetable().paths[path].clone()) else {
                break;
            };
            let hops: Vec<u32> = [&[timed.source], timed.via.as_slice()].concat();
            let bytes = timed.units.saturating_mul(self.state.unit);
            let pieces = match self.state.avoids_way(source, &hops) {
                true => Vec::new(),
                false => self.state.take(source, bytes),
            };
            let (parts, more) = parts(pieces);
            self.state.give_back(more);
            if parts.is_empty() {
                self.mark_empty(path);
                continue;
            }
            reads = reads.saturating_sub(parts.len());
            batch.push((path, (timed.via[0], Parcel::new(source, parts, self.state.id()))));
            room = room.saturating_sub(1);
        }
        batch
    }

    /// Returns the next path of a source if it leaves soon and there is room, or if it is due.
    fn next(&mut self, source: u32, room: bool) -> Option<usize> {
        let paths = self.agenda.paths()?;
        let queue = self.queues.get_mut(&source)?;
        let path = *queue.front()?;
        let soon = paths.timetable().paths[path].start <= paths.slot() + AHEAD;
        let leaves = (soon && room) || self.wanted.contains_key(&path);
        if leaves { queue.pop_front() } else { None }
    }

    /// Begins all transfers that may begin.
    fn begin(&mut self) {
        loop {
            let due = self.agenda.due(self.start.elapsed());
            if due.is_empty() {
                return;
            }
            due.into_iter().for_each(|start| self.start(start, Instant::now()));
            // Due transfers may need parcels, or make their paths void.
            self.prepare();
        }
    }

    fn start(&mut self, start: TransferStart, at: Instant) {
        let Some(hop) = start.hop else { return self.start_source_transfer(start, at) };
        let Some((source, last)) = self.ends(hop) else { return };
        if start.from == source && start.to == last {
            return self.start_source_transfer(start, at);
        }
        match self.parcels.remove(&hop.path) {
            Some(parcel) if parcel.tickets.is_empty() => self.pass(start, hop, parcel),
            Some(parcel) if self.state.avoids_way(source, &self.rest_of(hop)) => {
                self.pass(start, hop, parcel);
            }
            Some(parcel) if start.to == last => match SpoolEntry::of(parcel) {
                Some(entry) => self.deliver(start, at, entry),
                None => self.pass_by(start, hop),
            },
            Some(parcel) => self.fetch(start, at, hop, parcel),
            None if hop.index == 0 => drop(self.wanted.insert(hop.path, (start, at))),
            None => self.pass_by(start, hop),
        }
    }

    /// The first and last participant of a path.
    fn ends(&self, hop: Hop) -> Option<(u32, u32)> {
        let path = &self.agenda.paths()?.timetable().paths[hop.path];
        Some((path.source, path.last()))
    }

    /// The rest of the path, from this hop's sender on.
    fn rest_of(&self, hop: Hop) -> Vec<u32> {
        let Some(paths) = self.agenda.paths() else { return Vec::new() };
        let path = &paths.timetable().paths[hop.path];
        [&[path.source], path.via.as_slice()].concat().split_off(hop.index)
    }

    /// Ends a transfer that carries no data because its parcel was left.
    fn pass(&mut self, start: TransferStart, hop: Hop, parcel: Parcel) {
        self.state.abandon_parcel(parcel);
        self.pass_by(start, hop);
    }

    fn pass_by(&mut self, start: TransferStart, hop: Hop) {
        self.mark_empty(hop.path);
        self.agenda.finish(start.key);
    }

    /// Marks a path as empty.
    fn mark_empty(&mut self, path: usize) {
        self.agenda.mark_empty(path);
        if let Some((start, _)) = self.wanted.remove(&path) {
            self.agenda.finish(start.key);
        }
    }

    fn start_source_transfer(&mut self, start: TransferStart, at: Instant) {
        let state = self.state.clone();
        let most = match start.load {
            TransferLoad::Units(units) | TransferLoad::Stream(units) => {
                units.saturating_mul(state.unit)
            }
            TransferLoad::Share(over) => {
                let amounts = state.context.inventory.amounts(start.from as usize + 1);
                amounts[start.from as usize].div_ceil(u64::from(over))
            }
        };
        let next = matches!(start.load, TransferLoad::Units(_));
        self.tasks.spawn(async move {
            let moved = transfer(&state, start.from, most, next).await;
            TaskResult::Ended(start, at, None, moved)
        });
    }

    fn fetch(&mut self, start: TransferStart, at: Instant, hop: Hop, mut parcel: Parcel) {
        let state = self.state.clone();
        let rest = self.rest_of(hop);
        // The destination is this host, which needs no ticket.
        let last = state.context.overlay.destination();
        let then = rest.get(2).copied().filter(|node| *node != last);
        self.tasks.spawn(async move {
            let moved = fetch(&state, &mut parcel, (start.from, start.to), then).await;
            TaskResult::Ended(start, at, Some(Box::new(parcel)), Ok(moved))
        });
    }

    fn deliver(&mut self, start: TransferStart, at: Instant, entry: SpoolEntry) {
        let state = self.state.clone();
        self.tasks.spawn(async move {
            let moved = deliver(&state, entry).await;
            TaskResult::Ended(start, at, None, moved)
        });
    }

    fn handle_result(&mut self, done: TaskResult) -> Result<(), LandError> {
        match done {
            TaskResult::Ready(source, parcels) => {
                self.preparing.remove(&source);
                for (path, parcel) in parcels {
                    if parcel.tickets.is_empty() {
                        self.mark_empty(path);
                        continue;
                    }
                    self.parcels.insert(path, parcel);
                    if let Some((start, at)) = self.wanted.remove(&path) {
                        self.start(start, at);
                    }
                }
            }
            TaskResult::Ended(start, at, parcel, moved) => {
                self.finish_transfer(start, at, parcel, moved?)
            }
        }
        Ok(())
    }

    fn finish_transfer(
        &mut self,
        start: TransferStart,
        at: Instant,
        parcel: Option<Box<Parcel>>,
        moved: TransferResult,
    ) {
        if let Some(hop) = start.hop {
            match parcel.filter(|parcel| !parcel.parts.is_empty()) {
                Some(parcel) => drop(self.parcels.insert(hop.path, *parcel)),
                None => self.agenda.mark_empty(hop.path),
            }
        }
        self.state.record_transfer(TransferTime {
            path: start.hop.map(|hop| (hop.path, hop.slot)),
            from: start.from,
            to: start.to,
            began: at.saturating_duration_since(self.state.began),
            took: at.elapsed(),
            moving: moved.moving,
            bytes: moved.bytes,
            failed: moved.failed,
        });
        self.agenda.finish(start.key);
    }
}

/// Contacts all nodes that forward data, and opens the channels that orders will need.
async fn greet(state: &Arc<ScheduleState>, agenda: &Agenda, connection_plan: &ConnectionPlan) {
    let Some(paths) = agenda.paths() else { return };
    let last = state.context.overlay.destination();
    let relayed = || paths.timetable().paths.iter().filter(|path| path.via.len() > 1);
    let via = relayed().flat_map(|path| &path.via);
    let nodes: BTreeSet<u32> = via.copied().filter(|node| *node != last).collect();
    let mut greeting = JoinSet::new();
    for node in nodes {
        let (state, orders) = (state.clone(), connection_plan.orders(node));
        greeting.spawn(async move {
            if state.greet(node).await {
                // The channels are opened while the first tickets are drawn.
                let prepare = async move {
                    state.pool.prepare(state.name(node), orders + OTHERS).await;
                };
                tokio::spawn(prepare);
            }
        });
    }
    // Sources are asked for tickets and for the hashes of sent data.
    for source in relayed().map(|path| path.source).collect::<BTreeSet<u32>>() {
        let state = state.clone();
        tokio::spawn(async move { state.pool.prepare(state.name(source), OTHERS).await });
    }
    greeting.join_all().await;
}
