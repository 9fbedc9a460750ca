//! The well-behaved peer: small operations, each on its own channel.

use super::{
    messages::{self, MessageNames},
    plan::Entrance,
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
    cast, doctor,
    mesh::{self, GO, METHOD, measure_flow, measure_flow::Message as _},
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

/// The interval between the starts of two operations, unless an operation takes longer.
const PACE: Duration = Duration::from_millis(10);

/// The peer and the node that it uses.
pub struct HonestPeer {
    /// The TLS clients of a member and of a stranger, whose key is in no roster.
    keys: [Connector; 2],
    node: NodeId,
    at: SocketAddr,
    names: MessageNames,
    /// Numbers the bonds and the addresses from which the peer joins.
    next: AtomicU64,
}

/// The results of many operations.
#[derive(Debug, Default)]
pub struct OperationTimes {
    /// The durations of the operations that succeeded.
    pub took: Vec<Duration>,
    /// The number of operations that failed.
    pub failed: usize,
    /// Why the last one failed.
    pub why: Option<String>,
}

impl OperationTimes {
    /// Adds the results of further operations.
    pub fn add(&mut self, further: Self) {
        self.took.extend(further.took);
        self.failed += further.failed;
        self.why = further.why.or(self.why.take());
    }
}

/// The peer's address, from which no attack comes.
const SOURCE: Ipv4Addr = Ipv4Addr::new(127, 0, 9, 9);

impl HonestPeer {
    /// Creates a peer with a member's key for the node at `at`.
    ///
    /// # Errors
    /// If TLS rejects a key; not expected.
    pub fn new(
        key: &PrivateKey,
        node: NodeId,
        at: SocketAddr,
        names: MessageNames,
    ) -> anyhow::Result<Self> {
        let keys = [Connector::new(key)?, Connector::new(&PrivateKey::generate()?)?];
        Ok(Self { keys, node, at, names, next: AtomicU64::default() })
    }

    /// Repeats an operation.
    pub async fn repeat(&self, door: Entrance, times: usize) -> OperationTimes {
        let mut found = OperationTimes::default();
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

    /// Executes one operation, within [`PATIENCE`].
    ///
    /// # Errors
    /// When it takes longer or the node answers differently than it should.
    pub async fn once(&self, door: Entrance) -> anyhow::Result<()> {
        let done = timeout(PATIENCE, self.operate(door)).await;
        done.with_context(|| format!("no answer within {PATIENCE:?}"))?
    }

    /// Opens a probe session and returns the UDP port of the node.
    ///
    /// # Errors
    /// As [`Self::once`].
    pub async fn datagrams(&self) -> anyhow::Result<u16> {
        let mut channel = self.channel(Protocol::Probe).await?;
        self.write(&mut channel, Entrance::Probe).await?;
        match message::read(&mut channel, probe::MAX_MESSAGE).await? {
            Some(probe::NodeReply::Opened { port, .. }) => Ok(port),
            other => bail!("the node answers {other:?}"),
        }
    }

    async fn operate(&self, door: Entrance) -> anyhow::Result<()> {
        let protocol = door.protocol().unwrap_or(Protocol::Api);
        let door = if door.protocol().is_none() { Entrance::Api } else { door };
        let mut channel = self.channel(protocol).await?;
        self.write(&mut channel, door).await?;
        match door {
            Entrance::Api | Entrance::Handshake | Entrance::Metrics | Entrance::Datagrams => {
                page(&mut channel, 200).await
            }
            Entrance::Join => page(&mut channel, 400).await,
            Entrance::Relay => self.echo(&mut channel).await,
            Entrance::Measure => refused_flow(&mut channel).await,
            Entrance::Object => self.file(&mut channel).await,
            Entrance::Submit => {
                match message::read(&mut channel, bistro::MAX_SUBMIT_REPLY).await? {
                    Some(bistro::SubmitReply::Sheet(_)) => Ok(()),
                    other => bail!("the drop box answered {other:?}"),
                }
            }
            Entrance::Bond => match message::read(&mut channel, MAX_GREETING).await? {
                Some(Greeting::Welcome { .. }) => {
                    ensure!(channel.read_u8().await? == GO, "there is no GO after the welcome");
                    Ok(())
                }
                other => bail!("the bond's far end answered {other:?}"),
            },
            Entrance::Cast => match message::read(&mut channel, cast::MAX_ANSWER).await? {
                Some(cast::Answer::Refused(cast::Refusal::Unknown)) => Ok(()),
                other => bail!(
                    "unexpected answer to a request for a cast that does not exist: {other:?}"
                ),
            },
            Entrance::Probe => match message::read(&mut channel, probe::MAX_MESSAGE).await? {
                Some(probe::NodeReply::Opened { .. }) => Ok(()),
                other => bail!("unexpected answer to a request for a session: {other:?}"),
            },
            Entrance::Doctor => match message::read(&mut channel, doctor::MAX_REPLY).await? {
                Some(doctor::Reply::Hello(_)) => Ok(()),
                other => bail!("unexpected answer to a member's check: {other:?}"),
            },
            Entrance::Stream => match message::read(&mut channel, leg::MAX_ANSWER).await? {
                Some(leg::Answer::Refused(why)) if !matches!(why, leg::Refusal::Busy(_)) => Ok(()),
                other => bail!(
                    "unexpected answer to a request for a stream that does not exist: {other:?}"
                ),
            },
            Entrance::Reach => match message::read(&mut channel, mesh::MAX_REACH_MESSAGE).await? {
                Some(mesh::ReachAnswer::Stands) => Ok(()),
                other => bail!("unexpected answer to a standing channel: {other:?}"),
            },
        }
    }

    /// Opens a channel as a member, or as a stranger for submitting and joining.
    async fn channel(&self, protocol: Protocol) -> anyhow::Result<Channel<TcpStream>> {
        let [member, stranger] = &self.keys;
        let is_stranger = matches!(protocol, Protocol::Submit | Protocol::Join);
        let connector = if is_stranger { stranger } else { member };
        // An oracle accepts few requests to join from one address, even from well-behaved clients.
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

    async fn write(&self, channel: &mut Channel<TcpStream>, door: Entrance) -> anyhow::Result<()> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        channel.write_all(&messages::small(door, &self.names, number)).await?;
        Ok(channel.flush().await?)
    }

    /// Sends one byte to the server behind the relay and reads it back.
    async fn echo(&self, channel: &mut Channel<TcpStream>) -> anyhow::Result<()> {
        let mut reply = [0; 12];
        channel.read_exact(&mut reply).await?;
        ensure!(reply[..4] == [5, METHOD, 5, 0], "the relay answered {:?}", &reply[..4]);
        channel.write_all(&[server::ECHO, b'x']).await?;
        channel.flush().await?;
        ensure!(channel.read_u8().await? == b'x', "WRONG BYTES through the relay");
        Ok(())
    }

    /// Lists a directory with one file, and reads this file.
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
                other => bail!("unexpected answer to a request for a listing: {other:?}"),
            }
        }
        let (path, snapshot) = found.context("the listing does not contain the file")?;
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
                other => bail!("unexpected answer to a request for a file: {other:?}"),
            }
        }
    }
}

async fn reply(channel: &mut Channel<TcpStream>) -> anyhow::Result<Reply> {
    let reply = message::read(channel, object::MAX_REPLY).await?;
    reply.context("the node closed the channel")
}

/// Reads an HTTP response and checks its status.
async fn page(channel: &mut Channel<TcpStream>, status: u16) -> anyhow::Result<()> {
    let mut head = [0; 12];
    channel.read_exact(&mut head).await?;
    let expected = format!("HTTP/1.1 {status}");
    ensure!(head == expected.as_bytes(), "the oracle answered {}", String::from_utf8_lossy(&head));
    // Reads as much of the rest as has arrived.
    _ = channel.read(&mut [0; 4096]).await?;
    Ok(())
}

/// Reads the answer to a void order. A refusal of the order is right; that the node is busy is a failure.
async fn refused_flow(channel: &mut Channel<TcpStream>) -> anyhow::Result<()> {
    let mut head = [0; 2];
    channel.read_exact(&mut head).await?;
    let mut body = vec![0; measure_flow::Answer::length(head)?];
    channel.read_exact(&mut body).await?;
    match measure_flow::Answer::decode(&body)? {
        measure_flow::Answer::Refused(measure_flow::Refusal::Void(_)) => Ok(()),
        other => bail!("unexpected answer to an invalid order: {other:?}"),
    }
}

/// Connects from an address of the loopback network.
///
/// # Errors
/// When a system call fails.
pub async fn connect(to: SocketAddr, from: Ipv4Addr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    let tcp = socket.connect(to).await?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}
