//! Tests of members' connections through real channels: transfers, refusals, and cuts.

use super::scene::{Plan, Scene, key, tags};
use crate::*;
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use thalweg_net::{
    Cause, DialError,
    channel::{Channel, Connector, Protocol},
    connect_by_terms,
};
use thalweg_units::{ByteSize, Rate};
use thalweg_wire::{
    Destination, Signer as _,
    mesh::{LegKind, Preamble, Quota, RelayRequest, Rule},
    socks5::{self, Reply},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

const BOTH: [LegKind; 2] = [LegKind::Sealed, LegKind::Open];

async fn destination() -> (TcpListener, Destination) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap().into();
    (listener, at)
}

async fn read_all(from: &mut (impl AsyncReadExt + Unpin)) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).await?;
    Ok(bytes)
}

fn refusal(error: &DialError) -> Option<Reply> {
    match error.cause {
        Cause::Refused(reply) => Some(reply),
        _ => None,
    }
}

#[tokio::test]
async fn one_and_two_relays_carry_both_directions_sealed_and_open() {
    for leg in BOTH {
        for through in [&[1][..], &[1, 2]] {
            let scene = Scene::new(Plan::default()).await;
            let (listener, to) = destination().await;
            let dialled = scene.dial(through, leg, &[], &to);
            let (client, accepted) = tokio::join!(dialled, listener.accept());
            let (mut client, mut server) = (client.unwrap(), accepted.unwrap().0);
            // The server speaks first; then the client ends first and still receives.
            server.write_all(b"greeting").await.unwrap();
            client.read_exact(&mut [0; 8]).await.unwrap();
            let data: Vec<u8> = (0..300_000u32).map(|i| (i / 3) as u8).collect();
            client.write_all(&data).await.unwrap();
            client.shutdown().await.unwrap();
            assert_eq!(read_all(&mut server).await.unwrap(), data);
            server.write_all(b"late answer").await.unwrap();
            drop(server);
            assert_eq!(read_all(&mut client).await.unwrap(), b"late answer");
            drop(client);
            let kind = if leg == LegKind::Open { "open" } else { "sealed" };
            let last = &scene.nodes[through.len() - 1];
            let line = last.line().await;
            for part in [
                "event=closed ",
                " peer=c ",
                &format!(" depth={} ", through.len() - 1),
                &format!(" leg={kind} "),
                " up_bytes=300000 down_bytes=19 ",
            ] {
                assert!(line.contains(part), "{part} in {line}");
            }
            let id = key(90).id().to_string();
            assert!(line.contains(&id[..8]) && !line.contains(&id[..10]), "{line}");
            let sums =
                format!("thalweg_relay_bytes_total{{direction=\"up\",leg=\"{kind}\"}} 300000");
            assert!(last.metrics().contains(&sums), "{}", last.metrics());
        }
    }
}

/// Opens a channel of the client to the first relay, and sends `before` on the bare connection first.
async fn channel(scene: &Scene, before: &[u8]) -> Channel<TcpStream> {
    let mut tcp = TcpStream::connect(scene.nodes[0].at).await.unwrap();
    tcp.write_all(before).await.unwrap();
    let connector = Connector::new(&key(190)).unwrap();
    connector.connect(tcp, key(1).id(), Protocol::Relay).await.unwrap()
}

/// Sends a plain CONNECT inside the channel. Returns the code of the reply.
async fn plain_connect(channel: &mut Channel<TcpStream>, to: &Destination) -> u8 {
    channel.write_all(&socks5::encode_methods()).await.unwrap();
    let mut method = [0; 2];
    channel.read_exact(&mut method).await.unwrap();
    assert_eq!(method, [5, 0]);
    channel.write_all(&socks5::encode_connect(to)).await.unwrap();
    let mut reply = [0; 10];
    channel.read_exact(&mut reply).await.unwrap();
    reply[1]
}

#[tokio::test]
async fn plain_socks5_inside_the_channel_is_sealed() {
    let scene = Scene::new(Plan::default()).await;
    let (listener, to) = destination().await;
    let mut channel = channel(&scene, b"").await;
    let (code, accepted) = tokio::join!(plain_connect(&mut channel, &to), listener.accept());
    assert_eq!(code, Reply::Succeeded.code());
    let mut server = accepted.unwrap().0;
    server.write_all(b"hello").await.unwrap();
    drop(server);
    channel.shutdown().await.unwrap();
    assert_eq!(read_all(&mut channel).await.unwrap(), b"hello");
    assert!(scene.nodes[0].line().await.contains(" leg=sealed "));
}

#[tokio::test]
async fn a_member_behind_too_many_relays_reaches_no_further_one() {
    let scene = Scene::new(Plan::default()).await;
    let next = scene.nodes[1].at.into();
    let ask = RelayRequest { next: Some(key(2).id()), ..RelayRequest::default() };
    for (depth, passes) in [(1, true), (2, false)] {
        let mut channel = channel(&scene, &Preamble { depth }.encode()).await;
        let reply = connect_by_terms(&mut channel, &ask, &next).await;
        let refused = matches!(reply, Err(Cause::Refused(Reply::NotAllowed)));
        assert!(if passes { reply.is_ok() } else { refused }, "depth {depth}: {reply:?}");
    }
    // The third relay of the chain may still connect to other destinations.
    let (listener, to) = destination().await;
    let mut channel = channel(&scene, &Preamble { depth: 2 }.encode()).await;
    let (code, _server) = tokio::join!(plain_connect(&mut channel, &to), listener.accept());
    assert_eq!(code, Reply::Succeeded.code());
}

#[tokio::test]
async fn tags_to_avoid_are_refused_at_each_hop_and_by_rules() {
    let plan = || Plan { tags: vec![&[], &["country=xx"], &[]], ..Plan::default() };
    let scene = Scene::new(plan()).await;
    let (_listener, to) = destination().await;
    for leg in BOTH {
        // The tag is carried by the first relay, by the second, and by a relay that the third one is asked to connect
        // to.
        for (through, blamed) in [(&[2, 1][..], 2), (&[1, 2], 1), (&[3, 1, 2], 1)] {
            let error = scene.dial(through, leg, &["country=xx"], &to).await.unwrap_err();
            assert_eq!(refusal(&error), Some(Reply::NotAllowed), "{through:?}: {error}");
            let at: Destination = scene.nodes[blamed - 1].at.into();
            assert_eq!(error.relay(), Some(&at), "{through:?}: {error}");
            let line = scene.nodes[blamed - 1].line().await;
            assert!(line.contains("country=xx") && line.contains("reason=avoid"), "{line}");
        }
    }
    let rule = Rule {
        client: Some("guest".parse().unwrap()),
        avoid: tags(&["country=xx"]),
        ..Rule::default()
    };
    let scene = Scene::new(Plan { rules: vec![rule], ..plan() }).await;
    let error = scene.dial(&[2], LegKind::Open, &[], &to).await.unwrap_err();
    assert_eq!(refusal(&error), Some(Reply::NotAllowed), "{error}");
}

#[tokio::test]
async fn a_relay_does_not_connect_to_itself() {
    let scene = Scene::new(Plan::default()).await;
    let own = scene.nodes[0].at;
    let other_spelling = Destination::new("localhost", own.port()).unwrap();
    for to in [own.into(), other_spelling] {
        let error = scene.dial(&[1], LegKind::Sealed, &[], &to).await.unwrap_err();
        assert_eq!(refusal(&error), Some(Reply::NotAllowed), "{to}: {error}");
        let line = scene.nodes[0].line().await;
        assert!(line.contains("reason=admin_port"), "{line}");
    }
    assert!(scene.nodes[0].metrics().contains("refusals_total{reason=\"admin_port\"} 2"));
}

fn quota(quota: Quota) -> Plan {
    Plan { rules: vec![Rule { quota, ..Rule::default() }], ..Plan::default() }
}

#[tokio::test]
async fn a_connection_over_the_quota_is_refused() {
    let one = Quota { connections: Some(1), ..Quota::default() };
    let scene = Scene::new(quota(one)).await;
    let (listener, to) = destination().await;
    let dialled = scene.dial(&[1], LegKind::Open, &[], &to);
    let (client, server) = tokio::join!(dialled, listener.accept());
    let error = scene.dial(&[1], LegKind::Open, &[], &to).await.unwrap_err();
    assert_eq!(refusal(&error), Some(Reply::NotAllowed), "{error}");
    let line = scene.nodes[0].line().await;
    assert!(line.contains("quota_connections") && line.contains("try again when"), "{line}");
    drop((client, server));
    scene.nodes[0].line().await;
    let dialled = scene.dial(&[1], LegKind::Open, &[], &to);
    let (client, _server) = tokio::join!(dialled, listener.accept());
    client.unwrap();
}

#[tokio::test]
async fn the_nodes_own_quota_applies_in_addition_to_the_rules() {
    let none = |config: &mut RelayConfig| config.quota.connections = Some(0);
    let scene = Scene::new(Plan { change: none, ..quota(Quota::default()) }).await;
    let (_listener, to) = destination().await;
    let error = scene.dial(&[1], LegKind::Sealed, &[], &to).await.unwrap_err();
    assert_eq!(refusal(&error), Some(Reply::NotAllowed), "{error}");
    let metrics = scene.nodes[0].metrics();
    assert!(metrics.contains("refusals_total{reason=\"quota_connections\"} 1"), "{metrics}");
}

#[tokio::test]
async fn used_up_daily_bytes_cut_the_connection_and_refuse_the_next() {
    for leg in BOTH {
        let day = Quota { bytes_per_day: Some(ByteSize::from_bytes(100_000)), ..Quota::default() };
        let scene = Scene::new(quota(day)).await;
        let (listener, to) = destination().await;
        let dialled = scene.dial(&[1], leg, &[], &to);
        let (client, accepted) = tokio::join!(dialled, listener.accept());
        let (mut client, mut server) = (client.unwrap(), accepted.unwrap().0);
        let flood =
            tokio::spawn(async move { while server.write_all(&[7; 10_000]).await.is_ok() {} });
        let mut got = 0;
        let error = loop {
            let mut chunk = [0; 10_000];
            match client.read(&mut chunk).await {
                Ok(0) => panic!("a cut looks like an end"),
                Ok(n) => got += n,
                Err(e) => break e,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
        assert!(got < 300_000, "{got}");
        flood.await.unwrap();
        let line = scene.nodes[0].line().await;
        assert!(line.contains("event=quota ") && line.contains(" retry_s="), "{line}");
        let error = scene.dial(&[1], leg, &[], &to).await.unwrap_err();
        assert_eq!(refusal(&error), Some(Reply::NotAllowed), "{error}");
        let line = scene.nodes[0].line().await;
        assert!(line.contains("quota_bytes") && line.contains("try again in"), "{line}");
    }
}

#[tokio::test]
async fn a_rate_limit_loses_no_bytes() {
    let rate = Quota { rate: Some(Rate::from_bps(80_000_000)), ..Quota::default() };
    let scene = Scene::new(quota(rate)).await;
    let (listener, to) = destination().await;
    let dialled = scene.dial(&[1], LegKind::Open, &[], &to);
    let (client, accepted) = tokio::join!(dialled, listener.accept());
    let (mut client, mut server) = (client.unwrap(), accepted.unwrap().0);
    let sent = tokio::spawn(async move {
        server.write_all(&vec![1; 4_000_000]).await.unwrap();
    });
    assert_eq!(read_all(&mut client).await.unwrap().len(), 4_000_000);
    sent.await.unwrap();
}

#[tokio::test]
async fn a_revoked_member_is_cut_on_both_legs() {
    for leg in BOTH {
        let mut scene = Scene::new(Plan::default()).await;
        let (listener, to) = destination().await;
        let dialled = scene.dial(&[1, 2], leg, &[], &to);
        let (client, accepted) = tokio::join!(dialled, listener.accept());
        let (mut client, mut server) = (client.unwrap(), accepted.unwrap().0);
        scene.revoke_client();
        assert!(read_all(&mut client).await.is_err(), "a cut looks like an end");
        let error = read_all(&mut server).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        for node in &scene.nodes {
            let line = node.line().await;
            // The relay that is first to revoke the member breaks the other's leg.
            assert!(line.contains("event=revoked ") || line.contains("event=broken "), "{line}");
        }
        let error = scene.dial(&[1], leg, &[], &to).await.unwrap_err();
        assert_eq!(refusal(&error), None, "no word of SOCKS5: {error}");
    }
}

#[tokio::test]
async fn connections_beyond_the_bound_are_refused() {
    let scene = Scene::new(Plan { change: |c| c.max_connections = 1, ..Plan::default() }).await;
    let (listener, to) = destination().await;
    let dialled = scene.dial(&[1], LegKind::Open, &[], &to);
    let (_client, _server) = tokio::join!(dialled, listener.accept());
    let error = scene.dial(&[1], LegKind::Open, &[], &to).await.unwrap_err();
    assert_eq!(refusal(&error), Some(Reply::GeneralFailure), "{error}");
    assert!(scene.nodes[0].line().await.contains("reason=full"));
}

#[tokio::test]
async fn one_member_does_not_take_all_slots() {
    // A quarter of 20 would be 5; the minimum is 16.
    let scene = Scene::new(Plan { change: |c| c.max_connections = 20, ..Plan::default() }).await;
    let (listener, to) = destination().await;
    let mut held = Vec::new();
    for _ in 0..16 {
        let dialled = scene.dial(&[1], LegKind::Open, &[], &to);
        let (client, server) = tokio::join!(dialled, listener.accept());
        held.push((client.unwrap(), server.unwrap()));
    }
    let error = scene.dial(&[1], LegKind::Open, &[], &to).await.unwrap_err();
    assert_eq!(refusal(&error), Some(Reply::NotAllowed), "{error}");
    assert!(scene.nodes[0].line().await.contains("reason=quota_connections"));
}

#[tokio::test]
async fn a_quota_may_give_a_member_more_than_a_quarter() {
    let quota = Quota { connections: Some(17), ..Quota::default() };
    let rule = Rule { quota, ..Rule::default() };
    let plan = Plan { rules: vec![rule], change: |c| c.max_connections = 20, ..Plan::default() };
    let scene = Scene::new(plan).await;
    let (listener, to) = destination().await;
    let mut held = Vec::new();
    for _ in 0..17 {
        let dialled = scene.dial(&[1], LegKind::Open, &[], &to);
        let (client, server) = tokio::join!(dialled, listener.accept());
        held.push((client.unwrap(), server.unwrap()));
    }
    scene.dial(&[1], LegKind::Open, &[], &to).await.unwrap_err();
}

/// Names that an attacker set up, and the internal addresses to which they resolve.
const TRAPS: [(&str, &str); 7] = [
    ("loopback.test", "127.0.0.1"),
    ("private.test", "10.1.2.3"),
    ("metadata.test", "169.254.169.254"),
    ("mapped.test", "::ffff:127.0.0.1"),
    ("nat64.test", "64:ff9b::a9fe:a9fe"),
    ("six-to-four.test", "2002:7f00:1::1"),
    ("local.test", "fd00:ec2::254"),
];

#[derive(Debug)]
struct Traps;

impl Resolver for Traps {
    fn resolve<'a>(&'a self, host: &'a Destination) -> ResolveFuture<'a> {
        let name = host.host.to_string();
        let ip = TRAPS.iter().find(|(trap, _)| *trap == name).unwrap().1.parse().unwrap();
        Box::pin(async move { Ok(vec![SocketAddr::new(ip, host.port)]) })
    }
}

#[tokio::test]
async fn names_that_resolve_to_internal_addresses_are_refused_and_logged() {
    let change = |config: &mut RelayConfig| {
        config.egress = EgressPolicy::new(vec![], vec![]);
        config.resolver = Arc::new(Traps);
    };
    let scene = Scene::new(Plan { change, ..Plan::default() }).await;
    for (name, ip) in TRAPS {
        let to = Destination::new(name, 80).unwrap();
        let error = scene.dial(&[1], LegKind::Sealed, &[], &to).await.unwrap_err();
        assert_eq!(refusal(&error), Some(Reply::NotAllowed), "{name}: {error}");
        let line = scene.nodes[0].line().await;
        assert!(line.contains(ip) && line.contains(&format!("to={name}:80")), "{line}");
        assert!(line.contains("reason=address_class"), "{line}");
    }
}

/// Answers with the first address once, and with the second from then on.
#[derive(Debug)]
struct Rebinding {
    answers: [&'static str; 2],
    asked: AtomicUsize,
}

/// Each use has its own static, since `change` is a plain function and cannot capture one.
static GOOD_FIRST: Rebinding =
    Rebinding { answers: ["127.0.0.1", "127.0.0.2"], asked: AtomicUsize::new(0) };
static BAD_FIRST: Rebinding =
    Rebinding { answers: ["127.0.0.2", "127.0.0.1"], asked: AtomicUsize::new(0) };

#[derive(Debug)]
struct RebindingResolver(&'static Rebinding);

impl Resolver for RebindingResolver {
    fn resolve<'a>(&'a self, host: &'a Destination) -> ResolveFuture<'a> {
        let turn = self.0.asked.fetch_add(1, Ordering::SeqCst).min(1);
        let ip = self.0.answers[turn].parse().unwrap();
        Box::pin(async move { Ok(vec![SocketAddr::new(ip, host.port)]) })
    }
}

/// Allows 127.0.0.1 and denies 127.0.0.2.
fn one_address(config: &mut RelayConfig, rebinding: &'static Rebinding) {
    let net = |text: &str| text.parse().unwrap();
    let ports = vec!["1024-65535".parse().unwrap()];
    config.egress = EgressPolicy::new(vec![net("127.0.0.1/32")], ports).deny([net("127.0.0.2/32")]);
    config.resolver = Arc::new(RebindingResolver(rebinding));
}

#[tokio::test]
async fn a_name_is_resolved_once_and_the_checked_address_is_dialled() {
    let change = |config: &mut RelayConfig| one_address(config, &GOOD_FIRST);
    let scene = Scene::new(Plan { change, ..Plan::default() }).await;
    let (listener, at) = destination().await;
    let denied = TcpListener::bind(("127.0.0.2", at.port)).await.unwrap();
    let to = Destination::new("rebinding.test", at.port).unwrap();
    let dialled = scene.dial(&[1], LegKind::Sealed, &[], &to);
    let (client, accepted) = tokio::join!(dialled, listener.accept());
    client.unwrap();
    accepted.unwrap();
    assert_eq!(GOOD_FIRST.asked.load(Ordering::SeqCst), 1);
    // The only connection went to the checked address: none waits at the other one.
    tokio::select! {
        biased;
        other = denied.accept() => panic!("dialled the second answer: {other:?}"),
        () = tokio::task::yield_now() => {}
    }

    let change = |config: &mut RelayConfig| one_address(config, &BAD_FIRST);
    let scene = Scene::new(Plan { change, ..Plan::default() }).await;
    let error = scene.dial(&[1], LegKind::Sealed, &[], &to).await.unwrap_err();
    assert_eq!(refusal(&error), Some(Reply::NotAllowed), "{error}");
    assert_eq!(BAD_FIRST.asked.load(Ordering::SeqCst), 1);
    let line = scene.nodes[0].line().await;
    assert!(line.contains("127.0.0.2") && line.contains("reason=deny_list"), "{line}");
}

/// Name servers that fail with this text. Addresses resolve to themselves.
#[derive(Debug)]
struct Failing(&'static str);

impl Resolver for Failing {
    fn resolve<'a>(&'a self, host: &'a Destination) -> ResolveFuture<'a> {
        let answer = match host.host {
            thalweg_wire::Host::Ip(ip) => Ok(vec![SocketAddr::new(ip, host.port)]),
            thalweg_wire::Host::Name(_) => Err(Cause::Resolve(io::Error::other(self.0))),
        };
        Box::pin(async move { answer })
    }
}

#[tokio::test]
async fn a_name_of_an_avoided_member_that_cannot_be_resolved_refuses_the_connection() {
    for (text, refused) in [
        ("failed to lookup address information: Temporary failure in name resolution", true),
        ("failed to lookup address information: Name or service not known", false),
    ] {
        let change: fn(&mut RelayConfig) = match refused {
            true => |config| {
                let text = "failed to lookup address information: Temporary failure";
                config.resolver = Arc::new(Failing(text));
            },
            false => |config| {
                let text = "failed to lookup address information: Name or service not known";
                config.resolver = Arc::new(Failing(text));
            },
        };
        let (listener, to) = destination().await;
        let hidden = Destination::new("hidden.test", to.port).unwrap();
        let scene = Scene::with_named(Plan { change, ..Plan::default() }, &hidden).await;
        let dialled = scene.dial(&[1], LegKind::Sealed, &["country=xx"], &to);
        if refused {
            let error = dialled.await.unwrap_err();
            assert_eq!(refusal(&error), Some(Reply::NotAllowed), "{text}: {error}");
            let line = scene.nodes[0].line().await;
            assert!(line.contains("reason=avoid") && line.contains("hidden.test"), "{line}");
        } else {
            let (client, _server) = tokio::join!(dialled, listener.accept());
            client.unwrap();
        }
    }
}

#[tokio::test]
async fn silent_channels_count_against_the_bounds() {
    for (plan, reply) in [
        (quota(Quota { connections: Some(1), ..Quota::default() }), Reply::NotAllowed),
        (Plan { change: |c| c.max_connections = 1, ..Plan::default() }, Reply::GeneralFailure),
    ] {
        let scene = Scene::new(plan).await;
        let (_listener, to) = destination().await;
        let mut silent = channel(&scene, b"").await;
        // The answer to its methods shows that it is being served; it sends nothing more.
        silent.write_all(&socks5::encode_methods()).await.unwrap();
        silent.read_exact(&mut [0; 2]).await.unwrap();
        let error = scene.dial(&[1], LegKind::Open, &[], &to).await.unwrap_err();
        assert_eq!(refusal(&error), Some(reply), "{error}");
    }
}
