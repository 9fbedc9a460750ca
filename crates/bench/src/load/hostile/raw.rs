//! Attacks without channels: on the TCP port before a handshake is complete, on the metrics, and by datagrams.

use super::{
    attack::AttackContext,
    messages,
    peer::connect,
    plan::{AttackKind, Attacker, Entrance},
    trains,
};
use crate::load::strangers::probe::hello;
use anyhow::Context as _;
use rand_core::Rng as _;
use socket2::SockRef;
use std::{io, sync::Arc, time::Duration};
use thalweg_net::channel::{Channel, Protocol};
use thalweg_wire::probe;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, UdpSocket},
    task::JoinSet,
    time::{Instant, sleep, timeout, timeout_at},
};

/// Concurrent connections that occupy places, more than the node has for eight addresses.
const HOLDING: usize = 2400;

/// Concurrent connections that make the node work.
const WORKING: usize = 64;

/// A connection is replaced at this age, before the node may evict it for its age.
const HELD: Duration = Duration::from_millis(1700);

/// The pause between two bytes of a slow message.
const SLOW: Duration = Duration::from_millis(250);

/// Datagrams between two looks at the clock.
const BURST: usize = 64;

/// The length of datagrams of attacks other than the longest message: what a path carries.
const DATAGRAM: usize = 1400;

/// Keeps connections open until the end.
///
/// # Errors
/// If a task dies.
pub async fn connections(scene: &Arc<AttackContext>) -> anyhow::Result<()> {
    let many = match scene.attack.kind {
        AttackKind::Costliest | AttackKind::Random => WORKING,
        _ => HOLDING,
    };
    let message: Arc<[u8]> = first(scene)?.into();
    let mut tasks = JoinSet::new();
    for _ in 0..many {
        tasks.spawn(repeat(Arc::clone(scene), Arc::clone(&message)));
    }
    while let Some(done) = tasks.join_next().await {
        done.context("a task of the attack panicked")?;
    }
    Ok(())
}

/// The message that each connection sends.
fn first(scene: &AttackContext) -> anyhow::Result<Vec<u8>> {
    let door = scene.attack.door;
    Ok(match (scene.attack.kind, door) {
        (AttackKind::Idle, _) => Vec::new(),
        (AttackKind::Largest, _) => messages::largest(door),
        (AttackKind::Random, _) => {
            let mut bytes = vec![0; 4096];
            scene.random().fill_bytes(&mut bytes);
            bytes
        }
        (_, Entrance::Handshake) => hello(Protocol::Api.alpn())?,
        _ => messages::small(door, &scene.names, scene.number()),
    })
}

async fn repeat(scene: Arc<AttackContext>, message: Arc<[u8]>) {
    let until = || scene.end.min(Instant::now() + HELD);
    while Instant::now() < scene.end {
        match timeout_at(until(), connect(scene.to, scene.source())).await {
            Ok(Ok(tcp)) => {
                scene.count(|counts| &counts.opened);
                let ended = timeout_at(until(), behave(&scene, tcp, &message)).await;
                if ended.is_ok() {
                    scene.count(|counts| &counts.closed);
                }
            }
            _ => {
                scene.count(|counts| &counts.refused);
                sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

/// Behaves on one connection as the attack demands. Returns when the node has ended it or has done the work that the
/// attack causes.
async fn behave(scene: &AttackContext, mut tcp: TcpStream, message: &[u8]) -> io::Result<()> {
    // A reset on close frees the port at once, and the node sees an unexpected end.
    _ = SockRef::from(&tcp).set_linger(Some(Duration::ZERO));
    if scene.attack.kind == AttackKind::Slow {
        for byte in message {
            tcp.write_all(&[*byte]).await?;
            sleep(SLOW).await;
        }
    } else {
        tcp.write_all(message).await?;
        scene.count(|counts| &counts.sent);
    }
    let mut bytes = [0; 4096];
    let is_work = scene.attack.kind == AttackKind::Costliest;
    while tcp.read(&mut bytes).await? > 0 && !is_work {}
    Ok(())
}

/// Sends datagrams until the end.
///
/// # Errors
/// When the member is not admitted or a socket cannot be used.
pub async fn datagrams(scene: &Arc<AttackContext>) -> anyhow::Result<()> {
    let session = match scene.attack.by {
        Attacker::Member => Some(session(scene).await?),
        Attacker::Stranger => None,
    };
    let number = session.as_ref().map_or(1, |(number, _)| *number);
    let mut random = scene.random();
    let mut bytes = match scene.attack.kind {
        AttackKind::Largest => trains::forged(number, probe::MAX_DATAGRAM),
        _ => trains::forged(number, DATAGRAM),
    };
    let socket = UdpSocket::bind((scene.source(), 0)).await?;
    socket.connect(scene.to).await?;
    while Instant::now() < scene.end {
        for n in 0..BURST {
            match scene.attack.kind {
                AttackKind::Random => random.fill_bytes(&mut bytes),
                _ => bytes[4..12].copy_from_slice(&(n as u64).to_be_bytes()),
            }
            // A full buffer or a closed port does not end the attack.
            match timeout(Duration::from_secs(1), socket.send(&bytes)).await {
                Ok(Ok(_)) => scene.count(|counts| &counts.sent),
                _ => scene.count(|counts| &counts.refused),
            }
        }
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Opens a session for the member; it lasts as long as its channel.
async fn session(scene: &AttackContext) -> anyhow::Result<(u32, Channel<TcpStream>)> {
    let tcp = connect(scene.port, scene.source()).await?;
    let mut channel = scene.connector()?.connect(tcp, scene.node, Protocol::Probe).await?;
    scene.count(|counts| &counts.opened);
    let session = trains::open(&mut channel).await?;
    Ok((session.number, channel))
}
