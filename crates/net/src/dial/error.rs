//! Errors of dials: which step failed, at which host, and why.

use crate::{Route, channel::ChannelError, socks5::ReadError};
use std::{fmt, io, net::SocketAddr, num::NonZeroU32, time::Duration};
use thalweg_wire::{
    Destination,
    socks5::{Reply, Socks5Error},
};
use thiserror::Error;

/// A failed dial: the step, and the cause.
///
/// Prints as `relay 10.1.0.3:1080 refused www.example:80: connection refused
/// by destination`, or `cannot reach relay fra (10.1.0.3:7373): no answer within 10s`.
#[derive(Debug, Error)]
pub struct DialError {
    /// The step that failed.
    pub step: Step,
    #[source]
    pub cause: Cause,
    /// The route, which contains the names of the relays.
    route: Option<Box<Route>>,
}

/// One step of a dial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Connecting from this host: to the first relay, or to the destination if direct.
    Reach {
        /// The host to connect to.
        host: Destination,
        /// Whether it is a relay.
        is_relay: bool,
    },
    /// Asking a connected relay for the next host.
    Ask {
        /// The relay to ask.
        relay: Destination,
        /// The next relay or the destination, to which the relay should connect.
        toward: Destination,
    },
}

/// The reason why a step failed.
#[derive(Debug, Error)]
pub enum Cause {
    /// The name has no address, or no name server answered.
    #[error("cannot resolve the name: {0}")]
    Resolve(#[source] io::Error),
    /// There is no address to try.
    #[error("the name has no address")]
    NoAddress,
    /// The TCP connection failed.
    #[error("{}", connect_text(address, source))]
    Connect { address: SocketAddr, source: io::Error },
    /// The route's interface cannot be used.
    #[error("cannot use interface {index}: {source} (does it still exist? see `ip link`)")]
    Interface { index: NonZeroU32, source: io::Error },
    /// This host's settings allow no interface for the connection.
    #[error("{0}")]
    NoInterface(#[source] io::Error),
    /// No route to this address leaves by the route's interface.
    #[error("there is no route to {} through interface {index} (see `ip route`)", address.ip())]
    NoRoute {
        address: SocketAddr,
        /// The interface's index.
        index: NonZeroU32,
    },
    /// A socket could not be made or set up.
    #[error("{0}")]
    Socket(#[source] io::Error),
    /// The deadline passed in this step.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The relay answered, with a refusal.
    #[error("{0}")]
    Refused(Reply),
    /// The relay requires a user name and password, or another method.
    #[error("it requires an authentication method that is not supported")]
    Authentication,
    /// The answer is not SOCKS5.
    #[error("{0}; is it a SOCKS5 relay?")]
    NotSocks(#[source] Socks5Error),
    /// The relay closed the connection before it answered.
    #[error("it closed the connection without an answer (does it allow this client?)")]
    Closed,
    /// The connection to the relay broke.
    #[error("the connection broke: {0}")]
    Leg(#[source] io::Error),
    /// No channel to the relay could be opened, or the relay does not admit this host.
    #[error("{0}")]
    Channel(#[from] ChannelError),
    /// The route goes through a mesh and the dialer has no identity.
    #[error("this host is in no mesh: join the mesh first (`thalweg mesh join TOKEN`)")]
    NoIdentity,
    /// [`crate::Medium::Bond`] without a carrier, or not on the first leg.
    #[error("only the first leg can use a bond, and only if it is not bound to an interface")]
    CarrierUnsupported,
    /// The bond could not carry the leg.
    #[error("cannot use a bond: {0}")]
    Carrier(#[source] io::Error),
    /// [`crate::Medium::Ride`] without a carrier's network, not on the first leg, or not to a node of the mesh.
    #[error(
        "only the first leg can ride in probe trains, and only to a node of the mesh and if it is \
         not bound to an interface"
    )]
    RideUnsupported,
    /// This host has no carrier's network.
    #[error("it cannot ride in probe trains: {0}")]
    NoRide(#[source] io::Error),
    /// The node was not reached at its overlay address.
    #[error(
        "over the carrier, at its overlay address {at}: {why}; it needs `[carrier] enabled = true` \
         too (`thalweg carrier status` shows the session with it)"
    )]
    Riding {
        at: SocketAddr,
        #[source]
        why: Box<Self>,
    },
}

fn connect_text(address: &SocketAddr, source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::ConnectionRefused => format!("{address} refuses connections"),
        _ => format!("{address}: {source}"),
    }
}

impl From<ReadError> for Cause {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::NotSocks(e) => Self::NotSocks(e),
            ReadError::Leg(e) if e.kind() == io::ErrorKind::UnexpectedEof => Self::Closed,
            ReadError::Leg(e) => Self::Leg(e),
        }
    }
}

impl Step {
    pub(super) fn reach(host: &Destination, is_relay: bool) -> Self {
        Self::Reach { host: host.clone(), is_relay }
    }

    pub(super) fn failed(self, cause: Cause) -> DialError {
        DialError { step: self, cause, route: None }
    }
}

impl DialError {
    /// The relay that failed or reported the failure; `None` on a direct leg.
    ///
    /// In a chain this is the hop to blame, whichever it is.
    pub fn relay(&self) -> Option<&Destination> {
        match &self.step {
            Step::Reach { host, is_relay: true } => Some(host),
            Step::Reach { .. } => None,
            Step::Ask { relay, .. } => Some(relay),
        }
    }
}

impl DialError {
    /// Adds the route, whose names for the relays the message shows.
    pub(super) fn with_route(mut self, route: &Route) -> Self {
        self.route = Some(Box::new(route.clone()));
        self
    }

    /// `fra (10.1.0.3:7373)`, or the address alone.
    fn shown(&self, host: &Destination) -> String {
        let hops = self.route.iter().flat_map(|route| route.hops());
        let mut named = hops.filter_map(|hop| Some((hop, hop.name.as_ref()?)));
        match named.find(|(hop, _)| hop.addresses().any(|at| at == host)) {
            Some((_, name)) => format!("{name} ({host})"),
            None => host.to_string(),
        }
    }
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cause, shown) = (&self.cause, |host| self.shown(host));
        match (&self.step, cause) {
            (Step::Reach { host, is_relay: true }, _) => {
                write!(f, "cannot reach relay {}: {cause}", shown(host))
            }
            (Step::Reach { host, .. }, _) => write!(f, "cannot reach {host}: {cause}"),
            (Step::Ask { relay, toward }, Cause::Refused(_)) => {
                write!(f, "relay {} refused {}: {cause}", shown(relay), shown(toward))
            }
            (Step::Ask { relay, toward }, _) => {
                write!(f, "relay {}, asked for {}: {cause}", shown(relay), shown(toward))
            }
        }
    }
}
