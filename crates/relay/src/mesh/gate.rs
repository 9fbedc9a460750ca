//! Decides whether a member's connection is allowed at this relay, by the roster's rules, the tags that the client
//! avoids, a check for loops, and the relay's egress policy.
//!
//! Pure, except that the egress policy reads the host's own addresses.

use super::super::{
    address_class::{self, Class},
    denial::Denial,
    egress::{EgressPolicy, with_embedded},
};
use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
};
use thalweg_units::NodeId;
use thalweg_wire::{
    Destination, Host,
    mesh::{MAX_DEPTH, Member, Quota, Role, Roster, Rule, Tag, Terms},
};

/// An address that may be dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllowedAddress {
    /// The address to dial.
    pub address: SocketAddr,
    /// Whether a relay or an oracle of the mesh listens there, so that the preamble is sent first.
    pub member: bool,
}

/// How an address relates to a member of the roster. Each variant gives more rights than those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RosterMatch {
    /// It is not an address of the member.
    Stranger,
    /// A name that the member lists resolves to it. The name's owner chooses the address.
    Named,
    /// The member lists this address and port.
    Listed,
}

/// The rules for one client's request at this relay.
///
/// The checks, in order of precedence: what the relay's egress policy never allows (port 25, deny lists, the node's own
/// ports); networks that a rule of the roster denies; avoided tags, loops and depth. After these, addresses of relays
/// and oracles are allowed regardless of class and port, and all others need ports and classes that policy and rules
/// allow.
///
/// A member chooses its own addresses when it joins. So that no member gets access to an address that is not its own:
/// - Only members with a node key and the role relay or oracle, which an admin grants, make addresses accessible; only
///   the listed address and port, and only for clients that name the member as their next hop, so that a member that
///   lists another's address affects no other connections to it.
/// - An address that a relay's name resolves to is exempt from the list of ports, but its class must be allowed like
///   that of any other address.
/// - No exception is made for a relay's address that is this host's own, unspecified, multicast, cloud metadata, or
///   loopback. Loopback addresses are exempt, too, if this relay itself is listed with one, as in a mesh on one host.
#[derive(Clone, Debug)]
pub struct Gate<'a> {
    policy: &'a EgressPolicy,
    roster: &'a Roster,
    own: NodeId,
    on_one_host: bool,
    depth: u8,
    /// The member that the client expects at the other end.
    next: Option<NodeId>,
    avoid: BTreeSet<Tag>,
    rules: Vec<&'a Rule>,
    /// Resolved addresses of members that are to be avoided and that the roster lists by name.
    resolved: Vec<(SocketAddr, &'a Member)>,
}

impl<'a> Gate<'a> {
    /// Creates the gate for the member with key `client`, which connects with `terms` over `depth` relays, at the relay
    /// with key `own`.
    ///
    /// # Errors
    /// [`Denial::NotMember`], [`Denial::NotRelay`], [`Denial::AvoidsUs`].
    pub fn new(
        policy: &'a EgressPolicy,
        roster: &'a Roster,
        own: NodeId,
        client: &NodeId,
        terms: &Terms,
        depth: u8,
    ) -> Result<Self, Denial> {
        let client = roster.by_key(client).ok_or(Denial::NotMember)?;
        let us = relay(roster, &own)?;
        let rules: Vec<_> = roster.rules_for(&client.tags, &us.tags).collect();
        let avoid = rules.iter().flat_map(|rule| &rule.avoid).chain(&terms.avoid);
        let avoid: BTreeSet<_> = avoid.cloned().collect();
        if let Some(tag) = avoid.intersection(&us.tags).next() {
            return Err(Denial::AvoidsUs(tag.clone()));
        }
        let on_one_host = us.dialled_addresses().any(is_loopback);
        let resolved = Vec::new();
        Ok(Self { policy, roster, own, on_one_host, depth, next: None, avoid, rules, resolved })
    }

    /// Sets the member that the client names as its next hop.
    #[must_use]
    pub fn with_next(self, next: Option<NodeId>) -> Self {
        Self { next, ..self }
    }

    /// The client's quota at this relay: the tightest of all its rules. It is known before the client's first request.
    ///
    /// # Errors
    /// [`Denial::NotMember`], [`Denial::NotRelay`].
    pub fn quota(roster: &Roster, own: &NodeId, client: &NodeId) -> Result<Quota, Denial> {
        let client = roster.by_key(client).ok_or(Denial::NotMember)?;
        let rules = roster.rules_for(&client.tags, &relay(roster, own)?.tags);
        Ok(rules.fold(Quota::default(), |quota, rule| quota.tightest(rule.quota)))
    }

    /// Checks that the client may be connected to this member, which has a standing channel to this relay.
    ///
    /// # Errors
    /// [`Denial::Itself`], [`Denial::Avoids`], [`Denial::TooDeep`].
    pub fn admit_member(&self, member: &Member) -> Result<(), Denial> {
        self.check_member(member)?;
        match self.depth >= MAX_DEPTH {
            true => Err(Denial::TooDeep(self.depth.saturating_add(1))),
            false => Ok(()),
        }
    }

    /// Checks before a look-up that some address with this port could be allowed.
    ///
    /// # Errors
    /// As [`Gate::admit`].
    pub fn check_port(&self, port: u16) -> Result<(), Denial> {
        let mut relays = self.roster.members.iter().filter(|m| is_dialled_by_members(m));
        if relays.any(|m| m.dialled_addresses().any(|at| at.port == port)) {
            return Ok(());
        }
        self.policy.check_port(port).and_then(|()| self.check_rule_port(port))
    }

    /// The names of avoided members that may resolve to the requested address.
    pub fn names_to_resolve(&self, asked: &Destination) -> Vec<(Destination, &'a Member)> {
        let avoided = self.roster.members.iter().filter(|m| !m.tags.is_disjoint(&self.avoid));
        let hidden = |at: &Destination| matches!(at.host, Host::Name(_)) && at.port == asked.port;
        avoided
            .flat_map(|m| m.dialled_addresses().map(move |at| (at, m)))
            .filter(|(at, _)| hidden(at))
            .map(|(at, m)| (at.clone(), m))
            .collect()
    }

    /// Adds the addresses that one of these names resolves to.
    pub fn add_resolved(&mut self, member: &'a Member, addresses: &[SocketAddr]) {
        self.resolved.extend(addresses.iter().map(|address| (canonical(*address), member)));
    }

    /// Returns the addresses of `asked` that may be connected to, in their order.
    ///
    /// Only these are dialled, and the name is not resolved again.
    ///
    /// # Errors
    /// The denial of the first address, if none of them is allowed. Without addresses the result is empty.
    pub fn admit(
        &self,
        asked: &Destination,
        addresses: &[SocketAddr],
    ) -> Result<Vec<AllowedAddress>, Denial> {
        let judged: Vec<_> = addresses.iter().map(|to| self.check(asked, *to)).collect();
        let passed: Vec<_> = judged.iter().filter_map(|j| j.as_ref().ok().copied()).collect();
        match judged.into_iter().next() {
            Some(Err(denial)) if passed.is_empty() => Err(denial),
            _ => Ok(passed),
        }
    }

    /// Checks one address of the requested destination.
    ///
    /// # Errors
    /// The reason why it is denied.
    pub fn check(&self, asked: &Destination, to: SocketAddr) -> Result<AllowedAddress, Denial> {
        self.policy.check_always_denied(to)?;
        self.check_rule_networks(to.ip())?;
        let roster_match = self.check_members(asked, to)?;
        match roster_match {
            RosterMatch::Listed if self.is_exempt(to.ip()) => {}
            RosterMatch::Named => self.policy.check_ip(to.ip())?,
            RosterMatch::Listed | RosterMatch::Stranger => {
                self.policy.check(to)?;
                self.check_rule_port(to.port())?;
            }
        }
        Ok(AllowedAddress { address: to, member: roster_match > RosterMatch::Stranger })
    }

    fn check_rule_networks(&self, ip: IpAddr) -> Result<(), Denial> {
        with_embedded(ip).try_for_each(|ip| {
            let nets = self.rules.iter().flat_map(|rule| &rule.deny_to);
            match nets.into_iter().find(|net| net.contains(&ip)) {
                Some(net) => Err(Denial::RuleNetwork(ip, *net)),
                None => Ok(()),
            }
        })
    }

    fn check_rule_port(&self, port: u16) -> Result<(), Denial> {
        let without = |rule: &&Rule| {
            !rule.ports.is_empty() && !rule.ports.iter().any(|range| range.contains(port))
        };
        if self.rules.iter().copied().any(|rule| without(&rule)) {
            return Err(Denial::RulePort(port));
        }
        Ok(())
    }

    /// Finds the best match of the address in the roster. Avoided tags are checked for all members, since one member
    /// may claim another's address.
    fn check_members(&self, asked: &Destination, to: SocketAddr) -> Result<RosterMatch, Denial> {
        let to = canonical(to);
        let resolved = self.resolved.iter().filter(|(at, _)| *at == to);
        resolved.map(|(_, member)| *member).try_for_each(|member| self.check_member(member))?;
        let mut best = RosterMatch::Stranger;
        for member in &self.roster.members {
            let roster_match = roster_match(member, asked, to);
            if roster_match > RosterMatch::Stranger {
                self.check_member(member)?;
            }
            if is_dialled_by_members(member) {
                best = best.max(self.match_for_client(member, roster_match)?);
            }
        }
        match best > RosterMatch::Stranger && self.depth >= MAX_DEPTH {
            true => Err(Denial::TooDeep(self.depth.saturating_add(1))),
            false => Ok(best),
        }
    }

    /// Reduces a match to the rights that the client gets, which depend on the next hop that it named.
    ///
    /// A member's listed address is refused if the client did not name that member as its next hop: this relay would
    /// send it no preamble, so the depth of the chain would not be counted. A match by name then gives no rights, since
    /// a host name may belong to anybody.
    fn match_for_client(
        &self,
        member: &Member,
        roster_match: RosterMatch,
    ) -> Result<RosterMatch, Denial> {
        match roster_match {
            _ if member.node == self.next => Ok(roster_match),
            RosterMatch::Listed => Err(Denial::Unannounced(member.name.clone())),
            _ => Ok(RosterMatch::Stranger),
        }
    }

    fn check_member(&self, member: &Member) -> Result<(), Denial> {
        if member.holds(&self.own) {
            return Err(Denial::Itself);
        }
        match member.tags.intersection(&self.avoid).next() {
            Some(tag) => Err(Denial::Avoids(member.name.clone(), tag.clone())),
            None => Ok(()),
        }
    }

    /// Whether a member's listed address `ip` is exempt from the rules on classes and ports.
    fn is_exempt(&self, ip: IpAddr) -> bool {
        with_embedded(ip).all(|ip| match address_class::classify(ip) {
            Some(Class::Unspecified | Class::Multicast | Class::Metadata) => false,
            Some(Class::Loopback) => self.on_one_host,
            _ => !self.policy.is_own(ip),
        })
    }
}

fn is_loopback(at: &Destination) -> bool {
    matches!(&at.host, Host::Ip(ip) if ip.to_canonical().is_loopback())
}

/// Maps `::ffff:10.0.0.1` to `10.0.0.1`, which is the same address for the kernel.
fn canonical(to: SocketAddr) -> SocketAddr {
    SocketAddr::new(to.ip().to_canonical(), to.port())
}

/// This relay's own entry in the roster.
pub(super) fn relay<'a>(roster: &'a Roster, own: &NodeId) -> Result<&'a Member, Denial> {
    let us = roster.members.iter().find(|m| m.node.as_ref() == Some(own));
    us.filter(|us| us.is(Role::Relay)).ok_or(Denial::NotRelay)
}

/// Whether other members connect to the member's addresses: an admin has made it a relay or an oracle.
fn is_dialled_by_members(member: &Member) -> bool {
    member.node.is_some() && (member.is(Role::Relay) || member.is(Role::Oracle))
}

/// How the address relates to the member: listed by it, or requested by a name that it lists.
fn roster_match(member: &Member, asked: &Destination, to: SocketAddr) -> RosterMatch {
    let of = |at: &Destination| match (&at.host, &asked.host) {
        (Host::Ip(ip), _) if ip.to_canonical() == to.ip() => RosterMatch::Listed,
        (Host::Name(name), Host::Name(other)) if is_same(name, other) => RosterMatch::Named,
        _ => RosterMatch::Stranger,
    };
    let there = member.dialled_addresses().filter(|at| at.port == to.port());
    there.map(of).max().unwrap_or(RosterMatch::Stranger)
}

/// Compares names as DNS does (RFC 4343), with or without the final dot.
fn is_same(a: &str, b: &str) -> bool {
    let bare = |name: &'_ str| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    bare(a) == bare(b)
}
