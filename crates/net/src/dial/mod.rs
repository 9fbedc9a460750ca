//! Making connections: directly, or through a chain of SOCKS5 relays.

mod error;
mod options;
mod race;
mod socks;

pub use error::{Cause, DialError, Step};
pub use options::{DialOptions, SocketOptions};
pub use race::{MAX_ADDRESSES, connect};

use crate::{Medium, Route, Stream};
use std::{net::SocketAddr, num::NonZeroU32};
use thalweg_wire::{Destination, Host};
use tokio::{
    net::{TcpStream, lookup_host},
    time::{Instant, timeout_at},
};

/// Makes connections; cheap to clone, holds no connection.
#[derive(Clone, Debug, Default)]
pub struct Dialer {
    options: DialOptions,
}

impl Dialer {
    /// A dialer with these options.
    pub fn new(options: DialOptions) -> Self {
        Self { options }
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
        if let Some(hop) = route.hops().iter().find(|h| h.medium == Medium::Carrier) {
            return Err(Step::reach(&hop.relay, true).failed(Cause::CarrierUnsupported));
        }
        let first = route.hops().first().map_or(to, |hop| &hop.relay);
        let step = Step::reach(first, !route.is_direct());
        let reach = self.reach(first, route.interface());
        let mut tcp = self.in_time(deadline, step, reach).await?;
        for (i, hop) in route.hops().iter().enumerate() {
            let toward = route.hops().get(i + 1).map_or(to, |next| &next.relay);
            let step = Step::Ask { relay: hop.relay.clone(), toward: toward.clone() };
            self.in_time(deadline, step, socks::connect_through(&mut tcp, toward)).await?;
        }
        Ok(Stream::new(tcp, route.clone(), to.clone()))
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
