//! Streams that a real oracle plans: routes by relays, names, and what goes on without it.

use crate::{
    members::{key, member, name},
    scene::{
        Node, PATIENCE, frame, next, node, place, ports, publish_request, publisher, stream,
        subscribe_request, subscriber,
    },
};
use data_encoding::HEXLOWER;
use futures_util::future::BoxFuture;
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tempfile::TempDir;
use thalweg_base::clock::WallClock;
use thalweg_mesh::{
    Membership, Oracle as OracleAddress, OracleClient,
    service::{ApiService, Caller, MemberService as _},
};
use thalweg_net::channel::{Channel, Protocol};
use thalweg_oracle::{Caller as Asker, Config, Oracle};
use thalweg_stream::{
    Settings,
    local::{Publisher, ReceivedItem, StreamError},
};
use thalweg_wire::{
    Signed, Signer as _,
    mesh::{ClientBinding, JoinRequest, Role, Token, TokenRequest},
    stream::leg::{ParentMessage, Refusal, SubscribeRequest},
};
use tokio::{net::TcpStream, task::JoinHandle, time::Instant};

/// The oracle's node has this number.
const ORACLE: u8 = 3;

/// An oracle in a node.
#[derive(Debug)]
struct Inside(Oracle);

impl ApiService for Inside {
    fn serve(&self, channel: Channel<TcpStream>, caller: Caller) -> BoxFuture<'static, ()> {
        let oracle = self.0.clone();
        Box::pin(async move {
            let asker = Asker::peer(caller.key, caller.address);
            assert_eq!(caller.protocol, Protocol::Api);
            _ = oracle.serve(channel, asker).await;
        })
    }
}

/// Nodes `n0` to `n2`, and the oracle at `n3`.
struct Planned {
    nodes: Vec<Node>,
    oracle: Node,
    running: JoinHandle<()>,
    _dir: TempDir,
}

impl Planned {
    async fn start() -> Self {
        Self::start_with(true).await
    }

    /// Starts the nodes. With `follow` they follow the oracle from the beginning.
    async fn start_with(follow: bool) -> Self {
        let dir = TempDir::new().unwrap();
        let (ports, at) = ports(ORACLE + 1);
        let founder = member(ORACLE, Some(at[usize::from(ORACLE)]), &[Role::Relay]);
        let path = dir.path().join("oracle");
        let oracle = Oracle::create(&path, founder, Config::default()).await.unwrap();
        for n in 0..ORACLE {
            join(&oracle, n, at[usize::from(n)]).await;
        }
        let membership = || {
            let membership = Membership::new(oracle.mesh(), None);
            membership.offer(&oracle.roster().borrow()).unwrap();
            membership
        };
        let settings =
            Settings { subscribe: vec!["*".parse().unwrap()], relay: true, ..Settings::default() };
        let (seat, own) = (at[usize::from(ORACLE)], Some(Arc::new(Inside(oracle.clone())) as _));
        let inside = node(ORACLE, seat, membership(), settings.clone(), own).await;
        let mut nodes = Vec::new();
        for n in 0..ORACLE {
            let at = at[usize::from(n)];
            let mut node = node(n, at, membership(), settings.clone(), None).await;
            if follow {
                node.follow(client(n, seat));
            }
            nodes.push(node);
        }
        drop(ports);
        let running = tokio::spawn(async move { oracle.run(std::future::pending()).await });
        Self { nodes, oracle: inside, running, _dir: dir }
    }

    /// Has a node report to the oracle and follow its plan.
    fn follow(&mut self, n: u8) {
        self.nodes[usize::from(n)].follow(client(n, self.oracle.address));
    }

    /// Stops the oracle without notice.
    async fn kill_oracle(&mut self) {
        self.running.abort();
        self.oracle.stop().await;
    }
}

/// Node `n`'s client of the oracle at this address.
fn client(n: u8, at: SocketAddr) -> OracleClient {
    let oracles = vec![OracleAddress { key: key(ORACLE).id(), addresses: vec![at.into()] }];
    OracleClient::new(&key(n), oracles, WallClock::default()).unwrap()
}

async fn join(oracle: &Oracle, n: u8, at: SocketAddr) {
    let valid = Duration::from_secs(3600);
    let request = TokenRequest { roles: [Role::Relay].into(), tags: [].into(), name: None, valid };
    let token = oracle.create_token(&Asker::Local, request).await.unwrap().token;
    let token: Token = token.parse().unwrap();
    let (mesh, node) = (token.mesh, Some(key(n).id()));
    let binding = ClientBinding { mesh, node, token: token.secret.hash() };
    let request = JoinRequest {
        secret: token.secret,
        name: name(n),
        node,
        client: HEXLOWER.encode(&Signed::sign(binding, &key(n + 100)).encode()),
        addresses: vec![at.into()],
        time: WallClock::default().now(),
    };
    oracle.join(&Asker::peer(key(n).id(), at), request).await.unwrap();
}

/// A program that publishes frames, 100 a second, until it is dropped.
struct Camera(JoinHandle<()>);

impl Camera {
    async fn start(node: &Node) -> Self {
        let mut source = publisher(node).await;
        Self(tokio::spawn(async move {
            for place in 0.. {
                source.send(&frame(place)).await.unwrap();
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }))
    }
}

impl Drop for Camera {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Has `from` report that so much is free on its leg to `to`, as trains would.
fn measured(from: &Node, to: u8, mbps: f64) {
    from.streams.report_measurement(&name(to), mbps * 1e6, false, Instant::now());
}

/// The number of the node's last report that the oracle has answered.
fn answered(node: &Node) -> u64 {
    node.streams.report()["oracle"]["reports"].as_u64().unwrap()
}

/// Receives frames until the condition holds, all of them in order.
async fn until(
    viewer: &mut thalweg_stream::local::Subscriber,
    seen: &mut Option<u64>,
    what: &str,
    is: impl Fn() -> bool,
) {
    let began = std::time::Instant::now();
    while !is() {
        let (frame, missing) = next(viewer).await;
        assert_eq!(missing, [], "{what}");
        let place = place(&frame);
        assert!(seen.is_none_or(|last| place == last + 1), "{what}: {place} after {seen:?}");
        *seen = Some(place);
        assert!(began.elapsed() < PATIENCE, "{what}");
    }
}

#[tokio::test]
async fn a_stream_goes_by_the_planned_relay_and_goes_on_without_the_oracle() {
    let mut mesh = Planned::start().await;
    let _camera = Camera::start(&mesh.nodes[0]).await;
    // It names no parent: the plan does.
    let mut viewer = subscriber(&mesh.nodes[2], subscribe_request(None)).await;
    let mut seen = None;
    // The direct leg is narrow, and the two by the relay are wide.
    measured(&mesh.nodes[0], 1, 50.0);
    measured(&mesh.nodes[1], 2, 50.0);
    measured(&mesh.nodes[0], 2, 0.1);
    let parent = |mesh: &Planned| mesh.nodes[2].stream()["parent"].clone();
    until(&mut viewer, &mut seen, "it goes by n1", || parent(&mesh) == "n1").await;
    let report = mesh.nodes[2].streams.report();
    let planned = &report["oracle"]["plan"]["streams"][0];
    assert_eq!((&planned["parent"], &planned["origin"]), (&"n1".into(), &"n0".into()), "{report}");
    let why = &planned["subscriptions"][0]["why"];
    assert_eq!(why["reason"], "rerouted", "{report}");
    assert!(why["estimate"]["bps"].is_u64() && why["estimate"]["age"].is_string(), "{report}");
    mesh.kill_oracle().await;
    let standing = |mesh: &Planned| {
        let report = mesh.nodes[2].streams.report();
        report["oracle"]["standing"].clone()
    };
    until(&mut viewer, &mut seen, "the oracle is gone", || standing(&mesh) == "down").await;
    let last = seen.unwrap();
    for _ in 0..100 {
        seen = Some(place(&next(&mut viewer).await.0));
    }
    assert_eq!((seen, parent(&mesh)), (Some(last + 100), "n1".into()));
    // Without the oracle a dead relay is replaced by the publisher's node.
    mesh.nodes[1].kill().await;
    until(&mut viewer, &mut seen, "it comes from n0", || parent(&mesh) == "n0").await;
}

#[tokio::test]
async fn a_planned_parent_that_does_not_answer_is_given_up() {
    let mut mesh = Planned::start().await;
    let _camera = Camera::start(&mesh.nodes[0]).await;
    let mut viewer = subscriber(&mesh.nodes[2], subscribe_request(None)).await;
    let mut seen = None;
    measured(&mesh.nodes[0], 2, 50.0);
    measured(&mesh.nodes[0], 1, 50.0);
    measured(&mesh.nodes[1], 2, 50.0);
    // The report that is on its way now may have begun before.
    let reported = answered(&mesh.nodes[1]) + 2;
    let planned = |mesh: &Planned, number: &str| {
        let report = mesh.nodes[2].streams.report();
        report["oracle"]["plan"]["streams"][0]["parent"] == number
    };
    until(&mut viewer, &mut seen, "the plan is direct", || planned(&mesh, "n0")).await;
    let is_reported = || answered(&mesh.nodes[1]) >= reported;
    until(&mut viewer, &mut seen, "n1 has reported", is_reported).await;
    mesh.nodes[1].kill().await;
    // It accepts connections and sends nothing.
    let _silent = tokio::net::TcpListener::bind(mesh.nodes[1].address).await.unwrap();
    measured(&mesh.nodes[0], 2, 0.1);
    until(&mut viewer, &mut seen, "the plan names n1", || planned(&mesh, "n1")).await;
    let began = Instant::now();
    until(&mut viewer, &mut seen, "the plan is direct again", || planned(&mesh, "n0")).await;
    // Not only because the oracle forgets members that do not report.
    assert!(began.elapsed() < thalweg_wire::stream::plan::SILENCE, "{:?}", began.elapsed());
}

#[tokio::test]
async fn the_second_publisher_of_a_name_is_told_who_holds_it() {
    let mut mesh = Planned::start().await;
    let camera = Camera::start(&mesh.nodes[0]).await;
    let refused = Publisher::begin(&mesh.nodes[1].socket(), publish_request()).await;
    let held = Refusal::Taken { stream: stream(), by: "n0".to_owned() };
    match refused.map(|_| "it publishes") {
        Err(StreamError::Refused(why)) => assert_eq!(why, held),
        other => panic!("{other:?}"),
    }
    // Without an oracle nobody knows; when the name is free it is anybody's.
    drop(camera);
    mesh.nodes[0].kill().await;
    mesh.kill_oracle().await;
    mesh.nodes[1].soon("the oracle is gone", |report| report["oracle"]["standing"] == "down").await;
    publisher(&mesh.nodes[1]).await;
}

#[tokio::test]
async fn a_running_stream_goes_on_although_another_member_holds_its_name() {
    let mut mesh = Planned::start_with(false).await;
    // n0 publishes while it finds no oracle.
    let _running = Camera::start(&mesh.nodes[0]).await;
    let mut viewer = subscriber(&mesh.nodes[0], subscribe_request(None)).await;
    let mut seen = None;
    mesh.follow(1);
    mesh.follow(2);
    mesh.nodes[1].soon("n1 has an oracle", |report| report["oracle"]["standing"] == "live").await;
    // The new oracle leaves the name to n1, whose stream another member receives.
    let other = publisher(&mesh.nodes[1]).await;
    let _far = subscriber(&mesh.nodes[2], subscribe_request(Some(1))).await;
    mesh.follow(0);
    let held = |mesh: &Planned| mesh.nodes[0].streams.report()["oracle"]["held"].clone();
    let by_n1 = serde_json::json!([{ "stream": "stage", "node": "n1" }]);
    until(&mut viewer, &mut seen, "n1 holds the name", || held(&mesh) == by_n1).await;
    let last = seen.unwrap();
    for _ in 0..100 {
        seen = Some(place(&next(&mut viewer).await.0));
    }
    assert_eq!(seen, Some(last + 100));
    // n0 gets the name when n1 ends its stream.
    other.end().await.unwrap();
    let none = serde_json::json!([]);
    until(&mut viewer, &mut seen, "the name is free", || held(&mesh) == none).await;
}

#[tokio::test]
async fn a_relay_that_a_subscriber_names_asks_the_oracle_itself() {
    let mesh = Planned::start().await;
    let _camera = Camera::start(&mesh.nodes[0]).await;
    // The relay does not have the stream, and no program of its host requests it.
    let mut viewer = subscriber(&mesh.nodes[2], subscribe_request(Some(1))).await;
    let first = place(&next(&mut viewer).await.0);
    assert_eq!(place(&next(&mut viewer).await.0), first + 1);
}

#[tokio::test]
async fn a_subscriber_of_a_rendition_that_nobody_has_seen_yet_is_not_refused() {
    let mesh = Planned::start().await;
    let _camera = Camera::start(&mesh.nodes[0]).await;
    let second = SubscribeRequest { tracks: vec![1], ..subscribe_request(None) };
    let mut source = subscriber(&mesh.nodes[2], second).await;
    // The publisher sends only one rendition, so none of the second arrives, and the subscriber is told so.
    loop {
        let coming = tokio::time::timeout(PATIENCE, source.next()).await.expect("in time");
        match coming.unwrap() {
            ReceivedItem::Message(ParentMessage::Lost(_)) => break,
            ReceivedItem::Message(
                ParentMessage::Alive { .. } | ParentMessage::Level(_) | ParentMessage::Tracks(_),
            ) => {}
            other => panic!("{other:?}"),
        }
    }
}
