//! The accepting end: serves members' links, and connects their streams to this node's own port.
//!
//! A stream leads to this node's own port and nowhere else. In it the member opens a channel of any protocol, as it
//! would over TCP, so that relays' rules, file permissions and quotas see the true member, and nobody has to trust the
//! links (decision 0003).

use super::{
    GRACE, engine::Engine, greet, memory::Memory, permit_stream::PermitStream,
    registry::BondStatus, state::Settings,
};
use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use socket2::SockRef;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    io,
    net::SocketAddr,
    sync::{Arc, OnceLock},
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

/// Bonds per member. To make room for another one, a bond without links is broken off; if there is none, the new one is
/// refused.
const MAX_BONDS_EACH: usize = 8;

/// Bonds that the status shows; each has at most 16 links of 300 bytes.
const MOST_SHOWN: usize = 64;

/// Streams per member that the own port has not answered yet. They take places for handshakes, which all bonds take
/// from the same source address. Further streams wait.
const MAX_MUTE: usize = 64;

/// Bytes that are copied at once between a stream and the own port.
const COPIED: usize = 64 << 10;

/// Time limit of connecting to the own port.
const REACHED: Duration = Duration::from_secs(5);

/// The service `bond` of a daemon.
#[derive(Clone, Debug)]
pub struct Bonds(Arc<BondsState>);

/// Limits of the bonds of all members together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BondLimits {
    /// Bonds at a time.
    pub bonds: usize,
    /// Bytes under way in them; one member has half of that at most.
    pub memory: u64,
}

#[derive(Debug)]
struct BondsState {
    settings: Settings,
    limits: BondLimits,
    memory: Memory,
    /// The address of this node's own port, as this node reaches it.
    own: OnceLock<SocketAddr>,
    log: Log,
    /// Limit the log lines about links that broke, and about members that violate the protocol.
    breaks: [Throttle; 2],
    bonds: Mutex<BTreeMap<(NodeId, BondId), ServedBond>>,
    /// Connections that lead streams to the own port: the local address of each, and the remote address of its member.
    origins: Mutex<BTreeMap<SocketAddr, SocketAddr>>,
}

#[derive(Debug)]
struct ServedBond {
    engine: Arc<Engine>,
    /// The owner's name.
    name: Name,
    /// Where the last link came from.
    from: SocketAddr,
    /// What all bonds of the owner share.
    owned: MemberLimits,
    /// Link numbers that were used.
    numbers: BTreeSet<u32>,
    live: usize,
    /// Counts the links, so that the end of a grace period refers to the absence that began it.
    turn: u64,
}

/// What the bonds of a member share.
#[derive(Clone, Debug)]
struct MemberLimits {
    memory: Memory,
    mute: Arc<Semaphore>,
}

impl Bonds {
    /// Creates the service with these limits. Streams are refused before [`Self::set_own_port`] is called.
    pub fn new(settings: Settings, limits: BondLimits, log: Log) -> Self {
        let memory = Memory::new(limits.memory);
        let (own, bonds, breaks, origins) = Default::default();
        Self(Arc::new(BondsState { settings, limits, memory, own, log, breaks, bonds, origins }))
    }

    /// Sets the address of this node's own port, to which streams lead. Only the first call counts.
    pub fn set_own_port(&self, own: SocketAddr) {
        _ = self.0.own.set(own);
    }

    /// The bonds with the most streams, at most 64.
    pub fn shown(&self) -> Vec<BondStatus> {
        let bonds = self.0.lock();
        let of = |entry: &ServedBond| BondStatus {
            member: entry.name.to_string(),
            streams: entry.engine.streams(),
            links: entry.engine.links(),
        };
        let mut shown: Vec<BondStatus> = bonds.values().map(of).collect();
        drop(bonds);
        shown.sort_by_key(|bond| Reverse(bond.streams));
        shown.truncate(MOST_SHOWN);
        shown
    }

    /// The number of bonds.
    pub fn count(&self) -> usize {
        self.0.lock().len()
    }
}

impl BondsState {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(NodeId, BondId), ServedBond>> {
        self.bonds.lock()
    }

    fn origins(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, SocketAddr>> {
        self.origins.lock()
    }

    /// Registers a link, with a new bond if it is the first one of it.
    fn register(
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
        let owned = others.map(|(_, entry)| entry.owned.clone()).unwrap_or_else(|| MemberLimits {
            memory: self.memory.part(self.limits.memory / 2),
            mute: Arc::new(Semaphore::new(MAX_MUTE)),
        });
        if hello.goes_on && !bonds.contains_key(&key) {
            return Err(Refusal::Unknown);
        }
        let entry = bonds.entry(key).or_insert_with(|| {
            let memory = owned.memory.clone();
            let engine = Engine::within(self.settings, hello.window, false, memory);
            tokio::spawn(connect_streams(
                Arc::clone(&engine),
                Arc::clone(self),
                Arc::clone(&owned.mute),
                key,
            ));
            let watching = Arc::clone(&engine);
            tokio::spawn(async move { watching.watch().await });
            let (name, numbers) = (name.clone(), BTreeSet::new());
            ServedBond { engine, name, from, owned, numbers, live: 0, turn: 0 }
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

    /// Unregisters a link. After the last one, the bond is forgotten once [`GRACE`] is over.
    fn unregister(self: &Arc<Self>, key: (NodeId, BondId)) {
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

    /// Logs the end of a link, at most once a second: interfaces flap.
    fn log_link_end(&self, from: SocketAddr, peer: &MeshPeer, why: &io::Error) {
        let is_hostile = why.kind() == io::ErrorKind::InvalidData;
        let [broke, hostile] = &self.breaks;
        let throttle = if is_hostile { hostile } else { broke };
        if let Some(more) = throttle.pass(Instant::now()) {
            let event = Event::new("bond_link").with("client", from);
            let event = event.with("peer", &peer.member().name).with("why", why);
            self.log.put(event.with("unlogged", more));
        }
    }

    /// Breaks off the bonds of a member that was revoked.
    fn break_member_bonds(&self, of: NodeId) {
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
        let hello = greet::read_hello(&mut channel).await?;
        let engine = match self.register((of, &name, from), &hello) {
            Ok(engine) => engine,
            Err(why) => return greet::refuse(channel, why).await,
        };
        let _registration = Registration(Arc::clone(&self), (of, hello.bond));
        let link = greet::welcome(channel, &hello, self.settings.first_window()).await?;
        match engine.run_link(LinkId(hello.link), link).await {
            super::LinkEnd::Bye => Ok(()),
            // A program's links end with it; that is no fault.
            super::LinkEnd::Lost(why) if why.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            super::LinkEnd::Lost(why) => Err(why),
            super::LinkEnd::Hostile(why) => {
                let turn = self.lock().get(&(of, hello.bond)).map_or(0, |entry| entry.turn);
                self.forget((of, hello.bond), turn, &why);
                let why = format!("the bond ended, the peer does not keep to the protocol: {why}");
                Err(io::Error::new(io::ErrorKind::InvalidData, why))
            }
        }
    }
}

/// Breaks off a bond without links if the new one needs its place.
fn make_room(
    bonds: &mut BTreeMap<(NodeId, BondId), ServedBond>,
    new: (NodeId, BondId),
    most: usize,
) {
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
        entry.engine.break_off("all its links were lost, and its place was needed");
    }
}

/// A connection to the own port, which is known as a member's until this is dropped.
struct Origin(Arc<BondsState>, SocketAddr);

impl Origin {
    /// `None` if the bond or the connection is gone.
    fn register(shared: &Arc<BondsState>, key: (NodeId, BondId), tcp: &TcpStream) -> Option<Self> {
        let origin = shared.lock().get(&key)?.from;
        let local = canonical(tcp.local_addr().ok()?);
        shared.origins().insert(local, origin);
        Some(Self(Arc::clone(shared), local))
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.0.origins().remove(&self.1);
    }
}

/// Maps IPv4-mapped addresses to IPv4, so that it does not matter which listener accepted a connection.
fn canonical(at: SocketAddr) -> SocketAddr {
    SocketAddr::new(at.ip().to_canonical(), at.port())
}

/// The registration of a link, which dropping it gives back.
struct Registration(Arc<BondsState>, (NodeId, BondId));

impl Drop for Registration {
    fn drop(&mut self) {
        self.0.unregister(self.1);
    }
}

/// Connects each stream of a bond to this node's own port, until the bond is broken.
async fn connect_streams(
    engine: Arc<Engine>,
    shared: Arc<BondsState>,
    mute: Arc<Semaphore>,
    key: (NodeId, BondId),
) {
    while let Some((stream, to)) = engine.next().await {
        match (to, shared.own.get()) {
            (Target::Service(_), Some(own)) => {
                let joined = (Arc::clone(&engine), stream);
                tokio::spawn(connect_stream(
                    joined,
                    *own,
                    Arc::clone(&mute),
                    (Arc::clone(&shared), key),
                ));
            }
            (Target::Service(_), None) => engine.refuse(stream, Refusal::Busy),
            _ => engine
                .refuse(stream, Refusal::Forbidden("streams may lead only to the node".into())),
        }
    }
}

async fn connect_stream(
    (engine, stream): (Arc<Engine>, u32),
    own: SocketAddr,
    mute: Arc<Semaphore>,
    (shared, key): (Arc<BondsState>, (NodeId, BondId)),
) {
    let Ok(place) = mute.acquire_owned().await else { return };
    let tcp = match timeout(REACHED, TcpStream::connect(own)).await {
        Ok(Ok(tcp)) => tcp,
        Ok(Err(why)) => return engine.refuse(stream, Refusal::Unreached(why.to_string())),
        Err(_) => {
            return engine.refuse(stream, Refusal::Unreached("the node does not answer".into()));
        }
    };
    // Before the first byte: the handshake ends later, and only then does the daemon ask for the origin.
    let _origin = Origin::register(&shared, key, &tcp);
    let mut tcp = PermitStream::new(tcp, place);
    let mut stream = engine.accept(stream);
    if copy_bidirectional_with_sizes(&mut stream, &mut tcp, COPIED, COPIED).await.is_err() {
        // Both ends see a reset, so that neither takes what it has for the whole stream.
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
                shared.break_member_bonds(peer.key());
                Err(io::Error::other(revoked))
            });
            if let Err(why) = ended {
                shared.log_link_end(from, &peer, &why);
            }
        })
    }

    fn origin(&self, from: SocketAddr) -> Option<SocketAddr> {
        self.0.origins().get(&canonical(from)).copied()
    }

    fn report(&self) -> Value {
        json!({ "bonds": self.count(), "memory": self.0.memory.used(), "of": self.shown() })
    }
}
