//! Carriers over real sockets: packets into one device come out of the other, once and unaltered.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../fixtures/members.rs"]
mod members;
mod scene;
mod trains;

use members::{key, member, signed};
use scene::{Node, as_set, mesh, number, packet};
use std::collections::BTreeSet;
use thalweg_probe::carrier::{CarrierSettings, OpenPorts};
use thalweg_wire::{Signer as _, mesh::Role};

fn settings() -> CarrierSettings {
    CarrierSettings::default()
}

/// Two nodes with carriers.
async fn pair() -> (Node, Node) {
    let mut nodes = mesh(vec![Some(settings()), Some(settings())]).await;
    let two = nodes.pop().unwrap();
    (nodes.pop().unwrap(), two)
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_are_sent_at_once_both_ways_and_none_waits_for_a_train() {
    let (mut one, mut two) = pair().await;
    for n in 0..200 {
        one.send(packet(one.overlay(), two.overlay(), n, 60 + n as usize * 6)).await;
        // Back over the session that the first packet opened.
        let came = two.next().await;
        assert_eq!(number(&came, &one, &two), n);
        two.send(packet(two.overlay(), one.overlay(), n, came.len())).await;
        assert_eq!(number(&one.next().await, &two, &one), n);
    }
    for node in [&one, &two] {
        // A packet is in the device before it is counted.
        node.until("all is counted", |report| {
            (report.counts.own_datagrams, report.counts.received_packets) == (200, 200)
        })
        .await;
        let counts = node.report().counts;
        assert_eq!((counts.sent_packets, counts.received_packets), (200, 200), "{counts:?}");
        assert_eq!((counts.own_datagrams, counts.timed_out_packets), (200, 0), "{counts:?}");
        assert_eq!((counts.dropped_packets, counts.strange_packets), (0, 0), "{counts:?}");
    }
    assert_eq!(one.report().members[0].session, "open");
}

#[tokio::test(flavor = "multi_thread")]
async fn packets_longer_than_the_path_mtu_are_cut_and_arrive_whole() {
    let narrow = CarrierSettings { path_mtu: 576, ..settings() };
    assert_eq!((settings().mtu(), narrow.mtu()), (1413, 1280));
    let mut nodes = mesh(vec![Some(narrow), Some(settings())]).await;
    let [one, two] = &mut nodes[..] else { unreachable!() };
    for n in 0..20 {
        one.send(packet(one.overlay(), two.overlay(), n, 1280)).await;
        assert_eq!(number(&two.next().await, one, two), n);
    }
    two.until("all is counted", |report| report.counts.received_packets == 20).await;
    assert_eq!(two.report().counts.received_fragments, 60);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_member_sends_in_the_name_of_another() {
    let mut nodes = mesh(vec![Some(settings()), Some(settings()), Some(settings())]).await;
    let third = nodes.pop().unwrap();
    let (mut two, one) = (nodes.pop().unwrap(), nodes.pop().unwrap());
    let [a, b, c] = [one.overlay(), two.overlay(), third.overlay()];
    one.send(packet(c, b, 1, 100)).await;
    let mut broken = packet(a, b, 2, 100);
    broken.truncate(30);
    one.send(broken).await;
    let multicast = "ff02::2".parse().unwrap();
    one.send(packet(a, multicast, 3, 100)).await;
    let outside = "fd00::77".parse().unwrap();
    one.send(packet(a, outside, 4, 100)).await;
    one.send(packet(a, b, 5, 100)).await;
    assert_eq!(number(&two.next().await, &one, &two), 5);
    two.until("the strange one is counted", |report| report.counts.strange_packets == 1).await;
    assert!(two.rest().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_without_a_carrier_says_so_and_one_that_is_gone_is_forgotten() {
    let mut nodes = mesh(vec![Some(settings()), None, Some(settings())]).await;
    let mut third = nodes.pop().unwrap();
    let (two, one) = (nodes.pop().unwrap(), nodes.pop().unwrap());
    one.send(packet(one.overlay(), two.overlay(), 1, 100)).await;
    one.until("it is told", |report| {
        report.members.iter().any(|member| member.session.contains("carrier.enabled"))
    })
    .await;
    one.until("its packet is dropped", |report| report.counts.dropped_packets == 1).await;

    one.send(packet(one.overlay(), third.overlay(), 1, 100)).await;
    third.next().await;
    third
        .until("one's session is there", |report| {
            report.members.iter().any(|member| member.session == "open")
        })
        .await;
    // Without that member.
    let rest = [&two, &third].map(|node| member(node.n, Some(node.at), &[Role::Relay]));
    third.membership.offer(&signed(2, rest.into())).unwrap();
    let gone = third.overlay();
    third.send(packet(gone, one.overlay(), 2, 100)).await;
    third.until("nobody is left", |report| report.members.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_lines_key_has_no_riders() {
    use thalweg_probe::trains::RiderCarrier as _;
    let (one, two) = pair().await;
    let carrier = one.carrier.as_ref().unwrap();
    one.until("it is up", |report| report.is_up).await;
    assert!(carrier.riders(key(two.n).id()).is_some());
    assert!(carrier.riders(key(two.n + 100).id()).is_none(), "two's command line");
    assert!(carrier.riders(key(one.n).id()).is_none(), "itself");
    assert!(carrier.riders(key(9).id()).is_none(), "a stranger");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_disappears_is_reported_and_the_node_continues() {
    let (mut one, mut two) = pair().await;
    one.send(packet(one.overlay(), two.overlay(), 1, 100)).await;
    two.next().await;
    drop(one.sends.take());
    one.until("it is gone", |report| !report.is_up).await;
    let report = one.report();
    assert!(report.why.as_ref().unwrap().contains("somebody deleted it"), "{report:?}");
    // Its session ends; its port still accepts channels, but not for riders.
    two.until("two hears of it", |report| report.members[0].session != "open").await;
    two.send(packet(two.overlay(), one.overlay(), 2, 100)).await;
    two.until("two is refused", |report| report.members[0].session.contains("its device is gone"))
        .await;
}

/// The numbers that arrived, none of them twice.
fn once(numbers: impl IntoIterator<Item = u32>) -> BTreeSet<u32> {
    let mut all = BTreeSet::new();
    for number in numbers {
        assert!(all.insert(number), "{number} came twice");
    }
    all
}

/// Members do not reach programs that listen at all addresses, but answers to this host's programs arrive.
#[tokio::test]
async fn members_may_reply_and_reach_ports_that_are_open_to_them() {
    let open = |from: &str| CarrierSettings {
        doors: OpenPorts { from: vec![from.parse().unwrap()], open: vec![53..=53] },
        ..CarrierSettings::default()
    };
    let usual = CarrierSettings::default();
    let mut nodes =
        as_set(vec![Some(usual.clone()), Some(open("n1")), Some(open("n1")), Some(usual)]).await;
    let addresses: Vec<_> = nodes.iter().map(Node::overlay).collect();
    let datagram =
        |from: usize, to: usize, number| packet(addresses[from], addresses[to], number, 100);
    // n2 to n1: n1 has no open port. n4 to n3: n3's open port is only open to n1.
    nodes[1].send(datagram(1, 0, 1)).await;
    nodes[3].send(datagram(3, 2, 1)).await;
    for n in [0, 2] {
        nodes[n].until("refused", |report| report.counts.unasked_packets == 1).await;
        assert_eq!(nodes[n].rest(), Vec::<Vec<u8>>::new());
    }
    // n1 to n2, whose port is open to it, and the answer.
    nodes[0].send(datagram(0, 1, 7)).await;
    let came = nodes[1].next().await;
    assert_eq!(number(&came, &nodes[0], &nodes[1]), 7);
    let mut answer = datagram(1, 0, 8);
    answer[40..44].rotate_left(2);
    nodes[1].send(answer.clone()).await;
    assert_eq!(nodes[0].next().await, answer);
}
