//! A peer that behaves: small operations, each on a channel of its own.

use super::{
    messages::{self, Names},
    plan::Door,
};
use crate::load::server;
use anyhow::{Context as _, bail, ensure};
use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use thalweg_base::message;
use thalweg_net::{
    PrivateKey,
    channel::{Channel, Connector, Protocol},
};
use thalweg_units::NodeId;
use thalweg_wire::{
    bistro,
    bond::{Greeting, MAX_GREETING},
    cast,
    mesh::{GO, METHOD, measure_flow, measure_flow::Message as _},
    object::{self, FileRef, Kind, Reply, Request},
    probe,
    stream::leg,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::{Instant, sleep_until, timeout},
};

/// An operation that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// From the beginning of an operation to that of the next one, if it takes no longer.
const PACE: Duration = Duration::from_millis(10);

/// The peer, and the node that it uses.
pub struct Peer {
    /// Its key as a member's, and one that no roster lists.
    keys: [Connector; 2],
    node: NodeId,
    at: SocketAddr,
    names: Names,
    /// Of its next bond, and of its next address to join from.
    next: AtomicU64,
}

/// What became of many operations.
#[derive(Debug, Default)]
pub struct Times {
    /// How long each took that succeeded.
    pub took: Vec<Duration>,
    /// How many failed, and why the last one did.
    pub failed: usize,
    /// See `failed`.
    pub why: Option<String>,
}

impl Times {
    /// With further ones.
    pub fn add(&mut self, further: Self) {
        self.took.extend(further.took);
        self.failed += further.failed;
        self.why = further.why.or(self.why.take());
    }
}

/// Its address: no attack comes from there.
const SOURCE: Ipv4Addr = Ipv4Addr::new(127, 0, 9, 9);

impl Peer {
    /// With the key of a member, at the port of a node.
    ///
    /// # Errors
    /// If TLS does not take a key; not expected.
    pub fn new(
        key: &PrivateKey,
        node: NodeId,
        at: SocketAddr,
        names: Names,
    ) -> anyhow::Result<Self> {
        let keys = [Connector::new(key)?, Connector::new(&PrivateKey::generate()?)?];
        Ok(Self { keys, node, at, names, next: AtomicU64::default() })
    }

    /// Repeats an operation.
    pub async fn repeat(&self, door: Door, times: usize) -> Times {
        let mut found = Times::default();
        for _ in 0..times {
            let begun = Instant::now();
            match self.once(door).await {
                Ok(()) => found.took.push(begun.elapsed()),
                Err(why) => {
                    found.failed += 1;
                    found.why = Some(format!("{why:#}"));
                }
            }
            sleep_until(begun + PACE).await;
        }
        found
    }

    /// One operation, within [`PATIENCE`].
    ///
    /// # Errors
    /// When it takes longer, or the node does not answer as it does to all who behave.
    pub async fn once(&self, door: Door) -> anyhow::Result<()> {
        let done = timeout(PATIENCE, self.operate(door)).await;
        done.with_context(|| format!("no answer within {PATIENCE:?}"))?
    }

    /// The port of the node's datagrams.
    ///
    /// # Errors
    /// As [`Self::once`].
    pub async fn datagrams(&self) -> anyhow::Result<u16> {
        let mut channel = self.channel(Protocol::Probe).await?;
        self.write(&mut channel, Door::Probe).await?;
        match message::read(&mut channel, probe::MAX_MESSAGE).await? {
            Some(probe::Tell::Opened { port, .. }) => Ok(port),
            other => bail!("the node answers {other:?}"),
        }
    }

    async fn operate(&self, door: Door) -> anyhow::Result<()> {
        let protocol = door.protocol().unwrap_or(Protocol::Api);
        let door = if door.protocol().is_none() { Door::Api } else { door };
        let mut channel = self.channel(protocol).await?;
        self.write(&mut channel, door).await?;
        match door {
            Door::Api | Door::Handshake | Door::Metrics | Door::Datagrams => {
                page(&mut channel, 200).await
            }
            Door::Join => page(&mut channel, 400).await,
            Door::Relay => self.echo(&mut channel).await,
            Door::Measure => refused_flow(&mut channel).await,
            Door::Object => self.file(&mut channel).await,
            Door::Submit => match message::read(&mut channel, bistro::MAX_ANSWER).await? {
                Some(bistro::Answer::Sheet(_)) => Ok(()),
                other => bail!("the drop box answers {other:?}"),
            },
            Door::Bond => match message::read(&mut channel, MAX_GREETING).await? {
                Some(Greeting::Welcome { .. }) => {
                    ensure!(channel.read_u8().await? == GO, "no GO behind the welcome");
                    Ok(())
                }
                other => bail!("the bond's far end answers {other:?}"),
            },
            Door::Cast => match message::read(&mut channel, cast::MAX_ANSWER).await? {
                Some(cast::Answer::Refused(cast::Refusal::Unknown)) => Ok(()),
                other => bail!("asked for a cast that is none, the node answers {other:?}"),
            },
            Door::Probe => match message::read(&mut channel, probe::MAX_MESSAGE).await? {
                Some(probe::Tell::Opened { .. }) => Ok(()),
                other => bail!("asked for a session, the node answers {other:?}"),
            },
            Door::Stream => match message::read(&mut channel, leg::MAX_ANSWER).await? {
                Some(leg::Answer::Refused(why)) if !matches!(why, leg::Refusal::Busy(_)) => Ok(()),
                other => bail!("asked for a stream that is none, the node answers {other:?}"),
            },
        }
    }

    /// As a member, but for what strangers do: submitting and joining.
    async fn channel(&self, protocol: Protocol) -> anyhow::Result<Channel<TcpStream>> {
        let [member, stranger] = &self.keys;
        let is_stranger = matches!(protocol, Protocol::Submit | Protocol::Join);
        let connector = if is_stranger { stranger } else { member };
        // An oracle takes few requests to join from one address, however well it behaves.
        let source = match protocol {
            Protocol::Join => {
                let number = self.next.fetch_add(1, Ordering::Relaxed) % 250;
                Ipv4Addr::new(127, 0, 10, 1 + number as u8)
            }
            _ => SOURCE,
        };
        let tcp = connect(self.at, source).await?;
        Ok(connector.connect(tcp, self.node, protocol).await?)
    }

    async fn write(&self, channel: &mut Channel<TcpStream>, door: Door) -> anyhow::Result<()> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        channel.write_all(&messages::small(door, &self.names, number)).await?;
        Ok(channel.flush().await?)
    }

    /// One byte to the server behind the relay, and back.
    async fn echo(&self, channel: &mut Channel<TcpStream>) -> anyhow::Result<()> {
        let mut reply = [0; 12];
        channel.read_exact(&mut reply).await?;
        ensure!(reply[..4] == [5, METHOD, 5, 0], "the relay answers {:?}", &reply[..4]);
        channel.write_all(&[server::ECHO, b'x']).await?;
        channel.flush().await?;
        ensure!(channel.read_u8().await? == b'x', "WRONG BYTES through the relay");
        Ok(())
    }

    /// The listing of a directory with one file, and this file.
    async fn file(&self, channel: &mut Channel<TcpStream>) -> anyhow::Result<()> {
        let mut found = None;
        loop {
            match reply(channel).await? {
                Reply::Entries(entries) => {
                    found = entries.into_iter().find_map(|entry| match entry.kind {
                        Kind::File { snapshot } => Some((entry.path, snapshot)),
                        _ => None,
                    });
                }
                Reply::Listed(_) => break,
                Reply::Wait => {}
                other => bail!("asked for a listing, the node answers {other:?}"),
            }
        }
        let (path, snapshot) = found.context("the file is not listed")?;
        let file = FileRef { root: self.names.files.clone().into(), path, snapshot };
        message::write(channel, &Request::ReadAll(vec![file])).await?;
        loop {
            match reply(channel).await? {
                Reply::Bytes(bytes) => {
                    let mut content = vec![0; usize::try_from(bytes)?];
                    channel.read_exact(&mut content).await?;
                }
                Reply::Sent(_) => return Ok(()),
                Reply::Wait => {}
                other => bail!("asked for a file, the node answers {other:?}"),
            }
        }
    }
}

async fn reply(channel: &mut Channel<TcpStream>) -> anyhow::Result<Reply> {
    let reply = message::read(channel, object::MAX_REPLY).await?;
    reply.context("the node closed the channel")
}

/// A response of HTTP with this status.
async fn page(channel: &mut Channel<TcpStream>, status: u16) -> anyhow::Result<()> {
    let mut head = [0; 12];
    channel.read_exact(&mut head).await?;
    let expected = format!("HTTP/1.1 {status}");
    ensure!(head == expected.as_bytes(), "the oracle answers {}", String::from_utf8_lossy(&head));
    // The rest of it, as far as it comes at once.
    _ = channel.read(&mut [0; 4096]).await?;
    Ok(())
}

/// That an order is void is an answer; that the node is busy is none.
async fn refused_flow(channel: &mut Channel<TcpStream>) -> anyhow::Result<()> {
    let mut head = [0; 2];
    channel.read_exact(&mut head).await?;
    let mut body = vec![0; measure_flow::Answer::length(head)?];
    channel.read_exact(&mut body).await?;
    match measure_flow::Answer::decode(&body)? {
        measure_flow::Answer::Refused(measure_flow::Refusal::Void(_)) => Ok(()),
        other => bail!("shown a void order, the node answers {other:?}"),
    }
}

/// A connection from an address of loopback.
///
/// # Errors
/// The system's.
pub async fn connect(to: SocketAddr, from: Ipv4Addr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    let tcp = socket.connect(to).await?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}
