//! One cast at one receiver, as all its tasks see it.

use super::{
    home::{Described, Home, Kept},
    incoming::Incoming,
    job::Record,
    room,
};
use crate::{
    leg::child::Got,
    ring::{NodeRing, PageBook, Repairs, Start},
    store::Store,
};
use std::{
    collections::BTreeMap,
    fs::OpenOptions,
    io,
    os::unix::fs::OpenOptionsExt as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicU64},
    time::{Duration, Instant},
};
use thalweg_fountain::{Geometry, RING_BYTES};
use thalweg_wire::{
    Signed,
    cast::{
        Account, Candidate, Ended, Expected, FromParent, Offer, Refusal, Report, RingTerms, Want,
    },
    mesh::Name,
};
use tokio::sync::{mpsc, watch};

/// How it is handed on until the source says otherwise: of each block's repair symbols the second
/// half, as a source gives the first.
pub const RING_TERMS: RingTerms = RingTerms { bytes: RING_BYTES as u64, part: 1, parts: 2 };

/// A parent: a receiver, or the source.
pub type Who = Option<Name>;

/// Whose data a receiver takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parents {
    /// The best first.
    pub candidates: Vec<Candidate>,
    /// How many at a time.
    pub at_once: usize,
}

impl Parents {
    /// The source alone.
    pub fn source() -> Self {
        let source = Candidate { name: None, bps: None, want: Want::Pull };
        Self { candidates: vec![source], at_once: 1 }
    }
}

/// How far it is.
#[derive(Clone, Debug)]
pub enum State {
    /// What proves the object is not here yet.
    New,
    /// Symbols come.
    Fetching(Arc<Store>),
    /// All is here; it is being checked.
    Checking(Arc<Store>),
    /// It has its name. The span in µs from the first symbol of this session to the last.
    Complete(Arc<Store>, u64),
    /// It cannot go on for now.
    Failed(Refusal),
}

/// What came from a parent, over all its legs.
#[derive(Debug, Default)]
pub struct Seen {
    /// What came.
    pub got: Arc<Got>,
    /// Legs that are open now.
    pub legs: usize,
    /// For rates: bytes at the last look, and the rate found.
    last: u64,
    bps: u64,
}

/// What is counted for reports.
#[derive(Debug, Default)]
struct Counted {
    parents: BTreeMap<Who, Seen>,
    looked: Option<Instant>,
    held: u64,
    bps: u64,
}

/// One cast at one receiver.
#[derive(Debug)]
pub struct Reception {
    /// Where it is kept.
    pub home: Home,
    /// Who casts, by its name when it was first offered.
    pub source: Name,
    offer: Mutex<(Signed<Offer>, Vec<u8>)>,
    state: watch::Sender<State>,
    parents: watch::Sender<Arc<Parents>>,
    described: Mutex<Option<Described>>,
    control: Mutex<Option<Control>>,
    /// Legs that the source opens.
    pub incoming: Incoming,
    counted: Mutex<Counted>,
    ring: Mutex<(RingTerms, Option<Arc<NodeRing>>)>,
    /// Where it is counted which blocks were solved.
    pub solved: Arc<AtomicU64>,
    record: Mutex<Record>,
    /// Who is served from here, and by how many legs.
    children: Mutex<BTreeMap<Name, usize>>,
}

/// The channel on which the source conducts.
#[derive(Debug)]
struct Control {
    to: mpsc::Sender<Report>,
    /// When the source was heard last.
    heard: Instant,
}

/// A source that was heard so lately is there: it gives a sign of life every 5 s.
const LIVELY: Duration = Duration::from_secs(12);

/// A child is served as long as this is there.
#[derive(Debug)]
pub struct Serving(Arc<Reception>, Name);

impl Drop for Serving {
    fn drop(&mut self) {
        let mut children = lock(&self.0.children);
        match children.get_mut(&self.1) {
            Some(legs) if *legs > 1 => *legs -= 1,
            _ => _ = children.remove(&self.1),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic in between leaves whole values behind.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reception {
    /// A new one, or one from before.
    pub fn new(home: Home, source: Name, kept: Kept) -> Arc<Self> {
        let word = kept.parents.and_then(|word| decoded(&word));
        let begin = || Record::begin(home.id, &source, kept.offer.value(), &home.inbox);
        let record = Mutex::new(kept.record.unwrap_or_else(begin));
        Arc::new(Self {
            home,
            source,
            offer: Mutex::new((kept.offer, kept.pass)),
            state: watch::Sender::new(State::New),
            parents: watch::Sender::new(Arc::new(word.unwrap_or_else(Parents::source))),
            described: Mutex::new(kept.described),
            control: Mutex::default(),
            incoming: Incoming::default(),
            counted: Mutex::default(),
            ring: Mutex::new((RING_TERMS, None)),
            solved: Arc::default(),
            record,
            children: Mutex::default(),
        })
    }

    /// The job, and what is expected of it.
    pub fn record(&self) -> Record {
        lock(&self.record).clone()
    }

    /// The source's word on what it expects; the record as it is to be kept.
    pub fn expect(&self, expected: Expected) -> Record {
        let mut record = lock(&self.record);
        record.expected = Some(expected);
        record.clone()
    }

    /// One more leg on which this child is served.
    pub fn serving(self: &Arc<Self>, child: Name) -> Serving {
        *lock(&self.children).entry(child.clone()).or_default() += 1;
        Serving(Arc::clone(self), child)
    }

    /// Who is served from here now.
    pub fn children(&self) -> Vec<Name> {
        lock(&self.children).keys().cloned().collect()
    }

    /// How it is handed on from now on; a ring that is there stays as it is.
    pub fn set_ring(&self, terms: RingTerms) {
        lock(&self.ring).0 = terms;
    }

    /// Blocks that were solved from repair symbols in this session.
    pub fn solved(&self) -> u64 {
        self.solved.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// What is handed on of this object from here.
    ///
    /// # Errors
    /// I/O errors.
    pub fn ring(&self, store: &Arc<Store>) -> io::Result<Arc<NodeRing>> {
        let (terms, ring) = &mut *lock(&self.ring);
        if let Some(ring) = ring.as_ref().filter(|ring| Arc::ptr_eq(&ring.store, store)) {
            return Ok(Arc::clone(ring));
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let sheets = options.open(self.home.path().join("sheets"))?;
        let book = Arc::new(PageBook::new(&store.known.geometry));
        let repairs = Repairs::of_receiver(self.offer().signer(), Some(sheets), Arc::clone(&book));
        let made = NodeRing::new(Arc::clone(store), repairs, book, *terms, Start::Receiver)?;
        *ring = Some(Arc::clone(&made));
        Ok(made)
    }

    /// What is offered.
    pub fn offer(&self) -> Signed<Offer> {
        lock(&self.offer).0.clone()
    }

    /// With what this node shows itself to others.
    pub fn pass(&self) -> Vec<u8> {
        lock(&self.offer).1.clone()
    }

    /// The same cast, offered anew.
    pub fn renew(&self, offer: Signed<Offer>, pass: Vec<u8>) {
        *lock(&self.offer) = (offer, pass);
    }

    /// How far it is.
    pub fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Told of each change of state.
    pub fn states(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// It is so far now.
    pub fn set(&self, state: State) {
        self.state.send_replace(state);
    }

    /// The object, if what proves it is here.
    pub fn store(&self) -> Option<Arc<Store>> {
        match &*self.state.borrow() {
            State::Fetching(store) | State::Checking(store) | State::Complete(store, _) => {
                Some(Arc::clone(store))
            }
            State::New | State::Failed(_) => None,
        }
    }

    /// Until what is held is no longer kept in this store: who is served from it goes, and finds
    /// what is there next.
    pub async fn left(&self, store: &Arc<Store>) {
        let is_kept = |state: &State| match state {
            State::Fetching(now) | State::Checking(now) | State::Complete(now, _) => {
                Arc::ptr_eq(now, store)
            }
            State::New | State::Failed(_) => false,
        };
        // The sender is this reception's own.
        _ = self.states().wait_for(|state| !is_kept(state)).await;
    }

    /// Bytes that count against an inbox's `max_bytes`: the object's, and its entries' once they are known.
    pub fn bytes(&self) -> u64 {
        let length = lock(&self.offer).0.value().length;
        length.saturating_add(self.entries())
    }

    fn entries(&self) -> u64 {
        lock(&self.described).as_ref().map_or(0, |(_, layout)| room::entries(layout))
    }

    /// Bytes of the disk that it takes in all.
    pub fn takes(&self) -> u64 {
        self.bytes().saturating_add(room::beside(lock(&self.offer).0.value()))
    }

    /// Bytes that are still to come onto the disk, with what goes with the object's.
    pub fn lacks(&self) -> u64 {
        let length = lock(&self.offer).0.value().length;
        let beside = room::beside(lock(&self.offer).0.value());
        match &*self.state.borrow() {
            State::New => self.takes(),
            // Entries are made first; digests come with what they prove.
            State::Fetching(store) => {
                let rest = length.saturating_sub(store.held_bytes());
                let of_beside = u128::from(beside) * u128::from(rest) / u128::from(length.max(1));
                rest.saturating_add(of_beside as u64)
            }
            State::Checking(_) | State::Complete(..) | State::Failed(_) => 0,
        }
    }

    /// What proves the object.
    pub fn described(&self) -> MutexGuard<'_, Option<Described>> {
        lock(&self.described)
    }

    /// Told of each new word on parents.
    pub fn parents(&self) -> watch::Receiver<Arc<Parents>> {
        self.parents.subscribe()
    }

    /// The source's word on parents.
    pub fn set_parents(&self, parents: Parents) {
        self.parents.send_replace(Arc::new(parents));
    }

    /// Reports go there from now on; the one before is forgotten.
    pub fn attach(&self, to: mpsc::Sender<Report>) {
        *lock(&self.control) = Some(Control { to, heard: Instant::now() });
    }

    /// The source said something.
    pub fn heard(&self) {
        if let Some(control) = &mut *lock(&self.control) {
            control.heard = Instant::now();
        }
    }

    /// Whether a process of the source's is there, and conducts it.
    pub fn is_conducted(&self) -> bool {
        let control = lock(&self.control);
        control.as_ref().is_some_and(|c| !c.to.is_closed() && c.heard.elapsed() < LIVELY)
    }

    /// Tells the source, if it is there and listens.
    pub fn tell(&self, report: Report) -> bool {
        lock(&self.control).as_ref().is_some_and(|control| control.to.try_send(report).is_ok())
    }

    /// Where what comes from a parent is counted, with one leg more.
    pub fn opened(&self, who: &Who) -> Arc<Got> {
        let mut counted = lock(&self.counted);
        let seen = counted.parents.entry(who.clone()).or_default();
        seen.legs += 1;
        Arc::clone(&seen.got)
    }

    /// One leg less.
    pub fn closed(&self, who: &Who) {
        if let Some(seen) = lock(&self.counted).parents.get_mut(who) {
            seen.legs = seen.legs.saturating_sub(1);
        }
    }

    /// How far it is, with rates since the last look.
    pub fn account(&self, look: bool) -> Account {
        use std::sync::atomic::Ordering::Relaxed;
        let store = self.store();
        let held = store.as_ref().map_or(0, |store| store.held_bytes());
        let is_complete = matches!(*self.state.borrow(), State::Complete(..));
        let mut counted = lock(&self.counted);
        let Counted { parents, looked, held: before, bps } = &mut *counted;
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
        if let Some(node) = &lock(&self.ring).1 {
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
            account.parents.push(FromParent { name, is_now, bps: seen.bps, bytes });
        }
        if is_complete {
            // Symbols that came and waited for the disk when the last one was written are of no use, either.
            account.beyond = account.beyond.max(account.received.saturating_sub(held));
        }
        account
    }

    /// How it ended, if it did.
    pub fn ended(&self) -> Option<Ended> {
        match &*self.state.borrow() {
            State::Complete(_, micros) => Some(Ended::Complete { micros: *micros }),
            State::Failed(why) => Some(Ended::Failed(why.clone())),
            _ => None,
        }
    }
}

/// How the object of an offer is cut.
///
/// # Errors
/// An offer that cannot be.
pub fn geometry(offer: &Offer) -> Result<Geometry, Refusal> {
    let shape = offer.shape;
    let geometry =
        Geometry::new(offer.length, shape.symbol_bytes, shape.block_symbols, shape.repair_symbols);
    geometry.map_err(|why| Refusal::Invalid(why.to_string()))
}

/// Parents as they were kept.
pub fn decoded(word: &[u8]) -> Option<Parents> {
    let (candidates, at_once): (Vec<Candidate>, u32) =
        thalweg_wire::cast::decode(word.get(4..)?).ok()?;
    Some(Parents { candidates, at_once: at_once as usize })
}

/// Parents as they are kept.
pub fn encoded(parents: &Parents) -> Vec<u8> {
    thalweg_wire::cast::encode(&(&parents.candidates, parents.at_once as u32))
}
