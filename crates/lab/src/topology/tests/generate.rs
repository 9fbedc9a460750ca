//! Every generator gives a valid network that joins all pairs and depends only on the seed.

mod collection;
mod planetlab;

use super::{refused, resolved, route};
use crate::topology::Resolved;
use std::time::Duration;
use thalweg_units::Rate;

const LINK: &str = "{ rate = \"20 Mbit/s\", delay = \"5 ms\" }";

fn kinds() -> [String; 6] {
    [
        format!("kind = \"dumbbell\"\nleft = 3\nright = 2\naccess = {LINK}\nbottleneck = {LINK}"),
        format!("kind = \"dumbbell\"\nleft = 1\nright = 1\nbottleneck = {LINK}"),
        format!("kind = \"star\"\nhosts = [\"x\", \"y\", \"z\"]\naccess = {LINK}"),
        "kind = \"matrix\"\nsynthetic = \"planetlab\"\nhosts = 8".to_owned(),
        format!(
            "kind = \"transit-stub\"\ntransit = 4\nstubs = 2\nhosts = 2\n\
             transit_link = {LINK}\nstub_link = {LINK}\naccess = {LINK}"
        ),
        format!("kind = \"multihomed\"\nlinks = [{LINK}, {LINK}]\nserver_access = {LINK}"),
    ]
}

fn generated(keys: &str) -> Resolved {
    resolved(&format!("seed = 7\n[generate]\n{keys}\n"))
}

fn each_pair(net: &Resolved) -> impl Iterator<Item = (usize, usize)> {
    let n = net.interfaces.len();
    let hosts: Vec<_> = net.interfaces.iter().map(|i| i.host).collect();
    (0..n)
        .flat_map(move |a| (0..n).map(move |b| (a, b)))
        .filter(move |&(a, b)| hosts[a] != hosts[b])
}

#[test]
fn every_kind_joins_all_pairs_with_rate_and_delay() {
    for keys in kinds() {
        let net = generated(&keys);
        for (a, b) in each_pair(&net) {
            assert!(net.path_links(a, b).is_some(), "{keys}\nno path {a} to {b}");
            let limited = !keys.contains("\"dumbbell\"") || net.interfaces.len() == 5;
            if limited {
                assert!(net.physical_limit(a, b).unwrap() > Rate::ZERO, "{keys}");
                assert!(net.rtt(a, b).unwrap() > Duration::ZERO, "{keys}");
            }
        }
    }
}

#[test]
fn a_network_depends_only_on_the_seed() {
    for keys in kinds() {
        assert_eq!(generated(&keys), generated(&keys), "{keys}");
    }
    let [.., matrix, transit, _] = kinds();
    for keys in [matrix, transit] {
        let other = resolved(&format!("seed = 8\n[generate]\n{keys}\n"));
        let configs =
            |net: &Resolved| -> Vec<_> { net.links.iter().map(|l| l.config.clone()).collect() };
        assert_ne!(configs(&generated(&keys)), configs(&other), "{keys}");
    }
}

#[test]
fn a_dumbbell_crosses_its_bottleneck_only_between_the_groups() {
    let net = generated(&kinds()[0]);
    assert_eq!(route(&net, "l1", "r2"), ["l1.access.fwd", "bottleneck.fwd", "r2.access.rev"]);
    assert_eq!(route(&net, "r2", "l1"), ["r2.access.fwd", "bottleneck.rev", "l1.access.rev"]);
    assert_eq!(route(&net, "l1", "l2"), ["l1.access.fwd", "l2.access.rev"]);
}

#[test]
fn a_star_path_uses_both_access_links() {
    let net = generated(&kinds()[2]);
    assert_eq!(route(&net, "z", "x"), ["z.access.fwd", "x.access.rev"]);
}

#[test]
fn a_multihomed_client_reaches_the_server_over_each_link() {
    let net = generated(&kinds()[5]);
    assert_eq!(route(&net, "client:1", "server"), ["wan1.fwd", "server.access.rev"]);
    assert_eq!(route(&net, "server", "client:0"), ["server.access.fwd", "wan0.rev"]);
}

#[test]
fn written_properties_override_generated_ones() {
    let net = resolved(
        "[host.extra]\n[host.y]\nnames = [\"www.example\"]\n\
         [link.\"x.access\"]\nrate = \"1 Mbit/s\"\nrev = { loss = \"1 %\" }\n\
         [[path]]\nfrom = \"extra\"\nto = \"y\"\nlinks = [\"y.access.rev\"]\n\
         [generate]\nkind = \"star\"\nhosts = [\"x\", \"y\"]\naccess = { rate = \"9 Mbit/s\", delay = \"3 ms\" }\n",
    );
    let names: Vec<_> = net.hosts.iter().map(|h| h.name.as_str()).collect();
    assert_eq!(names, ["extra", "y", "x"]);
    let link = |name: &str| &net.links[net.link_indices(name).unwrap()[0]].config;
    assert_eq!(link("x.access.fwd").rate, Some(Rate::from_mbps(1.0)));
    assert_eq!(link("x.access.rev").delay, Duration::from_millis(3));
    assert_eq!(link("x.access.rev").loss.mean(), 0.01);
    assert_eq!(link("x.access.fwd").loss.mean(), 0.0);
}

#[test]
fn a_written_matrix_is_taken_from_row_to_column() {
    let net = generated(
        "kind = \"matrix\"\nhosts = [\"a\", \"b\"]\nqueue = \"30 kB\"\n\
         rate = [[\"\", \"10 Mbit/s\"], [\"2 Mbit/s\", \"-\"]]\n\
         rtt = [[\"\", \"40 ms\"], [\"60 ms\", \"\"]]\nloss = [[\"\", \"1 %\"], [\"0 %\", \"\"]]",
    );
    assert_eq!(route(&net, "b", "a"), ["a_b.rev"]);
    assert_eq!(net.physical_limit(0, 1), Some(Rate::from_mbps(10.0)));
    assert_eq!(net.physical_limit(1, 0), Some(Rate::from_mbps(2.0)));
    assert_eq!(net.rtt(0, 1), Some(Duration::from_millis(50)));
    assert_eq!((net.links[0].config.loss.mean(), net.links[1].config.loss.mean()), (0.01, 0.0));
    assert_eq!(net.links[1].config.queue.to_string(), "30000 B");
}

#[test]
fn an_invalid_matrix_or_number_is_named_in_the_error() {
    let generate = |keys: &str| refused(&format!("[generate]\n{keys}\n"));
    for (keys, word) in [
        ("kind = \"matrix\"\nhosts = 2", "rtt"),
        ("kind = \"matrix\"\nhosts = 2\nrtt = [[\"\", \"1 ms\"]]", "row 1"),
        ("kind = \"matrix\"\nhosts = 2\nrtt = [[\"\", \"1 ms\"], [\"x\", \"\"]]", "rtt[1][0]"),
        ("kind = \"matrix\"\nhosts = 1\nrtt = [[\"\", \"1 ms\"]]", "more"),
        ("kind = \"matrix\"\nhosts = 2\nsynthetic = \"planetlab\"\nrtt = []", "rtt"),
        ("kind = \"matrix\"\nhosts = 2\nsynthetic = \"planetlab\"\nscale = 0.0", "scale"),
        ("kind = \"star\"\nhosts = 0\naccess = {}", "hosts"),
        ("kind = \"star\"\nhosts = [\"a\", \"a\"]\naccess = {}", "twice"),
        ("kind = \"star\"\nhosts = true\naccess = {}", "number of hosts or a list"),
        ("kind = \"multihomed\"\nlinks = []", "at least one"),
    ] {
        let e = generate(keys);
        assert!(e.contains(word), "{keys}\n{e}");
    }
}

#[test]
fn transit_paths_are_shortest_by_delay() {
    let [.., transit, _] = kinds();
    let net = generated(&transit.replace("transit = 4", "transit = 9"));
    let delay = |a: usize, b: usize| {
        let links = net.path_links(a, b).unwrap().iter();
        links.map(|&l| net.links[l].config.delay).sum::<Duration>()
    };
    // Shortest paths obey the triangle inequality over the transit core: a detour by a third host adds at least that
    // host's stub and access links, twice.
    let own = 2 * (Duration::from_millis(5) + Duration::from_millis(5));
    let stub = |host: usize| host / 2;
    let triples = (0..36).flat_map(|a| (0..36).flat_map(move |b| (0..36).map(move |c| (a, b, c))));
    for (a, b, c) in triples {
        if stub(a) != stub(b) && stub(b) != stub(c) && stub(a) != stub(c) {
            assert!(delay(a, c) + own <= delay(a, b) + delay(b, c), "{a} {b} {c}");
        }
    }
}
