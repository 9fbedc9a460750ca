//! Opens connections: directly, or through a chain of SOCKS5 or mesh relays.

mod error;
mod mesh;
mod options;
mod race;
mod relay_addresses;
mod socks;

pub use error::{Cause, DialError, Step};
pub use mesh::{connect_by_terms, cut_over};
pub use options::{DialOptions, SocketOptions};
pub use race::{MAX_ADDRESSES, connect};

use crate::{
    AccountEntry, Bookkeeper, Carrier, EgressChoice, Hop, Host, Medium, NameSources, RelayProtocol,
    RideNetwork, Route, Stream, background,
    channel::{Channel, Connector, Protocol},
    interface_for,
    resolve::NameResolver,
    transport::{TcpLeg, Transport},
};
use futures_util::future::BoxFuture;
use relay_addresses::{AttemptDeadline, RelayAddresses};
use std::{borrow::Cow, net::SocketAddr, num::NonZeroU32, sync::Arc, time::Duration};
use thalweg_units::NodeId;
use thalweg_wire::{
    Destination,
    mesh::{LegKind, RelayRequest, Terms},
};
use tokio::time::Instant;

/// Opens connections. Cheap to clone; holds no connection.
#[derive(Clone, Debug, Default)]
pub struct Dialer {
    options: DialOptions,
    identity: Option<Connector>,
    names: NameResolver,
    carrier: Option<Arc<dyn Carrier>>,
    /// Whether the carrier carries legs, in addition to choosing interfaces of plain connections.
    is_carried: bool,
    rides: Option<Arc<dyn RideNetwork>>,
    books: Option<Arc<dyn Bookkeeper>>,
}

/// How a connection of this host leaves it.
#[derive(Clone, Debug)]
struct Egress {
    /// `None`: the kernel's choice.
    interface: Option<NonZeroU32>,
    /// The interface that finally carries the bytes, if it is another one.
    beneath: Option<NonZeroU32>,
    /// Keeps the account of the connection.
    books: Option<Arc<dyn Bookkeeper>>,
}

impl Dialer {
    /// Creates a dialer with these options, which can use only plain relays.
    pub fn new(options: DialOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Creates a dialer that can go through a mesh, as the owner of the connector's key.
    pub fn with_identity(options: DialOptions, identity: Connector) -> Self {
        Self { options, identity: Some(identity), ..Self::default() }
    }

    /// Makes the dialer read hosts and name servers from other files.
    #[must_use]
    pub fn with_name_sources(mut self, sources: NameSources) -> Self {
        self.names = NameResolver::with_sources(sources);
        self
    }

    /// Lets this carrier carry first legs to members.
    ///
    /// A leg that is bound to no interface uses the carrier if it is ready at that moment, and otherwise a plain
    /// connection. A hop with [`Medium::Bond`] uses only the carrier.
    #[must_use]
    pub fn with_carrier(mut self, carrier: Arc<dyn Carrier>) -> Self {
        (self.carrier, self.is_carried) = (Some(carrier), true);
        self
    }

    /// Makes the dialer use plain connections. A carrier still chooses their interface.
    #[must_use]
    pub fn without_carrier(self) -> Self {
        Self { is_carried: false, ..self }
    }

    /// Lets first legs to members ride in probe trains. The leg of a hop with [`Medium::Ride`] uses only this medium. A
    /// hop without a medium that no bond carries uses it if `rides` chooses it, and a plain connection if that fails.
    #[must_use]
    pub fn with_ride_network(self, rides: Arc<dyn RideNetwork>) -> Self {
        Self { rides: Some(rides), ..self }
    }

    /// Makes this bookkeeper keep accounts of the dialer's connections. If a carrier chooses a connection's interface,
    /// the carrier's bookkeeper does.
    #[must_use]
    pub fn with_bookkeeper(self, books: Arc<dyn Bookkeeper>) -> Self {
        Self { books: Some(books), ..self }
    }

    /// Makes connections yield to others ([`DialOptions::is_background`]).
    #[must_use]
    pub fn in_background(mut self, is_background: bool) -> Self {
        self.options.is_background |= is_background;
        self
    }

    /// Limits the bytes that a peer may send ahead of the reader ([`SocketOptions::receive_buffer`]).
    #[must_use]
    pub fn with_receive_limit(mut self, ahead: usize) -> Self {
        self.options.socket.receive_buffer = Some(ahead);
        self
    }

    /// Makes connections end when nothing is acknowledged for this long ([`SocketOptions::user_timeout`]).
    #[must_use]
    pub fn with_user_timeout(mut self, silence: Duration) -> Self {
        self.options.socket.user_timeout = Some(silence);
        self
    }

    pub fn options(&self) -> &DialOptions {
        &self.options
    }

    /// Connects to `destination` by `route`.
    ///
    /// The first host of the route is resolved here (over the route's interface, if it has one), and each other one by
    /// the hop before it, so the last relay gets the destination's name unresolved. One deadline covers the whole dial.
    /// Cancel-safe: dropping the future closes what was opened.
    ///
    /// All addresses of a relay are tried: those of the first relay race like those of a name (RFC 8305), those of
    /// later relays are tried in turn, each with its share of the deadline.
    ///
    /// # Errors
    /// [`DialError`]: which host failed, and how. If a later relay has several addresses, it is about the last one
    /// tried.
    pub async fn dial(&self, route: &Route, to: &Destination) -> Result<Stream, DialError> {
        self.dial_boxed(route, to).await.map_err(|error| error.with_route(route))
    }

    /// Boxed, so that it is compiled here once and not in each crate that dials.
    #[inline(never)]
    fn dial_boxed<'a>(
        &'a self,
        route: &'a Route,
        to: &'a Destination,
    ) -> BoxFuture<'a, Result<Stream, DialError>> {
        Box::pin(async move {
            self.check(route)?;
            let until = Instant::now() + self.options.deadline;
            let mut turns = RelayAddresses::new(route.hops());
            loop {
                let patience = AttemptDeadline::share(until, turns.left());
                let to_host = NextHost { at: to, node: None };
                match self.dial_by(patience, &turns, route, to_host).await {
                    Err(error) if turns.advance(&error) => {}
                    done => return Ok(Stream::new(done?, route.clone(), to.clone())),
                }
            }
        })
    }

    /// Dials by the present addresses of the later relays.
    async fn dial_by(
        &self,
        patience: AttemptDeadline,
        turns: &RelayAddresses<'_>,
        route: &Route,
        to: NextHost<'_>,
    ) -> Result<Transport, DialError> {
        let Some(first) = route.hops().first() else {
            let by = Egress::of(route.interface(), self.books.clone());
            let reach = self.reach(to.at, &by);
            let leg = patience.wait(Step::reach(to.at, false), reach).await?;
            return Ok(Transport::Tcp(leg));
        };
        let entering = self.enter_first(patience, first, route.interface(), Protocol::Relay);
        let mut at = entering.await?;
        for (i, hop) in route.hops().iter().enumerate() {
            let next = route.hops().get(i + 1);
            let relay = turns.address(i).unwrap_or(&hop.relay);
            let toward = NextHost {
                at: turns.address(i + 1).unwrap_or(to.at),
                node: next.map_or(to.node, Hop::key),
            };
            let leg = ask(patience, at, hop, relay, toward).await?;
            let Some(next) = next else { return Ok(leg) };
            let entering = self.enter(leg, next, Protocol::Relay);
            at = patience.wait(Step::reach(toward.at, true), entering).await?;
        }
        // A route with a first hop has a last one.
        Err(Step::reach(to.at, false).failed(Cause::NoAddress))
    }

    /// Checks that everything that `route` needs is available, before anything is opened.
    fn check(&self, route: &Route) -> Result<(), DialError> {
        for (i, hop) in route.hops().iter().enumerate() {
            let is_free = i == 0 && route.interface().is_none();
            let bonds = is_free && self.carrier.is_some() && self.is_carried;
            let rides = is_free && self.rides.is_some() && hop.key().is_some();
            let cause = match (&hop.speech, hop.medium) {
                (_, Medium::Bond) if !bonds => Cause::CarrierUnsupported,
                (_, Medium::Ride) if !rides => Cause::RideUnsupported,
                (RelayProtocol::Mesh { .. }, _) if self.identity.is_none() => Cause::NoIdentity,
                _ => continue,
            };
            return Err(Step::reach(&hop.relay, true).failed(cause));
        }
        Ok(())
    }

    /// Enters the first node of the route, at any of its addresses.
    ///
    /// Another host may answer at one of them, e.g. if two private networks use the same addresses; the race among the
    /// other addresses then continues.
    async fn enter_first(
        &self,
        patience: AttemptDeadline,
        hop: &Hop,
        interface: Option<NonZeroU32>,
        protocol: Protocol,
    ) -> Result<EnteredHop, DialError> {
        if let Some(entered) = self.enter_carried(patience, hop, interface, protocol).await? {
            return Ok(entered);
        }
        if let Some(entered) = self.enter_riding(patience, hop, interface, protocol).await? {
            return Ok(entered);
        }
        let step = || Step::reach(&hop.relay, protocol == Protocol::Relay);
        let by = self.leaving(hop, interface, protocol).map_err(|why| step().failed(why))?;
        let mut addresses: Vec<&Destination> = hop.addresses().collect();
        let mut misled = None;
        loop {
            let racing = self.race(&addresses, &by);
            let (leg, winner) = match (patience.wait(step(), racing).await, misled) {
                (Ok(won), _) => won,
                // That another host answered is more informative than that nobody else does.
                (Err(_), Some(earlier)) => return Err(earlier),
                (Err(error), None) => return Err(error),
            };
            addresses.retain(|address| **address != winner);
            let left = AttemptDeadline::share(patience.until, addresses.len() as u32);
            let entering = self.enter(Transport::Tcp(leg), hop, protocol);
            match left.wait(step(), entering).await {
                Err(error) if !addresses.is_empty() => misled = Some(error),
                done => return done,
            }
        }
    }

    /// Opens a TCP connection to the host that answers first. Returns that host as well.
    async fn race(
        &self,
        hosts: &[&Destination],
        by: &Egress,
    ) -> Result<(TcpLeg, Destination), Cause> {
        let attempts = hosts.iter().map(|&host| {
            let (dialer, host, by) = (self.clone(), host.clone(), by.clone());
            async move { Ok((dialer.reach(&host, &by).await?, host)) }
        });
        race::staggered(attempts, self.options.stagger).await
    }

    /// Begins the protocol of the node at the other end of `leg`.
    async fn enter(
        &self,
        leg: Transport,
        hop: &Hop,
        protocol: Protocol,
    ) -> Result<EnteredHop, Cause> {
        let RelayProtocol::Mesh { key, .. } = &hop.speech else {
            return Ok(EnteredHop::Socks(leg));
        };
        let identity = self.identity.as_ref().ok_or(Cause::NoIdentity)?;
        Ok(EnteredHop::Mesh(Box::new(identity.connect(leg, *key, protocol).await?)))
    }

    /// Opens a TCP connection to `host` from this host.
    async fn reach(&self, host: &Destination, by: &Egress) -> Result<TcpLeg, Cause> {
        let addresses = self.names.resolve(host, by.interface).await?;
        let entry = by.entry(&addresses)?;
        let mut options = Cow::Borrowed(&self.options);
        if let Some(ahead) = entry.as_ref().and_then(|entry| entry.ahead) {
            let own = options.socket.receive_buffer.unwrap_or(usize::MAX);
            options.to_mut().socket.receive_buffer = Some(ahead.min(own));
        }
        let tcp = connect(&addresses, by.interface, &options).await?;
        let leg = TcpLeg::new(tcp, entry.map(|entry| entry.account));
        if self.options.is_background {
            tokio::spawn(background::follow(Arc::downgrade(leg.tcp())));
        }
        Ok(leg)
    }
}

/// First legs that a carrier carries.
impl Dialer {
    /// How a plain connection to a node leaves this host: as the route, the carrier or the kernel chooses.
    ///
    /// # Errors
    /// The carrier's error: no interface may be used.
    fn leaving(
        &self,
        hop: &Hop,
        interface: Option<NonZeroU32>,
        protocol: Protocol,
    ) -> Result<Egress, Cause> {
        let is_members =
            matches!(hop.speech, RelayProtocol::Mesh { .. }) && protocol != Protocol::Bond;
        let carrier = self.carrier.as_ref().filter(|_| is_members && interface.is_none());
        let leaving = carrier.map_or(Ok(None), |carrier| carrier.egress(hop));
        Ok(match leaving.map_err(Cause::NoInterface)? {
            Some(EgressChoice { interface, books }) => Egress::of(Some(interface), books),
            None => Egress::of(interface, self.books.clone()),
        })
    }

    /// Enters the node through the carrier: only if the carrier is ready, or, if the hop requires it, once it is.
    ///
    /// # Errors
    /// [`DialError`], only if the hop requires the carrier.
    async fn enter_carried(
        &self,
        patience: AttemptDeadline,
        hop: &Hop,
        interface: Option<NonZeroU32>,
        protocol: Protocol,
    ) -> Result<Option<EnteredHop>, DialError> {
        let waits = hop.medium == Medium::Bond;
        let may = interface.is_none() && hop.medium != Medium::Ride && hop.key().is_some();
        let carrier = self.carrier.as_ref().filter(|_| may && protocol != Protocol::Bond);
        let carrier = carrier.filter(|_| self.is_carried);
        let step = || Step::reach(&hop.relay, protocol == Protocol::Relay);
        let Some(opening) = carrier.and_then(|carrier| carrier.open(hop, waits)) else {
            return match waits {
                true => Err(step().failed(Cause::CarrierUnsupported)),
                false => Ok(None),
            };
        };
        let entering = async {
            let carried = opening.await.map_err(Cause::Carrier)?;
            self.enter(Transport::Carried(carried), hop, protocol).await
        };
        if waits {
            return patience.wait(step(), entering).await.map(Some);
        }
        // A carrier that is silent now leaves most of the time to the plain connection.
        let first = AttemptDeadline::share(patience.until, 3);
        Ok(first.wait(step(), entering).await.ok())
    }
}

/// First legs whose packets ride in probe trains.
impl Dialer {
    /// Enters the node at its overlay address: if the hop requires it, or if it is chosen and succeeds.
    ///
    /// # Errors
    /// [`DialError`], only if the hop requires it.
    async fn enter_riding(
        &self,
        patience: AttemptDeadline,
        hop: &Hop,
        interface: Option<NonZeroU32>,
        protocol: Protocol,
    ) -> Result<Option<EnteredHop>, DialError> {
        let is_wanted = hop.medium == Medium::Ride;
        let rides = self.rides.as_deref().filter(|_| interface.is_none());
        let Some((rides, key)) = rides.zip(hop.key()) else {
            let step = || Step::reach(&hop.relay, protocol == Protocol::Relay);
            return match is_wanted {
                true => Err(step().failed(Cause::RideUnsupported)),
                false => Ok(None),
            };
        };
        if is_wanted {
            return self.ride(patience, hop, (rides, key), protocol).await.map(Some);
        }
        if !(is_bulk(protocol) && rides.chooses(key)) {
            return Ok(None);
        }
        // A node that does not answer leaves most of the time to the plain connection.
        let first = AttemptDeadline::share(patience.until, 3);
        Ok(self.ride(first, hop, (rides, key), protocol).await.ok())
    }

    async fn ride(
        &self,
        patience: AttemptDeadline,
        hop: &Hop,
        (rides, key): (&dyn RideNetwork, NodeId),
        protocol: Protocol,
    ) -> Result<EnteredHop, DialError> {
        let step = || Step::reach(&hop.relay, protocol == Protocol::Relay);
        let at = rides.address(key).map_err(|why| step().failed(Cause::NoRide(why)))?;
        let by = Egress { beneath: beneath(hop), ..Egress::of(None, self.books.clone()) };
        let entering = async {
            let leg = self.reach(&at.into(), &by).await?;
            self.enter(Transport::Tcp(leg), hop, protocol).await
        };
        let entered = patience.wait(step(), entering).await;
        entered.map_err(|DialError { step, cause, .. }| {
            step.failed(Cause::Riding { at, why: Box::new(cause) })
        })
    }
}

/// Channels to a member itself, by a route of relays.
impl Dialer {
    /// Opens a channel of this protocol to the member `to`, by `route`. TLS runs between its two ends, whatever the
    /// relays' legs are.
    ///
    /// `to` describes the member like a hop: its key, all its addresses, its name; its terms are not used. The last
    /// relay gets the member's key as the next node, so that it may allow the connection even if no other rule does; it
    /// sends the preamble.
    ///
    /// On a direct route the member's addresses race like those of a name (RFC 8305). Through relays they are tried in
    /// turn, each with its share of the deadline, which covers the whole dial. That the member does not admit this host
    /// may show only at the first read ([`crate::channel::ChannelError::is_not_admitted`]).
    ///
    /// # Errors
    /// [`DialError`]: which host failed, and how.
    pub async fn channel(
        &self,
        route: &Route,
        to: &Hop,
        protocol: Protocol,
    ) -> Result<Channel<Stream>, DialError> {
        let opened = self.channel_boxed(route, to, protocol).await;
        let (channel, at) = opened.map_err(|error| error.with_route(route))?;
        Ok(channel.map_io(|leg| Stream::new(leg, route.clone(), at)))
    }

    /// Boxed, so that it is compiled here once and not in each crate that dials.
    #[inline(never)]
    fn channel_boxed<'a>(
        &'a self,
        route: &'a Route,
        to: &'a Hop,
        protocol: Protocol,
    ) -> BoxFuture<'a, Result<(Channel<Transport>, crate::Destination), DialError>> {
        Box::pin(async move {
            self.check(route)?;
            let until = Instant::now() + self.options().deadline;
            if route.is_direct() {
                let patience = AttemptDeadline::share(until, 0);
                let entered = self.enter_first(patience, to, route.interface(), protocol).await?;
                return Ok((entered.channel(to)?, to.relay.clone()));
            }
            let way: Vec<Hop> = route.hops().iter().chain([to]).cloned().collect();
            let mut turns = RelayAddresses::new(&way);
            loop {
                let patience = AttemptDeadline::share(until, turns.left());
                let at = turns.address(route.hops().len()).unwrap_or(&to.relay).clone();
                let toward = NextHost { at: &at, node: to.key() };
                let opened = async {
                    let leg = self.dial_by(patience, &turns, route, toward).await?;
                    let entering = self.enter(leg, to, protocol);
                    patience.wait(Step::reach(&at, false), entering).await?.channel(to)
                };
                match opened.await {
                    Err(error) if turns.advance(&error) => {}
                    done => return Ok((done?, at)),
                }
            }
        })
    }
}

impl EnteredHop {
    /// The channel. A hop without a key has none.
    fn channel(self, to: &Hop) -> Result<Channel<Transport>, DialError> {
        match self {
            Self::Mesh(channel) => Ok(*channel),
            Self::Socks(_) => Err(Step::reach(&to.relay, false).failed(Cause::NoIdentity)),
        }
    }
}

impl Egress {
    fn of(interface: Option<NonZeroU32>, books: Option<Arc<dyn Bookkeeper>>) -> Self {
        Self { interface, beneath: None, books }
    }

    /// Opens the bookkeeper's entry of a connection to the first of these addresses.
    fn entry(&self, to: &[SocketAddr]) -> Result<Option<AccountEntry>, Cause> {
        let Some(books) = &self.books else { return Ok(None) };
        let own = || to.first().and_then(|to| interface_for(to.ip()).ok());
        let Some(index) = self.beneath.or(self.interface).or_else(own) else { return Ok(None) };
        books.open_account(index).map_err(Cause::NoInterface)
    }
}

/// A node that is ready for a request.
enum EnteredHop {
    /// A plain SOCKS5 relay.
    Socks(Transport),
    /// A node of the mesh, whose key is proven.
    Mesh(Box<Channel<Transport>>),
}

/// The next host, to which a relay should connect.
#[derive(Clone, Copy)]
struct NextHost<'a> {
    at: &'a Destination,
    /// The next hop's key, if it is a node of the mesh.
    node: Option<NodeId>,
}

/// Asks `hop`, which was entered at `relay`, to connect to `toward`.
async fn ask(
    patience: AttemptDeadline,
    entered: EnteredHop,
    hop: &Hop,
    relay: &Destination,
    toward: NextHost<'_>,
) -> Result<Transport, DialError> {
    let step = Step::Ask { relay: relay.clone(), toward: toward.at.clone() };
    match (entered, &hop.speech) {
        (EnteredHop::Mesh(channel), RelayProtocol::Mesh { terms, .. }) => {
            patience.wait(step, ask_by_terms(*channel, terms, toward)).await
        }
        (EnteredHop::Mesh(_), RelayProtocol::Socks) => Err(step.failed(Cause::Closed)),
        (EnteredHop::Socks(mut leg), _) => {
            patience.wait(step, socks::connect_through(&mut leg, toward.at)).await?;
            Ok(leg)
        }
    }
}

/// Opens the stream to `toward`, carried as the terms require.
async fn ask_by_terms(
    mut channel: Channel<Transport>,
    terms: &Terms,
    toward: NextHost<'_>,
) -> Result<Transport, Cause> {
    let asked = RelayRequest { terms: terms.clone(), next: toward.node };
    connect_by_terms(&mut channel, &asked, toward.at).await?;
    if terms.leg == LegKind::Sealed {
        return Ok(Transport::Sealed(Box::new(channel)));
    }
    let (beneath, first) = cut_over(channel).await?;
    Ok(Transport::prefixed(first, beneath))
}

/// Whether channels of this protocol move bulk data. Control messages are short, and measured flows must use plain TCP.
fn is_bulk(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::Relay | Protocol::Object | Protocol::Cast)
}

/// The interface by which the carrier's datagrams to the hop leave, if an IP address of it is known.
fn beneath(hop: &Hop) -> Option<NonZeroU32> {
    hop.addresses().find_map(|at| match at.host {
        Host::Ip(ip) => interface_for(ip).ok(),
        Host::Name(_) => None,
    })
}
