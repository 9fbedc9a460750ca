//! Whether a member's connection may be made here: rules, avoided tags, loops, egress policy.
//!
//! Pure but for the host's own addresses: it judges what it is given.

use super::super::{
    address_class::{self, Class},
    denial::Denial,
    egress::{EgressPolicy, within},
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

/// An address that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// To be dialled.
    pub address: SocketAddr,
    /// A relay or an oracle listens there: the preamble goes first.
    pub member: bool,
}

/// What an address is in the roster; the later, the more it opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// Not there.
    Stranger,
    /// What a listed name resolves to, as whoever owns the name wants.
    Named,
    /// That very address and port.
    Listed,
}

/// What holds for one client's request at this relay.
///
/// In order of strength: what the policy never allows (port 25, deny lists, the node's
/// own ports); networks that a rule denies; avoided tags, loops and depth;
/// then the addresses of relays and oracles pass whatever their class and port, and all
/// others need the ports and classes of policy and rules.
///
/// A member chooses its own addresses when it joins. So that nobody opens what is not
/// theirs by it:
/// - only members with a node key and the role relay or oracle, which an admin gave them,
///   open anything, and only that very address and port, and only for clients that name
///   them as the next hop: so that nobody's bytes are changed by another's claim;
/// - what a relay's name resolves to is free of the list of ports, but needs the class
///   of any other address;
/// - an address never passes for being a relay's if it is this host's own, unspecified,
///   multicast, a cloud's metadata, or loopback; loopback does if this relay itself is
///   listed there, as in a mesh on one host.
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
    /// Addresses of members that are to be avoided, where the roster has names.
    learnt: Vec<(SocketAddr, &'a Member)>,
}

impl<'a> Gate<'a> {
    /// For the member with key `client`, which comes with `terms` and over `depth` relays,
    /// at the relay with key `own`.
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
        let on_one_host = us.addresses.iter().any(is_loopback);
        let learnt = Vec::new();
        Ok(Self { policy, roster, own, on_one_host, depth, next: None, avoid, rules, learnt })
    }

    /// The same, for a client that says which member is at the other end.
    #[must_use]
    pub fn toward(self, next: Option<NodeId>) -> Self {
        Self { next, ..self }
    }

    /// What the client may use at this relay: the tightest of all its rules. Known before
    /// it asks for anything.
    ///
    /// # Errors
    /// [`Denial::NotMember`], [`Denial::NotRelay`].
    pub fn quota(roster: &Roster, own: &NodeId, client: &NodeId) -> Result<Quota, Denial> {
        let client = roster.by_key(client).ok_or(Denial::NotMember)?;
        let rules = roster.rules_for(&client.tags, &relay(roster, own)?.tags);
        Ok(rules.fold(Quota::default(), |quota, rule| quota.tightest(rule.quota)))
    }

    /// Whether it is worth while to resolve the name: not if no address could have that port.
    ///
    /// # Errors
    /// As [`Gate::admit`].
    pub fn check_port(&self, port: u16) -> Result<(), Denial> {
        let mut relays = self.roster.members.iter().filter(|m| is_reached(m));
        if relays.any(|m| m.addresses.iter().any(|at| at.port == port)) {
            return Ok(());
        }
        self.policy.check_port(port).and_then(|()| self.check_rule_port(port))
    }

    /// The names of members to be avoided that may hide behind an address asked for.
    pub fn names_to_learn(&self, asked: &Destination) -> Vec<(Destination, &'a Member)> {
        let avoided = self.roster.members.iter().filter(|m| !m.tags.is_disjoint(&self.avoid));
        let hidden = |at: &Destination| matches!(at.host, Host::Name(_)) && at.port == asked.port;
        avoided
            .flat_map(|m| m.addresses.iter().map(move |at| (at, m)))
            .filter(|(at, _)| hidden(at))
            .map(|(at, m)| (at.clone(), m))
            .collect()
    }

    /// Takes what one of the names resolves to.
    pub fn learn(&mut self, member: &'a Member, addresses: &[SocketAddr]) {
        self.learnt.extend(addresses.iter().map(|address| (canonical(*address), member)));
    }

    /// Those of `asked`'s addresses that may be connected to, in their order.
    ///
    /// Only these are dialled, never the name again.
    ///
    /// # Errors
    /// The first denial, if none of them may; no addresses give none.
    pub fn admit(
        &self,
        asked: &Destination,
        addresses: &[SocketAddr],
    ) -> Result<Vec<Admitted>, Denial> {
        let judged: Vec<_> = addresses.iter().map(|to| self.check(asked, *to)).collect();
        let passed: Vec<_> = judged.iter().filter_map(|j| j.as_ref().ok().copied()).collect();
        match judged.into_iter().next() {
            Some(Err(denial)) if passed.is_empty() => Err(denial),
            _ => Ok(passed),
        }
    }

    /// One address of what was asked for.
    ///
    /// # Errors
    /// Why it may not be connected to.
    pub fn check(&self, asked: &Destination, to: SocketAddr) -> Result<Admitted, Denial> {
        self.policy.check_never(to)?;
        self.check_rule_networks(to.ip())?;
        let standing = self.check_members(asked, to)?;
        match standing {
            Standing::Listed if self.is_members_own(to.ip()) => {}
            Standing::Named => self.policy.check_ip(to.ip())?,
            Standing::Listed | Standing::Stranger => {
                self.policy.check(to)?;
                self.check_rule_port(to.port())?;
            }
        }
        Ok(Admitted { address: to, member: standing > Standing::Stranger })
    }

    fn check_rule_networks(&self, ip: IpAddr) -> Result<(), Denial> {
        within(ip).try_for_each(|ip| {
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

    /// What the address is in the roster. All members are looked at for what is avoided,
    /// since one may claim another's address.
    fn check_members(&self, asked: &Destination, to: SocketAddr) -> Result<Standing, Denial> {
        let to = canonical(to);
        let learnt = self.learnt.iter().filter(|(at, _)| *at == to);
        learnt.map(|(_, member)| *member).try_for_each(|member| self.check_member(member))?;
        let mut best = Standing::Stranger;
        for member in &self.roster.members {
            let standing = standing(member, asked, to);
            if standing > Standing::Stranger {
                self.check_member(member)?;
            }
            if is_reached(member) {
                best = best.max(self.announced(member, standing)?);
            }
        }
        match best > Standing::Stranger && self.depth >= MAX_DEPTH {
            true => Err(Denial::TooDeep(self.depth.saturating_add(1))),
            false => Ok(best),
        }
    }

    /// What the address is worth, as the client has said or not said whose it is.
    ///
    /// Without its word a listed address is refused: served as any other, it would be a hop
    /// that nobody counts. A name may be anybody's, so it is served as any other.
    fn announced(&self, member: &Member, standing: Standing) -> Result<Standing, Denial> {
        match standing {
            _ if member.node == self.next => Ok(standing),
            Standing::Listed => Err(Denial::Unannounced(member.name.clone())),
            _ => Ok(Standing::Stranger),
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

    /// Whether an address passes for being a member's.
    fn is_members_own(&self, ip: IpAddr) -> bool {
        within(ip).all(|ip| match address_class::classify(ip) {
            Some(Class::Unspecified | Class::Multicast | Class::Metadata) => false,
            Some(Class::Loopback) => self.on_one_host,
            _ => !self.policy.is_own(ip),
        })
    }
}

fn is_loopback(at: &Destination) -> bool {
    matches!(&at.host, Host::Ip(ip) if ip.to_canonical().is_loopback())
}

/// `::ffff:10.0.0.1` and `10.0.0.1` are one address to the kernel.
fn canonical(to: SocketAddr) -> SocketAddr {
    SocketAddr::new(to.ip().to_canonical(), to.port())
}

/// This relay's own entry.
fn relay<'a>(roster: &'a Roster, own: &NodeId) -> Result<&'a Member, Denial> {
    let us = roster.members.iter().find(|m| m.node.as_ref() == Some(own));
    us.filter(|us| us.is(Role::Relay)).ok_or(Denial::NotRelay)
}

/// Whether members have business at its addresses: an admin has made it a relay or an oracle.
fn is_reached(member: &Member) -> bool {
    member.node.is_some() && (member.is(Role::Relay) || member.is(Role::Oracle))
}

/// What the address is to the member: in its list, or asked for by a name in its list.
fn standing(member: &Member, asked: &Destination, to: SocketAddr) -> Standing {
    let of = |at: &Destination| match (&at.host, &asked.host) {
        (Host::Ip(ip), _) if ip.to_canonical() == to.ip() => Standing::Listed,
        (Host::Name(name), Host::Name(other)) if is_same(name, other) => Standing::Named,
        _ => Standing::Stranger,
    };
    let there = member.addresses.iter().filter(|at| at.port == to.port());
    there.map(of).max().unwrap_or(Standing::Stranger)
}

/// Names are compared as DNS does (RFC 4343), with or without the root's dot.
fn is_same(a: &str, b: &str) -> bool {
    let bare = |name: &'_ str| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    bare(a) == bare(b)
}
