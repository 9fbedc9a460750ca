//! Routes: the interface and the relays that a connection uses.

use std::{fmt, num::NonZeroU32};
use thalweg_units::NodeId;
use thalweg_wire::{
    Destination,
    mesh::{Name, Terms},
};
use thiserror::Error;

/// The most relays on a route.
///
/// UKAIRO §2.1 finds that more than one "yields little additional improvement"; three leave room for rules ("enter
/// here, avoid there").
pub const MAX_HOPS: usize = 3;

/// The medium that carries a leg.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Medium {
    /// An interface of the host, as the kernel routes it.
    #[default]
    Underlay,
    /// Only a bond: the dialer's [`crate::Carrier`]. Only the leg to the first hop can use it, and only if it is bound
    /// to no interface. A bond's own legs are `Underlay`; otherwise the bond would carry itself.
    Bond,
    /// One TCP connection to the node's overlay address, whose packets ride in probe trains or are sent as ordinary
    /// datagrams (the dialer's [`crate::RideNetwork`]). As with a bond, only the leg to the first hop can use it, and
    /// only if it is bound to no interface.
    Ride,
}

/// One relay of a route, reached over `medium` from the previous hop.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hop {
    /// The relay's address, or a name that the previous hop resolves.
    pub relay: Destination,
    /// Its other addresses, the best first, which [`crate::Dialer`] tries if `relay` fails.
    pub others: Vec<Destination>,
    /// The relay's name in the roster, if it was found by that; only for messages.
    pub name: Option<Name>,
    /// The medium of the leg to this relay.
    pub medium: Medium,
    /// The routes of the carrier's connections, if the medium has several; none: directly.
    pub by: Vec<Route>,
    /// The protocol of the relay.
    pub speech: RelayProtocol,
}

/// The protocol of a relay.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RelayProtocol {
    /// SOCKS5 without authentication, for relays that admit this host by its address.
    #[default]
    Socks,
    /// A node of the mesh: SOCKS5 with these terms inside a channel to this key.
    Mesh { key: NodeId, terms: Terms },
}

impl Hop {
    /// Creates a plain SOCKS5 relay, on the underlay.
    pub const fn socks(relay: Destination) -> Self {
        Self::new(relay, RelayProtocol::Socks)
    }

    /// Creates the hop of the node with `key` at `relay`, with these terms, on the underlay.
    pub const fn mesh(relay: Destination, key: NodeId, terms: Terms) -> Self {
        Self::new(relay, RelayProtocol::Mesh { key, terms })
    }

    const fn new(relay: Destination, speech: RelayProtocol) -> Self {
        let medium = Medium::Underlay;
        Self { relay, others: Vec::new(), name: None, medium, by: Vec::new(), speech }
    }

    /// Sets the name for messages.
    #[must_use]
    pub fn named(mut self, name: Name) -> Self {
        self.name = Some(name);
        self
    }

    /// Sets the other addresses.
    #[must_use]
    pub fn with_other_addresses(mut self, others: Vec<Destination>) -> Self {
        self.others = others;
        self
    }

    /// The name for messages, or else the address.
    pub fn called(&self) -> String {
        self.name.as_ref().map_or_else(|| self.relay.to_string(), |name| name.as_str().to_owned())
    }

    /// All its addresses, `relay` first.
    pub fn addresses(&self) -> impl Iterator<Item = &Destination> {
        std::iter::once(&self.relay).chain(&self.others)
    }

    /// The key of a node of the mesh; `None` for plain relays.
    pub const fn key(&self) -> Option<NodeId> {
        match self.speech {
            RelayProtocol::Socks => None,
            RelayProtocol::Mesh { key, .. } => Some(key),
        }
    }
}

/// The hops between this host and a destination, in order, and the interface by which the route leaves this host.
///
/// - *direct*: no hop;
/// - *relayed*: one hop; *chained*: two or three. The client itself tunnels chains: it talks to each relay through the
///   previous ones, so every relay applies its quotas and rules to the true client;
/// - *bonded*: a bond stripes the leg to the first hop over several interfaces or routes ([`Medium::Bond`]);
/// - *riding*: the packets of the leg to the first hop ride in probe trains ([`Medium::Ride`]).
///
/// The destination is not part of the route: one route serves many.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route {
    hops: Vec<Hop>,
    interface: Option<NonZeroU32>,
}

/// Why hops make no route.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RouteError {
    /// There are more than [`MAX_HOPS`]; holds the number.
    #[error("a route has at most {MAX_HOPS} relays; this one has {0}")]
    TooLong(usize),
    /// A relay occurs twice; a loop would be charged twice for nothing.
    #[error("relay {0} occurs twice on one route")]
    Repeated(Destination),
    /// A node occurs twice, under whatever addresses.
    #[error("node {0:?} occurs twice on one route")]
    RepeatedNode(NodeId),
}

impl Route {
    /// The route without relays, over the interface that the kernel chooses.
    pub const fn direct() -> Self {
        Self { hops: Vec::new(), interface: None }
    }

    /// Creates a route over these hops, the nearest first.
    ///
    /// # Errors
    /// [`RouteError`] if there are too many hops or one repeats.
    pub fn new(hops: Vec<Hop>) -> Result<Self, RouteError> {
        if hops.len() > MAX_HOPS {
            return Err(RouteError::TooLong(hops.len()));
        }
        for (i, hop) in hops.iter().enumerate() {
            let before = &hops[..i];
            if before.iter().any(|h| h.relay == hop.relay) {
                return Err(RouteError::Repeated(hop.relay.clone()));
            }
            if let Some(key) = hop.key().filter(|_| before.iter().any(|h| h.key() == hop.key())) {
                return Err(RouteError::RepeatedNode(key));
            }
        }
        Ok(Self { hops, interface: None })
    }

    /// Creates a route over these relays, all on the underlay.
    ///
    /// # Errors
    /// As [`Route::new`].
    pub fn through<I: IntoIterator<Item = Destination>>(relays: I) -> Result<Self, RouteError> {
        Self::new(relays.into_iter().map(Hop::socks).collect())
    }

    /// Makes the route leave by the interface with this index.
    ///
    /// Interfaces are identified by index, never by name or kind: a tunnel and a card are treated alike, and a name may
    /// move to another device while the program runs.
    #[must_use]
    pub fn by_interface(mut self, index: NonZeroU32) -> Self {
        self.interface = Some(index);
        self
    }

    /// Makes a bond carry the first leg. A direct route stays unchanged.
    #[must_use]
    pub fn bonded(mut self) -> Self {
        self.hops.iter_mut().take(1).for_each(|hop| hop.medium = Medium::Bond);
        self
    }

    /// Makes the first leg ride. A direct route stays unchanged.
    #[must_use]
    pub fn riding(mut self) -> Self {
        self.hops.iter_mut().take(1).for_each(|hop| hop.medium = Medium::Ride);
        self
    }

    /// Makes a bond carry the first leg, with links by these routes; none: directly.
    #[must_use]
    pub fn bonded_by(mut self, routes: Vec<Self>) -> Self {
        if let Some(first) = self.hops.first_mut() {
            first.by = routes;
        }
        self.bonded()
    }

    /// Whether a bond must carry the first leg.
    pub fn is_bonded(&self) -> bool {
        self.hops.first().is_some_and(|hop| hop.medium == Medium::Bond)
    }

    /// Whether the first leg uses a bond or rides. Such a leg is bound to no interface.
    pub fn is_carried(&self) -> bool {
        self.hops.first().is_some_and(|hop| hop.medium != Medium::Underlay)
    }

    /// The hops, the nearest first; empty if direct.
    pub fn hops(&self) -> &[Hop] {
        &self.hops
    }

    /// All hops that may carry bytes: those of this route and of the bond's links.
    pub fn all_hops(&self) -> impl Iterator<Item = &Hop> {
        let by = self.hops.iter().flat_map(|hop| &hop.by);
        self.hops.iter().chain(by.flat_map(|route| &route.hops))
    }

    /// The names of the relays, or else their addresses, joined by `+`; `direct` if there is none.
    pub fn called(&self) -> String {
        match self.is_direct() {
            true => "direct".to_owned(),
            false => self.hops.iter().map(Hop::called).collect::<Vec<_>>().join("+"),
        }
    }

    /// Whether the route has no relay.
    pub fn is_direct(&self) -> bool {
        self.hops.is_empty()
    }

    /// The interface by which the route leaves this host; `None`: the kernel's choice.
    pub fn interface(&self) -> Option<NonZeroU32> {
        self.interface
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::from(if self.is_direct() { "direct" } else { "via " });
        for (i, hop) in self.hops.iter().enumerate() {
            text += if i == 0 { "" } else { " then " };
            text += &hop.relay.to_string();
        }
        if self.is_bonded() {
            text += " by a bond";
            let by: Vec<_> = self.hops[0].by.iter().map(Self::called).collect();
            if !by.is_empty() {
                text += &format!(" over {}", by.join(", "));
            }
        } else if self.is_carried() {
            text += " riding in probe trains";
        }
        if let Some(index) = self.interface {
            text += &format!(" by interface {index}");
        }
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relays(n: u16) -> Vec<Destination> {
        (1..=n).map(|i| format!("r{i}.example:1080").parse().unwrap()).collect()
    }

    #[test]
    fn a_route_has_at_most_three_relays_and_no_loop() {
        assert!(Route::through(relays(3)).is_ok());
        assert_eq!(Route::through(relays(4)), Err(RouteError::TooLong(4)));
        let [a, b] = <[Destination; 2]>::try_from(relays(2)).unwrap();
        let looped = Route::through([a.clone(), b, a.clone()]);
        assert_eq!(looped, Err(RouteError::Repeated(a)));
        let key = NodeId::from_bytes([1; 32]);
        let hops = relays(2).into_iter().map(|r| Hop::mesh(r, key, Terms::default()));
        assert_eq!(Route::new(hops.collect()), Err(RouteError::RepeatedNode(key)));
    }

    #[test]
    fn routes_are_displayed_with_hops_medium_and_interface() {
        assert_eq!(Route::direct().to_string(), "direct");
        let two = Route::through(relays(2)).unwrap().by_interface(NonZeroU32::MIN);
        assert_eq!(two.to_string(), "via r1.example:1080 then r2.example:1080 by interface 1");
        assert_eq!(format!("{:>8}", Route::direct()), "  direct");
        let bonded = Route::through(relays(2)).unwrap().bonded();
        assert_eq!(bonded.to_string(), "via r1.example:1080 then r2.example:1080 by a bond");
        assert!(bonded.is_bonded() && !Route::direct().bonded().is_bonded());
        let riding = Route::through(relays(1)).unwrap().riding();
        assert_eq!(riding.to_string(), "via r1.example:1080 riding in probe trains");
        assert!(riding.is_carried() && !riding.is_bonded() && bonded.is_carried());
        assert!(!Route::direct().riding().is_carried());
        let [one, two] = <[Destination; 2]>::try_from(relays(2)).unwrap();
        let by = vec![Route::direct(), Route::through([two]).unwrap()];
        let bonded = Route::through([one]).unwrap().bonded_by(by);
        assert_eq!(
            bonded.to_string(),
            "via r1.example:1080 by a bond over direct, r2.example:1080"
        );
        assert_eq!((bonded.hops().len(), bonded.all_hops().count()), (1, 2));
    }
}
