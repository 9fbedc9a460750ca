//! Tests of rules, tags, loops and members' addresses, without a network.

use super::scene::{key, member, roster, tags};
use crate::{Denial, EgressPolicy, OwnAddresses, mesh::Gate};
use std::net::SocketAddr;
use thalweg_units::Rate;
use thalweg_wire::{
    Destination, Signer as _,
    mesh::{Quota, Role, Roster, Rule, Terms},
};

fn to(text: &str) -> Destination {
    text.parse().unwrap()
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn policy() -> EgressPolicy {
    let own = OwnAddresses::fixed(["10.0.0.1".parse().unwrap()]);
    let listens = ["0.0.0.0:7373".parse().unwrap()];
    EgressPolicy::new(vec!["203.0.113.0/24".parse().unwrap()], vec![])
        .deny(["10.66.0.0/16".parse().unwrap()])
        .with_own(&own)
        .with_admin(listens)
}

/// `us` is the relay. `near`, `far` and `named` are relays too. `evil` lists addresses that are not its own.
fn mesh(rules: Vec<Rule>) -> Roster {
    let evil = [
        "127.0.0.1:6379",
        "169.254.169.254:80",
        "10.0.0.1:22",
        "0.0.0.0:6379",
        "[::ffff:127.0.0.1]:6379",
        "10.0.0.9:25",
        "10.66.0.1:7373",
    ];
    let members = vec![
        member("c", 90, &[], &["guest"]),
        member("us", 1, &["10.0.0.1:7373", "us.test:7373"], &["country=de"]),
        member("near", 2, &["10.0.0.2:7373", "[fd54::2]:7373"], &[]),
        member("far", 3, &["10.0.0.3:9000"], &["country=xx"]),
        member("named", 4, &["relay.test:7373"], &["country=yy"]),
        member("evil", 5, &evil, &[]),
    ];
    roster(1, members, rules)
}

fn gate<'a>(
    policy: &'a EgressPolicy,
    roster: &'a Roster,
    avoid: &[&str],
    depth: u8,
) -> Result<Gate<'a>, Denial> {
    let terms = Terms { avoid: tags(avoid), ..Terms::default() };
    Gate::new(policy, roster, key(1).id(), &key(190).id(), &terms, depth)
}

/// Checks an address that is requested as such. `Ok(true)` means that a member that the client names listens there.
fn judge(gate: &Gate<'_>, at: &str) -> Result<bool, Denial> {
    let near = [2, 3, 4, 5].map(|n| gate.clone().with_next(Some(key(n).id())));
    let judged = near.map(|gate| gate.check(&to(at), address(at)).map(|a| a.member));
    let is_named = |j: &Result<bool, Denial>| !matches!(j, Err(Denial::Unannounced(_)));
    // If it is a member's address, one of the four next hops is that member.
    judged
        .iter()
        .find(|j| **j == Ok(true))
        .or(judged.iter().find(|j| is_named(j)))
        .cloned()
        .unwrap()
}

#[test]
fn only_members_pass_with_any_class_and_port() {
    let (policy, roster) = (policy(), mesh(vec![]));
    let gate = gate(&policy, &roster, &[], 0).unwrap();
    for at in ["10.0.0.2:7373", "[fd54::2]:7373", "10.0.0.3:9000", "[::ffff:10.0.0.2]:7373"] {
        assert_eq!(judge(&gate, at), Ok(true), "{at}");
    }
    for at in ["8.8.8.8:443", "203.0.113.5:80"] {
        assert_eq!(judge(&gate, at), Ok(false), "{at}");
    }
    // Address and port must both match.
    for at in ["10.0.0.2:80", "10.0.0.4:7373", "8.8.8.8:7373"] {
        assert!(judge(&gate, at).is_err(), "{at}");
    }
}

#[test]
fn listing_a_foreign_address_does_not_make_it_accessible() {
    let (policy, roster) = (policy(), mesh(vec![]));
    let gate = gate(&policy, &roster, &[], 0).unwrap();
    let evil = roster.by_name(&"evil".parse().unwrap()).unwrap();
    for at in &evil.addresses {
        let at = at.to_string();
        assert!(judge(&gate, &at).is_err(), "{at}");
    }
    assert_eq!(judge(&gate, "10.0.0.9:25"), Err(Denial::Smtp));
    assert!(matches!(judge(&gate, "10.66.0.1:7373"), Err(Denial::Listed(..))), "deny beats all");
}

#[test]
fn an_address_is_a_members_only_for_clients_that_name_the_member() {
    let (policy, roster) = (policy(), mesh(vec![]));
    let gate = gate(&policy, &roster, &[], 0).unwrap();
    let judged = |next: Option<u8>| {
        let next = next.map(|n| key(n).id());
        gate.clone().with_next(next).check(&to("10.0.0.2:7373"), address("10.0.0.2:7373"))
    };
    assert_eq!(judged(Some(2)).map(|a| a.member), Ok(true));
    for other in [None, Some(3), Some(90)] {
        assert!(matches!(judged(other), Err(Denial::Unannounced(_))), "{other:?}");
    }
    // An address that a member's name resolves to may belong to anybody, so it gets no preamble.
    let named = gate.check(&to("relay.test:7373"), address("203.0.113.9:80"));
    assert_eq!(named.map(|a| a.member), Ok(false));
}

#[test]
fn only_addresses_of_relays_and_oracles_with_a_node_key_are_accessible() {
    let with = |role: Role, node: bool| {
        let mut other = member("other", 2, &["10.0.0.2:5432", "8.8.4.4:5432"], &["country=xx"]);
        other.roles = [Role::Client, role].into();
        other.node = other.node.filter(|_| node);
        let members =
            vec![member("c", 90, &[], &[]), member("us", 1, &["10.0.0.1:7373"], &[]), other];
        roster(1, members, vec![])
    };
    let policy = policy();
    for (role, node, opens) in [
        (Role::Client, true, false),
        (Role::Admin, true, false),
        (Role::Relay, false, false),
        (Role::Relay, true, true),
        (Role::Oracle, true, true),
    ] {
        let roster = with(role, node);
        let free = gate(&policy, &roster, &[], 0).unwrap();
        assert_eq!(free.check_port(5432).is_ok(), opens, "{role}, node key: {node}");
        for at in ["10.0.0.2:5432", "8.8.4.4:5432"] {
            assert_eq!(judge(&free, at) == Ok(true), opens, "{role}, node key: {node}, {at}");
            assert_eq!(judge(&free, at).is_ok(), opens, "{role}, node key: {node}, {at}");
        }
        // Avoided tags are checked for all members.
        let avoid = gate(&policy, &roster, &["country=xx"], 0).unwrap();
        assert!(matches!(judge(&avoid, "10.0.0.2:5432"), Err(Denial::Avoids(..))), "{role}");
    }
}

#[test]
fn addresses_of_a_relays_name_need_an_allowed_class() {
    let (policy, roster) = (policy(), mesh(vec![]));
    let gate = gate(&policy, &roster, &[], 0).unwrap();
    let by = |n: u8, at: &str| {
        gate.clone().with_next(Some(key(n).id())).check(&to("relay.test:7373"), address(at))
    };
    let named = |at: &str| by(4, at);
    assert_eq!(named("8.8.8.8:7373").map(|a| a.member), Ok(true), "whatever its port");
    for at in ["10.0.0.77:7373", "127.0.0.1:7373", "169.254.169.254:7373", "[fd54::9]:7373"] {
        assert!(named(at).is_err(), "{at}");
    }
    // Another member lists this address itself.
    assert!(matches!(named("10.0.0.2:7373"), Err(Denial::Unannounced(_))));
    assert_eq!(by(2, "10.0.0.2:7373").map(|a| a.member), Ok(true));
}

#[test]
fn a_former_relay_relays_nothing() {
    let policy = policy();
    let mut roster = mesh(vec![]);
    let us = roster.members.iter_mut().find(|m| m.name.as_str() == "us").unwrap();
    us.roles = [Role::Client, Role::Oracle].into();
    assert_eq!(gate(&policy, &roster, &[], 0).unwrap_err(), Denial::NotRelay);
    roster.members.retain(|m| m.name.as_str() != "us");
    assert_eq!(gate(&policy, &roster, &[], 0).unwrap_err(), Denial::NotRelay);
    let quota = Gate::quota(&roster, &key(1).id(), &key(190).id());
    assert_eq!(quota.unwrap_err(), Denial::NotRelay);
}

#[test]
fn a_mesh_on_one_host_may_use_loopback() {
    let members = vec![
        member("c", 90, &[], &[]),
        member("us", 1, &["127.0.0.1:7001"], &[]),
        member("near", 2, &["127.0.0.1:7002"], &[]),
    ];
    let (policy, roster) = (policy(), roster(1, members, vec![]));
    let gate = gate(&policy, &roster, &[], 0).unwrap();
    assert_eq!(judge(&gate, "127.0.0.1:7002"), Ok(true));
    assert_eq!(judge(&gate, "127.0.0.1:7001"), Err(Denial::Itself));
    assert!(judge(&gate, "127.0.0.1:80").is_err());
}

#[test]
fn loops_and_too_long_chains_are_refused() {
    let (policy, roster) = (policy(), mesh(vec![]));
    for (depth, passes) in [(0, true), (1, true), (2, false), (255, false)] {
        let gate = gate(&policy, &roster, &[], depth).unwrap();
        assert_eq!(judge(&gate, "10.0.0.2:7373").is_ok(), passes, "depth {depth}");
        assert_eq!(judge(&gate, "8.8.8.8:443"), Ok(false), "depth {depth}");
    }
    let gate = gate(&policy, &roster, &[], 0).unwrap();
    assert!(judge(&gate, "10.0.0.1:7373").is_err());
    // Its own name is refused, whatever it resolves to.
    let itself = gate.check(&to("US.test.:7373"), address("198.51.100.7:7373"));
    assert_eq!(itself, Err(Denial::Itself));
}

#[test]
fn tags_are_avoided_at_this_relay_at_members_and_behind_names() {
    let (policy, roster) = (policy(), mesh(vec![]));
    let us = gate(&policy, &roster, &["country=de"], 0).unwrap_err();
    assert_eq!(us, Denial::AvoidsUs("country=de".parse().unwrap()));

    let avoid = gate(&policy, &roster, &["country=xx", "country=yy"], 0).unwrap();
    let denied = |asked: &str, at: &str| {
        matches!(avoid.check(&to(asked), address(at)), Err(Denial::Avoids(..)))
    };
    assert!(denied("10.0.0.3:9000", "10.0.0.3:9000"));
    assert!(denied("innocent.test:9000", "10.0.0.3:9000"), "a name that resolves to it");
    assert!(denied("relay.test:7373", "198.51.100.4:7373"), "by the roster's name");
    assert_eq!(judge(&avoid, "10.0.0.2:7373"), Ok(true), "others are not avoided");

    // The roster lists a name, and the client asks for an address that the name resolves to.
    let asked = to("198.51.100.4:7373");
    let names = avoid.names_to_resolve(&asked);
    assert_eq!(names.iter().map(|(n, _)| n.to_string()).collect::<Vec<_>>(), ["relay.test:7373"]);
    let mut learned = avoid.clone();
    learned.add_resolved(names[0].1, &[address("198.51.100.4:7373")]);
    assert!(matches!(judge(&learned, "198.51.100.4:7373"), Err(Denial::Avoids(..))));
    let nothing = gate(&policy, &roster, &[], 0).unwrap();
    assert!(nothing.names_to_resolve(&asked).is_empty(), "nobody is avoided: nothing to ask");
}

#[test]
fn a_rule_applies_only_to_its_clients_and_relays() {
    let rule = |client: Option<&str>, relay: Option<&str>| Rule {
        client: client.map(|t| t.parse().unwrap()),
        relay: relay.map(|t| t.parse().unwrap()),
        ..Rule::default()
    };
    let rules = vec![
        Rule { ports: vec!["443".parse().unwrap()], ..rule(Some("guest"), None) },
        Rule { deny_to: vec!["8.8.0.0/16".parse().unwrap()], ..rule(None, Some("country=de")) },
        Rule { deny_to: vec!["9.9.0.0/16".parse().unwrap()], ..rule(None, Some("country=fr")) },
        Rule { deny_to: vec!["1.1.0.0/16".parse().unwrap()], ..rule(Some("staff"), None) },
        Rule {
            quota: Quota { connections: Some(9), ..Quota::default() },
            ..rule(Some("guest"), None)
        },
        Rule {
            quota: Quota {
                connections: Some(4),
                rate: Some(Rate::from_bps(8)),
                ..Quota::default()
            },
            ..rule(None, None)
        },
    ];
    let (policy, roster) = (policy(), mesh(rules));
    let gate = gate(&policy, &roster, &[], 0).unwrap();
    assert_eq!(judge(&gate, "1.1.1.1:80"), Err(Denial::RulePort(80)));
    assert_eq!(judge(&gate, "1.1.1.1:443"), Ok(false));
    assert_eq!(judge(&gate, "9.9.9.9:443"), Ok(false), "another relay's rule");
    assert!(matches!(judge(&gate, "8.8.8.8:443"), Err(Denial::RuleNetwork(..))));
    assert_eq!(judge(&gate, "10.0.0.2:7373"), Ok(true), "ports do not bind members' addresses");
    let rate = Some(Rate::from_bps(8));
    let quota = Gate::quota(&roster, &key(1).id(), &key(190).id());
    assert_eq!(quota, Ok(Quota { connections: Some(4), rate, bytes_per_day: None }));
}

#[test]
fn a_rules_networks_apply_to_members_and_all_forms_of_an_address() {
    let deny_to = vec!["10.0.0.2/32".parse().unwrap(), "fd54::/16".parse().unwrap()];
    let (policy, roster) = (policy(), mesh(vec![Rule { deny_to, ..Rule::default() }]));
    let gate = gate(&policy, &roster, &[], 0).unwrap();
    for at in ["10.0.0.2:7373", "[fd54::2]:7373", "[::ffff:10.0.0.2]:7373"] {
        assert!(matches!(judge(&gate, at), Err(Denial::RuleNetwork(..))), "{at}");
    }
}

#[test]
fn a_former_member_is_refused() {
    let (policy, roster) = (policy(), mesh(vec![]));
    let stranger = key(77).id();
    let terms = Terms::default();
    let refused = Gate::new(&policy, &roster, key(1).id(), &stranger, &terms, 0);
    assert_eq!(refused.unwrap_err(), Denial::NotMember);
}

#[test]
fn only_allowed_addresses_of_a_name_are_dialled() {
    let (policy, roster) = (policy(), mesh(vec![]));
    let gate = gate(&policy, &roster, &[], 0).unwrap();
    let name = to("mixed.test:443");
    let mixed = ["127.0.0.1:443", "8.8.8.8:443", "[::1]:443"].map(address);
    let admitted = gate.admit(&name, &mixed).unwrap();
    assert_eq!(admitted.iter().map(|a| a.address).collect::<Vec<_>>(), [mixed[1]]);
    assert!(matches!(gate.admit(&name, &mixed[..1]), Err(Denial::Address(..))));
    assert!(gate.admit(&name, &[]).unwrap().is_empty());
    // A name is looked up only if some address with its port could be allowed.
    assert!(gate.check_port(443).is_ok() && gate.check_port(9000).is_ok());
    assert_eq!(gate.check_port(5432), Err(Denial::Port(5432)));
}
