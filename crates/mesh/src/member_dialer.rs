//! Opens channels to other members by name, directly or through relays.

use crate::{Membership, Names, RouteNameError, carrier_network::OverlayLegs};
use std::{io, sync::Arc};
use thalweg_net::{
    Carrier, DialError, DialOptions, Dialer, Medium, RideNetwork, Route, Stream,
    channel::{Channel, Connector, Protocol},
};
use thalweg_wire::mesh::{LegKind, Name, Role, Roster, Terms};
use thiserror::Error;

/// Opens channels to members by their names; cheap to clone.
#[derive(Clone, Debug)]
pub struct MemberDialer {
    me: Name,
    membership: Membership,
    dialer: Dialer,
    terms: Terms,
    /// Whether first legs ride; then they use no other way.
    rides: bool,
}

impl MemberDialer {
    /// Creates a dialer for the member `me`, with the identity of its client or its node.
    ///
    /// Relays are asked for open legs, because the two ends seal the channel themselves.
    pub fn new(me: Name, membership: Membership, identity: Connector, dial: DialOptions) -> Self {
        let dialer = Dialer::with_identity(dial, identity);
        let terms = Terms { leg: LegKind::Open, ..Terms::default() };
        Self { me, membership, dialer, terms, rides: false }
    }

    /// Sets other terms for the relays, such as tags to avoid.
    #[must_use]
    pub fn with_terms(self, terms: Terms) -> Self {
        Self { terms, ..self }
    }

    /// Lets this carrier carry first legs.
    #[must_use]
    pub fn with_carrier(self, carrier: Arc<dyn Carrier>) -> Self {
        Self { dialer: self.dialer.with_carrier(carrier), ..self }
    }

    /// Uses no carrier: each channel is one connection.
    #[must_use]
    pub fn without_carrier(self) -> Self {
        Self { dialer: self.dialer.without_carrier(), ..self }
    }

    /// Makes connections yield to others ([`DialOptions::is_background`]).
    #[must_use]
    pub fn in_background(self, is_background: bool) -> Self {
        Self { dialer: self.dialer.in_background(is_background), ..self }
    }

    /// Lets first legs ride where `rides` chooses that.
    #[must_use]
    pub fn with_ride_network(self, rides: Arc<dyn RideNetwork>) -> Self {
        Self { dialer: self.dialer.with_ride_network(rides), ..self }
    }

    /// Makes all first legs ride: those to the first relay, or to the node itself. They use no other way.
    ///
    /// # Errors
    /// This host has no carrier; the error says what it takes to have one.
    pub fn riding(self) -> io::Result<Self> {
        let legs = OverlayLegs::of(&self.membership.mesh());
        legs.check()?;
        Ok(Self { rides: true, ..self.with_ride_network(Arc::new(legs)) })
    }

    /// This host's name.
    pub fn me(&self) -> &Name {
        &self.me
    }

    /// The current roster, if there is a valid one.
    ///
    /// # Errors
    /// Why there is none.
    pub fn roster(&self) -> Result<Arc<Roster>, String> {
        let roster = self.membership.current();
        let roster = roster.ok_or("this host has no roster yet (start `thalweg node`)")?;
        roster.check(self.membership.now()).map_err(|fault| fault.to_string())?;
        Ok(roster)
    }

    /// The route through these relays, the nearest to this host first.
    ///
    /// # Errors
    /// [`DialMemberError::Name`].
    pub fn route(&self, via: &[Name]) -> Result<Route, DialMemberError> {
        let text = match via {
            [] => "direct".to_owned(),
            names => names.iter().map(Name::as_str).collect::<Vec<_>>().join("+"),
        };
        let route = self.with_names(|names| Ok(names.route(&text, &self.terms)?))?;
        Ok(if self.rides { route.riding() } else { route })
    }

    /// Opens a channel to `node` through these relays, the nearest to this host first, or directly if there are none.
    ///
    /// # Errors
    /// [`DialMemberError`].
    pub async fn channel(
        &self,
        node: &Name,
        via: &[Name],
        protocol: Protocol,
    ) -> Result<Channel<Stream>, DialMemberError> {
        let mut to = self.with_names(|names| Ok(names.node(node)?))?;
        let route = self.route(via)?;
        if self.rides && route.is_direct() {
            to.medium = Medium::Ride;
        }
        if !via.is_empty() && !self.is_relayed_to(node) {
            return Err(DialMemberError::Unrelayed(node.clone()));
        }
        let opened = self.dialer.channel(&route, &to, protocol).await;
        opened.map_err(|why| DialMemberError::Dial { node: node.clone(), why: Box::new(why) })
    }

    /// Whether relays connect to this node: the gate of `thalweg_relay::MeshRelay` applies the same rule.
    fn is_relayed_to(&self, node: &Name) -> bool {
        let roster = self.roster();
        let member = roster.as_ref().ok().and_then(|roster| roster.by_name(node));
        member.is_some_and(|member| member.is(Role::Relay) || member.is(Role::Oracle))
    }

    fn with_names<T>(
        &self,
        ask: impl FnOnce(Names<'_>) -> Result<T, DialMemberError>,
    ) -> Result<T, DialMemberError> {
        let roster = self.roster();
        ask(Names { roster: roster.as_deref().map_err(String::as_str), me: Some(&self.me) })
    }
}

/// Why a node cannot be reached.
#[derive(Debug, Error)]
pub enum DialMemberError {
    /// The node or a relay is not known.
    #[error(transparent)]
    Name(#[from] RouteNameError),
    /// Relays connect only to other relays and to oracles.
    #[error(
        "node {0} cannot be reached through relays, because they connect only to members with the \
         role relay or oracle; connect to it directly"
    )]
    Unrelayed(Name),
    /// No channel could be opened.
    #[error("node {node}: {why}")]
    Dial {
        node: Name,
        #[source]
        why: Box<DialError>,
    },
}
