//! Receivers that report something other than what arrived.

use crate::{
    oracle::Fake,
    orders::order,
    scene::{Node, Set, key, member, signed},
};
use std::{net::SocketAddr, sync::Arc};
use thalweg_net::channel::{Acceptor, Admission, Protocol};
use thalweg_units::NodeId;
use thalweg_wire::mesh::{
    GO, GO_ACK,
    measure::Outcome,
    measure_flow::{Answer, Hello, Limits, Message, ReceiverMessage, Verdict},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinSet,
};

#[derive(Debug)]
struct Everybody;

impl Admission for Everybody {
    fn admits(&self, _: &NodeId, _: Protocol) -> bool {
        true
    }
}

/// Accepts a flow as `n2`, reads a megabyte of it, and sends `says`.
async fn lie(says: Vec<u8>) -> (SocketAddr, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let acceptor = Acceptor::new(&key(2), Arc::new(Everybody), &[Protocol::Measure]).unwrap();
    let mut lying = JoinSet::new();
    lying.spawn(async move {
        let mut channel = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
        let mut head = [0; 2];
        channel.read_exact(&mut head).await.unwrap();
        let mut body = vec![0; Hello::length(head).unwrap()];
        channel.read_exact(&mut body).await.unwrap();
        let mut answer = Answer::Accepted(Limits { bytes: 1 << 40, millis: 5000 }).encode();
        answer.push(GO);
        channel.write_all(&answer).await.unwrap();
        channel.flush().await.unwrap();
        assert_eq!(channel.read_u8().await.unwrap(), GO_ACK);
        let (mut tcp, early) = channel.into_clear().unwrap();
        let mut rest = vec![0; 1_000_000 - early.len()];
        tcp.read_exact(&mut rest).await.unwrap();
        tcp.write_all(&says).await.unwrap();
        // Until the sender has gone.
        while let Ok(1..) = tcp.read(&mut rest).await {}
    });
    (at, lying)
}

/// What `n1` reports to the oracle of a flow to such a receiver; and the node.
async fn reported(says: Vec<u8>) -> (Outcome, Node) {
    let (at, _lying) = lie(says).await;
    let mut one = Node::start(1, Set::default()).await;
    let oracle = Fake::start().await;
    one.membership.offer(&signed(1, vec![one.member(), member(2, at)])).unwrap();
    one.obey(&oracle);
    oracle.order(1, order(7, "n2"));
    (oracle.done().await.outcome, one)
}

const HONEST: Verdict = Verdict {
    bytes: 1_000_000,
    micros: 1000,
    bps: 8e9,
    spread_bps: None,
    steady: true,
    at_least: false,
};

#[tokio::test(flavor = "multi_thread")]
async fn the_sender_reports_its_own_count_whatever_the_receiver_says() {
    for says in [9e10, 1.0] {
        let verdict = Verdict { bps: says, ..HONEST };
        let (outcome, one) = reported(ReceiverMessage::Verdict(verdict).encode()).await;
        let Outcome::Measured { bps, bytes, steady, at_least, took, .. } = outcome else {
            panic!("{outcome:?}")
        };
        // A megabyte in at least one millisecond, the shortest time from which a rate is computed.
        println!("the receiver says {says:e}, the sender {bps:e} in {took:?}");
        assert!(bps > 1.25 && bps * 1.25 < 9e10, "{bps}");
        assert!(!steady && at_least && bytes >= 1_000_000, "{outcome:?}");
        let line = one.line("event=measured_otherwise").await;
        assert!(line.contains(&format!("receiver_bps={}", says as u64)), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn impossible_numbers_are_no_measurement() {
    let claims = [
        Verdict { bps: 5e12, ..HONEST },
        Verdict { micros: u64::MAX, ..HONEST },
        Verdict { bps: f64::NAN, ..HONEST },
        Verdict { bytes: 0, ..HONEST },
    ];
    for claim in claims {
        let (outcome, _one) = reported(ReceiverMessage::Verdict(claim).encode()).await;
        let Outcome::Failed { is_down, bytes, .. } = outcome else { panic!("{outcome:?}") };
        assert!(!is_down && bytes >= 1_000_000, "what was sent is told: {outcome:?}");
    }
}
