//! Parsing and formatting topology files.

use super::{refused, resolved};
use crate::topology::{CrossKind, Gilbert, LinkSpec, Loss, Probability, Queue, Reorder, Topology};
use proptest::prelude::*;
use std::time::Duration;
use thalweg_units::{ByteSize, Rate};

/// The first TOML block of docs/lab.md.
fn example() -> String {
    let doc = include_str!("../../../../../docs/lab.md");
    let block = doc.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    block.expect("docs/lab.md has a TOML block").to_owned()
}

#[test]
fn the_documented_example_is_parsed_and_resolved() {
    let topology = Topology::from_toml(&example()).unwrap();
    assert_eq!(topology.seed, 1);
    assert_eq!(topology.bin, Duration::from_millis(100));
    assert_eq!(topology.hosts["client"].interfaces, Some(2));
    let access = &topology.links["access"];
    assert_eq!(access.rate, Some(Rate::from_mbps(20.0)));
    assert_eq!(access.rev.as_ref().unwrap().rate, Some(Rate::from_mbps(2.0)));
    assert_eq!(access.loss, Some(Loss::random(0.01)));
    assert_eq!(topology.cross[0].kind, CrossKind::Cbr);
    let net = topology.resolve().unwrap();
    assert_eq!(net.link_indices("access").unwrap().len(), 2);
}

#[test]
fn a_topology_survives_a_round_trip_through_text() {
    let topology = Topology::from_toml(&example()).unwrap();
    let text = topology.to_toml().unwrap();
    assert_eq!(Topology::from_toml(&text).unwrap_or_else(|e| panic!("{e}\n{text}")), topology);
}

#[test]
fn hosts_and_links_keep_the_order_of_the_file() {
    let net = resolved("[host.z]\n[host.a]\n[host.m]\n[link.y]\n[link.b]\n");
    let names: Vec<_> = net.hosts.iter().map(|h| h.name.as_str()).collect();
    assert_eq!(names, ["z", "a", "m"]);
    let links: Vec<_> = net.links.iter().map(|l| l.name.as_str()).collect();
    assert_eq!(links, ["y.fwd", "y.rev", "b.fwd", "b.rev"]);
}

#[test]
fn every_form_of_loss_and_queue_is_parsed() {
    let net = resolved(
        "[link.a]\nloss = \"1 %\"\nqueue = \"1 BDP of 40 ms\"\n\
         [link.b]\nloss = { good_to_bad = \"0.1 %\", bad_to_good = 0.1 }\nqueue = \"64 kB\"\n\
         [link.c]\nloss = 0.5\n",
    );
    assert_eq!(net.links[0].config.queue, Queue::bdp(1.0, Duration::from_millis(40)));
    let Loss::Gilbert(g) = net.links[2].config.loss else { panic!("no chain") };
    assert_eq!((g.good_to_bad.get(), g.in_bad.get(), g.in_good.get()), (0.001, 1.0, 0.0));
    assert_eq!(net.links[4].config.loss, Loss::random(0.5));
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_the_nearest_key() {
    for (toml, key, nearest) in [
        ("[link.core]\nrat = \"1 Mbit/s\"\n", "rat", "rate"),
        (
            "[link.core]\nrate = \"1 Mbit/s\"\nloss = { good_to_bed = 0.1 }\n",
            "good_to_bed",
            "good_to_bad",
        ),
        ("[hots.a]\n", "hots", "host"),
        ("[[path]]\nfrom = \"a\"\nto = \"b\"\nlink = []\n", "link", "links"),
        ("[generate]\nkind = \"dumbell\"\n", "dumbell", "dumbbell"),
        ("[generate]\nkind = \"star\"\nhosts = 3\nacces = {}\n", "acces", "access"),
        ("[[cross]]\nlink = \"a\"\nkind = \"poison\"\n", "poison", "poisson"),
    ] {
        let e = refused(toml);
        let hint = format!("did you mean `{nearest}`");
        assert!(e.contains(key) && e.contains(&hint) && e.contains("line"), "{toml}\n{e}");
    }
}

#[test]
fn an_error_shows_the_invalid_value_and_a_valid_example() {
    for (toml, shown, example) in [
        ("[link.core]\nrate = \"40\"\n", "40", "40 Mbit/s"),
        ("[link.core]\ndelay = \"5 parsec\"\n", "5 parsec", "5 ms"),
        ("[link.core]\nqueue = \"2 BDP\"\n", "2 BDP", "1 BDP of 40 ms"),
        ("[link.core]\nloss = \"120 %\"\n", "120 %", "1 %"),
        ("bin = \"0 s\"\n", "bin", "1 ms"),
        ("congestion = \"\"\n", "congestion", "cubic"),
    ] {
        let e = refused(toml);
        assert!(e.contains(shown) && e.contains(example), "{toml}\n{e}");
    }
}

proptest! {
    /// Any change of the text is accepted or rejected without a panic.
    #[test]
    fn a_damaged_file_is_refused_or_read(
        at in 0..1000_usize,
        len in 0..40_usize,
        put in "[a-z0-9\"\\[\\] =.{}%]{0,12}",
    ) {
        let mut text: Vec<_> = example().chars().collect();
        let from = at * text.len() / 1000;
        let to = (from + len).min(text.len());
        text.splice(from..to, put.chars());
        let text: String = text.into_iter().collect();
        if let Err(e) = Topology::from_toml(&text).and_then(|t| t.resolve()) {
            prop_assert!(!e.to_string().is_empty());
        }
    }

    /// A link built in code is the same after a round trip through a file.
    #[test]
    fn any_link_survives_the_file(
        kbps in 1..100_000_u64,
        delay_ns in any::<u32>(),
        queue in 1500..9_000_000_u64,
        p in prop::collection::vec(0.0..1.0, 4),
        up in any::<bool>(),
        simplex in any::<bool>(),
    ) {
        let p: Vec<_> = p.into_iter().map(Probability::new).collect();
        let delay = Duration::from_nanos(delay_ns.into());
        let gilbert = Gilbert { good_to_bad: p[0], bad_to_good: p[1], in_bad: p[2], in_good: p[3] };
        let link = LinkSpec {
            queue: Some(Queue::Bytes(ByteSize::from_bytes(queue))),
            loss: Some(Loss::Gilbert(gilbert)),
            reorder: Some(Reorder { probability: p[1], by: delay }),
            duplicate: Some(p[2]),
            corrupt: Some(p[3]),
            up: Some(up),
            simplex,
            rev: (!simplex).then(|| Box::new(LinkSpec { loss: Some(Loss::Random(p[0])), ..LinkSpec::default() })),
            ..LinkSpec::new(Rate::from_bps(kbps * 1000), delay)
        };
        let topology = Topology::default().link("x", link);
        let again = Topology::from_toml(&topology.to_toml().unwrap()).unwrap();
        prop_assert_eq!(again.resolve().unwrap(), topology.resolve().unwrap());
    }
}

#[test]
fn any_seed_survives_the_file() {
    let topology = Topology { seed: u64::MAX, ..Topology::default() };
    let text = topology.to_toml().unwrap();
    assert_eq!(Topology::from_toml(&text).map(|t| t.seed), Ok(u64::MAX));
}
