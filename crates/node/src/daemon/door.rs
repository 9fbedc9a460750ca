//! The one TCP port: from accept to a channel of a member, and to who serves it.
//!
//! ```text
//! accept ─ place? ─ preamble, TLS ─ key admitted? ─ room? ─┬ relay: a session of thalweg_relay
//!            no: closed      no: an alert, closed          ├ measure: thalweg_probe
//!                                                          ├ object: thalweg_files
//!                                                          ├ cast: thalweg_cast
//!                                                          ├ stream: thalweg_stream
//!                                                          ├ submit: thalweg_dropbox, strangers as well
//!                                                          └ api, join: the oracle, where one is
//! ```
//!
//! Whoever does not get through has had no byte but TLS's own, is counted, and
//! named in at most one line a second.

use super::{
    counters::{Counters, Strange, word},
    gate::{Gate, Place},
    looking::Looks,
    rooms::{self, Rooms},
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
use thalweg_mesh::{Membership, MeshPeer};
use thalweg_net::legs::Legs;
use thalweg_net::{
    SocketOptions, TcpInfo,
    channel::{AcceptError, Acceptor, Channel, Protocol, Queue},
};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Handle,
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// For the answer that is under way to a member that is revoked: the roster without it.
/// A relay that never got it would serve until its old roster expires. What it asks
/// meanwhile is refused, since each request is judged by the newest roster.
const LAST_ROSTER: Duration = Duration::from_secs(2);

/// Wait after accept fails for want of descriptors or memory: short enough to
/// use what frees up, long enough not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Who serves the channels.
#[derive(Clone, Debug, Default)]
pub struct Services {
    /// Relays for members; none: this node does not relay.
    pub relay: Option<Arc<dyn MemberService>>,
    /// The oracle inside; none: this node is none.
    pub oracle: Option<Arc<dyn ApiService>>,
    /// Receives measurements; none: this node takes part in none.
    pub measure: Option<Arc<dyn MemberService>>,
    /// Files for members; none: this node offers none and passes none on.
    pub files: Option<Arc<dyn MemberService>>,
    /// One-to-many delivery; none: this node takes and hands on none.
    pub cast: Option<Arc<dyn MemberService>>,
    /// Bonds of members; none: this node is no far end of any.
    pub bond: Option<Arc<dyn MemberService>>,
    /// Probe trains; none: this node takes and sends none.
    pub probe: Option<Arc<dyn MemberService>>,
    /// Live media; none: this node takes part in none.
    pub stream: Option<Arc<dyn MemberService>>,
    /// Drop boxes; none: this node has none.
    pub submit: Option<Arc<dyn SubmitService>>,
}

impl Services {
    /// What is served; whoever asks for another protocol gets an alert.
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
        let members = measure.chain(files).chain(probe).chain(submit).chain(cast).chain(bond);
        relay.chain(oracle).chain(members).chain(stream).collect()
    }
}

/// Takes connections in; shared by all listeners.
#[derive(Debug)]
pub struct Door {
    pub(super) acceptor: Acceptor,
    pub(super) membership: Membership,
    pub(super) services: Services,
    pub(super) gate: Gate,
    pub(super) rooms: Rooms,
    /// Turns for the key work of handshakes, by source.
    pub(super) keys: Turns,
    /// For a preamble and the handshake.
    pub(super) handshake: Duration,
    pub(super) log: Log,
    pub(super) counters: Counters,
    pub(super) strangers: Throttle,
    pub(super) failures: Throttle,
    /// Where what transfers move to members is noted; none: nobody asks.
    pub(super) legs: Option<Legs>,
    pub(super) ends: Ends,
}

/// The places that a channel holds until it ends.
#[derive(Debug)]
struct Held {
    room: Option<rooms::Place>,
    looks: Option<Looks>,
}

/// How all of it comes to an end.
#[derive(Clone, Debug, Default)]
pub struct Ends {
    /// Nothing more is accepted; handshakes in progress end.
    pub stop: CancellationToken,
    /// Channels of the API are cut.
    pub cut_api: CancellationToken,
    /// Relayed connections are cut: reset.
    pub cut_relay: CancellationToken,
    /// Channels of the API.
    pub api: TaskTracker,
    /// Relayed connections, those of local programs as well.
    pub relay: TaskTracker,
}

impl Door {
    /// Accepts until [`Ends::stop`]; survives every error of accept.
    pub async fn listen(self: Arc<Self>, listener: TcpListener) {
        loop {
            tokio::select! {
                () = self.ends.stop.cancelled() => return,
                accepted = listener.accept() => match accepted {
                    Ok((tcp, from)) => self.take(tcp, from),
                    Err(e) => self.accept_failed(&e).await,
                },
            }
        }
    }

    /// Most often EMFILE or ENFILE: a connection that ends gives descriptors back.
    async fn accept_failed(&self, e: &io::Error) {
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

    fn take(self: &Arc<Self>, tcp: TcpStream, from: SocketAddr) {
        self.counters.accepted();
        match self.gate.enter(from.ip(), Instant::now()) {
            Some(place) => {
                drop(tokio::spawn(watched("handshake", Arc::clone(self).admit(tcp, from, place))))
            }
            None => self.stranger(from, Strange::Crowded, "too many handshakes in progress"),
        }
    }

    /// The handshake, within its deadline and as long as it may keep its place.
    async fn admit(self: Arc<Self>, tcp: TcpStream, from: SocketAddr, place: Place) {
        self.counters.handshakes(self.gate.inside());
        // A client that has left already makes this fail; its reads will tell.
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
            Some(Err(e)) => self.stranger(from, kind(&e), &e.to_string()),
            None => self.stranger(from, Strange::Slow, "the handshake took longer than allowed"),
        }
    }

    /// Hands a channel to who serves its protocol, as a task of its own: a session then
    /// does not carry the handshake's memory along.
    fn dispatch(self: &Arc<Self>, channel: Channel<TcpStream>, from: SocketAddr) {
        let (key, protocol) = (channel.peer(), channel.protocol());
        let peer = self.membership.peer(&key, self.membership.now());
        let bond = self.services.bond.as_ref();
        let origin = bond.and_then(|bond| bond.origin(from));
        // A bond's stream comes from this host itself; its member does not have the rights of what is local.
        let (at, from) = (from, origin.unwrap_or(from));
        let Ok(room) = self.rooms.enter(protocol, peer.as_ref(), from.ip()) else {
            return self.stranger(from, Strange::Crowded, "too many channels at a time");
        };
        let held = Held { room, looks: self.looks(&channel, peer.as_ref(), at) };
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
            // Whether a stranger may was asked in the handshake.
            (Protocol::Submit, peer, Services { submit: Some(submit), .. }) => {
                self.transfer(Protocol::Submit, submit.serve(channel, peer, from), held);
            }
            (Protocol::Join, _, Services { oracle: Some(oracle), .. }) => {
                self.api(Arc::clone(oracle), channel, None, from);
            }
            // Admitted a moment ago and revoked since.
            _ => self.stranger(from, Strange::Key, &format!("key {key:?} is not admitted")),
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

    /// On shutdown it ends as the API does: nobody waits for a measurement, and who fetches
    /// files goes on elsewhere or later.
    fn transfer(&self, protocol: Protocol, serving: BoxFuture<'static, ()>, held: Held) {
        let open = self.counters.open(protocol);
        let cut = self.ends.cut_api.clone();
        self.ends.api.spawn(watched(word(protocol), async move {
            let looking = async {
                match &held.looks {
                    Some(looks) => looks.keep().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = cut.cancelled() => {}
                () = rooms::evicted(held.room.as_ref()) => {}
                () = serving => {}
                () = looking => {}
            }
            drop((open, held));
        }));
    }

    /// Looks at a channel over which a transfer of a member goes. Relays look at theirs themselves, and what only
    /// measures is no use of a link.
    fn looks(
        &self,
        channel: &Channel<TcpStream>,
        peer: Option<&MeshPeer>,
        from: SocketAddr,
    ) -> Option<Looks> {
        let moves = [Protocol::Object, Protocol::Cast, Protocol::Bond, Protocol::Submit];
        let legs = self.legs.as_ref().filter(|_| moves.contains(&channel.protocol()))?;
        Looks::at(legs, channel, peer?, from)
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

    fn stranger(&self, from: SocketAddr, kind: Strange, why: &str) {
        self.counters.stranger(kind);
        if let Some(more) = self.strangers.pass(Instant::now()) {
            let event = Event::new("stranger").with("client", from).with("kind", kind.word());
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

fn kind(error: &AcceptError) -> Strange {
    match error {
        AcceptError::Handshake(_) => Strange::Handshake,
        AcceptError::Stranger(_) => Strange::Key,
        AcceptError::TooDeep(_) => Strange::Depth,
    }
}

/// The options of accepted connections.
///
/// No TCP_USER_TIMEOUT: it would end connections to slow readers, see
/// [`SocketOptions::user_timeout`]; whoever serves them watches instead. Keepalive
/// at 60 s keeps 8,000 idle connections at 270 packets a second.
fn leg_options() -> SocketOptions {
    SocketOptions {
        user_timeout: None,
        keepalive: Some(Duration::from_secs(60)),
        ..SocketOptions::default()
    }
}
