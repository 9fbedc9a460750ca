//! Opens channels to other members by name, directly or through relays.

use crate::{Membership, Names, RouteNameError, carrier_network::OverlayLegs, routes::MemberReach};
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use parking_lot::Mutex;
use std::{collections::BTreeMap, fmt, io, pin::pin, sync::Arc, time::Duration};
use thalweg_net::{
    Carrier, Cause, DialError, DialOptions, Dialer, Hop, Medium, RelayProtocol, RideNetwork, Route,
    Stream,
    channel::{Channel, Connector, Protocol},
};
use thalweg_wire::{
    mesh::{LegKind, Name, Role, Roster, Terms},
    socks5::Reply,
};
use thiserror::Error;
use tokio::time::{Instant, sleep, timeout};

/// The head start of a node's own addresses over its relays: two round trips of a path around the world.
const DIRECT_HEAD_START: Duration = Duration::from_millis(600);

/// The head start of one relay over the next: a relay needs two round trips to the node and back.
const RELAY_HEAD_START: Duration = Duration::from_secs(1);

/// How long it is remembered that a node was not reached at its addresses.
const REMEMBERED: Duration = Duration::from_secs(60);

/// The most nodes for which that is remembered.
const MAX_REMEMBERED: usize = 1024;

/// Opens channels to members by their names; cheap to clone.
#[derive(Clone, Debug)]
pub struct MemberDialer {
    me: Name,
    membership: Membership,
    dialer: Dialer,
    terms: Terms,
    /// Whether first legs ride; then they use no other way.
    rides: bool,
    /// Whether nodes are reached only at their own addresses.
    is_direct: bool,
    reached: Arc<RecentlyReached>,
}

impl MemberDialer {
    /// Creates a dialer for the member `me`, with the identity of its client or its node.
    ///
    /// Relays are asked for open legs, because the two ends seal the channel themselves.
    pub fn new(me: Name, membership: Membership, identity: Connector, dial: DialOptions) -> Self {
        let dialer = Dialer::with_identity(dial, identity);
        let terms = Terms { leg: LegKind::Open, ..Terms::default() };
        Self {
            me,
            membership,
            dialer,
            terms,
            rides: false,
            is_direct: false,
            reached: Arc::default(),
        }
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

    /// Reaches nodes only at their own addresses, not through the relays that they announce: for what also sends
    /// datagrams to them.
    #[must_use]
    pub fn direct(self) -> Self {
        Self { is_direct: true, ..self }
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
    /// A node that cannot be dialled is reached through the relays that it announces: the last one of these relays if it
    /// is one of them, or else one more. A node with addresses and relays is dialled; its relays are asked as well if
    /// that takes long.
    ///
    /// # Errors
    /// [`DialMemberError`].
    pub async fn channel(
        &self,
        node: &Name,
        via: &[Name],
        protocol: Protocol,
    ) -> Result<Channel<Stream>, DialMemberError> {
        let MemberReach { dialled, relayed, relays } =
            self.with_names(|names| Ok(names.reach(node)?))?;
        let is_allowed = via.is_empty() || self.is_relayed_to(node);
        let dialled = dialled.filter(|_| is_allowed);
        let relayed = match (self.is_direct, &dialled) {
            (true, None) => return Err(DialMemberError::OnlyRelayed(node.clone())),
            (true, Some(_)) => None,
            (false, _) => relayed,
        };
        let Some(relayed) = relayed else {
            let to = dialled.ok_or_else(|| DialMemberError::Unrelayed(node.clone()))?;
            return self.dialled_channel(node, to, via, protocol).await;
        };
        let by_relays = RelayedDial { dialer: self, node, to: relayed, relays, via, protocol };
        let Some(to) = dialled else { return by_relays.run().await };
        let head_start = self.reached.head_start(node, Instant::now());
        let direct = self.dialled_channel(node, to, via, protocol);
        let (opened, is_dialled) = first_of(direct, head_start, by_relays.run()).await?;
        self.reached.note(node, is_dialled, Instant::now());
        Ok(opened)
    }

    /// Opens a channel to a node at its addresses.
    async fn dialled_channel(
        &self,
        node: &Name,
        mut to: Hop,
        via: &[Name],
        protocol: Protocol,
    ) -> Result<Channel<Stream>, DialMemberError> {
        let route = self.route(via)?;
        if self.rides && route.is_direct() {
            to.medium = Medium::Ride;
        }
        let opened = self.dialer.channel(&route, &to, protocol).await;
        opened.map_err(|why| DialMemberError::Dial { node: node.clone(), why: Box::new(why) })
    }

    /// Whether relays connect to this node's addresses: the gate of `thalweg_relay::MeshRelay` applies the same rule.
    fn is_relayed_to(&self, node: &Name) -> bool {
        let roster = self.roster();
        let member = roster.as_ref().ok().and_then(|roster| roster.by_name(node));
        member.is_some_and(|member| member.is(Role::Relay) || member.is(Role::Oracle))
    }

    /// The route through these relays and then through `relay`, to which a member has a standing channel.
    fn route_to_relay(&self, via: &[Name], relay: &(Name, Hop)) -> Result<Route, DialMemberError> {
        let (name, hop) = relay;
        let before = via.strip_suffix(std::slice::from_ref(name)).unwrap_or(via);
        let mut hops = match before {
            [] => Vec::new(),
            before => self.route(before)?.hops().to_vec(),
        };
        let RelayProtocol::Mesh { key, .. } = hop.speech else {
            return Err(RouteNameError::NoRelay(name.clone()).into());
        };
        let speech = RelayProtocol::Mesh { key, terms: self.terms.clone() };
        hops.push(Hop { speech, ..hop.clone() });
        let route = Route::new(hops).map_err(RouteNameError::from)?;
        Ok(if self.rides { route.riding() } else { route })
    }

    fn with_names<T>(
        &self,
        ask: impl FnOnce(Names<'_>) -> Result<T, DialMemberError>,
    ) -> Result<T, DialMemberError> {
        let roster = self.roster();
        ask(Names { roster: roster.as_deref().map_err(String::as_str), me: Some(&self.me) })
    }
}

/// A dial through the relays that a node announces.
struct RelayedDial<'a> {
    dialer: &'a MemberDialer,
    node: &'a Name,
    /// The node as its relays know it.
    to: Hop,
    relays: Vec<(Name, Hop)>,
    via: &'a [Name],
    protocol: Protocol,
}

impl RelayedDial<'_> {
    /// Asks the first relay, and the next one after a head start or a failure; the first channel is taken.
    async fn run(self) -> Result<Channel<Stream>, DialMemberError> {
        let mut left = self.relays.iter();
        let mut asking = FuturesUnordered::new();
        let mut failed = Vec::new();
        loop {
            match left.next() {
                Some(relay) => asking.push(self.ask(relay)),
                None if asking.is_empty() => break,
                None => {}
            }
            let is_last = left.len() == 0;
            tokio::select! {
                Some(opened) = asking.next() => match opened {
                    Ok(channel) => return Ok(channel),
                    Err(why) => failed.push(why),
                },
                () = sleep(RELAY_HEAD_START), if !is_last => {}
            }
        }
        Err(DialMemberError::Relayed { node: self.node.clone(), tried: Failures(failed) })
    }

    /// A channel through this relay, or why there is none.
    async fn ask(&self, relay: &(Name, Hop)) -> Result<Channel<Stream>, String> {
        let route = self.dialer.route_to_relay(self.via, relay).map_err(|why| why.to_string())?;
        let opened = self.dialer.dialer.channel(&route, &self.to, self.protocol).await;
        opened.map_err(|why| self.explain(&relay.0, &why))
    }

    /// What a relay's refusal means for the node.
    fn explain(&self, relay: &Name, why: &DialError) -> String {
        let node = self.node;
        match &why.cause {
            Cause::Refused(Reply::HostUnreachable) => {
                format!("relay {relay} has no standing channel of {node} now")
            }
            Cause::Refused(Reply::TtlExpired | Reply::ConnectionRefused) => {
                format!("{node} opened no connection to relay {relay}")
            }
            Cause::Refused(Reply::NotAllowed) => {
                format!(
                    "relay {relay} does not allow it (a rule, an avoided tag, or a quota of this host \
                     or of {node})"
                )
            }
            Cause::Refused(Reply::GeneralFailure) => {
                format!("relay {relay} has reached its limit of connections")
            }
            _ => why.to_string(),
        }
    }
}

/// The first of two dials that succeeds, and whether it was the first one; the second begins after a head start, or at
/// once when the first fails.
async fn first_of<T>(
    first: impl Future<Output = Result<T, DialMemberError>>,
    head_start: Duration,
    second: impl Future<Output = Result<T, DialMemberError>>,
) -> Result<(T, bool), DialMemberError> {
    let (mut first, mut second) = (pin!(first), pin!(second));
    let failed = match timeout(head_start, &mut first).await {
        Ok(Ok(opened)) => return Ok((opened, true)),
        Ok(Err(why)) => why,
        Err(_) => {
            let (done, is_first) = tokio::select! {
                done = &mut first => (done, true),
                done = &mut second => (done, false),
            };
            match done {
                Ok(opened) => return Ok((opened, is_first)),
                Err(relayed) if !is_first => {
                    let direct = first.await.map(|opened| (opened, true));
                    return direct.map_err(|why| relayed.after(&why));
                }
                Err(why) => why,
            }
        }
    };
    // What the relays say is of more use: they know whether the node is there.
    second.await.map(|opened| (opened, false)).map_err(|relayed| relayed.after(&failed))
}

/// Nodes that were not reached at their addresses lately, but through relays.
#[derive(Debug, Default)]
struct RecentlyReached(Mutex<BTreeMap<Name, Instant>>);

impl RecentlyReached {
    /// The head start of a node's addresses over its relays.
    fn head_start(&self, node: &Name, now: Instant) -> Duration {
        let relayed = self.0.lock().get(node).copied();
        match relayed.is_some_and(|at| now.duration_since(at) < REMEMBERED) {
            true => Duration::ZERO,
            false => DIRECT_HEAD_START,
        }
    }

    /// Notes how the node was reached.
    fn note(&self, node: &Name, is_dialled: bool, now: Instant) {
        let mut relayed = self.0.lock();
        relayed.retain(|_, at| now.duration_since(*at) < REMEMBERED);
        match is_dialled {
            true => drop(relayed.remove(node)),
            false if relayed.len() < MAX_REMEMBERED => drop(relayed.insert(node.clone(), now)),
            false => {}
        }
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
    /// Relays pass no datagrams.
    #[error(
        "node {0} cannot be dialled and is reached through relays, which pass only TCP: probe trains \
         need a node with an address"
    )]
    OnlyRelayed(Name),
    /// No channel could be opened.
    #[error("node {node}: {why}")]
    Dial {
        node: Name,
        #[source]
        why: Box<DialError>,
    },
    /// No relay of the node connects to it.
    #[error(
        "node {node} is reached through relays, and none of them connects to it: {tried}; \
         `thalweg status` on {node} shows its relays and what keeps it from them"
    )]
    Relayed { node: Name, tried: Failures },
}

/// Why each of several ways failed.
#[derive(Debug)]
pub struct Failures(Vec<String>);

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

impl DialMemberError {
    /// Adds why the node was not reached at its addresses.
    fn after(self, direct: &Self) -> Self {
        match (self, direct) {
            (Self::Relayed { node, mut tried }, Self::Dial { why, .. }) => {
                tried.0.push(format!("directly: {why}"));
                Self::Relayed { node, tried }
            }
            (other, _) => other,
        }
    }
}
