//! Fetches data over one path.

use super::{
    super::{CollectContext, Event, WatchedPath, reads::request},
    meter::{MeteredSink, PathMeter},
    piece_scheduler::{PieceFate, PieceScheduler, RequestNo},
    sizes,
};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_files::remote::LandSink;
use thalweg_files::{
    inventory::{FileNo, Piece},
    land::LandError,
    remote::{Remote, RemoteError},
};
use thalweg_mesh::member_dialer::DialMemberError;
use thalweg_plan::collection::steering::{Way, WayId};
use thalweg_wire::mesh::Name;
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// How often an idle worker checks whether a copy would help.
const LOOKS: Duration = Duration::from_millis(250);

/// A path is closed after this many consecutive answers without useful data, because the source is busy or its answers
/// are wrong. The source is given up if no other path brings anything.
const IN_VAIN: u32 = 4;

/// The pause after such an answer, so that a busy source is not asked again at once.
const BETWEEN: Duration = Duration::from_millis(500);

/// State shared by all paths of a collection.
#[derive(Debug)]
pub(super) struct FluidState {
    pub(super) context: CollectContext,
    scheduler: Mutex<PieceScheduler>,
    /// Signals that something arrived, or waits again.
    pub(super) changed: Notify,
    /// The same for the conductor alone; it stores a permit, since the conductor may not be listening.
    pub(super) settled: Notify,
}

impl FluidState {
    pub(super) fn new(context: CollectContext) -> Self {
        let scheduler = Mutex::new(PieceScheduler::new(context.inventory.clone()));
        Self { context, scheduler, changed: Notify::new(), settled: Notify::new() }
    }

    /// A thread that panicked while holding the lock left complete entries.
    pub(super) fn scheduler(&self) -> MutexGuard<'_, PieceScheduler> {
        self.scheduler.lock()
    }

    /// The names of the hosts on a path, nearest to the source first.
    pub(super) fn via(&self, way: &Way) -> Vec<Name> {
        let names = &self.context.overlay.names;
        way.via.iter().filter_map(|host| names.get(*host as usize).cloned()).collect()
    }
}

/// Why a worker ends early.
#[derive(Debug)]
pub(super) enum WorkerError {
    /// The path broke.
    Lost(String),
    /// Nothing more can be stored.
    Land(LandError),
}

impl From<DialMemberError> for WorkerError {
    fn from(why: DialMemberError) -> Self {
        Self::Lost(why.to_string())
    }
}

impl From<RemoteError> for WorkerError {
    fn from(why: RemoteError) -> Self {
        match why {
            RemoteError::Land(why) => Self::Land(why),
            why => Self::Lost(why.to_string()),
        }
    }
}

/// Fetches over one path until the scheduler ends it or its source has no data left.
pub(super) struct Worker {
    pub(super) shared: Arc<FluidState>,
    pub(super) id: WayId,
    pub(super) way: Way,
    pub(super) meter: Arc<PathMeter>,
    /// Stops new requests; data already requested still arrives.
    pub(super) leave: CancellationToken,
}

/// A request whose bytes arrive; another path may have brought some of them meanwhile.
pub(super) struct AwaitedRequest<'a> {
    shared: &'a FluidState,
    number: RequestNo,
    pieces: &'a [Piece],
}

impl AwaitedRequest<'_> {
    /// Counts the bytes of an arrived piece as duplicates if it was already here.
    pub(super) fn count_copy(&self, index: usize) {
        let Some(piece) = self.pieces.get(index) else { return };
        let mut scheduler = self.shared.scheduler();
        if !scheduler.awaits(self.number, piece) {
            scheduler.came_again(piece.bytes());
        }
    }
}

type OutstandingRequests = VecDeque<(RequestNo, Vec<Piece>)>;

impl Worker {
    /// Runs the worker. The caller that joins the task releases its requests.
    ///
    /// # Errors
    ///
    /// [`WorkerError`].
    pub(super) async fn run(self) -> Result<(), WorkerError> {
        let opened = tokio::select! {
            biased;
            () = self.leave.cancelled() => return Ok(()),
            opened = self.open() => opened,
        };
        let mut remote = opened?;
        let rtt = self.rtt(&remote);
        let (mut asked, mut in_vain) = (OutstandingRequests::new(), 0);
        loop {
            self.ask(&mut remote, &mut asked, rtt).await?;
            if !asked.is_empty() {
                let why = self.receive(&mut remote, &mut asked).await?;
                in_vain = if why.is_some() { in_vain + 1 } else { 0 };
                match why {
                    Some(why) if in_vain >= IN_VAIN => return Err(WorkerError::Lost(why)),
                    Some(_) => sleep(BETWEEN).await,
                    None => {}
                }
            } else if !self.is_wanted().await {
                remote.close().await;
                return Ok(());
            }
        }
    }

    async fn open(&self) -> Result<Remote, WorkerError> {
        let context = &self.shared.context;
        let source = context.overlay.names[self.way.source as usize].clone();
        let between = self.shared.via(&self.way);
        let via: Vec<Name> = between.iter().rev().cloned().collect();
        let idle = between.is_empty().then(|| context.idle_remotes.take(self.way.source)).flatten();
        let remote = match idle {
            Some(remote) => remote,
            None => Remote::open(&context.dialer, &source, &via).await?,
        };
        let path = WatchedPath { member: source.clone(), via: between.clone() };
        context.connections.watch(path, remote.stream().monitor());
        context.events.event(Event::WayOpened { source, via: between });
        Ok(remote)
    }

    /// The round trip of the whole path: the sum of its legs. A leg of unknown round trip counts like the first.
    fn rtt(&self, remote: &Remote) -> Duration {
        let first = remote.stream().round_trip().unwrap_or_default();
        let overlay = &self.shared.context.overlay;
        let hosts = std::iter::once(self.way.source).chain(self.way.via.iter().copied());
        let hosts: Vec<u32> = hosts.chain([overlay.destination()]).collect();
        let leg = |leg: &[u32]| overlay.rtts.get(&(leg[0], leg[1])).copied().unwrap_or(first);
        hosts.windows(2).map(leg).sum()
    }

    /// Sends requests ahead until the path is full.
    async fn ask(
        &self,
        remote: &mut Remote,
        asked: &mut OutstandingRequests,
        rtt: Duration,
    ) -> Result<(), WorkerError> {
        while !self.leave.is_cancelled() {
            let Some((number, pieces)) = self.next(asked.len(), rtt) else { break };
            let request = request(&self.shared.context.inventory, &pieces);
            asked.push_back((number, pieces));
            remote.ask(&request).await?;
        }
        Ok(())
    }

    fn next(&self, out: usize, rtt: Duration) -> Option<(RequestNo, Vec<Piece>)> {
        let mut scheduler = self.shared.scheduler();
        let rate = self.meter.rate();
        let source = self.way.source;
        let bytes = sizes::request(rate, scheduler.waiting(source), scheduler.share(self.id));
        if out >= sizes::ahead(rate, rtt, bytes) {
            return None;
        }
        let next = scheduler.take(self.id, bytes);
        if next.is_none() && out == 0 { scheduler.copy(self.id) } else { next }
    }

    /// Receives an answer. Returns the reason if nothing of it is of use.
    async fn receive(
        &self,
        remote: &mut Remote,
        asked: &mut OutstandingRequests,
    ) -> Result<Option<String>, WorkerError> {
        let Some((number, pieces)) = asked.front() else { return Ok(None) };
        let files: Vec<FileNo> = pieces.iter().map(|piece| piece.file).collect();
        let starts: Vec<u64> = pieces.iter().map(|piece| piece.range.start).collect();
        let context = &self.shared.context;
        let land = LandSink::new(&context.land, &files);
        let request = AwaitedRequest { shared: &self.shared, number: *number, pieces };
        let mut sink = MeteredSink { land, meter: &self.meter, request };
        self.meter.next_request();
        let began = Instant::now();
        let results = remote.receive_all(&starts, &mut sink).await?;
        let rate = self.meter.front() as f64 / began.elapsed().as_secs_f64().max(1e-3);
        if self.meter.rate() == 0.0 {
            self.meter.see_at_least(rate);
        }
        let whys: Vec<Option<RemoteError>> = results.into_iter().map(Result::err).collect();
        let fates: Vec<(Piece, PieceFate)> =
            pieces.iter().cloned().zip(whys.iter().map(|why| fate(why.as_ref()))).collect();
        let in_vain = fates.iter().all(|(_, fate)| *fate == PieceFate::Retry);
        let in_vain = whys.iter().flatten().next().filter(|_| in_vain).map(ToString::to_string);
        let never = self.shared.scheduler().settle(self.id, *number, fates);
        for file in never {
            let why = files.iter().zip(&whys).find(|(other, why)| **other == file && why.is_some());
            let why = why.and_then(|(_, why)| why.as_ref()).map(ToString::to_string);
            context.land.give_up(file, why.unwrap_or_default());
        }
        asked.pop_front();
        self.shared.changed.notify_waiters();
        self.shared.settled.notify_one();
        Ok(in_vain)
    }

    /// Waits until there may be something to do; `false` if there is nothing left to do.
    async fn is_wanted(&self) -> bool {
        let changed = self.shared.changed.notified();
        if self.leave.is_cancelled() || self.shared.scheduler().remaining(self.way.source) == 0 {
            return false;
        }
        tokio::select! {
            () = self.leave.cancelled() => {}
            _ = timeout(LOOKS, changed) => {}
        }
        true
    }
}

fn fate(why: Option<&RemoteError>) -> PieceFate {
    match why {
        None => PieceFate::Arrived,
        Some(RemoteError::Land(LandError::File { .. })) => PieceFate::Unavailable,
        Some(why) if why.is_final() => PieceFate::Unavailable,
        Some(_) => PieceFate::Retry,
    }
}
