//! Tests of chains of one to three relays of a mesh, on loopback.
#![expect(clippy::unwrap_used, reason = "tests")]

mod relay;
mod web;

use relay::{Relay, key};
use std::time::Duration;
use thalweg_net::{
    Cause, Destination, DialError, DialOptions, Dialer, Hop, Route, Stream,
    channel::{ChannelError, Connector},
};
use thalweg_wire::{
    Signer as _,
    mesh::{LegKind, Terms},
    socks5::Reply,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

/// The seed of the client, which the relays admit.
const CLIENT: u8 = 100;

async fn listener() -> (TcpListener, Destination) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap().into();
    (listener, at)
}

fn dialer(seed: u8) -> Dialer {
    Dialer::with_identity(DialOptions::default(), Connector::new(&key(seed)).unwrap())
}

/// A route through running relays with these kinds of legs.
async fn route(legs: &[LegKind]) -> (Route, Vec<Relay>) {
    let mut relays = Vec::new();
    for seed in 1..=legs.len() {
        relays.push(Relay::start(seed as u8, CLIENT).await);
    }
    let hop = |(relay, &leg): (&Relay, &LegKind)| {
        Hop::mesh(relay.at.clone(), relay.key, Terms { leg, ..Terms::default() })
    };
    (Route::new(relays.iter().zip(legs).map(hop).collect()).unwrap(), relays)
}

/// All combinations of kinds for one, two and three legs.
fn all_legs() -> Vec<Vec<LegKind>> {
    let kinds = [LegKind::Sealed, LegKind::Open];
    let one = kinds.map(|k| vec![k]).to_vec();
    let more = |legs: &Vec<Vec<LegKind>>| -> Vec<Vec<LegKind>> {
        let longer = |l: &Vec<LegKind>, k| [&l[..], &[k]].concat();
        legs.iter().flat_map(|l| kinds.map(|k| longer(l, k))).collect()
    };
    let two = more(&one);
    let three = more(&two);
    [one, two, three].concat()
}

const ROUND: usize = 300_000;

/// Sends a request, ends the direction, and reads the whole answer.
async fn ask(stream: &mut Stream) -> Vec<u8> {
    stream.write_all(&vec![7; ROUND]).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn chains_carry_both_directions_and_pass_on_their_ends() {
    for legs in all_legs() {
        let (listener, to) = listener().await;
        let server = async {
            let (mut peer, _) = listener.accept().await.unwrap();
            // The server sends first, so its greeting directly follows the cut-over.
            peer.write_all(b"hello").await.unwrap();
            let mut request = Vec::new();
            peer.read_to_end(&mut request).await.unwrap();
            // The other direction has ended, and this one stays open.
            peer.write_all(&request).await.unwrap();
        };
        let client = async {
            let (route, relays) = route(&legs).await;
            let mut stream = dialer(CLIENT).dial(&route, &to).await.unwrap();
            let depths: Vec<u8> = relays.iter().map(|r| r.depth()).collect();
            assert_eq!(depths, (0..legs.len() as u8).collect::<Vec<_>>(), "{legs:?}");
            assert!(stream.tcp_info().unwrap().received > 0);
            let answer = ask(&mut stream).await;
            assert!(answer.starts_with(b"hello"), "{legs:?}");
            assert_eq!(answer.len(), 5 + ROUND, "{legs:?}");
            assert!(answer[5..] == [7; ROUND], "{legs:?}");
        };
        tokio::join!(server, client);
    }
}

#[tokio::test]
async fn a_stream_whose_legs_are_all_open_is_its_tcp_connection() {
    let (listener, to) = listener().await;
    let (route, _relays) = route(&[LegKind::Open, LegKind::Open]).await;
    let stream = dialer(CLIENT).dial(&route, &to).await.unwrap();
    let (mut peer, _) = listener.accept().await.unwrap();
    let mut tcp = stream.into_tcp().unwrap();
    tcp.write_all(b"clear").await.unwrap();
    let mut seen = [0; 5];
    peer.read_exact(&mut seen).await.unwrap();
    assert_eq!(&seen, b"clear");
}

/// Dials `to` by a chain of two sealed hops, the second of which `change` has altered.
async fn fails(seed: u8, change: impl FnOnce(&mut Hop)) -> (DialError, Vec<Hop>) {
    let (route, _relays) = route(&[LegKind::Sealed; 2]).await;
    let mut hops = route.hops().to_vec();
    change(&mut hops[1]);
    let (closed, to) = listener().await;
    drop(closed);
    let route = Route::new(hops.clone()).unwrap();
    (dialer(seed).dial(&route, &to).await.unwrap_err(), hops)
}

#[tokio::test]
async fn a_failure_names_the_hop_and_the_reason() {
    let (error, hops) =
        fails(CLIENT, |hop| *hop = Hop::mesh(hop.relay.clone(), key(9).id(), Terms::default()))
            .await;
    assert!(matches!(error.cause, Cause::Channel(ChannelError::WrongKey(_))), "{error:?}");
    assert_eq!(error.relay(), Some(&hops[1].relay));
    assert!(error.to_string().contains("a node other than"), "{error}");

    let (error, hops) = fails(8, |_| ()).await;
    assert!(matches!(error.cause, Cause::Channel(ChannelError::NotAdmitted)), "{error:?}");
    assert_eq!(error.relay(), Some(&hops[0].relay));

    let (error, hops) = fails(CLIENT, |_| ()).await;
    assert!(matches!(error.cause, Cause::Refused(Reply::ConnectionRefused)), "{error:?}");
    assert_eq!(error.relay(), Some(&hops[1].relay));
}

#[tokio::test]
async fn without_an_identity_nothing_is_opened() {
    let (route, relays) = route(&[LegKind::Sealed]).await;
    let error = Dialer::default().dial(&route, &relays[0].at).await.unwrap_err();
    assert!(matches!(error.cause, Cause::NoIdentity), "{error:?}");
    assert!(error.to_string().contains("join the mesh first"), "{error}");
    assert_eq!(relays[0].accepted(), 0);
}

#[tokio::test]
async fn a_relay_that_is_silent_in_the_handshake_times_out_at_the_deadline() {
    let (_silent, at) = listener().await;
    let options = DialOptions { deadline: Duration::from_millis(50), ..DialOptions::default() };
    let dialer = Dialer::with_identity(options, Connector::new(&key(CLIENT)).unwrap());
    let route = Route::new(vec![Hop::mesh(at.clone(), key(1).id(), Terms::default())]).unwrap();
    let error = dialer.dial(&route, &at).await.unwrap_err();
    assert_eq!(error.to_string(), format!("cannot reach relay {at}: no answer within 50ms"));
}

#[tokio::test]
async fn a_plain_relay_may_precede_relays_of_the_mesh() {
    let (listener, to) = listener().await;
    let plain = relay::plain().await;
    let (route, relays) = route(&[LegKind::Sealed]).await;
    let hops = [vec![Hop::socks(plain)], route.hops().to_vec()].concat();
    let route = Route::new(hops).unwrap();
    let mut stream = dialer(CLIENT).dial(&route, &to).await.unwrap();
    assert_eq!(relays[0].depth(), 0, "plain relays write no preamble");
    let (mut peer, _) = listener.accept().await.unwrap();
    stream.write_all(b"it").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut seen = Vec::new();
    peer.read_to_end(&mut seen).await.unwrap();
    assert_eq!(seen, b"it");
}

/// An address where nobody listens, one where another host listens, and the relay's.
async fn misleading(relay: &Relay) -> Vec<Destination> {
    let (closed, nobody) = listener().await;
    drop(closed);
    let other = Relay::start(77, CLIENT).await;
    vec![nobody, other.at, relay.at.clone()]
}

#[tokio::test]
async fn first_and_later_relays_are_found_at_any_of_their_addresses() {
    let (_listener, to) = listener().await;
    for legs in [&[LegKind::Open][..], &[LegKind::Open, LegKind::Sealed]] {
        let (route, relays) = route(legs).await;
        let mut hops = route.hops().to_vec();
        for (hop, relay) in hops.iter_mut().zip(&relays) {
            let mut all = misleading(relay).await;
            hop.relay = all.remove(0);
            hop.others = all;
        }
        let stream = dialer(CLIENT).dial(&Route::new(hops).unwrap(), &to).await.unwrap();
        assert!(stream.tcp_info().is_ok());
        assert_eq!(relays.last().unwrap().depth() as usize, legs.len() - 1);
    }
}

#[tokio::test]
async fn a_relay_that_is_at_none_of_its_addresses_is_named() {
    let (_listener, to) = listener().await;
    let (route, relays) = route(&[LegKind::Sealed; 2]).await;
    for wrong in 0..2 {
        let mut hops = route.hops().to_vec();
        let mut all = misleading(&relays[wrong]).await;
        all.pop();
        hops[wrong].relay = all.remove(0);
        hops[wrong].others = all.clone();
        let error = dialer(CLIENT).dial(&Route::new(hops).unwrap(), &to).await.unwrap_err();
        assert!(matches!(error.cause, Cause::Channel(ChannelError::WrongKey(_))), "{error:?}");
    }
}

#[tokio::test]
async fn other_addresses_do_not_help_a_destination_that_refuses() {
    let (closed, to) = listener().await;
    drop(closed);
    let (route, relays) = route(&[LegKind::Sealed; 2]).await;
    let mut hops = route.hops().to_vec();
    hops[1].others = vec![relays[0].at.clone()];
    let error = dialer(CLIENT).dial(&Route::new(hops).unwrap(), &to).await.unwrap_err();
    assert!(matches!(error.cause, Cause::Refused(Reply::ConnectionRefused)), "{error:?}");
    assert_eq!(relays[1].accepted(), 1, "asked once");
}
