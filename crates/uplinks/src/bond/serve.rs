//! The far end: members' links, and what their streams lead to.
//!
//! A stream leads to this node's own port, and nowhere else: in it the member opens a channel of
//! whatever protocol as it would over TCP, so that relays' rules, files' rights and quotas see the
//! true member, and nobody has to trust the links (decision 0003).

use super::{
    GRACE, answered::Answered, engine::Engine, greet, memory::Memory, state::Settings,
    watching::Shown,
};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use socket2::SockRef;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};
use thalweg_base::{
    log::{Event, Log},
    throttle::Throttle,
};
use thalweg_bond::LinkId;
use thalweg_mesh::{MeshPeer, service::MemberService};
use thalweg_net::channel::Channel;
use thalweg_units::NodeId;
use thalweg_wire::{
    bond::{BondId, Hello, MAX_LINKS, Refusal, Target},
    mesh::Name,
};
use tokio::{
    io::copy_bidirectional_with_sizes,
    net::TcpStream,
    sync::Semaphore,
    time::{sleep, timeout},
};

/// Bonds of one member. For a further one a bond without links is broken off; if there is none, it
/// is refused.
const MAX_BONDS_EACH: usize = 8;

/// Bonds that the status shows, of 16 links of 300 bytes at most.
const MOST_SHOWN: usize = 64;

/// Streams of a member that the own port has not answered yet: they hold places for handshakes, which all bonds
/// have from the same source. Further streams wait.
const MAX_MUTE: usize = 64;

/// Read and written at once between a stream and the own port.
const COPIED: usize = 64 << 10;

/// The own port answers so soon.
const REACHED: Duration = Duration::from_secs(5);

/// The service `bond` of a daemon.
#[derive(Clone, Debug)]
pub struct Bonds(Arc<Shared>);

/// What the bonds of all members may take together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BondLimits {
    /// Bonds at a time.
    pub bonds: usize,
    /// Bytes of what is under way in them; a member has half of it at most.
    pub memory: u64,
}

#[derive(Debug)]
struct Shared {
    settings: Settings,
    limits: BondLimits,
    memory: Memory,
    /// Where this node listens, as it reaches it itself.
    own: OnceLock<SocketAddr>,
    log: Log,
    /// Lines about links that broke, and about members that do not keep to the protocol.
    breaks: [Throttle; 2],
    bonds: Mutex<BTreeMap<(NodeId, BondId), Entry>>,
    /// The connections that lead streams to the own port, by their addresses; and where their members are.
    led: Mutex<BTreeMap<SocketAddr, SocketAddr>>,
}

#[derive(Debug)]
struct Entry {
    engine: Arc<Engine>,
    /// Its owner's name.
    name: Name,
    /// Where its last link came from.
    from: SocketAddr,
    /// Its owner's.
    owned: Owned,
    /// Numbers that were used.
    numbers: BTreeSet<u32>,
    live: usize,
    /// Counted up with each link, so that a grace that is over means this silence.
    turn: u64,
}

/// What a member's bonds share.
#[derive(Clone, Debug)]
struct Owned {
    memory: Memory,
    mute: Arc<Semaphore>,
}

impl Bonds {
    /// Within these limits. Their streams lead nowhere before [`Self::lead_to`].
    pub fn new(settings: Settings, limits: BondLimits, log: Log) -> Self {
        let memory = Memory::new(limits.memory);
        let (own, bonds, breaks, led) = Default::default();
        Self(Arc::new(Shared { settings, limits, memory, own, log, breaks, bonds, led }))
    }

    /// Their streams lead to this node's port, which it reaches there itself; the first word counts.
    pub fn lead_to(&self, own: SocketAddr) {
        _ = self.0.own.set(own);
    }

    /// Those with the most streams, 64 of them at most.
    pub fn shown(&self) -> Vec<Shown> {
        let bonds = self.0.lock();
        let of = |entry: &Entry| Shown {
            member: entry.name.to_string(),
            streams: entry.engine.streams(),
            links: entry.engine.links(),
        };
        let mut shown: Vec<Shown> = bonds.values().map(of).collect();
        drop(bonds);
        shown.sort_by_key(|bond| Reverse(bond.streams));
        shown.truncate(MOST_SHOWN);
        shown
    }

    /// Bonds that are known now.
    pub fn count(&self) -> usize {
        self.0.lock().len()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(NodeId, BondId), Entry>> {
        self.bonds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn led(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, SocketAddr>> {
        self.led.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a link.
    fn enter(
        self: &Arc<Self>,
        (of, name, from): (NodeId, &Name, SocketAddr),
        hello: &Hello,
    ) -> Result<Arc<Engine>, Refusal> {
        let mut bonds = self.lock();
        let key = (of, hello.bond);
        make_room(&mut bonds, key, self.limits.bonds);
        let each = bonds.keys().filter(|(owner, _)| *owner == of).count();
        if !bonds.contains_key(&key) && (bonds.len() >= self.limits.bonds || each >= MAX_BONDS_EACH)
        {
            return Err(Refusal::Busy);
        }
        let others = bonds.iter().find(|((owner, _), _)| *owner == of);
        let owned = others.map(|(_, entry)| entry.owned.clone()).unwrap_or_else(|| Owned {
            memory: self.memory.part(self.limits.memory / 2),
            mute: Arc::new(Semaphore::new(MAX_MUTE)),
        });
        if hello.goes_on && !bonds.contains_key(&key) {
            return Err(Refusal::Unknown);
        }
        let entry = bonds.entry(key).or_insert_with(|| {
            let memory = owned.memory.clone();
            let engine = Engine::within(self.settings, hello.window, false, memory);
            tokio::spawn(lead(Arc::clone(&engine), Arc::clone(self), Arc::clone(&owned.mute), key));
            let watching = Arc::clone(&engine);
            tokio::spawn(async move { watching.watch().await });
            let (name, numbers) = (name.clone(), BTreeSet::new());
            Entry { engine, name, from, owned, numbers, live: 0, turn: 0 }
        });
        if entry.live >= MAX_LINKS || entry.numbers.len() >= 1 << 16 {
            return Err(Refusal::Busy);
        }
        if !entry.numbers.insert(hello.link) {
            return Err(Refusal::Number);
        }
        (entry.live, entry.turn) = (entry.live + 1, entry.turn + 1);
        entry.from = from;
        Ok(Arc::clone(&entry.engine))
    }

    /// A link is gone; with the last one the bond is forgotten, after a while.
    fn left(self: &Arc<Self>, key: (NodeId, BondId)) {
        let mut bonds = self.lock();
        let Some(entry) = bonds.get_mut(&key) else { return };
        entry.live -= 1;
        let (is_last, turn, shared) = (entry.live == 0, entry.turn, Arc::clone(self));
        drop(bonds);
        if is_last {
            tokio::spawn(async move {
                sleep(GRACE).await;
                shared.forget(key, turn, "all its links are gone");
            });
        }
    }

    fn forget(&self, key: (NodeId, BondId), turn: u64, why: &str) {
        let mut bonds = self.lock();
        if bonds.get(&key).is_some_and(|entry| entry.turn == turn)
            && let Some(entry) = bonds.remove(&key)
        {
            entry.engine.break_off(why);
        }
    }

    /// Writes of a link's end, once a second at most: interfaces flap.
    fn note(&self, from: SocketAddr, peer: &MeshPeer, why: &io::Error) {
        let is_hostile = why.kind() == io::ErrorKind::InvalidData;
        let [broke, hostile] = &self.breaks;
        let throttle = if is_hostile { hostile } else { broke };
        if let Some(more) = throttle.pass(Instant::now()) {
            let event = Event::new("bond_link").with("client", from);
            let event = event.with("peer", &peer.member().name).with("why", why);
            self.log.put(event.with("unlogged", more));
        }
    }

    /// The peer is none any more.
    fn disown(&self, of: NodeId) {
        self.lock().retain(|(owner, _), entry| {
            if *owner == of {
                entry.engine.break_off("the member was revoked");
            }
            *owner != of
        });
    }

    async fn serve(
        self: Arc<Self>,
        mut channel: Channel<TcpStream>,
        (of, name, from): (NodeId, Name, SocketAddr),
    ) -> io::Result<()> {
        let hello = greet::hear(&mut channel).await?;
        let engine = match self.enter((of, &name, from), &hello) {
            Ok(engine) => engine,
            Err(why) => return greet::refuse(channel, why).await,
        };
        let _place = Place(Arc::clone(&self), (of, hello.bond));
        let link = greet::welcome(channel, &hello, self.settings.first_window()).await?;
        match engine.run_link(LinkId(hello.link), link).await {
            super::Ended::Bye => Ok(()),
            // Programs end, and their links with them.
            super::Ended::Lost(why) if why.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            super::Ended::Lost(why) => Err(why),
            super::Ended::Hostile(why) => {
                let turn = self.lock().get(&(of, hello.bond)).map_or(0, |entry| entry.turn);
                self.forget((of, hello.bond), turn, &why);
                let why = format!("the bond ended, the peer does not keep to the protocol: {why}");
                Err(io::Error::new(io::ErrorKind::InvalidData, why))
            }
        }
    }
}

/// A bond whose links are all gone is kept only while nobody needs its place.
fn make_room(bonds: &mut BTreeMap<(NodeId, BondId), Entry>, new: (NodeId, BondId), most: usize) {
    if bonds.contains_key(&new) {
        return;
    }
    let own = bonds.keys().filter(|(owner, _)| *owner == new.0).count();
    let lost = |own_alone: bool| {
        let mut lost = bonds.iter().filter(|(_, entry)| entry.live == 0);
        lost.find(|((owner, _), _)| !own_alone || *owner == new.0).map(|(key, _)| *key)
    };
    let goes = match (own >= MAX_BONDS_EACH, bonds.len() >= most) {
        (true, _) => lost(true),
        (false, true) => lost(false),
        (false, false) => None,
    };
    if let Some(entry) = goes.and_then(|key| bonds.remove(&key)) {
        entry.engine.break_off("all its links were gone, and its place was needed");
    }
}

/// A connection to the own port, known as a member's while it lasts.
struct Led(Arc<Shared>, SocketAddr);

impl Led {
    /// `None` if the bond is gone, or the connection.
    fn of(shared: &Arc<Shared>, key: (NodeId, BondId), tcp: &TcpStream) -> Option<Self> {
        let origin = shared.lock().get(&key)?.from;
        let local = canonical(tcp.local_addr().ok()?);
        shared.led().insert(local, origin);
        Some(Self(Arc::clone(shared), local))
    }
}

impl Drop for Led {
    fn drop(&mut self) {
        self.0.led().remove(&self.1);
    }
}

/// The same address for a listener of IPv4 and one of both versions.
fn canonical(at: SocketAddr) -> SocketAddr {
    SocketAddr::new(at.ip().to_canonical(), at.port())
}

/// A link's place, given back on whatever way.
struct Place(Arc<Shared>, (NodeId, BondId));

impl Drop for Place {
    fn drop(&mut self) {
        self.0.left(self.1);
    }
}

/// Leads each stream of a bond to this node's own port, until the bond is broken.
async fn lead(
    engine: Arc<Engine>,
    shared: Arc<Shared>,
    mute: Arc<Semaphore>,
    key: (NodeId, BondId),
) {
    while let Some((stream, to)) = engine.next().await {
        match (to, shared.own.get()) {
            (Target::Service(_), Some(own)) => {
                let joined = (Arc::clone(&engine), stream);
                tokio::spawn(join(joined, *own, Arc::clone(&mute), (Arc::clone(&shared), key)));
            }
            (Target::Service(_), None) => engine.refuse(stream, Refusal::Busy),
            _ => engine.refuse(stream, Refusal::Forbidden("streams lead to the node".into())),
        }
    }
}

async fn join(
    (engine, stream): (Arc<Engine>, u32),
    own: SocketAddr,
    mute: Arc<Semaphore>,
    (shared, key): (Arc<Shared>, (NodeId, BondId)),
) {
    let Ok(place) = mute.acquire_owned().await else { return };
    let tcp = match timeout(REACHED, TcpStream::connect(own)).await {
        Ok(Ok(tcp)) => tcp,
        Ok(Err(why)) => return engine.refuse(stream, Refusal::Unreached(why.to_string())),
        Err(_) => return engine.refuse(stream, Refusal::Unreached("it does not answer".into())),
    };
    // Before the first byte: the handshake ends later, and the daemon asks then.
    let _led = Led::of(&shared, key, &tcp);
    let mut tcp = Answered::new(tcp, place);
    let mut stream = engine.accept(stream);
    if copy_bidirectional_with_sizes(&mut stream, &mut tcp, COPIED, COPIED).await.is_err() {
        // Neither end takes what it has for all there is.
        stream.reset("the far end's connection broke");
        _ = SockRef::from(tcp.tcp()).set_linger(Some(Duration::ZERO));
    }
}

impl MemberService for Bonds {
    fn serve(
        &self,
        channel: Channel<TcpStream>,
        peer: MeshPeer,
        from: SocketAddr,
    ) -> BoxFuture<'static, ()> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let who = (peer.key(), peer.member().name.clone(), from);
            let serving = Arc::clone(&shared).serve(channel, who);
            let ended = peer.unless_revoked(serving).await.unwrap_or_else(|revoked| {
                shared.disown(peer.key());
                Err(io::Error::other(revoked))
            });
            if let Err(why) = ended {
                shared.note(from, &peer, &why);
            }
        })
    }

    fn origin(&self, from: SocketAddr) -> Option<SocketAddr> {
        self.0.led().get(&canonical(from)).copied()
    }

    fn report(&self) -> Value {
        json!({ "bonds": self.count(), "memory": self.0.memory.used(), "of": self.shown() })
    }
}
