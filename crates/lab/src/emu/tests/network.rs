//! Networks of several links: order, sharing, capture.

use super::{KIND, ms, us};
use crate::{
    emu::{ClassId, Delivery, Network, NoPath},
    topology::{
        ClassSpec, CrossKind, CrossSpec, Draws, LinkChange, LinkSpec, Loss, PathSpec, Protocol,
        Resolved, Topology,
    },
};
use proptest::prelude::*;
use std::time::Duration;
use thalweg_units::{Rate, Time};

fn spec(mbps: f64, delay_ms: u64) -> LinkSpec {
    LinkSpec::new(Rate::from_mbps(mbps), Duration::from_millis(delay_ms))
}

/// Hosts a and b reach c over a link of their own and a shared one.
fn shared() -> Topology {
    Topology::default()
        .host("a")
        .host("b")
        .host("c")
        .link("xa", spec(80.0, 1))
        .link("xb", spec(80.0, 3))
        .link("core", spec(8.0, 5))
        .path("a", "c", &["xa", "core"])
        .path("b", "c", &["xb", "core"])
}

fn network(topology: &Topology) -> Network<u32> {
    Network::new(&topology.resolve().unwrap(), Time::ZERO)
}

fn delivered(net: &mut Network<u32>, now: Time) -> Vec<Delivery<u32>> {
    let mut out = Vec::new();
    net.deliver(now, &mut |d| out.push(d));
    out
}

fn times(out: &[Delivery<u32>]) -> Vec<(u64, usize, u32)> {
    out.iter().map(|d| (d.at.as_nanos() / 1000, d.interface, d.packet)).collect()
}

#[test]
fn packets_of_two_paths_share_a_link() {
    let mut net = network(&shared());
    net.inject(ms(0), 0, 2, 1000, KIND, 1).unwrap();
    net.inject(ms(0), 1, 2, 1000, KIND, 2).unwrap();
    net.inject(us(2900), 0, 2, 1000, KIND, 3).unwrap();
    net.inject(us(2900), 2, 0, 1000, KIND, 4).unwrap();
    // In ms. Packet 1: 0.1 + 1, core 1 + 5. Packet 2: 3.1, core until 4.1. Packet 3: 2.9 + 1.1 = 4, waits for 2 until
    // 4.1.
    let seen = times(&delivered(&mut net, ms(100)));
    assert_eq!(seen, [(7_100, 2, 1), (9_100, 2, 2), (10_000, 0, 4), (10_100, 2, 3)]);
    assert_eq!((net.next_event(), net.in_flight()), (None, 0));
}

#[test]
fn the_next_event_leads_to_every_delivery() {
    let mut net = network(&shared());
    net.inject(ms(0), 0, 2, 1000, KIND, 1).unwrap();
    assert_eq!(net.next_event(), Some(us(1_100)));
    assert!(delivered(&mut net, us(1_100)).is_empty());
    assert_eq!(net.next_event(), Some(us(7_100)));
    assert!(delivered(&mut net, us(7_099)).is_empty());
    assert_eq!(delivered(&mut net, us(7_100)).len(), 1);
}

#[test]
fn a_path_without_links_delivers_at_once_and_no_path_not_at_all() {
    let topology = Topology::default().host("a").host("b").host("c").path("a", "b", &[]);
    let mut net = network(&topology);
    net.inject(ms(3), 0, 1, 100, KIND, 7).unwrap();
    assert_eq!(net.next_event(), Some(ms(3)));
    assert_eq!(times(&delivered(&mut net, ms(3))), [(3_000, 1, 7)]);
    let none = net.inject(ms(3), 0, 2, 100, KIND, 8);
    assert_eq!(none, Err(NoPath { from: 0, to: 2 }));
    assert!(net.inject(ms(3), 0, 99, 100, KIND, 8).is_err());
}

#[test]
fn changes_apply_to_queued_packets() {
    let mut net = network(&shared());
    for packet in 0..3 {
        net.inject(ms(0), 0, 2, 1000, KIND, packet).unwrap();
    }
    let core = shared().resolve().unwrap().link_indices("core.fwd").unwrap();
    // At 1.6 ms half of the first packet and the two others are queued: 2500 bytes.
    net.set(us(1_600), &core, &LinkChange::rate(Rate::from_mbps(80.0)));
    let seen = times(&delivered(&mut net, ms(100)));
    assert_eq!(seen.iter().map(|s| s.0).collect::<Vec<_>>(), [6_650, 6_750, 6_850]);
    net.inject(ms(200), 0, 2, 1000, KIND, 9).unwrap();
    net.set(ms(202), &core, &LinkChange::up(false));
    assert!(delivered(&mut net, ms(300)).is_empty());
    assert_eq!(net.totals(ms(300))[core[0]].down_drops, 1);
}

#[test]
fn a_rising_trace_brings_arrivals_forward() {
    let step = |at, mbps| (Duration::from_millis(at), Rate::from_mbps(mbps));
    let mut link = spec(0.8, 0);
    link.trace =
        Some(crate::topology::Steps { steps: vec![step(0, 0.8), step(5, 8.0)], every: None });
    let topology = Topology::default().host("a").host("b").link("x", link).path("a", "b", &["x"]);
    let mut net = network(&topology);
    net.inject(ms(0), 0, 1, 1000, KIND, 1).unwrap();
    let mut seen = Vec::new();
    while let Some(at) = net.next_event() {
        seen.extend(delivered(&mut net, at));
    }
    assert_eq!(times(&seen), [(5_500, 1, 1)]);
}

#[test]
fn packets_are_counted_by_class() {
    let class = |name: &str, protocol, port| ClassSpec { name: name.into(), protocol, port };
    let mut topology = shared();
    topology.classes = vec![
        class("probe", Some(Protocol::Udp), Some(9000)),
        class("udp", Some(Protocol::Udp), None),
    ];
    let mut net = network(&topology);
    assert_eq!(net.classify(17, 1, 9000), ClassId(1));
    assert_eq!(net.classify(17, 1, 2), ClassId(2));
    assert_eq!(net.classify(6, 9000, 2), ClassId::OTHER);
    for (packet, (protocol, port)) in [(17, 9000), (17, 5), (6, 80), (6, 81)].iter().enumerate() {
        let class = net.classify(*protocol, 40_000, *port);
        net.inject(ms(0), 0, 2, 1000, class, packet as u32).unwrap();
    }
    let truth = net.truth(ms(50));
    let core = truth.iter().find(|t| t.name == "core.fwd").unwrap();
    assert_eq!(core.classes, ["other", "probe", "udp", "cross"]);
    assert_eq!(core.bins[0].bytes, [2000, 1000, 1000, 0]);
    assert!(net.totals(ms(50)).iter().all(|t| t.bins.is_empty()));
}

#[test]
fn a_tap_copies_packets_when_they_enter_its_link() {
    let mut net = network(&shared());
    let core = 4;
    net.tap(core, true);
    net.inject(ms(0), 0, 2, 1000, KIND, 1).unwrap();
    net.inject(ms(0), 2, 1, 1000, KIND, 2).unwrap();
    delivered(&mut net, ms(50));
    let (seen, missed) = net.take_tapped();
    let seen: Vec<_> = seen.iter().map(|t| (t.at, t.link, t.packet)).collect();
    assert_eq!((seen, missed), (vec![(us(1_100), core, 1)], 0));
    net.tap(core, false);
    net.inject(ms(60), 0, 2, 1000, KIND, 3).unwrap();
    delivered(&mut net, ms(100));
    assert!(net.take_tapped().0.is_empty());
}

/// Five hosts around a core link with all kinds of impairments.
fn busy(seed: u64) -> Resolved {
    let mut core = spec(20.0, 4);
    core.loss = Some(Loss::random(0.05));
    core.duplicate = Some(crate::topology::Probability::new(0.02));
    core.reorder = Some(crate::topology::Reorder {
        probability: crate::topology::Probability::new(0.05),
        by: Duration::from_millis(3),
    });
    core.queue = Some(crate::topology::Queue::Bytes(thalweg_units::ByteSize::from_bytes(30_000)));
    let mut topology = Topology { seed, ..Topology::default() };
    for i in 0..5 {
        let name = format!("n{i}");
        let access = format!("x{i}");
        topology = topology.host(&name).link(&access, spec(10.0, i));
        for j in 0..i {
            let links = [format!("x{j}"), "core".to_owned(), format!("x{i}.rev")];
            let links: Vec<_> = links.iter().map(String::as_str).collect();
            topology.paths.push(PathSpec::new(&format!("n{j}"), &name, &links));
        }
    }
    let mut topology = topology.link("core", core);
    topology.cross.push(CrossSpec::new("core", CrossKind::Poisson, Rate::from_mbps(8.0)));
    topology.resolve().unwrap()
}

/// Injects 2000 packets at random times, and delivers after every `interval`-th packet.
fn play(net: &Resolved, seed: u64, interval: usize) -> Vec<Delivery<u32>> {
    let mut draws = Draws::new(seed);
    let (mut network, mut now, mut out) = (Network::new(net, Time::ZERO), 0, Vec::new());
    for packet in 0..2000 {
        now += draws.below(800_000) as u64;
        let (from, step) = (draws.below(5), 1 + draws.below(4));
        let len = 40 + draws.below(1460) as u32;
        let at = Time::from_nanos(now);
        network.inject(at, from, (from + step) % 5, len, KIND, packet).unwrap();
        if (packet as usize).is_multiple_of(interval) {
            network.deliver(at, &mut |d| out.push(d));
        }
    }
    network.deliver(ms(10_000), &mut |d| out.push(d));
    out
}

#[test]
fn a_run_depends_only_on_the_seed() {
    assert_eq!(play(&busy(1), 9, 1), play(&busy(1), 9, 1));
    assert_ne!(play(&busy(1), 9, 1), play(&busy(2), 9, 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A caller who asks rarely gets the same deliveries as one who asks after every packet, in the order of logical
    /// time.
    #[test]
    fn lateness_changes_nothing(seed in any::<u64>(), interval in 2..400_usize) {
        let net = busy(seed);
        let (prompt, late) = (play(&net, seed, 1), play(&net, seed, interval));
        prop_assert!(prompt.len() > 1000);
        prop_assert!(prompt.windows(2).all(|w| w[0].at <= w[1].at));
        prop_assert_eq!(prompt, late);
    }
}
