//! Making connections: directly, or through a chain of relays, SOCKS5's or the mesh's.

mod carried;
mod error;
mod member;
mod mesh;
mod options;
mod race;
mod ridden;
mod socks;
mod turns;

pub use error::{Cause, DialError, Step};
pub use mesh::{connect_by_terms, cut_over};
pub use options::{DialOptions, SocketOptions};
pub use race::{MAX_ADDRESSES, connect};

use crate::{
    Bookkeeper, Carrier, Entry, Hop, Medium, NameSources, Rides, Route, Speech, Stream,
    channel::{Channel, Connector, Protocol},
    interface_for,
    resolve::Names,
    transport::{Leg, Transport},
};
use futures_util::future::BoxFuture;
use std::{borrow::Cow, net::SocketAddr, num::NonZeroU32, sync::Arc, time::Duration};
use thalweg_units::NodeId;
use thalweg_wire::{
    Destination,
    mesh::{Ask, LegKind, Terms},
};
use tokio::time::Instant;
use turns::{Patience, Turns};

/// Makes connections; cheap to clone, holds no connection.
#[derive(Clone, Debug, Default)]
pub struct Dialer {
    options: DialOptions,
    identity: Option<Connector>,
    names: Names,
    carrier: Option<Arc<dyn Carrier>>,
    /// Whether the carrier carries, beside saying where plain ways leave.
    is_carried: bool,
    rides: Option<Arc<dyn Rides>>,
    books: Option<Arc<dyn Bookkeeper>>,
}

/// How an own connection leaves this host.
#[derive(Clone, Debug)]
struct By {
    /// `None`: the kernel's choice.
    interface: Option<NonZeroU32>,
    /// The interface whose bytes they are in the end, where that is another.
    beneath: Option<NonZeroU32>,
    /// Who keeps account of it.
    books: Option<Arc<dyn Bookkeeper>>,
}

impl Dialer {
    /// A dialer with these options; it knows no relays but plain ones.
    pub fn new(options: DialOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// A dialer that can go through a mesh, as the owner of the connector's key.
    pub fn with_identity(options: DialOptions, identity: Connector) -> Self {
        Self { options, identity: Some(identity), ..Self::default() }
    }

    /// The same dialler, which finds names and name servers elsewhere.
    #[must_use]
    pub fn reading(mut self, sources: NameSources) -> Self {
        self.names = Names::reading(sources);
        self
    }

    /// The same dialler, whose first legs to members may be this carrier's.
    ///
    /// A leg that is bound to no interface goes that way if it is ready just then, else plainly; if
    /// the hop says [`Medium::Bond`], that way alone.
    #[must_use]
    pub fn carried_by(mut self, carrier: Arc<dyn Carrier>) -> Self {
        (self.carrier, self.is_carried) = (Some(carrier), true);
        self
    }

    /// The same dialler, whose legs go the plain way; a carrier still says by which interface.
    #[must_use]
    pub fn uncarried(self) -> Self {
        Self { is_carried: false, ..self }
    }

    /// The same dialler, which knows where members' packets ride. The leg of a hop that says [`Medium::Ride`] goes
    /// there alone; one that says nothing, and is no bond's, where this chooses it, and plainly if that fails.
    #[must_use]
    pub fn riding_by(self, rides: Arc<dyn Rides>) -> Self {
        Self { rides: Some(rides), ..self }
    }

    /// The same dialler, of whose connections account is kept. Where a carrier says by which interface one leaves, the
    /// carrier's does.
    #[must_use]
    pub fn booked_by(self, books: Arc<dyn Bookkeeper>) -> Self {
        Self { books: Some(books), ..self }
    }

    /// The same dialler, whose peers may send so many bytes ahead of who reads
    /// ([`SocketOptions::receive_buffer`]).
    #[must_use]
    pub fn receiving(mut self, ahead: usize) -> Self {
        self.options.socket.receive_buffer = Some(ahead);
        self
    }

    /// The same dialler, whose connections end when nothing is acknowledged for so long
    /// ([`SocketOptions::user_timeout`]).
    #[must_use]
    pub fn giving_up_after(mut self, silence: Duration) -> Self {
        self.options.socket.user_timeout = Some(silence);
        self
    }

    /// The options.
    pub fn options(&self) -> &DialOptions {
        &self.options
    }

    /// Connects to `destination` by `route`.
    ///
    /// The first host on the way is resolved here (by the route's interface, if it has one),
    /// each other one by the hop before it; the destination's name so reaches the last relay unresolved.
    /// One deadline holds for all of it. Cancel-safe: dropping the future
    /// closes what was opened.
    ///
    /// A relay with several addresses is tried at all of them: the first on the route as
    /// those of a name are (RFC 8305), each later one in turn, with its share of the deadline.
    ///
    /// # Errors
    /// [`DialError`]: which host failed, and how; of several addresses of a later relay, the
    /// last that was tried.
    pub async fn dial(&self, route: &Route, to: &Destination) -> Result<Stream, DialError> {
        self.by(route, to).await.map_err(|error| error.named_by(route))
    }

    /// Boxed, so that it is compiled here once and not in each crate that dials.
    #[inline(never)]
    fn by<'a>(
        &'a self,
        route: &'a Route,
        to: &'a Destination,
    ) -> BoxFuture<'a, Result<Stream, DialError>> {
        Box::pin(async move {
            self.check(route)?;
            let until = Instant::now() + self.options.deadline;
            let mut turns = Turns::of(route.hops());
            loop {
                let patience = Patience::share(until, turns.left());
                let to_host = Toward { at: to, node: None };
                match self.dial_by(patience, &turns, route, to_host).await {
                    Err(error) if turns.advance(&error) => {}
                    done => return Ok(Stream::new(done?, route.clone(), to.clone())),
                }
            }
        })
    }

    /// By these addresses of the later relays.
    async fn dial_by(
        &self,
        patience: Patience,
        turns: &Turns<'_>,
        route: &Route,
        to: Toward<'_>,
    ) -> Result<Transport, DialError> {
        let Some(first) = route.hops().first() else {
            let by = By::of(route.interface(), self.books.clone());
            let reach = self.reach(to.at, &by);
            let leg = patience.wait(Step::reach(to.at, false), reach).await?;
            return Ok(Transport::Tcp(leg));
        };
        let entering = self.enter_first(patience, first, route.interface(), Protocol::Relay);
        let mut at = entering.await?;
        for (i, hop) in route.hops().iter().enumerate() {
            let next = route.hops().get(i + 1);
            let relay = turns.address(i).unwrap_or(&hop.relay);
            let toward = Toward {
                at: turns.address(i + 1).unwrap_or(to.at),
                node: next.map_or(to.node, Hop::key),
            };
            let leg = ask(patience, at, hop, relay, toward).await?;
            let Some(next) = next else { return Ok(leg) };
            let entering = self.enter(leg, next, Protocol::Relay);
            at = patience.wait(Step::reach(toward.at, true), entering).await?;
        }
        // A route that has a first hop has a last one.
        Err(Step::reach(to.at, false).failed(Cause::NoAddress))
    }

    /// Whether there is all that `route` needs, before anything is opened.
    fn check(&self, route: &Route) -> Result<(), DialError> {
        for (i, hop) in route.hops().iter().enumerate() {
            let is_free = i == 0 && route.interface().is_none();
            let bonds = is_free && self.carrier.is_some() && self.is_carried;
            let rides = is_free && self.rides.is_some() && hop.key().is_some();
            let cause = match (&hop.speech, hop.medium) {
                (_, Medium::Bond) if !bonds => Cause::CarrierUnsupported,
                (_, Medium::Ride) if !rides => Cause::RideUnsupported,
                (Speech::Mesh { .. }, _) if self.identity.is_none() => Cause::NoIdentity,
                _ => continue,
            };
            return Err(Step::reach(&hop.relay, true).failed(cause));
        }
        Ok(())
    }

    /// The first node on the way, at whichever of its addresses it is found.
    ///
    /// Behind one of them may be another host, e.g. where two private networks have the
    /// same addresses: then the rest races on.
    async fn enter_first(
        &self,
        patience: Patience,
        hop: &Hop,
        interface: Option<NonZeroU32>,
        protocol: Protocol,
    ) -> Result<Entered, DialError> {
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
                // That another host answered says more than that nobody else does.
                (Err(_), Some(earlier)) => return Err(earlier),
                (Err(error), None) => return Err(error),
            };
            addresses.retain(|address| **address != winner);
            let left = Patience::share(patience.until, addresses.len() as u32);
            let entering = self.enter(Transport::Tcp(leg), hop, protocol);
            match left.wait(step(), entering).await {
                Err(error) if !addresses.is_empty() => misled = Some(error),
                done => return done,
            }
        }
    }

    /// A TCP connection to whichever of `hosts` answers first, and which it was.
    async fn race(&self, hosts: &[&Destination], by: &By) -> Result<(Leg, Destination), Cause> {
        let attempts = hosts.iter().map(|&host| {
            let (dialer, host, by) = (self.clone(), host.clone(), by.clone());
            async move { Ok((dialer.reach(&host, &by).await?, host)) }
        });
        race::staggered(attempts, self.options.stagger).await
    }

    /// What is spoken to the node at the other end of `leg`.
    async fn enter(&self, leg: Transport, hop: &Hop, protocol: Protocol) -> Result<Entered, Cause> {
        let Speech::Mesh { key, .. } = &hop.speech else { return Ok(Entered::Socks(leg)) };
        let identity = self.identity.as_ref().ok_or(Cause::NoIdentity)?;
        Ok(Entered::Mesh(Box::new(identity.connect(leg, *key, protocol).await?)))
    }

    /// A TCP connection to `host` from here.
    async fn reach(&self, host: &Destination, by: &By) -> Result<Leg, Cause> {
        let addresses = self.names.resolve(host, by.interface).await?;
        let entry = by.entry(&addresses)?;
        let mut options = Cow::Borrowed(&self.options);
        if let Some(ahead) = entry.as_ref().and_then(|entry| entry.ahead) {
            let own = options.socket.receive_buffer.unwrap_or(usize::MAX);
            options.to_mut().socket.receive_buffer = Some(ahead.min(own));
        }
        let tcp = connect(&addresses, by.interface, &options).await?;
        Ok(Leg::new(tcp, entry.map(|entry| entry.account)))
    }
}

impl By {
    fn of(interface: Option<NonZeroU32>, books: Option<Arc<dyn Bookkeeper>>) -> Self {
        Self { interface, beneath: None, books }
    }

    /// What a connection to the first of these addresses has of its bookkeeper.
    fn entry(&self, to: &[SocketAddr]) -> Result<Option<Entry>, Cause> {
        let Some(books) = &self.books else { return Ok(None) };
        let own = || to.first().and_then(|to| interface_for(to.ip()).ok());
        let Some(index) = self.beneath.or(self.interface).or_else(own) else { return Ok(None) };
        books.enter(index).map_err(Cause::NoInterface)
    }
}

/// A node that can be asked.
enum Entered {
    /// A plain one.
    Socks(Transport),
    /// A node of the mesh, whose key is proven.
    Mesh(Box<Channel<Transport>>),
}

/// What a relay is asked to connect to.
#[derive(Clone, Copy)]
struct Toward<'a> {
    at: &'a Destination,
    /// The next hop's key, if it is a node of the mesh.
    node: Option<NodeId>,
}

/// Has `hop`, which was entered at `relay`, connect to `toward`.
async fn ask(
    patience: Patience,
    entered: Entered,
    hop: &Hop,
    relay: &Destination,
    toward: Toward<'_>,
) -> Result<Transport, DialError> {
    let step = Step::Ask { relay: relay.clone(), toward: toward.at.clone() };
    match (entered, &hop.speech) {
        (Entered::Mesh(channel), Speech::Mesh { terms, .. }) => {
            patience.wait(step, ask_by_terms(*channel, terms, toward)).await
        }
        (Entered::Mesh(_), Speech::Socks) => Err(step.failed(Cause::Closed)),
        (Entered::Socks(mut leg), _) => {
            patience.wait(step, socks::connect_through(&mut leg, toward.at)).await?;
            Ok(leg)
        }
    }
}

/// The stream to `toward`, as the terms want it carried.
async fn ask_by_terms(
    mut channel: Channel<Transport>,
    terms: &Terms,
    toward: Toward<'_>,
) -> Result<Transport, Cause> {
    let asked = Ask { terms: terms.clone(), next: toward.node };
    connect_by_terms(&mut channel, &asked, toward.at).await?;
    if terms.leg == LegKind::Sealed {
        return Ok(Transport::Sealed(Box::new(channel)));
    }
    let (beneath, first) = cut_over(channel).await?;
    Ok(Transport::after(first, beneath))
}
