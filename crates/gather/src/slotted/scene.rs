//! What all transfers share.

use super::{
    Course, Outcome, TransferTime,
    blame::{Blame, Suspect},
    drops::Drops,
    entry::Entry,
    marks::Marker,
    parcel::Parcel,
    pool::{Fault, Pool},
};
use crate::{Errand, Event, Work};
use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
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

/// For what is only tidying up, and for a word of who may be gone.
pub const TIDY: Duration = Duration::from_secs(3);

/// The collection while it is carried out.
#[derive(Debug)]
pub struct Scene {
    pub errand: Errand,
    pub pool: Pool,
    pub spares: Spares,
    /// Bytes of a data unit.
    pub unit: u64,
    pub began: Instant,
    job: JobId,
    /// It goes on with an earlier session's.
    resumed: bool,
    number: AtomicU64,
    work: Mutex<Work>,
    blame: Mutex<Blame>,
    drops: Mutex<Drops>,
    ledger: Mutex<Outcome>,
    /// Participants that may hold something.
    holders: Mutex<BTreeSet<u32>>,
    /// Entries that no path of the schedule brings any more.
    stranded: Mutex<Vec<Entry>>,
}

impl Scene {
    pub fn new(errand: Errand, course: &Course, began: Instant) -> Self {
        let work = Mutex::new(Work::new(&errand.inventory));
        let (pool, spares) = (Pool::new(errand.reach.clone()), Spares::new(errand.reach.clone()));
        // Another run of the same collection has others, whatever was left of this.
        let mut first = [0; 8];
        _ = getrandom::fill(&mut first);
        Self {
            errand,
            pool,
            spares,
            unit: course.unit.as_bytes().max(1),
            began,
            job: course.job,
            resumed: course.resumed,
            number: AtomicU64::new(u64::from_be_bytes(first)),
            work,
            blame: Mutex::default(),
            drops: Mutex::default(),
            ledger: Mutex::default(),
            holders: Mutex::default(),
            stranded: Mutex::default(),
        }
    }

    /// A participant's name.
    pub fn name(&self, participant: u32) -> &Name {
        &self.errand.overlay.names[participant as usize]
    }

    /// A name for what a node is to hold.
    pub fn id(&self) -> SpoolId {
        SpoolId { job: self.job, number: self.number.fetch_add(1, Ordering::Relaxed) }
    }

    /// The collection, whatever its sessions.
    pub fn job(&self) -> JobId {
        self.job
    }

    /// Marks its files on entries.
    pub fn marker(&self) -> Marker<'_> {
        let (names, inventory) = (&self.errand.overlay.names, &self.errand.inventory);
        Marker { job: self.job, names, inventory }
    }

    /// Data that waits; for each piece what it is of it.
    pub fn claim(&self, pieces: &[Piece]) -> Vec<Vec<Piece>> {
        lock(&self.work).claim(pieces)
    }

    /// Data of a source that waits, about so much.
    pub fn take(&self, source: u32, bytes: u64) -> Vec<Piece> {
        if bytes == 0 { Vec::new() } else { lock(&self.work).take(source, bytes) }
    }

    /// It did not come, and waits again in its order.
    pub fn give_back(&self, pieces: impl IntoIterator<Item = Piece>) {
        let pieces: Vec<Piece> = pieces.into_iter().collect();
        let mut work = lock(&self.work);
        pieces.into_iter().rev().for_each(|piece| work.give_back(piece));
    }

    /// No path brings a parcel any more: its data waits again, unless somebody holds it.
    pub fn leave(&self, mut parcel: Parcel) {
        self.give_back(match parcel.holder() {
            Some(_) => Vec::new(),
            None => std::mem::take(&mut parcel.parts),
        });
        if let Some(entry) = Entry::of(parcel) {
            self.strand(entry);
        }
    }

    /// An entry is left where it is, until the schedule is over ([`super::adopt::take_stranded`]).
    pub fn strand(&self, entry: Entry) {
        lock(&self.stranded).push(entry);
    }

    /// All of those.
    pub fn stranded(&self) -> Vec<Entry> {
        std::mem::take(&mut lock(&self.stranded))
    }

    /// It is here.
    pub fn done(&self, piece: &Piece) {
        lock(&self.work).done(piece);
    }

    /// A file of which a piece was taken will not come.
    pub fn give_up(&self, piece: &Piece, why: String) {
        let mut work = lock(&self.work);
        work.forget(piece.file);
        work.done(piece);
        drop(work);
        self.errand.land.give_up(piece.file, why);
    }

    /// Bytes of a source that wait.
    pub fn waiting(&self, source: u32) -> u64 {
        lock(&self.work).waiting(source)
    }

    /// Bytes of a source that are not here.
    pub fn remaining(&self, source: u32) -> u64 {
        lock(&self.work).remaining(source)
    }

    /// Something works.
    pub fn works(&self, suspect: Suspect) {
        lock(&self.blame).works(suspect);
    }

    /// Something failed.
    pub fn failed(&self, suspect: Suspect, why: &str) {
        if lock(&self.blame).failed(suspect) {
            let who = match suspect {
                Suspect::Node(node) => format!("node {}", self.name(node)),
                Suspect::Leg(from, to) => {
                    format!("the way from {} to {}", self.name(from), self.name(to))
                }
            };
            self.note(format!("{who} is left out from here on: {why}"));
        }
    }

    /// A participant gave other bytes than the source says it sent.
    pub fn lied(&self, node: u32, source: u32) {
        if lock(&self.blame).lied(node, source) {
            let mut ledger = lock(&self.ledger);
            if !ledger.liars.contains(&node) {
                ledger.liars.push(node);
            }
            drop(ledger);
            let (name, source) = (self.name(node), self.name(source));
            self.note(format!(
                "node {name} passed on other bytes than {source} says it sent: nothing of {source} \
                 goes by way of it any more, and what it passed on is fetched again"
            ));
        }
    }

    /// Whether a way of a source's data over these nodes, its ends included, has something that is
    /// left out.
    pub fn avoids_way(&self, source: u32, hops: &[u32]) -> bool {
        lock(&self.blame).avoids_way(source, hops)
    }

    /// Something to know.
    pub fn note(&self, text: String) {
        self.errand.events.event(Event::Note { text });
    }

    /// A node tells the most that it has held.
    pub fn holds(&self, node: u32, most: u64) {
        lock(&self.holders).insert(node);
        let mut ledger = lock(&self.ledger);
        let known = ledger.storage.entry(node).or_default();
        *known = most.max(*known);
    }

    /// A transfer is over.
    pub fn ended(&self, transfer: TransferTime) {
        self.errand.events.event(Event::Transfer {
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
        lock(&self.ledger).transfers.push(transfer);
    }

    /// The schedule is over; so much of the sources' data is not here.
    pub fn schedule_over(&self) {
        let sources = 0..self.errand.overlay.sources as u32;
        let left = sources.map(|source| self.remaining(source)).sum();
        let mut ledger = lock(&self.ledger);
        (ledger.scheduled, ledger.left_over) = (self.began.elapsed(), left);
    }

    /// A source has data left that nothing brings.
    pub fn source_failed(&self, source: u32, why: String) {
        if lock(&self.ledger).failed.iter().any(|failed| failed.0 == source) {
            return;
        }
        let name = self.name(source).clone();
        self.errand.events.event(Event::SourceFailed { source: name, why: why.clone() });
        lock(&self.ledger).failed.push((source, why));
    }

    /// Asks a participant; what it cannot do is its own failure.
    pub async fn ask(&self, node: u32, request: &Request) -> Result<Reply, Fault> {
        self.pool.request(self.name(node), request).await
    }

    /// Whether the node is there. What it holds of an earlier session was looked through
    /// before ([`super::adopt`]), if there was one.
    pub async fn greet(&self, node: u32) -> bool {
        let hello = match self.resumed {
            true => Request::Drop(Vec::new()),
            false => Request::DropJob(self.job),
        };
        let reply = timeout(TIDY, self.ask(node, &hello)).await;
        match reply {
            Ok(Ok(_) | Err(Fault::Refused(_))) => true,
            Ok(Err(Fault::Gone(why))) => {
                // It is not there now: nobody waits for it twice.
                (0..2).for_each(|_| self.failed(Suspect::Node(node), &why));
                false
            }
            Err(_) => true,
        }
    }

    /// Has a node forget an entry, without waiting for it.
    pub fn drop_at(self: &Arc<Self>, node: u32, id: SpoolId) {
        if !lock(&self.drops).add(node, id) {
            return;
        }
        let scene = self.clone();
        tokio::spawn(async move {
            while let Some(ids) = scene.next_drops(node) {
                // What stays is dropped at the end, or by the node itself.
                _ = scene.ask(node, &Request::Drop(ids)).await;
            }
        });
    }

    fn next_drops(&self, node: u32) -> Option<Vec<SpoolId>> {
        lock(&self.drops).next(node)
    }

    /// Has `to` open its connection to `from`, and one to spare, before a transfer needs it: it is asked
    /// to fetch nothing. Whatever does not work, the transfer will tell.
    pub async fn warm(self: Arc<Self>, from: u32, to: u32) {
        let (id, from) = (self.id(), self.name(from).clone());
        let (tickets, note) = (Vec::new(), Vec::new());
        let order = Request::Fetch { id, from, tickets, bytes: 0, then: None, note };
        if self.ask(to, &order).await.is_ok() {
            self.drop_at(to, id);
        }
    }

    /// Keeps what nodes hold from being taken for a dead collection's.
    pub async fn keep(self: Arc<Self>) {
        let holders: Vec<u32> = lock(&self.holders).iter().copied().collect();
        for node in holders {
            _ = timeout(TIDY, self.ask(node, &Request::Drop(Vec::new()))).await;
        }
    }

    /// Nodes forget what they still hold. Whatever does not work, they do by themselves.
    pub async fn tidy(self: &Arc<Self>) {
        let holders: Vec<u32> = lock(&self.holders).iter().copied().collect();
        let mut asking = JoinSet::new();
        for node in holders {
            let scene = self.clone();
            asking.spawn(async move { _ = scene.ask(node, &Request::DropJob(scene.job)).await });
        }
        _ = timeout(TIDY, asking.join_all()).await;
    }

    /// What all came to.
    pub fn outcome(&self) -> Outcome {
        let mut outcome = lock(&self.ledger).clone();
        outcome.messages = self.pool.messages();
        outcome.storage.retain(|_, most| *most > 0);
        outcome
    }

    /// The last byte is here.
    pub fn over(&self) {
        lock(&self.ledger).makespan = self.began.elapsed();
    }

    /// The files of pieces.
    pub fn files(pieces: &[Piece]) -> Vec<FileNo> {
        pieces.iter().map(|piece| piece.file).collect()
    }
}

/// Held for a few instructions only; a thread that panicked in there left whole entries.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
