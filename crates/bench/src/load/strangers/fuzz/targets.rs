//! Feeds arbitrary addresses to the relay's policy: no forbidden one may pass.

use super::{
    Account, Chance,
    cases::{ip, port},
};
use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};
use thalweg_net::PrivateKey;
use thalweg_relay::{EgressPolicy, Gate, OwnAddresses};
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::{
    Destination, Signer as _,
    mesh::{Member, Role, Roster, Tag, Terms},
};

/// The IPv4 addresses that a packet to `ip` may reach. This is implemented from the text of the RFCs (4291 §2.5.5, 6052
/// §2.1, 3056, 4380, 5214) and does not use the relay's code.
fn reachable_v4(ip: IpAddr) -> Vec<Ipv4Addr> {
    let IpAddr::V6(v6) = ip else {
        let IpAddr::V4(v4) = ip else { return vec![] };
        return vec![v4];
    };
    let bits = u128::from(v6);
    let low = Ipv4Addr::from(bits as u32);
    let mut found = Vec::new();
    if bits >> 32 == 0xffff || bits >> 32 == 0 && bits > 1 {
        found.push(low);
    }
    if bits >> 32 == 0x64_ff9b_u128 << 64 || bits >> 80 == 0x64_ff9b_0001 {
        found.push(low);
    }
    if bits >> 112 == 0x2002 {
        found.push(Ipv4Addr::from((bits >> 80) as u32));
    }
    if bits >> 96 == 0x2001_0000 {
        found.push(Ipv4Addr::from((bits >> 64) as u32));
        found.push(Ipv4Addr::from(!(bits as u32)));
    }
    found
}

/// Whether an address is forbidden for everybody: metadata services, unspecified, multicast, the host itself.
fn is_always_forbidden(v4: Ipv4Addr) -> bool {
    let metadata = [[169, 254, 169, 254], [168, 63, 129, 16], [100, 100, 100, 200]];
    v4.is_unspecified()
        || v4.is_loopback()
        || v4.is_multicast()
        || v4.is_broadcast()
        || metadata.contains(&v4.octets())
        || v4 == Ipv4Addr::new(10, 0, 0, 1)
        || v4.octets()[..2] == [10, 66]
}

fn is_special(v4: Ipv4Addr) -> bool {
    v4.is_private() || v4.is_link_local() || v4.is_documentation()
}

/// A relay's policy, and a mesh in which one member lists addresses that are not its own.
#[derive(Clone, Debug)]
pub struct RelayPolicy {
    /// The policy of the relay.
    pub policy: EgressPolicy,
    /// The members that the relay knows.
    pub roster: Roster,
    own: NodeId,
    client: NodeId,
    avoided: Tag,
}

fn key(seed: u8) -> NodeId {
    PrivateKey::from_seed(&[seed; 32]).id()
}

impl RelayPolicy {
    /// The world of the tests: the relay `us` at 10.0.0.1, which denies 10.66.0.0/16.
    ///
    /// # Errors
    /// When a constant is not well-formed; not expected.
    pub fn new() -> Result<Self, String> {
        let text = |e: &dyn std::fmt::Display| e.to_string();
        let own = OwnAddresses::fixed([IpAddr::from([10, 0, 0, 1])]);
        let denied = thalweg_relay::parse_cidr("10.66.0.0/16").map_err(|e| text(&e))?;
        let policy = EgressPolicy::new(vec![], vec![])
            .deny([denied])
            .with_own(&own)
            .with_admin([SocketAddr::from(([0, 0, 0, 0], 7373))]);
        let avoided: Tag = "country=xx".parse().map_err(|e| text(&e))?;
        let grabbed = ["127.0.0.1:6379", "169.254.169.254:80", "10.0.0.1:22", "10.66.1.1:443"];
        let tagged = BTreeSet::from([avoided.clone()]);
        let mut members = vec![
            member("c", 90, &[], BTreeSet::new())?,
            member("us", 1, &["10.0.0.1:7373"], BTreeSet::new())?,
            member("near", 2, &["10.0.0.2:7373"], BTreeSet::new())?,
            member("far", 3, &["10.0.0.3:9000"], tagged)?,
            member("evil", 4, &grabbed, BTreeSet::new())?,
        ];
        members.sort_by(|a, b| a.name.cmp(&b.name));
        let (not_before, expiry) =
            (WallTime::from_unix_nanos(0), WallTime::from_unix_nanos(u64::MAX));
        let roster = Roster {
            version: 1,
            not_before,
            expiry,
            members,
            rules: vec![],
            endorsement: None,
            predecessor: None,
        };
        Ok(Self { policy, roster, own: key(1), client: key(190), avoided })
    }
}

fn member(name: &str, seed: u8, at: &[&str], tags: BTreeSet<Tag>) -> Result<Member, String> {
    let addresses: Result<_, String> =
        at.iter().map(|a| a.parse::<Destination>().map_err(|e| e.to_string())).collect();
    Ok(Member {
        name: name.parse().map_err(|_| format!("`{name}` is not a valid name"))?,
        node: Some(key(seed)),
        client: key(seed + 100),
        addresses: addresses?,
        roles: [Role::Client, Role::Relay].into(),
        tags,
    })
}

/// Checks that an address that passed may pass; the error describes it.
fn may_pass(to: SocketAddr, is_member: bool, avoiding: bool) -> Result<(), String> {
    let reached = reachable_v4(to.ip());
    let rules = match is_member {
        true => {
            let bare = to.ip().to_canonical();
            let near = bare == IpAddr::from([10, 0, 0, 2]) && to.port() == 7373;
            let far = bare == IpAddr::from([10, 0, 0, 3]) && to.port() == 9000 && !avoiding;
            near || far
        }
        false => is_ordinary(to, &reached),
    };
    let never = to.port() == 25 || reached.iter().any(|v4| is_always_forbidden(*v4));
    match rules && !never {
        true => Ok(()),
        false => Err(format!("{to} passed, member: {is_member}, avoiding: {avoiding}")),
    }
}

/// Whether `to` is an ordinary unicast address without an embedded IPv4 address, on a port of the web.
fn is_ordinary(to: SocketAddr, reached: &[Ipv4Addr]) -> bool {
    let global = match to.ip() {
        IpAddr::V4(_) => true,
        IpAddr::V6(v6) => u128::from(v6) >> 125 == 1 && reached.is_empty(),
    };
    let web = to.port() == 80 || to.port() == 443;
    web && global && !reached.iter().any(|v4| is_special(*v4))
}

/// Tests `cases` targets drawn from `seed`.
///
/// # Errors
/// The first target that passes but must not.
pub fn targets(cases: u64, seed: u64, world: &RelayPolicy) -> Result<Account, String> {
    let (mut chance, mut passed) = (Chance(seed), 0);
    for _ in 0..cases {
        let to = SocketAddr::new(ip(&mut chance), port(&mut chance).max(1));
        let avoiding = chance.below(2) == 0;
        let avoid = avoiding.then(|| world.avoided.clone()).into_iter().collect();
        let terms = Terms { avoid, ..Terms::default() };
        let (policy, roster) = (&world.policy, &world.roster);
        let gate = Gate::new(policy, roster, world.own, &world.client, &terms, 0);
        let next = chance.below(world.roster.members.len() + 1);
        let next = world.roster.members.get(next).and_then(|member| member.node);
        let gate = gate.map_err(|e| e.to_string())?.with_next(next);
        let asked: Destination = match chance.below(2) {
            0 => to.into(),
            _ => Destination::new("name.test", to.port()).map_err(|e| e.to_string())?,
        };
        if let Ok(admitted) = gate.check(&asked, to) {
            passed += 1;
            may_pass(to, admitted.member, avoiding)?;
        }
        if policy.check(to).is_ok() {
            may_pass(to, false, avoiding)?;
        }
    }
    Ok(Account { cases, passed })
}
