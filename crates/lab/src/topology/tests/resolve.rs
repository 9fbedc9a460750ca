//! Resolving names to indices: addresses, paths, directions, defaults.

use super::{refused, resolved, route};
use crate::topology::{LinkSpec, PathSpec, Topology};
use std::{net::IpAddr, time::Duration};
use thalweg_units::Rate;

const TWO_HOSTS: &str = "[host.a]\n[host.b]\n[link.x]\n[link.y]\n[link.one]\nsimplex = true\n";

fn with(paths: &str) -> String {
    format!("{TWO_HOSTS}{paths}")
}

#[test]
fn addresses_follow_host_and_interface_numbers() {
    let mut topology = Topology::default();
    for i in 0..300 {
        topology = topology.host_with(&format!("n{i}"), 2);
    }
    let net = topology.resolve().unwrap();
    let last = &net.interfaces[net.hosts[299].interfaces[1]];
    assert_eq!(last.v4.to_string(), "10.2.1.44");
    assert_eq!(last.v6.to_string(), "fd54:2::12c");
    for (i, interface) in net.interfaces.iter().enumerate() {
        assert_eq!(net.interface_of(interface.v4.into()), Some(i));
        assert_eq!(net.interface_of(interface.v6.into()), Some(i));
    }
    for other in
        ["10.3.0.1", "10.1.0.0", "10.0.0.1", "10.1.2.0", "11.1.0.1", "fd54:0::1", "fd54:1:1::1"]
    {
        assert_eq!(net.interface_of(other.parse::<IpAddr>().unwrap()), None, "{other}");
    }
}

#[test]
fn the_return_path_uses_the_opposite_directions() {
    let net = resolved(&with("[[path]]\nfrom = \"a\"\nto = \"b\"\nlinks = [\"x\", \"y.rev\"]\n"));
    assert_eq!(route(&net, "a", "b"), ["x.fwd", "y.rev"]);
    assert_eq!(route(&net, "b", "a"), ["y.fwd", "x.rev"]);
}

#[test]
fn an_explicit_return_path_uses_reverse_directions() {
    let path = "[[path]]\nfrom = \"a\"\nto = \"b\"\nlinks = [\"one\"]\nback = [\"y\", \"x.fwd\"]\n";
    let net = resolved(&with(path));
    assert_eq!(route(&net, "a", "b"), ["one"]);
    assert_eq!(route(&net, "b", "a"), ["y.rev", "x.fwd"]);
}

#[test]
fn one_way_paths_have_no_return_path() {
    let path = "[[path]]\nfrom = \"a\"\nto = \"b\"\nlinks = [\"one\"]\noneway = true\n";
    let net = resolved(&with(path));
    assert_eq!(net.path_links(1, 0), None);
    assert_eq!((net.rtt(0, 1), net.physical_limit(1, 0)), (None, Some(Rate::ZERO)));
    let e = refused(&with("[[path]]\nfrom = \"a\"\nto = \"b\"\nlinks = [\"one\"]\n"));
    assert!(e.contains("simplex") && e.contains("oneway"), "{e}");
}

#[test]
fn the_default_runs_from_earlier_to_later_hosts() {
    let own = "[host.c]\n[default]\nlinks = [\"x\", \"y\"]\n\
               [[path]]\nfrom = \"a\"\nto = \"c\"\nlinks = []\n";
    let net = resolved(&with(own));
    assert_eq!(route(&net, "a", "b"), ["x.fwd", "y.fwd"]);
    assert_eq!(route(&net, "b", "a"), ["y.rev", "x.rev"]);
    assert_eq!(route(&net, "a", "c"), [""; 0]);
    assert_eq!(net.path_links(0, 0), None);
}

#[test]
fn the_more_specific_path_wins() {
    let toml = "[host.c]\ninterfaces = 2\n[host.s]\n[link.x]\n[link.y]\n\
                [[path]]\nfrom = \"c:1\"\nto = \"s\"\nlinks = [\"y\"]\n\
                [[path]]\nfrom = \"c\"\nto = \"s\"\nlinks = [\"x\"]\n";
    let net = resolved(toml);
    assert_eq!(route(&net, "c:0", "s"), ["x.fwd"]);
    assert_eq!(route(&net, "c:1", "s"), ["y.fwd"]);
    assert_eq!(route(&net, "s", "c:1"), ["y.rev"]);
}

#[test]
fn two_paths_for_one_pair_conflict_unless_equal() {
    let path = |links: &str| format!("[[path]]\nfrom = \"a\"\nto = \"b\"\nlinks = [{links}]\n");
    let e = refused(&with(&(path("\"x\"") + &path("\"y\""))));
    assert!(e.contains("path 2") && e.contains("oneway"), "{e}");
    let back = "[[path]]\nfrom = \"b\"\nto = \"a\"\nlinks = [\"x.rev\"]\n";
    resolved(&with(&(path("\"x\"") + back)));
}

#[test]
fn an_unknown_name_is_reported_with_the_nearest_one() {
    for (toml, nearest) in [
        ("[host.server]\n[host.b]\n[[path]]\nfrom = \"sever\"\nto = \"b\"\nlinks = []\n", "server"),
        (
            "[host.a]\n[host.b]\n[link.core]\n[[path]]\nfrom = \"a\"\nto = \"b\"\nlinks = [\"cor\"]\n",
            "core",
        ),
        ("[link.core]\n[[cross]]\nlink = \"cre\"\nkind = \"cbr\"\nrate = \"1 Mbit/s\"\n", "core"),
        (
            "[link.core]\n[[cross]]\nlink = \"core.fw\"\nkind = \"cbr\"\nrate = \"1 Mbit/s\"\n",
            "core.fwd",
        ),
    ] {
        let e = refused(toml);
        assert!(e.contains(&format!("did you mean `{nearest}`")), "{toml}\n{e}");
    }
    let e = refused(&with("[[path]]\nfrom = \"a:1\"\nto = \"b\"\nlinks = []\n"));
    assert!(e.contains("1 interface"), "{e}");
}

#[test]
fn invalid_and_contradictory_keys_are_rejected() {
    for (toml, word) in [
        ("[host.a]\n[[path]]\nfrom = \"a\"\nto = \"a\"\nlinks = []\n", "two different hosts"),
        ("[host.a]\nnames = [\"b\"]\n[host.b]\n", "another host"),
        ("[host.a]\nnames = [\"www.example\", \"localhost\"]\n", "labels"),
        ("[host.a]\nnames = [\"127.0.0.1\"]\n", "must not be an address"),
        ("[host.a_b]\n", "hyphens"),
        ("[host.a]\ninterfaces = 0\n", "interfaces"),
        ("[link.\"x.fwd\"]\n", "halves"),
        ("[link.x]\nqueue = \"100 B\"\n", "full-size"),
        ("[link.x]\ntrace = { every = \"1 us\", steps = [[\"0 s\", \"1 Mbit/s\"]] }\n", "1 ms"),
        ("[link.x]\nsimplex = true\nrev = { rate = \"1 Mbit/s\" }\n", "simplex"),
        ("[link.x]\nrate = \"0 bit/s\"\n", "up = false"),
        ("[link.x]\ntrace = { steps = [] }\n", "at least one step"),
        ("[[class]]\nname = \"cross\"\n", "reserved"),
    ] {
        let e = refused(toml);
        assert!(e.contains(word), "{toml}\n{e}");
    }
}

#[test]
fn limits_and_round_trips_follow_the_path() {
    let ms = Duration::from_millis;
    let mut slow = LinkSpec::new(Rate::from_mbps(5.0), ms(20));
    slow.rev = Some(Box::new(LinkSpec { delay: Some(ms(30)), ..LinkSpec::default() }));
    let net = Topology::default()
        .host("a")
        .host("b")
        .link("fast", LinkSpec::new(Rate::from_mbps(100.0), ms(1)))
        .link("slow", slow)
        .link("free", LinkSpec::default())
        .path("a", "b", &["fast", "slow", "free"]);
    let net = net.resolve().unwrap();
    assert_eq!(net.physical_limit(0, 1), Some(Rate::from_mbps(5.0)));
    assert_eq!(net.rtt(0, 1), Some(ms(1 + 20 + 30 + 1)));
    assert_eq!(net.link_indices("slow").unwrap().len(), 2);
    assert_eq!(net.links[net.link_indices("slow.rev").unwrap()[0]].name, "slow.rev");
    assert!(net.link_indices("slo").unwrap_err().to_string().contains("slow"));
}

#[test]
fn seeds_of_links_depend_only_on_their_names() {
    let base = Topology::default().link("a", LinkSpec::default()).resolve().unwrap();
    let more = Topology::default().link("z", LinkSpec::default()).link("a", LinkSpec::default());
    let more = more.resolve().unwrap();
    let seed = |net: &crate::topology::Resolved, name: &str| {
        net.links.iter().find(|l| l.name == name).map(|l| l.seed)
    };
    assert_eq!(seed(&base, "a.fwd"), seed(&more, "a.fwd"));
    assert_ne!(seed(&base, "a.fwd"), seed(&base, "a.rev"));
}

#[test]
fn equal_paths_are_stored_once() {
    let mut topology = Topology::default().link("x", LinkSpec::default());
    for i in 0..20 {
        topology = topology.host(&format!("n{i}"));
    }
    topology.paths.push(PathSpec::new("n0", "n1", &["x"]));
    topology.default_path =
        Some(crate::topology::DefaultPath { links: vec!["x".into()], back: None });
    let net = topology.resolve().unwrap();
    assert_eq!(net.paths.len(), 2);
    assert_eq!(net.table.interfaces(), 20);
}
