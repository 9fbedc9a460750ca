//! The mesh's TCP port: from accept to a member's channel, and to the service of its protocol.
//!
//! ```text
//! accept ─ place? ─ preamble, TLS ─ key admitted? ─ room? ─┬ relay: a session of thalweg_relay
//!            no: closed      no: an alert, closed          ├ measure: thalweg_probe
//!                                                          ├ object: thalweg_files
//!                                                          ├ cast: thalweg_cast
//!                                                          ├ stream: thalweg_stream
//!                                                          ├ doctor: thalweg_doctor
//!                                                          ├ reach: thalweg_relay
//!                                                          ├ submit: thalweg_dropbox, strangers as well
//!                                                          └ api, join: the oracle, where one is
//! ```
//!
//! A connection that is not admitted gets no byte but TLS's own. It is counted, and logged in at most one line a
//! second.

use super::{
    channel_limits::{self, ChannelLimits},
    counters::{Counters, StrangerKind, protocol_label},
    handshake_gate::{HandshakeGate, HandshakeSlot},
    leg_observer::LegObserver,
};
use futures_util::future::BoxFuture;
use socket2::SockRef;
use std::{
    io,
    net::SocketAddr,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_base::log::{Event, Log};
use thalweg_base::{
    budget::PeerKey, costly::Turns, peer_source::source_of, throttle::Throttle, watched::watched,
};
use thalweg_mesh::service::{ApiService, Caller, MemberService, SubmitService};
use thalweg_mesh::{Membership, MeshPeer, reach::ReverseConnection};
use thalweg_net::legs::Legs;
use thalweg_net::{
    SocketOptions, TcpInfo,
    channel::{AcceptError, Acceptor, Channel, Protocol, Queue},
};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Handle,
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The time for an answer that is under way to a member that is revoked: the roster without it. A relay that never got
/// it would serve until its old roster expires. Requests that it makes meanwhile are refused, because each request is
/// checked against the newest roster.
const LAST_ROSTER: Duration = Duration::from_secs(2);

/// The pause after accept fails for want of descriptors or memory: short enough to use what becomes free, long enough
/// not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The services for channels.
#[derive(Clone, Debug, Default)]
pub struct Services {
    /// Relays for members; `None`: this node does not relay.
    pub relay: Option<Arc<dyn MemberService>>,
    /// The oracle in this process; `None`: this node is no oracle.
    pub oracle: Option<Arc<dyn ApiService>>,
    /// Receives measurements; `None`: this node takes part in none.
    pub measure: Option<Arc<dyn MemberService>>,
    /// Files for members; `None`: this node offers none and passes none on.
    pub files: Option<Arc<dyn MemberService>>,
    /// One-to-many delivery; `None`: this node receives and forwards none.
    pub cast: Option<Arc<dyn MemberService>>,
    /// Bonds of members; `None`: this node is no far end of any.
    pub bond: Option<Arc<dyn MemberService>>,
    /// Probe trains; `None`: this node receives and sends none.
    pub probe: Option<Arc<dyn MemberService>>,
    /// Live media; `None`: this node takes part in none.
    pub stream: Option<Arc<dyn MemberService>>,
    /// Checks that another member asks for; `None`: this node answers none.
    pub doctor: Option<Arc<dyn MemberService>>,
    /// Members that cannot be dialled stand here, if this node relays; `None`: others cannot test whether they can dial
    /// this node.
    pub reach: Option<Arc<dyn MemberService>>,
    /// Drop boxes; `None`: this node has none.
    pub submit: Option<Arc<dyn SubmitService>>,
}

impl Services {
    /// The protocols that are served; a request for another one gets an alert.
    pub fn protocols(&self) -> Vec<Protocol> {
        let relay = self.relay.iter().map(|_| Protocol::Relay);
        let oracle = self.oracle.iter().flat_map(|_| [Protocol::Api, Protocol::Join]);
        let measure = self.measure.iter().map(|_| Protocol::Measure);
        let files = self.files.iter().map(|_| Protocol::Object);
        let submit = self.submit.iter().map(|_| Protocol::Submit);
        let cast = self.cast.iter().map(|_| Protocol::Cast);
        let bond = self.bond.iter().map(|_| Protocol::Bond);
        let probe = self.probe.iter().map(|_| Protocol::Probe);
        let stream = self.stream.iter().map(|_| Protocol::Stream);
        let doctor = self.doctor.iter().map(|_| Protocol::Doctor);
        let reach = self.reach.iter().map(|_| Protocol::Reach);
        let members = measure.chain(files).chain(probe).chain(submit).chain(cast).chain(bond);
        relay.chain(oracle).chain(members).chain(stream).chain(doctor).chain(reach).collect()
    }
}

/// Admits connections; shared by all listeners.
#[derive(Debug)]
pub struct MeshPort {
    pub(super) acceptor: Acceptor,
    pub(super) membership: Membership,
    pub(super) services: Services,
    pub(super) gate: HandshakeGate,
    pub(super) rooms: ChannelLimits,
    /// Turns for the key operations of handshakes, by source.
    pub(super) keys: Turns,
    /// The time limit of a preamble and the handshake.
    pub(super) handshake: Duration,
    pub(super) log: Log,
    pub(super) counters: Counters,
    pub(super) strangers: Throttle,
    pub(super) failures: Throttle,
    /// Records the bytes that transfers move to members; `None`: nobody needs them.
    pub(super) legs: Option<Legs>,
    pub(super) ends: ShutdownSignals,
}

/// What a channel holds until it ends: its place, and the observer of its leg.
#[derive(Debug)]
struct ChannelGuard {
    room: Option<channel_limits::ChannelSlot>,
    leg_observer: Option<LegObserver>,
}

/// How the daemon's channels are ended.
#[derive(Clone, Debug, Default)]
pub struct ShutdownSignals {
    /// Stops accepting, and ends handshakes in progress.
    pub stop: CancellationToken,
    /// Cuts all channels that are not relayed.
    pub cut_api: CancellationToken,
    /// Cuts relayed connections: they are reset.
    pub cut_relay: CancellationToken,
    /// All channels that are not relayed: those of the API and of transfers.
    pub api: TaskTracker,
    /// Relayed connections, including those of local programs.
    pub relay: TaskTracker,
}

impl MeshPort {
    /// Accepts until [`ShutdownSignals::stop`]; continues after every error of accept.
    pub async fn listen(self: Arc<Self>, listener: TcpListener) {
        loop {
            tokio::select! {
                () = self.ends.stop.cancelled() => return,
                accepted = listener.accept() => match accepted {
                    Ok((tcp, from)) => self.accept(tcp, from),
                    Err(e) => self.handle_accept_error(&e).await,
                },
            }
        }
    }

    /// Serves connections that this node opened to its relays because others asked for it, until
    /// [`ShutdownSignals::stop`].
    pub async fn receive(self: Arc<Self>, mut connections: mpsc::Receiver<ReverseConnection>) {
        loop {
            tokio::select! {
                () = self.ends.stop.cancelled() => return,
                connection = connections.recv() => match connection {
                    Some(ReverseConnection { tcp, from }) => self.accept(tcp, from),
                    None => return,
                },
            }
        }
    }

    /// Most often EMFILE or ENFILE: a connection that ends frees descriptors.
    async fn handle_accept_error(&self, e: &io::Error) {
        let of_one_client = [io::ErrorKind::ConnectionAborted, io::ErrorKind::Interrupted];
        if of_one_client.contains(&e.kind()) {
            return;
        }
        self.counters.accept_failed();
        if let Some(more) = self.failures.pass(Instant::now()) {
            self.log.put(Event::new("accept_failed").with("why", e).with("unlogged", more));
        }
        sleep(ACCEPT_PAUSE).await;
    }

    fn accept(self: &Arc<Self>, tcp: TcpStream, from: SocketAddr) {
        self.counters.accepted();
        match self.gate.enter(from.ip(), Instant::now()) {
            Some(place) => {
                drop(tokio::spawn(watched("handshake", Arc::clone(self).admit(tcp, from, place))))
            }
            None => {
                self.record_stranger(from, StrangerKind::Crowded, "too many handshakes in progress")
            }
        }
    }

    /// Does the handshake, within its deadline and as long as it may keep its place.
    async fn admit(self: Arc<Self>, tcp: TcpStream, from: SocketAddr, place: HandshakeSlot) {
        self.counters.handshakes(self.gate.inside());
        // If the client has left already, this fails, and so will reads.
        _ = leg_options().apply(SockRef::from(&tcp));
        let who = PeerKey::Address(source_of(from.ip()));
        let queue = Queue { turns: &self.keys, who, has_left };
        let accepted = tokio::select! {
            () = self.ends.stop.cancelled() => return,
            () = place.evicted() => None,
            accepted = timeout(self.handshake, self.acceptor.accept_in_turn(tcp, &queue)) => accepted.ok(),
        };
        drop(place);
        self.counters.handshakes(self.gate.inside());
        match accepted {
            Some(Ok(channel)) => self.dispatch(channel, from),
            Some(Err(e)) => self.record_stranger(from, kind(&e), &e.to_string()),
            None => self.record_stranger(
                from,
                StrangerKind::Slow,
                "the handshake took longer than allowed",
            ),
        }
    }

    /// Passes a channel to the service of its protocol, on a task of its own, so that a session does not keep the
    /// handshake's memory.
    fn dispatch(self: &Arc<Self>, channel: Channel<TcpStream>, from: SocketAddr) {
        let (key, protocol) = (channel.peer(), channel.protocol());
        let peer = self.membership.peer(&key, self.membership.now());
        let bond = self.services.bond.as_ref();
        let origin = bond.and_then(|bond| bond.origin(from));
        // A bond's stream comes from this host itself, but its member does not have the rights of local programs.
        let (at, from) = (from, origin.unwrap_or(from));
        let Ok(room) = self.rooms.enter(protocol, peer.as_ref(), from.ip()) else {
            return self.record_stranger(
                from,
                StrangerKind::Crowded,
                "too many channels at a time",
            );
        };
        let held =
            ChannelGuard { room, leg_observer: self.leg_observer(&channel, peer.as_ref(), at) };
        match (protocol, peer, &self.services) {
            (Protocol::Relay, Some(peer), Services { relay: Some(relay), .. }) => {
                self.relay(Arc::clone(relay), channel, peer, from);
            }
            (Protocol::Api, Some(peer), Services { oracle: Some(oracle), .. }) => {
                self.api(Arc::clone(oracle), channel, Some(peer), from);
            }
            (Protocol::Measure, Some(peer), Services { measure: Some(measure), .. }) => {
                self.transfer(Protocol::Measure, measure.serve(channel, peer, from), held);
            }
            (Protocol::Object, Some(peer), Services { files: Some(files), .. }) => {
                self.transfer(Protocol::Object, files.serve(channel, peer, from), held);
            }
            (Protocol::Cast, Some(peer), Services { cast: Some(cast), .. }) => {
                self.transfer(Protocol::Cast, cast.serve(channel, peer, from), held);
            }
            (Protocol::Bond, Some(peer), Services { bond: Some(bond), .. }) => {
                self.transfer(Protocol::Bond, bond.serve(channel, peer, from), held);
            }
            (Protocol::Probe, Some(peer), Services { probe: Some(probe), .. }) => {
                self.transfer(Protocol::Probe, probe.serve(channel, peer, from), held);
            }
            (Protocol::Stream, Some(peer), Services { stream: Some(stream), .. }) => {
                self.transfer(Protocol::Stream, stream.serve(channel, peer, from), held);
            }
            (Protocol::Doctor, Some(peer), Services { doctor: Some(doctor), .. }) => {
                self.transfer(Protocol::Doctor, doctor.serve(channel, peer, from), held);
            }
            (Protocol::Reach, Some(peer), Services { reach: Some(reach), .. }) => {
                self.transfer(Protocol::Reach, reach.serve(channel, peer, from), held);
            }
            // The handshake has checked whether a stranger may submit.
            (Protocol::Submit, peer, Services { submit: Some(submit), .. }) => {
                self.transfer(Protocol::Submit, submit.serve(channel, peer, from), held);
            }
            (Protocol::Join, _, Services { oracle: Some(oracle), .. }) => {
                self.api(Arc::clone(oracle), channel, None, from);
            }
            // The key was admitted a moment ago, and has been revoked since.
            _ => self.record_stranger(
                from,
                StrangerKind::Key,
                &format!("key {key:?} is not admitted"),
            ),
        }
    }

    fn relay(
        &self,
        relay: Arc<dyn MemberService>,
        channel: Channel<TcpStream>,
        peer: MeshPeer,
        from: SocketAddr,
    ) {
        let open = self.counters.open(Protocol::Relay);
        let cut = self.ends.cut_relay.clone();
        let session = relay.serve(channel, peer, from);
        self.ends.relay.spawn(watched("relay", async move {
            tokio::select! { () = cut.cancelled() => {}, () = session => {} }
            drop(open);
        }));
    }

    /// On shutdown it ends as the API does: nobody waits for a measurement, and a transfer of files continues elsewhere
    /// or later.
    fn transfer(&self, protocol: Protocol, serving: BoxFuture<'static, ()>, held: ChannelGuard) {
        let open = self.counters.open(protocol);
        let cut = self.ends.cut_api.clone();
        self.ends.api.spawn(watched(protocol_label(protocol), async move {
            let observing = async {
                match &held.leg_observer {
                    Some(leg_observer) => leg_observer.run().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = cut.cancelled() => {}
                () = channel_limits::evicted(held.room.as_ref()) => {}
                () = serving => {}
                () = observing => {}
            }
            drop((open, held));
        }));
    }

    /// Observes a channel of a member's transfer. Relays observe their channels themselves, and a mere measurement does
    /// not count as use of a link.
    fn leg_observer(
        &self,
        channel: &Channel<TcpStream>,
        peer: Option<&MeshPeer>,
        from: SocketAddr,
    ) -> Option<LegObserver> {
        let moves = [Protocol::Object, Protocol::Cast, Protocol::Bond, Protocol::Submit];
        let legs = self.legs.as_ref().filter(|_| moves.contains(&channel.protocol()))?;
        LegObserver::start(legs, channel, peer?, from)
    }

    /// A member's channel ends with its membership; a joining host has none.
    fn api(
        &self,
        oracle: Arc<dyn ApiService>,
        channel: Channel<TcpStream>,
        peer: Option<MeshPeer>,
        address: SocketAddr,
    ) {
        let caller = Caller { key: channel.peer(), address, protocol: channel.protocol() };
        let open = self.counters.open(caller.protocol);
        let cut = self.ends.cut_api.clone();
        let serving = oracle.serve(channel, caller);
        self.ends.api.spawn(watched("api", async move {
            let revoked = async {
                match peer {
                    Some(peer) => peer.revoked().await,
                    None => std::future::pending().await,
                }
            };
            let mut serving = pin!(serving);
            tokio::select! {
                () = cut.cancelled() => {}
                () = revoked => drop(timeout(LAST_ROSTER, serving.as_mut()).await),
                () = serving.as_mut() => {}
            }
            drop(open);
        }));
    }

    fn record_stranger(&self, from: SocketAddr, kind: StrangerKind, why: &str) {
        self.counters.stranger(kind);
        if let Some(more) = self.strangers.pass(Instant::now()) {
            let event = Event::new("stranger").with("client", from).with("kind", kind.label());
            self.log.put(event.with("why", why).with("unlogged", more));
        }
    }
}

/// Turns for half of the runtime's threads; the other threads stay free for reading, serving and accepting.
pub(super) fn key_turns() -> Turns {
    let threads = Handle::try_current().map_or(1, |runtime| runtime.metrics().num_workers());
    Turns::new((threads / 2).max(1))
}

/// Whether the peer has shut down its direction or reset the connection, so that its handshake cannot complete.
fn has_left(tcp: &TcpStream) -> bool {
    TcpInfo::of(tcp).is_ok_and(|info| info.peer_has_ended)
}

fn kind(error: &AcceptError) -> StrangerKind {
    match error {
        AcceptError::Handshake(_) => StrangerKind::Handshake,
        AcceptError::Stranger(_) => StrangerKind::Key,
        AcceptError::TooDeep(_) => StrangerKind::Depth,
    }
}

/// The options of accepted connections.
///
/// There is no TCP_USER_TIMEOUT, which would end connections to slow readers, see [`SocketOptions::user_timeout`]; the
/// services watch their connections instead. With keepalive at 60 s, 8,000 idle connections cost 270 packets a second.
fn leg_options() -> SocketOptions {
    SocketOptions {
        user_timeout: None,
        keepalive: Some(Duration::from_secs(60)),
        ..SocketOptions::default()
    }
}
