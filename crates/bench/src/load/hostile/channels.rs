//! Attacks over channels of a protocol.

use super::{
    attack::AttackContext,
    messages::{self, CostlyMessages},
    peer::connect,
    plan::{AttackKind, Attacker, Entrance},
    trains,
};
use anyhow::{Context as _, ensure};
use rand_core::Rng as _;
use std::{io, sync::Arc, time::Duration};
use thalweg_base::message;
use thalweg_net::channel::{Channel, Connector};
use thalweg_wire::{
    bond::{Greeting, MAX_GREETING},
    mesh::{GO, GO_ACK},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::{sleep, timeout_at},
};

/// Concurrent channels of a member, more than a member may have of any protocol.
const MEMBER: usize = 256;

/// Concurrent channels of strangers, more than eight addresses may have.
const STRANGERS: usize = 1200;

/// Concurrent channels that make the node work. With more channels each one sends less.
const WORKING: usize = 16;

/// The pause after a channel that was closed or refused.
const PAUSE: Duration = Duration::from_millis(20);

/// The pause between two bytes of a slow message.
const SLOW: Duration = Duration::from_millis(250);

/// The number of random bytes written at once.
const CHUNK: usize = 16 << 10;

/// Keeps as many channels open as the node admits, until the end.
///
/// # Errors
/// If a task dies.
pub async fn run(scene: &Arc<AttackContext>) -> anyhow::Result<()> {
    let attack = scene.attack;
    let many = match (attack.kind, attack.by) {
        (AttackKind::Costliest, _) => WORKING,
        (AttackKind::Random, _) => 4 * WORKING,
        (_, Attacker::Member) => MEMBER,
        (_, Attacker::Stranger) => STRANGERS,
    };
    let mut tasks = JoinSet::new();
    for _ in 0..many {
        tasks.spawn(repeat(Arc::clone(scene)));
    }
    while let Some(done) = tasks.join_next().await {
        done.context("a task of the attack panicked")??;
    }
    Ok(())
}

async fn repeat(scene: Arc<AttackContext>) -> anyhow::Result<()> {
    // Each stranger keeps its key for many channels, so that the node has answered it before.
    let connector = scene.connector()?;
    loop {
        let Ok(opened) = timeout_at(scene.end, open(&scene, &connector)).await else {
            return Ok(());
        };
        match opened {
            Ok(channel) => {
                scene.count(|counts| &counts.opened);
                // How the node answers and ends a channel does not matter here.
                let ended = timeout_at(scene.end, behave(&scene, channel)).await;
                if ended.is_err() {
                    return Ok(());
                }
                scene.count(|counts| &counts.closed);
            }
            Err(_) => scene.count(|counts| &counts.refused),
        }
        if timeout_at(scene.end, sleep(PAUSE)).await.is_err() {
            return Ok(());
        }
    }
}

async fn open(scene: &AttackContext, connector: &Connector) -> anyhow::Result<Channel<TcpStream>> {
    let protocol = scene.attack.door.protocol().context("this attack does not use channels")?;
    let tcp = connect(scene.to, scene.source()).await?;
    Ok(connector.connect(tcp, scene.node, protocol).await?)
}

/// Behaves on one channel as the attack demands; returns when the node has ended the channel.
async fn behave(scene: &AttackContext, mut channel: Channel<TcpStream>) -> anyhow::Result<()> {
    let door = scene.attack.door;
    match scene.attack.kind {
        AttackKind::Idle => {}
        AttackKind::Slow => {
            for byte in messages::small(door, &scene.names, scene.number()) {
                channel.write_all(&[byte]).await?;
                channel.flush().await?;
                sleep(SLOW).await;
            }
        }
        AttackKind::Largest => {
            channel.write_all(&messages::largest(door)).await?;
            channel.flush().await?;
            scene.count(|counts| &counts.sent);
        }
        AttackKind::Costliest => {
            let costly = messages::costliest(door, &scene.names, scene.number());
            return match door {
                Entrance::Bond => link(scene, channel, &costly).await,
                Entrance::Probe => {
                    let session = trains::open(&mut channel).await?;
                    let _socket = trains::announce_address(scene, &mut channel, session).await?;
                    work(scene, channel, &costly).await
                }
                _ => work(scene, channel, &costly).await,
            };
        }
        AttackKind::Random => return random(scene, channel).await,
    }
    Ok(drain(&mut channel).await?)
}

/// Reads until the end of the stream.
async fn drain(from: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    let mut bytes = vec![0; 16 << 10];
    while from.read(&mut bytes).await? > 0 {}
    Ok(())
}

/// Sends the costliest messages as fast as the node accepts them.
async fn work(
    scene: &AttackContext,
    stream: impl AsyncRead + AsyncWrite,
    costly: &CostlyMessages,
) -> anyhow::Result<()> {
    let (mut from, mut to) = tokio::io::split(stream);
    let sending = async {
        to.write_all(&costly.first).await?;
        to.flush().await?;
        scene.count(|counts| &counts.sent);
        while !costly.further.is_empty() {
            to.write_all(&costly.further).await?;
            to.flush().await?;
            scene.count(|counts| &counts.sent);
        }
        std::future::pending().await
    };
    tokio::select! {
        done = sending => done,
        done = drain(&mut from) => Ok(done?),
    }
}

/// Attacks a link of a bond, which continues without encryption.
async fn link(
    scene: &AttackContext,
    mut channel: Channel<TcpStream>,
    costly: &CostlyMessages,
) -> anyhow::Result<()> {
    channel.write_all(&costly.first).await?;
    channel.flush().await?;
    let greeting = message::read(&mut channel, MAX_GREETING).await?;
    ensure!(
        matches!(greeting, Some(Greeting::Welcome { .. })),
        "the bond's far end refused the link"
    );
    ensure!(channel.read_u8().await? == GO, "the node sent no GO");
    channel.write_all(&[GO_ACK]).await?;
    channel.flush().await?;
    let (tcp, _) = channel.into_clear()?;
    work(
        scene,
        tcp,
        &CostlyMessages { first: costly.further.clone(), further: costly.further.clone() },
    )
    .await
}

/// Sends random bytes. Every other channel begins with a permitted length, so that the node reads the bytes.
async fn random(scene: &AttackContext, channel: Channel<TcpStream>) -> anyhow::Result<()> {
    let mut random = scene.random();
    let mut bytes = vec![0; CHUNK];
    random.fill_bytes(&mut bytes);
    if random.next_u32().is_multiple_of(2) {
        bytes[..4].copy_from_slice(&(CHUNK as u32 - 4).to_be_bytes());
    }
    let again = bytes.clone();
    work(scene, channel, &CostlyMessages { first: bytes, further: again }).await
}
