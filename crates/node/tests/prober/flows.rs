//! Senders that violate the protocol.

use crate::scene::{Node, Set, introduce, key, signed, signed_ticket};
use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
};
use thalweg_net::{
    channel::{Channel, ChannelError, Connector, Protocol},
    cut_over,
};
use thalweg_probe::prober::{MAX_BYTES, MAX_TIME};
use thalweg_wire::mesh::{
    measure_flow::{Answer, Hello, Limits, Message, ReceiverMessage, Refusal, Verdict},
    measure_ticket::Ticket,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

pub async fn channel(node: &Node, seed: u8) -> Channel<TcpStream> {
    let tcp = TcpStream::connect(node.at).await.unwrap();
    let connector = Connector::new(&key(seed)).unwrap();
    connector.connect(tcp, node.member().node.unwrap(), Protocol::Measure).await.unwrap()
}

pub async fn read<M: Message>(from: &mut (impl AsyncRead + Unpin)) -> io::Result<M> {
    let mut head = [0; 2];
    from.read_exact(&mut head).await?;
    let mut body = vec![0; M::length(head).unwrap()];
    from.read_exact(&mut body).await?;
    Ok(M::decode(&body).unwrap())
}

/// Numbers of orders, each used once.
static ORDER: AtomicU64 = AtomicU64::new(1000);

/// The node's answer to a hello of node `seed` with an order of its own, and the channel.
pub async fn greet(node: &Node, seed: u8, limits: Limits) -> (Answer, Channel<TcpStream>) {
    let order = ORDER.fetch_add(1, Ordering::Relaxed);
    show(node, seed, &signed_ticket(order, seed, node.n), limits).await
}

/// The same with this ticket.
pub async fn show(
    node: &Node,
    seed: u8,
    ticket: &str,
    limits: Limits,
) -> (Answer, Channel<TcpStream>) {
    let mut channel = channel(node, seed).await;
    let ticket = Ticket::bytes_of(ticket).unwrap();
    channel.write_all(&Hello { ticket, limits }.encode()).await.unwrap();
    channel.flush().await.unwrap();
    (read(&mut channel).await.unwrap(), channel)
}

pub const ALL: Limits = Limits { bytes: u64::MAX, millis: u32::MAX };

async fn verdict(tcp: &mut TcpStream) -> io::Result<Verdict> {
    loop {
        if let ReceiverMessage::Verdict(verdict) = read(tcp).await? {
            return Ok(verdict);
        }
    }
}

async fn two() -> (Node, Node) {
    let (one, two) = (Node::start(1, Set::default()).await, Node::start(2, Set::default()).await);
    introduce(&[&one, &two]);
    (one, two)
}

#[tokio::test]
async fn only_the_daemons_of_members_may_measure() {
    let (one, _two) = two().await;
    // A stranger, and the key of a member's command line.
    for seed in [77, 102] {
        let mut channel = channel(&one, seed).await;
        let refused = channel.read_u8().await.unwrap_err();
        assert!(ChannelError::is_not_admitted(&refused), "{seed}: {refused}");
    }
}

#[tokio::test]
async fn the_nodes_own_bounds_apply_whatever_is_asked_for() {
    let poor = Set { per_day: 1_000_000, ..Set::default() };
    let rich = Set { per_day: u64::MAX, ..Set::default() };
    let (one, two) = (Node::start(1, poor).await, Node::start(2, rich).await);
    introduce(&[&one, &two]);
    let (answer, _channel) = greet(&two, 1, ALL).await;
    let millis = MAX_TIME.as_millis() as u32;
    assert_eq!(answer, Answer::Accepted(Limits { bytes: MAX_BYTES.as_bytes(), millis }));

    let (answer, channel) = greet(&one, 2, ALL).await;
    assert_eq!(answer, Answer::Accepted(Limits { bytes: 1_000_000, millis }));
    let (tcp, _) = cut_over(channel).await.unwrap();
    let (mut hear, mut pour) = tcp.into_split();
    // It goes on sending, whatever the receiver says.
    let pouring = tokio::spawn(async move { while pour.write_all(&[7; 65536]).await.is_ok() {} });
    let verdict = async {
        loop {
            if let ReceiverMessage::Verdict(verdict) = read(&mut hear).await.unwrap() {
                return verdict;
            }
        }
    };
    let verdict = verdict.await;
    assert!(verdict.bytes >= 1_000_000 && verdict.bytes < 2_000_000, "{verdict:?}");
    pouring.await.unwrap();
    one.line("event=measured_by").await;
    let (answer, _) = greet(&one, 2, ALL).await;
    assert_eq!(answer, Answer::Refused(Refusal::Budget));
}

#[tokio::test]
async fn a_second_flow_is_refused_while_one_is_under_way() {
    let (one, _two) = two().await;
    let (first, held) = greet(&one, 2, ALL).await;
    assert!(matches!(first, Answer::Accepted(_)), "{first:?}");
    let (second, _) = greet(&one, 2, ALL).await;
    assert_eq!(second, Answer::Refused(Refusal::Busy));
    // The permit is free again once the first flow has gone.
    drop(held);
    one.line("event=measured_by").await;
    while let (Answer::Refused(_), _) = greet(&one, 2, ALL).await {}
}

#[tokio::test]
async fn revocation_cuts_a_flow() {
    let (one, _two) = two().await;
    let (_, channel) = greet(&one, 2, ALL).await;
    let (mut tcp, _) = cut_over(channel).await.unwrap();
    tcp.write_all(&[7; 1000]).await.unwrap();
    one.membership.offer(&signed(2, vec![one.member()])).unwrap();
    let line = one.line("event=measured_by").await;
    assert!(line.contains("revoked"), "{line}");
    assert!(verdict(&mut tcp).await.is_err());
    assert!(one.spent() <= 1000);
}

#[tokio::test]
async fn a_short_flow_gets_a_verdict_on_what_arrived() {
    let (one, _two) = two().await;
    let (_, channel) = greet(&one, 2, ALL).await;
    let (mut tcp, _) = cut_over(channel).await.unwrap();
    tcp.write_all(&[7; 1000]).await.unwrap();
    tcp.shutdown().await.unwrap();
    let told = verdict(&mut tcp).await.unwrap();
    assert_eq!((told.bytes, told.steady), (1000, false));
    one.line("bytes=1000").await;
    assert_eq!(one.spent(), 1000);
    // A flow without any bytes.
    let (_, channel) = greet(&one, 2, ALL).await;
    let (mut tcp, _) = cut_over(channel).await.unwrap();
    tcp.shutdown().await.unwrap();
    assert_eq!(verdict(&mut tcp).await.unwrap().bytes, 0);
    one.line("no data arrived").await;
}

#[tokio::test]
async fn an_invalid_hello_ends_the_channel() {
    let (one, _two) = two().await;
    let mut channel = channel(&one, 2).await;
    channel.write_all(&[0xff; 300]).await.unwrap();
    channel.flush().await.unwrap();
    let line = one.line("event=measured_by").await;
    assert!(line.contains("longer than allowed"), "{line}");
    assert!(channel.read_u8().await.is_err());
}
