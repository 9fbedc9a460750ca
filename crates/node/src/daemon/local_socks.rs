//! SOCKS5 for the programs of this host, through the mesh: `curl -x socks5h://127.0.0.1:1080 URL`.
//!
//! Each connection uses the first of the routes that works, in the given order. The last relay resolves names. This
//! node applies no egress policy of its own; the relays do.

use super::{counters::Counters, mesh_port::ShutdownSignals};
use std::{future::pending, net::SocketAddr, sync::Arc, time::Duration};
use thalweg_base::{
    accept,
    log::{Event, Log},
};
use thalweg_mesh::{Membership, Names, RouteNameError};
use thalweg_net::{Cause, DialError, Dialer, Hop, RelayProtocol, Route, Stream};
use thalweg_net::{
    liveness::Limits,
    pump::{self, Moved, ResetOnDrop, Stopped},
};
use thalweg_relay::{Refusal, read_request};
use thalweg_wire::{
    Destination,
    mesh::{Name, Terms},
    socks5::{self, Reply},
};
use thiserror::Error;
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::sleep,
};

/// The most local connections at a time; more wait in the kernel's queue. Each takes two descriptors, and the pump's
/// buffers while bytes move.
const MAX_LOCAL: usize = 4096;

/// The time for a program's two messages, which do not leave the host: the same as at the relay.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The pause after a failed accept, as at the mesh port.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How connections of local programs are routed.
#[derive(Clone, Debug)]
pub struct LocalRoutes {
    /// Routes by name, in order; at least one. See [`Names::route`].
    pub via: Vec<String>,
    /// The terms for each relay.
    pub terms: Terms,
    /// Dials with the node's key.
    pub dialer: Dialer,
    /// When a connection is given up.
    pub limits: Limits,
}

/// The SOCKS5 server of the host's own programs.
#[derive(Debug)]
pub struct LocalSocks {
    /// How connections are routed.
    pub ways: LocalRoutes,
    /// The roster in which names are looked up.
    pub membership: Membership,
    /// This node's name.
    pub me: Name,
    /// Receives failures.
    pub log: Log,
    pub counters: Counters,
}

/// Why no route led to the destination.
#[derive(Debug, Error)]
enum RouteFailure {
    #[error("{0}")]
    Name(#[from] RouteNameError),
    #[error("{0}")]
    Dial(#[from] DialError),
}

impl RouteFailure {
    /// The reply to the program (RFC 1928 §6).
    fn reply(&self) -> Reply {
        match self {
            Self::Name(RouteNameError::Avoided { .. }) => Reply::NotAllowed,
            Self::Name(_) => Reply::GeneralFailure,
            Self::Dial(DialError { cause: Cause::Refused(reply), .. }) => *reply,
            Self::Dial(DialError { cause: Cause::TimedOut(_), .. }) => Reply::TtlExpired,
            Self::Dial(_) => Reply::HostUnreachable,
        }
    }

    /// Whether another route may do better: not if the destination itself refused, and not if rules did, which another
    /// route would only circumvent.
    fn allows_another_route(&self) -> bool {
        !matches!(self.reply(), Reply::ConnectionRefused | Reply::NotAllowed)
    }
}

impl LocalSocks {
    /// Serves until told to stop; live connections are tracked with relayed ones.
    pub async fn listen(self: Arc<Self>, listener: TcpListener, ends: ShutdownSignals) {
        let places = Arc::new(Semaphore::new(MAX_LOCAL));
        loop {
            tokio::select! {
                () = ends.stop.cancelled() => return,
                (place, accepted) = accept::next(&places, &listener) => match accepted {
                    Ok((client, from)) => self.accept(client, from, place, &ends),
                    Err(_) => sleep(ACCEPT_PAUSE).await,
                },
            }
        }
    }

    fn accept(
        self: &Arc<Self>,
        client: TcpStream,
        from: SocketAddr,
        place: Option<OwnedSemaphorePermit>,
        ends: &ShutdownSignals,
    ) {
        self.counters.local();
        let (this, cut) = (Arc::clone(self), ends.cut_relay.clone());
        ends.relay.spawn(async move {
            tokio::select! { () = cut.cancelled() => {}, () = this.serve(client, from) => {} }
            drop(place);
        });
    }

    async fn serve(&self, client: TcpStream, from: SocketAddr) {
        // If the connection is cut short, the program sees a reset, never an orderly end.
        let mut client = ResetOnDrop::new(client);
        // If the program has left already, this fails, and so will reads.
        _ = client.set_nodelay(true);
        let to = match read_request(&mut *client, HANDSHAKE).await {
            Ok(to) => to,
            Err(refusal) => return self.refuse(client, from, &refusal).await,
        };
        let event = match self.dial(&to).await {
            Ok(stream) => match self.carry(client, stream).await {
                Ok(()) => return,
                Err(e) => Event::new("local_broken").with("why", e),
            },
            Err(failure) => {
                let message = socks5::encode_reply(failure.reply(), NOWHERE);
                // A program that is gone by now does not miss the reply.
                _ = client.write_all(&message).await;
                client.close();
                Event::new("local_failed").with("why", failure)
            }
        };
        self.log.put(event.with("client", from).with("to", to));
    }

    async fn refuse(&self, mut client: ResetOnDrop, from: SocketAddr, why: &Refusal) {
        why.tell(&mut *client, Vec::new()).await;
        client.close();
        self.log.put(Event::new("local_refused").with("client", from).with("why", why));
    }

    /// Connects over the first route that works.
    async fn dial(&self, to: &Destination) -> Result<Stream, RouteFailure> {
        let mut last = None;
        for way in &self.ways.via {
            let dialled = match self.route(way) {
                Ok(route) => self.ways.dialer.dial(&route, to).await.map_err(RouteFailure::Dial),
                Err(e) => Err(RouteFailure::Name(e)),
            };
            match dialled {
                Ok(stream) => return Ok(stream),
                Err(e) if !e.allows_another_route() => return Err(e),
                Err(e) => last = Some(e),
            }
        }
        // At least one route was tried; if none is configured, the direct one is used.
        match last {
            Some(e) => Err(e),
            None => Ok(self.ways.dialer.dial(&Route::direct(), to).await?),
        }
    }

    /// The route by the present roster: members come and go while the node runs.
    fn route(&self, way: &str) -> Result<Route, RouteNameError> {
        let roster = self.membership.current();
        let fault = roster.as_ref().and_then(|r| r.check(self.membership.now()).err());
        let fault = fault.map(|f| f.to_string());
        let roster = match (&roster, &fault) {
            (_, Some(fault)) => Err(fault.as_str()),
            (Some(roster), None) => Ok(&**roster),
            (None, None) => Err("this node has no roster yet"),
        };
        Names { roster, me: Some(&self.me) }.route(way, &self.ways.terms)
    }

    /// Carries both directions. Both legs are reset unless both directions end well.
    async fn carry(&self, mut client: ResetOnDrop, stream: Stream) -> Result<(), Stopped> {
        let (moved, limits) = (Moved::default(), self.limits(stream.route()));
        let terms = pump::Terms::new(limits, &moved);
        let cut = Box::pin(self.wait_for_removal(stream.route()));
        let stream = stream.into_tcp().map(ResetOnDrop::new).map_err(ResetOnDrop::new);
        let success = socks5::encode_reply(Reply::Succeeded, NOWHERE);
        client.write_all(&success).await.map_err(Stopped::Broken)?;
        match stream {
            Ok(tcp) => pump::clear(client, Vec::new(), tcp, terms, cut).await,
            Err(stream) => pump::sealed(client, stream, terms, cut).await,
        }
    }

    /// Ends when a relay of the route is revoked, or no roster is valid; never without relays.
    fn wait_for_removal(&self, route: &Route) -> impl Future<Output = ()> + Send + use<> {
        let key = |hop: &Hop| match &hop.speech {
            RelayProtocol::Mesh { key, .. } => Some(*key),
            RelayProtocol::Socks => None,
        };
        let keys: Vec<_> = route.all_hops().filter_map(key).collect();
        let left = (!keys.is_empty()).then(|| self.membership.wait_for_removal_of_any(keys));
        async move {
            match left {
                Some(left) => left.await,
                None => pending().await,
            }
        }
    }

    /// With relays, this node sees only its own leg: once one direction has ended, a relay may still have much to
    /// deliver to a slow reader. The relay sees that, and lingers itself.
    fn limits(&self, route: &Route) -> Limits {
        let limits = self.ways.limits;
        match route.is_direct() {
            true => limits,
            false => Limits { linger: limits.linger.max(limits.idle), ..limits },
        }
    }
}

/// No address: RFC 1928 §6 leaves open which bound address a reply contains.
const NOWHERE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);
