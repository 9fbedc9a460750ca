//! State shared by all transfers of a schedule.

use super::{
    ScheduleOutcome, ScheduledRun, TransferTime,
    entry::SpoolEntry,
    failure_record::{FailureRecord, Suspect},
    marks::Marker,
    parcel::Parcel,
    pending_deletions::PendingDeletions,
    pool::{ChannelPool, RequestError},
};
use crate::{CollectContext, Event, Work};
use parking_lot::Mutex;
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use thalweg_files::{
    inventory::{FileNo, Piece},
    remote::Spares,
};
use thalweg_wire::{
    mesh::Name,
    object::{JobId, Reply, Request, SpoolId},
};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};

/// The timeout for clean-up, and for messages to nodes that may be gone.
pub const TIDY: Duration = Duration::from_secs(3);

/// A collection during its execution.
#[derive(Debug)]
pub struct ScheduleState {
    pub context: CollectContext,
    pub pool: ChannelPool,
    pub spares: Spares,
    /// Bytes of a data unit.
    pub unit: u64,
    pub began: Instant,
    job: JobId,
    /// Whether the collection continues an earlier session.
    resumed: bool,
    number: AtomicU64,
    work: Mutex<Work>,
    failures: Mutex<FailureRecord>,
    deletions: Mutex<PendingDeletions>,
    ledger: Mutex<ScheduleOutcome>,
    /// Participants that may hold data of this collection.
    holders: Mutex<BTreeSet<u32>>,
    /// Entries that no path of the schedule brings any more.
    stranded: Mutex<Vec<SpoolEntry>>,
}

impl ScheduleState {
    pub fn new(context: CollectContext, schedule: &ScheduledRun, began: Instant) -> Self {
        let work = Mutex::new(Work::new(&context.inventory));
        let (pool, spares) =
            (ChannelPool::new(context.dialer.clone()), Spares::new(context.dialer.clone()));
        // A random start, so that another run of the same collection uses other numbers, whatever is left of this one.
        let mut first = [0; 8];
        _ = getrandom::fill(&mut first);
        Self {
            context,
            pool,
            spares,
            unit: schedule.unit.as_bytes().max(1),
            began,
            job: schedule.job,
            resumed: schedule.resumed,
            number: AtomicU64::new(u64::from_be_bytes(first)),
            work,
            failures: Mutex::default(),
            deletions: Mutex::default(),
            ledger: Mutex::default(),
            holders: Mutex::default(),
            stranded: Mutex::default(),
        }
    }

    /// A participant's name.
    pub fn name(&self, participant: u32) -> &Name {
        &self.context.overlay.names[participant as usize]
    }

    /// Returns a new id for an entry at a node.
    pub fn id(&self) -> SpoolId {
        SpoolId { job: self.job, number: self.number.fetch_add(1, Ordering::Relaxed) }
    }

    /// The job, the same in all sessions.
    pub fn job(&self) -> JobId {
        self.job
    }

    /// Returns the marker that describes files in notes.
    pub fn marker(&self) -> Marker<'_> {
        let (names, inventory) = (&self.context.overlay.names, &self.context.inventory);
        Marker { job: self.job, names, inventory }
    }

    /// Takes the waiting parts of these pieces; returns for each piece the ranges taken.
    pub fn claim(&self, pieces: &[Piece]) -> Vec<Vec<Piece>> {
        self.work.lock().claim(pieces)
    }

    /// Takes about `bytes` of a source's waiting data.
    pub fn take(&self, source: u32, bytes: u64) -> Vec<Piece> {
        if bytes == 0 { Vec::new() } else { self.work.lock().take(source, bytes) }
    }

    /// Returns pieces that did not arrive; they wait again in their order.
    pub fn give_back(&self, pieces: impl IntoIterator<Item = Piece>) {
        let pieces: Vec<Piece> = pieces.into_iter().collect();
        let mut work = self.work.lock();
        pieces.into_iter().rev().for_each(|piece| work.give_back(piece));
    }

    /// Gives up the path of a parcel: its data waits again, unless a node holds it.
    pub fn abandon_parcel(&self, mut parcel: Parcel) {
        self.give_back(match parcel.holder() {
            Some(_) => Vec::new(),
            None => std::mem::take(&mut parcel.parts),
        });
        if let Some(entry) = SpoolEntry::of(parcel) {
            self.strand(entry);
        }
    }

    /// Leaves an entry at its holder until the schedule is over ([`super::stranded_data::fetch_stranded`]).
    pub fn strand(&self, entry: SpoolEntry) {
        self.stranded.lock().push(entry);
    }

    /// Takes all stranded entries.
    pub fn take_stranded(&self) -> Vec<SpoolEntry> {
        std::mem::take(&mut self.stranded.lock())
    }

    /// Marks a piece as arrived.
    pub fn mark_arrived(&self, piece: &Piece) {
        self.work.lock().done(piece);
    }

    /// Gives up the file of a taken piece.
    pub fn give_up(&self, piece: &Piece, why: String) {
        let mut work = self.work.lock();
        work.forget(piece.file);
        work.done(piece);
        drop(work);
        self.context.land.give_up(piece.file, why);
    }

    /// Bytes of a source that wait.
    pub fn waiting(&self, source: u32) -> u64 {
        self.work.lock().waiting(source)
    }

    /// Bytes of a source that are not here.
    pub fn remaining(&self, source: u32) -> u64 {
        self.work.lock().remaining(source)
    }

    /// Clears the failures of a suspect that works.
    pub fn clear_failures(&self, suspect: Suspect) {
        self.failures.lock().clear(suspect);
    }

    /// Counts a failure; from the second consecutive one on, the suspect is left out.
    pub fn record_failure(&self, suspect: Suspect, why: &str) {
        if self.failures.lock().record_failure(suspect) {
            let who = match suspect {
                Suspect::Node(node) => format!("node {}", self.name(node)),
                Suspect::Leg(from, to) => {
                    format!("the leg from {} to {}", self.name(from), self.name(to))
                }
            };
            self.note(format!("{who} is no longer used: {why}"));
        }
    }

    /// Records that a participant forwarded other bytes than the source says it sent.
    pub fn record_lie(&self, node: u32, source: u32) {
        if self.failures.lock().record_lie(node, source) {
            let mut ledger = self.ledger.lock();
            if !ledger.liars.contains(&node) {
                ledger.liars.push(node);
            }
            drop(ledger);
            let (name, source) = (self.name(node), self.name(source));
            self.note(format!(
                "node {name} forwarded other bytes than {source} reports to have sent: data of \
                 {source} no longer goes through that node, and the data that it forwarded is \
                 fetched again"
            ));
        }
    }

    /// Whether a path of a source's data over these nodes, both ends included, contains anything that is left out.
    pub fn avoids_way(&self, source: u32, hops: &[u32]) -> bool {
        self.failures.lock().avoids_way(source, hops)
    }

    /// Sends a message for the user.
    pub fn note(&self, text: String) {
        self.context.events.event(Event::Note { text });
    }

    /// Records the most bytes that a node has held, as it reports.
    pub fn record_held(&self, node: u32, most: u64) {
        self.holders.lock().insert(node);
        let mut ledger = self.ledger.lock();
        let known = ledger.storage.entry(node).or_default();
        *known = most.max(*known);
    }

    /// Records a finished transfer.
    pub fn record_transfer(&self, transfer: TransferTime) {
        self.context.events.event(Event::Transfer {
            path: transfer.path.map(|path| path.0),
            slot: transfer.path.map(|path| path.1),
            from: self.name(transfer.from).clone(),
            to: self.name(transfer.to).clone(),
            began_seconds: transfer.began.as_secs_f64(),
            seconds: transfer.took.as_secs_f64(),
            moving_seconds: transfer.moving.as_secs_f64(),
            bytes: transfer.bytes,
            why: transfer.failed.clone(),
        });
        self.ledger.lock().transfers.push(transfer);
    }

    /// Records the end of the schedule and the number of missing bytes.
    pub fn record_schedule_end(&self) {
        let sources = 0..self.context.overlay.sources as u32;
        let left = sources.map(|source| self.remaining(source)).sum();
        let mut ledger = self.ledger.lock();
        (ledger.scheduled, ledger.left_over) = (self.began.elapsed(), left);
    }

    /// Records that a source has data left that no path brings.
    pub fn source_failed(&self, source: u32, why: String) {
        if self.ledger.lock().failed.iter().any(|failed| failed.0 == source) {
            return;
        }
        let name = self.name(source).clone();
        self.context.events.event(Event::SourceFailed { source: name, why: why.clone() });
        self.ledger.lock().failed.push((source, why));
    }

    /// Sends a request to a participant. It does not count failures; the caller does.
    pub async fn ask(&self, node: u32, request: &Request) -> Result<Reply, RequestError> {
        self.pool.request(self.name(node), request).await
    }

    /// Whether a node is reachable. Also drops what it holds of this job, unless an earlier session is resumed: then
    /// [`super::stranded_data`] has looked through it before.
    pub async fn greet(&self, node: u32) -> bool {
        let hello = match self.resumed {
            true => Request::Drop(Vec::new()),
            false => Request::DropJob(self.job),
        };
        let reply = timeout(TIDY, self.ask(node, &hello)).await;
        match reply {
            Ok(Ok(_) | Err(RequestError::Refused(_))) => true,
            Ok(Err(RequestError::Unreachable(why))) => {
                // An unreachable node counts as failed at once, so that no transfer waits for it again.
                (0..2).for_each(|_| self.record_failure(Suspect::Node(node), &why));
                false
            }
            Err(_) => true,
        }
    }

    /// Has a node forget an entry, without waiting for it.
    pub fn delete_at(self: &Arc<Self>, node: u32, id: SpoolId) {
        if !self.deletions.lock().add(node, id) {
            return;
        }
        let state = self.clone();
        tokio::spawn(async move {
            while let Some(ids) = state.next_deletions(node) {
                // Entries that remain are dropped at the end, or by the node itself.
                _ = state.ask(node, &Request::Drop(ids)).await;
            }
        });
    }

    fn next_deletions(&self, node: u32) -> Option<Vec<SpoolId>> {
        self.deletions.lock().next(node)
    }

    /// Has `to` open its connection to `from`, and a spare one, before a transfer needs it, by an order to fetch
    /// nothing. If this fails, the transfer will report it.
    pub async fn prepare_connection(self: Arc<Self>, from: u32, to: u32) {
        let (id, from) = (self.id(), self.name(from).clone());
        let (tickets, note) = (Vec::new(), Vec::new());
        let order = Request::Fetch { id, from, tickets, bytes: 0, then: None, note };
        if self.ask(to, &order).await.is_ok() {
            self.delete_at(to, id);
        }
    }

    /// Tells holders that the collection is alive, so that they do not discard its data.
    pub async fn keep_alive(self: Arc<Self>) {
        let holders: Vec<u32> = self.holders.lock().iter().copied().collect();
        for node in holders {
            _ = timeout(TIDY, self.ask(node, &Request::Drop(Vec::new()))).await;
        }
    }

    /// Has nodes forget all data of this job. A node that is not reached discards it by itself.
    pub async fn delete_all(self: &Arc<Self>) {
        let holders: Vec<u32> = self.holders.lock().iter().copied().collect();
        let mut asking = JoinSet::new();
        for node in holders {
            let state = self.clone();
            asking.spawn(async move { _ = state.ask(node, &Request::DropJob(state.job)).await });
        }
        _ = timeout(TIDY, asking.join_all()).await;
    }

    pub fn outcome(&self) -> ScheduleOutcome {
        let mut outcome = self.ledger.lock().clone();
        outcome.messages = self.pool.messages();
        outcome.storage.retain(|_, most| *most > 0);
        outcome
    }

    /// Records that the last byte has arrived.
    pub fn record_end(&self) {
        self.ledger.lock().makespan = self.began.elapsed();
    }

    /// The files of these pieces.
    pub fn files(pieces: &[Piece]) -> Vec<FileNo> {
        pieces.iter().map(|piece| piece.file).collect()
    }
}
