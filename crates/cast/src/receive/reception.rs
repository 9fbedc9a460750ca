//! The state of one cast at one receiver, shared by all its tasks.

use super::{
    cast_directory::{CastDirectory, ObjectDescription, StoredCast},
    disk_space,
    incoming_legs::IncomingLegs,
    job::ReceptionRecord,
};
use crate::{
    leg::child::ReceivedBytes,
    ring::{FeedRole, NodeRing, ProofCache, RepairEncoder},
    store::Store,
};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::BTreeMap,
    fs::OpenOptions,
    io,
    os::unix::fs::OpenOptionsExt as _,
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, Instant},
};
use thalweg_fountain::{Geometry, RING_BYTES};
use thalweg_wire::{
    Signed,
    cast::{
        Account, Candidate, Offer, ParentReport, PlanExpectation, ReceiverOutcome, Refusal, Report,
        RingTerms, ServiceMode,
    },
    mesh::Name,
};
use tokio::sync::{mpsc, watch};

/// The ring terms until the source sends others. A receiver sends the second half of each block's repair symbols,
/// because a source sends the first.
pub const RING_TERMS: RingTerms = RingTerms { bytes: RING_BYTES as u64, part: 1, parts: 2 };

/// A parent: a receiver by its name, or the source (`None`).
pub type ParentName = Option<Name>;

/// A receiver's candidate parents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parents {
    /// The best first.
    pub candidates: Vec<Candidate>,
    /// The number of parents to use at a time.
    pub at_once: usize,
}

impl Parents {
    /// The source as the only candidate.
    pub fn source() -> Self {
        let source = Candidate { name: None, bps: None, want: ServiceMode::Pull };
        Self { candidates: vec![source], at_once: 1 }
    }
}

/// The progress of a reception.
#[derive(Clone, Debug)]
pub enum State {
    /// Manifest and layout are not known yet.
    New,
    /// Symbols are being received.
    Fetching(Arc<Store>),
    /// All symbols are present; the object is being checked.
    Checking(Arc<Store>),
    /// The object has its name. The number is the time in µs from the first symbol of this session to the last.
    Complete(Arc<Store>, u64),
    /// The reception cannot continue for now.
    Failed(Refusal),
}

/// What came from a parent, over all its legs.
#[derive(Debug, Default)]
pub struct ParentStats {
    pub got: Arc<ReceivedBytes>,
    /// The number of open legs.
    pub legs: usize,
    /// For rates: bytes at the last look, and the rate computed then.
    last: u64,
    bps: u64,
}

/// Counters for reports.
#[derive(Debug, Default)]
struct Counters {
    parents: BTreeMap<ParentName, ParentStats>,
    looked: Option<Instant>,
    held: u64,
    bps: u64,
}

/// One cast at one receiver.
#[derive(Debug)]
pub struct Reception {
    pub home: CastDirectory,
    /// The source's name when the cast was first offered.
    pub source: Name,
    offer: Mutex<(Signed<Offer>, Vec<u8>)>,
    state: watch::Sender<State>,
    parents: watch::Sender<Arc<Parents>>,
    described: Mutex<Option<ObjectDescription>>,
    control: Mutex<Option<ControlChannel>>,
    /// Legs that the source opens.
    pub incoming: IncomingLegs,
    counted: Mutex<Counters>,
    ring: Mutex<(RingTerms, Option<Arc<NodeRing>>)>,
    /// The number of blocks solved in this session.
    pub solved: Arc<AtomicU64>,
    record: Mutex<ReceptionRecord>,
    /// The members served from here, with their numbers of legs.
    children: Mutex<BTreeMap<Name, usize>>,
}

/// The control channel to the source.
#[derive(Debug)]
struct ControlChannel {
    to: mpsc::Sender<Report>,
    /// When the source was last heard.
    heard: Instant,
}

/// A source that was heard within this time is considered connected. It sends a keep-alive message every 5 s.
const SOURCE_ALIVE: Duration = Duration::from_secs(12);

/// Counts a child as served until this is dropped.
#[derive(Debug)]
pub struct ServedChild(Arc<Reception>, Name);

impl Drop for ServedChild {
    fn drop(&mut self) {
        let mut children = self.0.children.lock();
        match children.get_mut(&self.1) {
            Some(legs) if *legs > 1 => *legs -= 1,
            _ => _ = children.remove(&self.1),
        }
    }
}

impl Reception {
    /// Creates a reception from new or stored state.
    pub fn new(home: CastDirectory, source: Name, kept: StoredCast) -> Arc<Self> {
        let parents = kept.parents.and_then(|encoded| decode_parents(&encoded));
        let begin = || ReceptionRecord::begin(home.id, &source, kept.offer.value(), &home.inbox);
        let record = Mutex::new(kept.record.unwrap_or_else(begin));
        Arc::new(Self {
            home,
            source,
            offer: Mutex::new((kept.offer, kept.pass)),
            state: watch::Sender::new(State::New),
            parents: watch::Sender::new(Arc::new(parents.unwrap_or_else(Parents::source))),
            described: Mutex::new(kept.described),
            control: Mutex::default(),
            incoming: IncomingLegs::default(),
            counted: Mutex::default(),
            ring: Mutex::new((RING_TERMS, None)),
            solved: Arc::default(),
            record,
            children: Mutex::default(),
        })
    }

    /// The job, and what the source expects.
    pub fn record(&self) -> ReceptionRecord {
        self.record.lock().clone()
    }

    /// Sets the source's expectation. Returns the record to store.
    pub fn expect(&self, expected: PlanExpectation) -> ReceptionRecord {
        let mut record = self.record.lock();
        record.expected = Some(expected);
        record.clone()
    }

    /// Adds a leg on which this child is served.
    pub fn add_child(self: &Arc<Self>, child: Name) -> ServedChild {
        *self.children.lock().entry(child.clone()).or_default() += 1;
        ServedChild(Arc::clone(self), child)
    }

    /// The members that are served from here now.
    pub fn children(&self) -> Vec<Name> {
        self.children.lock().keys().cloned().collect()
    }

    /// Sets the terms for the ring. An existing ring keeps its terms.
    pub fn set_ring(&self, terms: RingTerms) {
        self.ring.lock().0 = terms;
    }

    /// The number of blocks solved from repair symbols in this session.
    pub fn solved(&self) -> u64 {
        self.solved.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// The ring from which the object is forwarded; created on first use.
    ///
    /// # Errors
    /// I/O errors.
    pub fn ring(&self, store: &Arc<Store>) -> io::Result<Arc<NodeRing>> {
        let (terms, ring) = &mut *self.ring.lock();
        if let Some(ring) = ring.as_ref().filter(|ring| Arc::ptr_eq(&ring.store, store)) {
            return Ok(Arc::clone(ring));
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let sheets = options.open(self.home.path().join("sheets"))?;
        let proofs = Arc::new(ProofCache::new(&store.known.geometry));
        let repairs =
            RepairEncoder::for_receiver(self.offer().signer(), Some(sheets), Arc::clone(&proofs));
        let made = NodeRing::new(Arc::clone(store), repairs, proofs, *terms, FeedRole::Receiver)?;
        *ring = Some(Arc::clone(&made));
        Ok(made)
    }

    pub fn offer(&self) -> Signed<Offer> {
        self.offer.lock().0.clone()
    }

    /// The pass that authorizes this node at its parents.
    pub fn pass(&self) -> Vec<u8> {
        self.offer.lock().1.clone()
    }

    /// Replaces offer and pass after the cast was offered again.
    pub fn renew(&self, offer: Signed<Offer>, pass: Vec<u8>) {
        *self.offer.lock() = (offer, pass);
    }

    pub fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Notifies of each change of state.
    pub fn states(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Sets the state and wakes those who wait for it.
    pub fn set(&self, state: State) {
        self.state.send_replace(state);
    }

    /// The object's store, if manifest and layout are known.
    pub fn store(&self) -> Option<Arc<Store>> {
        match &*self.state.borrow() {
            State::Fetching(store) | State::Checking(store) | State::Complete(store, _) => {
                Some(Arc::clone(store))
            }
            State::New | State::Failed(_) => None,
        }
    }

    /// Waits until this store is no longer the current one. Children served from it must then reconnect.
    pub async fn wait_replaced(&self, store: &Arc<Store>) {
        let is_kept = |state: &State| match state {
            State::Fetching(now) | State::Checking(now) | State::Complete(now, _) => {
                Arc::ptr_eq(now, store)
            }
            State::New | State::Failed(_) => false,
        };
        // The sender is a field of this reception.
        _ = self.states().wait_for(|state| !is_kept(state)).await;
    }

    /// Bytes that count against an inbox's `max_bytes`: the object's, plus its entries' once they are known.
    pub fn bytes(&self) -> u64 {
        let length = self.offer.lock().0.value().length;
        length.saturating_add(self.entries())
    }

    fn entries(&self) -> u64 {
        self.described.lock().as_ref().map_or(0, |(_, layout)| disk_space::entries(layout))
    }

    /// All bytes that the cast takes on disk.
    pub fn takes(&self) -> u64 {
        self.bytes().saturating_add(disk_space::overhead(self.offer.lock().0.value()))
    }

    /// Bytes that are still to be stored, including the proportional share of digests.
    pub fn lacks(&self) -> u64 {
        let length = self.offer.lock().0.value().length;
        let beside = disk_space::overhead(self.offer.lock().0.value());
        match &*self.state.borrow() {
            State::New => self.takes(),
            // Entries are created first; digests arrive with the symbols they prove.
            State::Fetching(store) => {
                let rest = length.saturating_sub(store.held_bytes());
                let of_beside = u128::from(beside) * u128::from(rest) / u128::from(length.max(1));
                rest.saturating_add(of_beside as u64)
            }
            State::Checking(_) | State::Complete(..) | State::Failed(_) => 0,
        }
    }

    /// Manifest and layout, if they are known.
    pub fn described(&self) -> MutexGuard<'_, Option<ObjectDescription>> {
        self.described.lock()
    }

    /// Notifies of new lists of parents.
    pub fn parents(&self) -> watch::Receiver<Arc<Parents>> {
        self.parents.subscribe()
    }

    /// Sets the list of parents.
    pub fn set_parents(&self, parents: Parents) {
        self.parents.send_replace(Arc::new(parents));
    }

    /// Sets the control channel for reports; replaces an earlier one.
    pub fn attach(&self, to: mpsc::Sender<Report>) {
        *self.control.lock() = Some(ControlChannel { to, heard: Instant::now() });
    }

    /// Records that the source was heard.
    pub fn record_heard(&self) {
        if let Some(control) = &mut *self.control.lock() {
            control.heard = Instant::now();
        }
    }

    /// Whether a process of the source is connected and conducts the reception.
    pub fn is_conducted(&self) -> bool {
        let control = self.control.lock();
        control.as_ref().is_some_and(|c| !c.to.is_closed() && c.heard.elapsed() < SOURCE_ALIVE)
    }

    /// Sends a report to the source. Returns whether it is connected and accepts reports.
    pub fn tell(&self, report: Report) -> bool {
        self.control.lock().as_ref().is_some_and(|control| control.to.try_send(report).is_ok())
    }

    /// Counts one more leg to a parent. Returns the counters for received bytes.
    pub fn begin_leg(&self, who: &ParentName) -> Arc<ReceivedBytes> {
        let mut counted = self.counted.lock();
        let seen = counted.parents.entry(who.clone()).or_default();
        seen.legs += 1;
        Arc::clone(&seen.got)
    }

    /// Counts one leg less.
    pub fn end_leg(&self, who: &ParentName) {
        if let Some(seen) = self.counted.lock().parents.get_mut(who) {
            seen.legs = seen.legs.saturating_sub(1);
        }
    }

    /// The progress of the reception. With `look`, rates are computed anew, since the last look.
    pub fn account(&self, look: bool) -> Account {
        use std::sync::atomic::Ordering::Relaxed;
        let store = self.store();
        let held = store.as_ref().map_or(0, |store| store.held_bytes());
        let is_complete = matches!(*self.state.borrow(), State::Complete(..));
        let mut counted = self.counted.lock();
        let Counters { parents, looked, held: before, bps } = &mut *counted;
        if look {
            let span = looked.map(|then| then.elapsed().as_secs_f64());
            let rate = |bytes: u64| match span {
                Some(span) if span > 0.0 => (bytes as f64 * 8.0 / span) as u64,
                _ => 0,
            };
            *bps = rate(held.saturating_sub(*before));
            for seen in parents.values_mut() {
                let bytes = seen.got.bytes.load(Relaxed);
                seen.bps = rate(bytes - seen.last);
                seen.last = bytes;
            }
            (*looked, *before) = (Some(Instant::now()), held);
        }
        let mut account = Account { held, bps: *bps, ..Account::default() };
        account.served = store.map_or(0, |store| store.served());
        if let Some(node) = &self.ring.lock().1 {
            account.served += node.ring.served();
            account.missed = node.ring.missed();
            account.ring_peak = node.ring.peak();
        }
        for (name, seen) in parents {
            let bytes = seen.got.bytes.load(Relaxed);
            let beyond = seen.got.beyond.load(Relaxed);
            account.received += bytes;
            account.beyond += beyond;
            let bytes = bytes - beyond;
            let (name, is_now) = (name.clone(), seen.legs > 0);
            account.parents.push(ParentReport { name, is_now, bps: seen.bps, bytes });
        }
        if is_complete {
            // Symbols that waited for the disk when the last missing one was written are of no use, either.
            account.beyond = account.beyond.max(account.received.saturating_sub(held));
        }
        account
    }

    /// The result, if the reception has ended.
    pub fn outcome(&self) -> Option<ReceiverOutcome> {
        match &*self.state.borrow() {
            State::Complete(_, micros) => Some(ReceiverOutcome::Complete { micros: *micros }),
            State::Failed(why) => Some(ReceiverOutcome::Failed(why.clone())),
            _ => None,
        }
    }
}

/// The geometry of an offer's object.
///
/// # Errors
/// The offer is invalid.
pub fn geometry(offer: &Offer) -> Result<Geometry, Refusal> {
    let shape = offer.shape;
    let geometry =
        Geometry::new(offer.length, shape.symbol_bytes, shape.block_symbols, shape.repair_symbols);
    geometry.map_err(|why| Refusal::Invalid(why.to_string()))
}

/// Decodes a stored list of parents.
pub fn decode_parents(encoded: &[u8]) -> Option<Parents> {
    let (candidates, at_once): (Vec<Candidate>, u32) =
        thalweg_wire::cast::decode(encoded.get(4..)?).ok()?;
    Some(Parents { candidates, at_once: at_once as usize })
}

/// Encodes a list of parents for storage.
pub fn encode_parents(parents: &Parents) -> Vec<u8> {
    thalweg_wire::cast::encode(&(&parents.candidates, parents.at_once as u32))
}
