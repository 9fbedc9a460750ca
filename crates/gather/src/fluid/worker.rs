//! Fetches data over one path.

use super::{
    super::{Errand, Event, reads::request},
    desk::{Desk, Fate, ParcelNo},
    meter::{Meter, Metered},
    sizes,
};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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
pub(super) struct Shared {
    pub(super) errand: Errand,
    desk: Mutex<Desk>,
    /// Signals that something arrived, or waits again.
    pub(super) changed: Notify,
    /// The same for the conductor alone; it stores a permit, since the conductor may not be listening.
    pub(super) settled: Notify,
}

impl Shared {
    pub(super) fn new(errand: Errand) -> Self {
        let desk = Mutex::new(Desk::new(errand.inventory.clone()));
        Self { errand, desk, changed: Notify::new(), settled: Notify::new() }
    }

    /// A thread that panicked while holding the lock left complete entries.
    pub(super) fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names of the hosts on a path, nearest to the source first.
    pub(super) fn via(&self, way: &Way) -> Vec<Name> {
        let names = &self.errand.overlay.names;
        way.via.iter().filter_map(|host| names.get(*host as usize).cloned()).collect()
    }
}

/// Why a worker ends early.
#[derive(Debug)]
pub(super) enum End {
    /// The path broke.
    Lost(String),
    /// Nothing more can be stored.
    Land(LandError),
}

impl From<DialMemberError> for End {
    fn from(why: DialMemberError) -> Self {
        Self::Lost(why.to_string())
    }
}

impl From<RemoteError> for End {
    fn from(why: RemoteError) -> Self {
        match why {
            RemoteError::Land(why) => Self::Land(why),
            why => Self::Lost(why.to_string()),
        }
    }
}

/// Fetches over one path until the scheduler ends it or its source has no data left.
pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) id: WayId,
    pub(super) way: Way,
    pub(super) meter: Arc<Meter>,
    /// Stops new requests; data already requested still arrives.
    pub(super) leave: CancellationToken,
}

/// A request whose bytes arrive; another path may have brought some of them meanwhile.
pub(super) struct Awaited<'a> {
    shared: &'a Shared,
    number: ParcelNo,
    pieces: &'a [Piece],
}

impl Awaited<'_> {
    /// Counts the bytes of an arrived piece as duplicates if it was already here.
    pub(super) fn count_copy(&self, index: usize) {
        let Some(piece) = self.pieces.get(index) else { return };
        let mut desk = self.shared.desk();
        if !desk.awaits(self.number, piece) {
            desk.came_again(piece.bytes());
        }
    }
}

type Asked = VecDeque<(ParcelNo, Vec<Piece>)>;

impl Worker {
    /// Runs the worker. The caller that joins the task releases its parcels.
    ///
    /// # Errors
    ///
    /// [`End`].
    pub(super) async fn run(self) -> Result<(), End> {
        let opened = tokio::select! {
            biased;
            () = self.leave.cancelled() => return Ok(()),
            opened = self.open() => opened,
        };
        let mut remote = opened?;
        let rtt = self.rtt(&remote);
        let (mut asked, mut in_vain) = (Asked::new(), 0);
        loop {
            self.ask(&mut remote, &mut asked, rtt).await?;
            if !asked.is_empty() {
                let why = self.receive(&mut remote, &mut asked).await?;
                in_vain = if why.is_some() { in_vain + 1 } else { 0 };
                match why {
                    Some(why) if in_vain >= IN_VAIN => return Err(End::Lost(why)),
                    Some(_) => sleep(BETWEEN).await,
                    None => {}
                }
            } else if !self.is_wanted().await {
                remote.close().await;
                return Ok(());
            }
        }
    }

    async fn open(&self) -> Result<Remote, End> {
        let errand = &self.shared.errand;
        let source = errand.overlay.names[self.way.source as usize].clone();
        let between = self.shared.via(&self.way);
        let via: Vec<Name> = between.iter().rev().cloned().collect();
        let greeted = between.is_empty().then(|| errand.greeted.take(self.way.source)).flatten();
        let remote = match greeted {
            Some(remote) => remote,
            None => Remote::open(&errand.dialer, &source, &via).await?,
        };
        errand.events.event(Event::WayOpened { source, via: between });
        Ok(remote)
    }

    /// The round trip of the whole path: the sum of its legs. A leg of unknown round trip counts like the first.
    fn rtt(&self, remote: &Remote) -> Duration {
        let first = remote.stream().round_trip().unwrap_or_default();
        let overlay = &self.shared.errand.overlay;
        let hosts = std::iter::once(self.way.source).chain(self.way.via.iter().copied());
        let hosts: Vec<u32> = hosts.chain([overlay.destination()]).collect();
        let leg = |leg: &[u32]| overlay.rtts.get(&(leg[0], leg[1])).copied().unwrap_or(first);
        hosts.windows(2).map(leg).sum()
    }

    /// Sends requests ahead until the path is full.
    async fn ask(&self, remote: &mut Remote, asked: &mut Asked, rtt: Duration) -> Result<(), End> {
        while !self.leave.is_cancelled() {
            let Some((number, pieces)) = self.next(asked.len(), rtt) else { break };
            let request = request(&self.shared.errand.inventory, &pieces);
            asked.push_back((number, pieces));
            remote.ask(&request).await?;
        }
        Ok(())
    }

    fn next(&self, out: usize, rtt: Duration) -> Option<(ParcelNo, Vec<Piece>)> {
        let mut desk = self.shared.desk();
        let rate = self.meter.rate();
        let source = self.way.source;
        let bytes = sizes::request(rate, desk.waiting(source), desk.share(self.id));
        if out >= sizes::ahead(rate, rtt, bytes) {
            return None;
        }
        let next = desk.take(self.id, bytes);
        if next.is_none() && out == 0 { desk.copy(self.id) } else { next }
    }

    /// Receives an answer. Returns the reason if nothing of it is of use.
    async fn receive(&self, remote: &mut Remote, asked: &mut Asked) -> Result<Option<String>, End> {
        let Some((number, pieces)) = asked.front() else { return Ok(None) };
        let files: Vec<FileNo> = pieces.iter().map(|piece| piece.file).collect();
        let starts: Vec<u64> = pieces.iter().map(|piece| piece.range.start).collect();
        let errand = &self.shared.errand;
        let land = LandSink::new(&errand.land, &files);
        let parcel = Awaited { shared: &self.shared, number: *number, pieces };
        let mut sink = Metered { land, meter: &self.meter, parcel };
        self.meter.next_request();
        let began = Instant::now();
        let results = remote.receive_all(&starts, &mut sink).await?;
        let rate = self.meter.front() as f64 / began.elapsed().as_secs_f64().max(1e-3);
        if self.meter.rate() == 0.0 {
            self.meter.see_at_least(rate);
        }
        let whys: Vec<Option<RemoteError>> = results.into_iter().map(Result::err).collect();
        let fates: Vec<(Piece, Fate)> =
            pieces.iter().cloned().zip(whys.iter().map(|why| fate(why.as_ref()))).collect();
        let in_vain = fates.iter().all(|(_, fate)| *fate == Fate::Again);
        let in_vain = whys.iter().flatten().next().filter(|_| in_vain).map(ToString::to_string);
        let never = self.shared.desk().settle(self.id, *number, fates);
        for file in never {
            let why = files.iter().zip(&whys).find(|(other, why)| **other == file && why.is_some());
            let why = why.and_then(|(_, why)| why.as_ref()).map(ToString::to_string);
            errand.land.give_up(file, why.unwrap_or_default());
        }
        asked.pop_front();
        self.shared.changed.notify_waiters();
        self.shared.settled.notify_one();
        Ok(in_vain)
    }

    /// Waits until there may be something to do; `false` if there is nothing left to do.
    async fn is_wanted(&self) -> bool {
        let changed = self.shared.changed.notified();
        if self.leave.is_cancelled() || self.shared.desk().remaining(self.way.source) == 0 {
            return false;
        }
        tokio::select! {
            () = self.leave.cancelled() => {}
            _ = timeout(LOOKS, changed) => {}
        }
        true
    }
}

fn fate(why: Option<&RemoteError>) -> Fate {
    match why {
        None => Fate::Came,
        Some(RemoteError::Land(LandError::File { .. })) => Fate::Never,
        Some(why) if why.is_final() => Fate::Never,
        Some(_) => Fate::Again,
    }
}
