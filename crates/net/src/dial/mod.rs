//! Making connections: directly, or through a chain of relays, SOCKS5's or the mesh's.

mod error;
mod mesh;
mod options;
mod race;
mod socks;

pub use error::{Cause, DialError, Step};
pub use mesh::{connect_by_terms, cut_over};
pub use options::{DialOptions, SocketOptions};
pub use race::{MAX_ADDRESSES, connect};

use crate::{
    Hop, Medium, Route, Speech, Stream,
    channel::{Channel, Connector, Protocol},
    transport::{Leg, Transport},
};
use std::{net::SocketAddr, num::NonZeroU32};
use thalweg_units::NodeId;
use thalweg_wire::{
    Destination, Host,
    mesh::{LegKind, Terms},
};
use tokio::{
    net::{TcpStream, lookup_host},
    time::{Instant, timeout_at},
};

/// Makes connections; cheap to clone, holds no connection.
#[derive(Clone, Debug, Default)]
pub struct Dialer {
    options: DialOptions,
    identity: Option<Connector>,
}

impl Dialer {
    /// A dialer with these options; it knows no relays but plain ones.
    pub fn new(options: DialOptions) -> Self {
        Self { options, identity: None }
    }

    /// A dialer that can go through a mesh, as the owner of the connector's key.
    pub fn with_identity(options: DialOptions, identity: Connector) -> Self {
        Self { options, identity: Some(identity) }
    }

    /// The options.
    pub fn options(&self) -> &DialOptions {
        &self.options
    }

    /// Connects to `destination` by `route`.
    ///
    /// The first host on the way is resolved here, each other one by the hop
    /// before it; the destination's name so reaches the last relay unresolved.
    /// One deadline holds for all of it. Cancel-safe: dropping the future
    /// closes what was opened.
    ///
    /// # Errors
    /// [`DialError`]: which host failed, and how.
    pub async fn dial(&self, route: &Route, to: &Destination) -> Result<Stream, DialError> {
        let deadline = Instant::now() + self.options.deadline;
        self.check(route)?;
        let first = route.hops().first().map_or(to, |hop| &hop.relay);
        let step = Step::reach(first, !route.is_direct());
        let reach = self.reach(first, route.interface());
        let tcp = self.in_time(deadline, step, reach).await?;
        let mut transport = Transport::Tcp(Leg::new(tcp));
        for (i, hop) in route.hops().iter().enumerate() {
            let toward = route.hops().get(i + 1).map_or(to, |next| &next.relay);
            transport = self.through(deadline, transport, hop, toward).await?;
        }
        Ok(Stream::new(transport, route.clone(), to.clone()))
    }

    /// Whether there is all that `route` needs, before anything is opened.
    fn check(&self, route: &Route) -> Result<(), DialError> {
        for hop in route.hops() {
            let cause = match hop.speech {
                _ if hop.medium == Medium::Carrier => Cause::CarrierUnsupported,
                Speech::Mesh { .. } if self.identity.is_none() => Cause::NoIdentity,
                _ => continue,
            };
            return Err(Step::reach(&hop.relay, true).failed(cause));
        }
        Ok(())
    }

    /// Has `hop`, at the other end of `leg`, connect to `toward`.
    async fn through(
        &self,
        deadline: Instant,
        mut leg: Transport,
        hop: &Hop,
        toward: &Destination,
    ) -> Result<Transport, DialError> {
        let ask = Step::Ask { relay: hop.relay.clone(), toward: toward.clone() };
        let Speech::Mesh { key, terms } = &hop.speech else {
            self.in_time(deadline, ask, socks::connect_through(&mut leg, toward)).await?;
            return Ok(leg);
        };
        let reach = Step::reach(&hop.relay, true);
        let channel = self.in_time(deadline, reach, self.open(leg, *key)).await?;
        self.in_time(deadline, ask, ask_by_terms(channel, terms, toward)).await
    }

    /// A channel to the relay with `key`.
    async fn open(&self, leg: Transport, key: NodeId) -> Result<Channel<Transport>, Cause> {
        let identity = self.identity.as_ref().ok_or(Cause::NoIdentity)?;
        Ok(identity.connect(leg, key, Protocol::Relay).await?)
    }

    /// `work`, or a timeout that is blamed on the same step.
    async fn in_time<T>(
        &self,
        deadline: Instant,
        step: Step,
        work: impl Future<Output = Result<T, Cause>>,
    ) -> Result<T, DialError> {
        match timeout_at(deadline, work).await {
            Ok(done) => done.map_err(|cause| step.failed(cause)),
            Err(_) => Err(step.failed(Cause::TimedOut(self.options.deadline))),
        }
    }

    /// A TCP connection to `host` from here.
    async fn reach(
        &self,
        host: &Destination,
        interface: Option<NonZeroU32>,
    ) -> Result<TcpStream, Cause> {
        let addresses = resolve(host).await?;
        connect(&addresses, interface, &self.options).await
    }
}

/// The stream to `toward`, as the terms want it carried.
async fn ask_by_terms(
    mut channel: Channel<Transport>,
    terms: &Terms,
    toward: &Destination,
) -> Result<Transport, Cause> {
    connect_by_terms(&mut channel, terms, toward).await?;
    if terms.leg == LegKind::Sealed {
        return Ok(Transport::Sealed(Box::new(channel)));
    }
    let (beneath, first) = cut_over(channel).await?;
    Ok(Transport::after(first, beneath))
}

/// The addresses of `host` in the resolver's order: all of them, at least one.
///
/// # Errors
/// [`Cause::Resolve`], [`Cause::NoAddress`].
pub async fn resolve(host: &Destination) -> Result<Vec<SocketAddr>, Cause> {
    let name = match &host.host {
        Host::Ip(ip) => return Ok(vec![SocketAddr::new(*ip, host.port)]),
        Host::Name(name) => name,
    };
    let found = lookup_host((&**name, host.port)).await.map_err(Cause::Resolve)?;
    let addresses: Vec<_> = found.collect();
    if addresses.is_empty() { Err(Cause::NoAddress) } else { Ok(addresses) }
}
