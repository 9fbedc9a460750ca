//! A bond to a real daemon: its streams contain channels, as TCP connections do.

#[path = "../fixtures/members.rs"]
#[allow(dead_code, reason = "not all of it is needed here")]
mod members;

use crate::{soon, text};
use futures_util::future::BoxFuture;
use members::{ANYWHERE, config, key, member, membership, name, nothing, served, signed};
use std::{net::SocketAddr, num::NonZeroU32, sync::Arc};
use tempfile::TempDir;
use thalweg_base::log::Log;
use thalweg_mesh::{Membership, MeshPeer, Names, service::MemberService};
use thalweg_net::{
    DialOptions, Dialer, Interface, PrivateKey,
    channel::{Channel, Connector, Protocol},
};
use thalweg_node::daemon::{Daemon, Services};
use thalweg_uplinks::bond::{Bond, BondLimits, Bonds, Settings};
use thalweg_wire::{
    Signer as _,
    bond::{BondId, BondMessage, FRAME_HEAD, Frame, Greeting, Hello, Refusal, Target},
    mesh::Role,
    object,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::mpsc,
};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Echoes all bytes.
#[derive(Debug)]
struct Echo;

impl MemberService for Echo {
    fn serve(
        &self,
        mut channel: Channel<TcpStream>,
        peer: MeshPeer,
        _: SocketAddr,
    ) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            channel.write_all(peer.member().name.as_str().as_bytes()).await.unwrap();
            let (mut read, mut write) = tokio::io::split(channel);
            _ = tokio::io::copy(&mut read, &mut write).await;
            _ = write.shutdown().await;
        })
    }
}

/// Reports the source of its channels.
#[derive(Debug)]
struct Seen(mpsc::Sender<SocketAddr>);

impl MemberService for Seen {
    fn serve(
        &self,
        _: Channel<TcpStream>,
        _: MeshPeer,
        from: SocketAddr,
    ) -> BoxFuture<'static, ()> {
        self.0.try_send(from).unwrap();
        Box::pin(async {})
    }
}

const LIMITS: BondLimits = BondLimits { bonds: 16, memory: 256 << 20 };

struct Scene {
    at: SocketAddr,
    bonds: Bonds,
    membership: Membership,
    seen: mpsc::Receiver<SocketAddr>,
    _dir: TempDir,
    _end: DropGuard,
}

/// `n1` runs a node that echoes; `n0` has none.
async fn scene() -> Scene {
    let (dir, membership) = (TempDir::new().unwrap(), membership());
    let at = std::net::TcpListener::bind(ANYWHERE).unwrap().local_addr().unwrap();
    let bonds = Bonds::new(Settings::default(), LIMITS, Log::to_queue().0);
    bonds.set_own_port(at);
    let (bond, files) = (Arc::new(bonds.clone()), Arc::new(Echo));
    let (tell, seen) = mpsc::channel(16);
    let cast = Some(Arc::new(Seen(tell)) as Arc<dyn MemberService>);
    let services = Services { bond: Some(bond), files: Some(files), cast, ..nothing() };
    let daemon = Daemon::bind(config(at, dir.path()), served(1, &membership, services));
    let daemon = daemon.await.unwrap();
    let node = member(1, Some(at), &[Role::Client]);
    let members = vec![member(0, None, &[Role::Client]), node, member(2, None, &[Role::Client])];
    membership.offer(&signed(1, members)).unwrap();
    let end = CancellationToken::new();
    let cancelled = end.clone();
    tokio::spawn(async move {
        daemon.run(cancelled.clone().cancelled_owned(), cancelled.cancelled_owned()).await;
    });
    Scene { at, bonds, membership, seen, _dir: dir, _end: end.drop_guard() }
}

impl Scene {
    /// A bond of `n0`, with this many links over loopback.
    fn bond(&self, links: u32) -> Bond {
        let identity = Connector::new(&key(100)).unwrap();
        let dialer = Dialer::with_identity(DialOptions::default(), identity);
        let roster = self.membership.current();
        let me = name(0);
        let to = Names { roster: roster.as_deref().ok_or("none"), me: Some(&me) };
        let to = to.node(&name(1)).unwrap();
        let lo = rustix::net::netdevice::name_to_index(
            rustix::net::socket(
                rustix::net::AddressFamily::INET,
                rustix::net::SocketType::DGRAM,
                None,
            )
            .unwrap(),
            "lo",
        )
        .unwrap();
        let card = Interface::new(NonZeroU32::new(lo).unwrap(), "lo");
        let interface = |_| Interface { addresses: vec![self.at.ip()], ..card.clone() };
        let all: Vec<Interface> = (0..links).map(interface).collect();
        Bond::with_interfaces(dialer, to, Settings::default(), Arc::new(move |_| Ok(all.clone())))
            .unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_works_over_a_bond_as_over_tcp() {
    let scene = scene().await;
    let bond = scene.bond(1);
    let stream = soon(bond.open()).await.unwrap();
    let connector = Connector::new(&key(100)).unwrap();
    let channel = connector.connect(stream, key(1).id(), Protocol::Object);
    let mut channel = soon(channel).await.unwrap();
    let mut who = [0; 2];
    soon(channel.read_exact(&mut who)).await.unwrap();
    assert_eq!(&who, b"n0");
    let text = text(4 << 20);
    let mut got = Vec::new();
    let (mut read, mut write) = tokio::io::split(channel);
    let send = async {
        write.write_all(&text).await.unwrap();
        write.shutdown().await.unwrap();
    };
    let (_, ()) = soon(async { tokio::join!(read.read_to_end(&mut got), send) }).await;
    assert!(got == text, "{} bytes came", got.len());
    assert!(bond.sent().values().sum::<u64>() >= 4 << 20);
    assert_eq!(scene.bonds.count(), 1);
}

/// The oracle lets clients on its host name loopback addresses, to which other members would then connect.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_over_a_bond_does_not_count_as_the_node_itself() {
    let mut scene = scene().await;
    let bond = scene.bond(1);
    let stream = soon(bond.open()).await.unwrap();
    let connector = Connector::new(&key(100)).unwrap();
    let channel = soon(connector.connect(stream, key(1).id(), Protocol::Cast)).await.unwrap();
    let from = soon(scene.seen.recv()).await.unwrap();
    assert_eq!(scene.bonds.origin(from), None, "the stream's own connection to the node's port");
    drop(channel);
    // A channel over TCP comes from its own address.
    let tcp = TcpStream::connect(scene.at).await.unwrap();
    let local = tcp.local_addr().unwrap();
    let _channel = soon(connector.connect(tcp, key(1).id(), Protocol::Cast)).await.unwrap();
    assert_eq!(soon(scene.seen.recv()).await.unwrap(), local);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_member_has_no_bond() {
    let scene = scene().await;
    let bond = scene.bond(1);
    let mut stream = soon(bond.open()).await.unwrap();
    let members = vec![member(1, Some(scene.at), &[Role::Client])];
    scene.membership.offer(&signed(2, members)).unwrap();
    // Writing fails, at the latest when the link is dialled again and not admitted.
    soon(async { while stream.write_all(&[0; 1000]).await.is_ok() {} }).await;
    soon(async {
        while scene.bonds.count() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Opens a link by hand, with any greeting: the connection, or why it was refused.
async fn link(scene: &Scene, key: &PrivateKey, hello: &Hello) -> Result<TcpStream, Refusal> {
    let identity = Connector::new(key).unwrap();
    let tcp = TcpStream::connect(scene.at).await.unwrap();
    let connect = identity.connect(tcp, self::key(1).id(), Protocol::Bond);
    let mut channel = soon(connect).await.unwrap();
    channel.write_all(&object::encode(hello)).await.unwrap();
    channel.flush().await.unwrap();
    let length = soon(channel.read_u32()).await.unwrap();
    let mut body = vec![0; length as usize];
    soon(channel.read_exact(&mut body)).await.unwrap();
    match object::decode(&body).unwrap() {
        Greeting::Refused(why) => Err(why),
        Greeting::Welcome { .. } => {
            let (tcp, early) = soon(thalweg_net::cut_over(channel)).await.unwrap();
            assert!(early.is_empty());
            Ok(tcp)
        }
    }
}

fn hello(bond: u8, link: u32, goes_on: bool) -> Hello {
    let (is_metered, is_relayed) = (false, false);
    Hello { bond: BondId([bond; 16]), link, window: 1 << 20, goes_on, is_metered, is_relayed }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_joins_anothers_bond() {
    let scene = scene().await;
    let mut own = link(&scene, &key(100), &hello(7, 0, false)).await.unwrap();
    assert_eq!(link(&scene, &key(100), &hello(7, 0, true)).await.err(), Some(Refusal::Number));
    // Another member, who has learnt the name, and claims to continue the bond.
    let thief = link(&scene, &key(102), &hello(7, 1, true)).await;
    assert_eq!(thief.err(), Some(Refusal::Unknown));
    assert_eq!(scene.bonds.count(), 1);
    // As the first link it begins a bond of its own.
    let mut thief = link(&scene, &key(102), &hello(7, 0, false)).await.unwrap();
    assert_eq!(scene.bonds.count(), 2);
    own.write_all(&Frame::encode_message(&open(0))).await.unwrap();
    for message in [
        open(0),
        BondMessage::Acks { stream: 1, arrived: 9, limit: 9, ranges: vec![], ended: true },
    ] {
        thief.write_all(&Frame::encode_message(&message)).await.unwrap();
    }
    // Its link ends; the owner's stream is passed to the node.
    soon(async { while thief.read(&mut [0; 100]).await.is_ok_and(|n| n > 0) {} }).await;
    soon(async {
        while scene.bonds.count() > 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut head = [0; FRAME_HEAD];
    soon(own.read_exact(&mut head)).await.unwrap();
    assert!(matches!(Frame::decode(head), Ok(Frame::Message(_))));
}

fn open(stream: u32) -> BondMessage {
    BondMessage::Open { stream, to: Target::Service("node".into()) }
}

/// All the bonds and streams that a member may have, all of them silent: they hold places for handshakes at the node's
/// port, for which all streams of bonds come from one source.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_takes_all_it_may_leaves_others_their_share() {
    let scene = scene().await;
    let mut links = Vec::new();
    for bond in 0..8 {
        let mut tcp = link(&scene, &key(102), &hello(bond, 0, false)).await.unwrap();
        let all: Vec<u8> = (0..512).flat_map(|n| Frame::encode_message(&open(2 * n))).collect();
        tcp.write_all(&all).await.unwrap();
        links.push(tcp);
    }
    assert_eq!(link(&scene, &key(102), &hello(8, 0, false)).await.err(), Some(Refusal::Busy));
    let report = || scene.bonds.report()["memory"].as_u64().unwrap();
    // Half of the total, and not a byte more.
    soon(async {
        while report() < LIMITS.memory / 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let bond = scene.bond(1);
    for _ in 0..20 {
        let stream = soon(bond.open()).await.unwrap();
        let connector = Connector::new(&key(100)).unwrap();
        let channel = connector.connect(stream, key(1).id(), Protocol::Object);
        let mut channel = soon(channel).await.unwrap();
        soon(channel.read_exact(&mut [0; 2])).await.unwrap();
    }
    drop(links);
}
