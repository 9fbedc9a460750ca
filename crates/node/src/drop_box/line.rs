//! A channel to a node that serves boxes.

use super::talk;
use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};
use thalweg_net::{
    Cause, DialOptions,
    channel::{Channel, ChannelError, Connector, Protocol},
    connect, resolve,
};
use thalweg_units::NodeId;
use thalweg_wire::{
    Destination,
    bistro::{Answer, Ask, MAX_ANSWER, SheetNode},
    mesh::Member,
};
use thiserror::Error;
use tokio::{
    io::{AsyncWriteExt as _, split},
    net::TcpStream,
    time::timeout,
};

/// For connecting, and for each answer: a commitment waits for a sync of the destination's disk.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where a node is, and which key it must prove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The key of its daemon.
    pub key: NodeId,
    /// Its addresses, the best first.
    pub addresses: Vec<Destination>,
}

impl Port {
    /// A member's node, if it has one that is reached.
    pub fn of(member: &Member) -> Option<Self> {
        let port = Self { key: member.node?, addresses: member.addresses.clone() };
        (!port.addresses.is_empty()).then_some(port)
    }

    /// A node of a box's sheet.
    pub fn on(node: &SheetNode) -> Self {
        Self { key: node.key, addresses: node.addresses.clone() }
    }
}

/// No answer.
#[derive(Debug, Error)]
pub enum LineError {
    /// No connection to any of its addresses.
    #[error("cannot reach it: {0}")]
    Unreached(Cause),
    /// Another node is there, or it does not admit us.
    #[error("{0}")]
    Channel(#[from] ChannelError),
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
}

/// An open channel, on which one question is asked at a time.
#[derive(Debug)]
pub struct Line {
    channel: Channel<TcpStream>,
    rtt: Duration,
}

impl Line {
    /// Opens one, at whichever of the addresses answers first.
    ///
    /// # Errors
    /// [`LineError`].
    pub async fn open(connector: &Connector, port: &Port) -> Result<Self, LineError> {
        let options = DialOptions::default();
        let addresses = addresses(port).await.map_err(LineError::Unreached)?;
        let begun = Instant::now();
        let connecting = connect(&addresses, None, &options);
        let late = |_| LineError::Unreached(Cause::TimedOut(options.deadline));
        let tcp = timeout(options.deadline, connecting).await.map_err(late)?;
        let tcp = tcp.map_err(LineError::Unreached)?;
        let rtt = begun.elapsed();
        // Without it a question would wait for the acknowledgement of the handshake's end.
        tcp.set_nodelay(true)?;
        let handshake = connector.connect(tcp, port.key, Protocol::Submit);
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no handshake in time");
        let channel = timeout(options.deadline, handshake).await.map_err(late)??;
        Ok(Self { channel, rtt })
    }

    /// What connecting took: about a round trip.
    pub fn rtt(&self) -> Duration {
        self.rtt
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// The connection's.
    pub async fn ask(&mut self, ask: &Ask) -> Result<Answer, LineError> {
        talk::write(&mut self.channel, ask).await?;
        self.answer().await
    }

    async fn answer(&mut self) -> Result<Answer, LineError> {
        let read = talk::read(&mut self.channel, MAX_ANSWER);
        let answer = talk::within(PATIENCE, "answer", read).await;
        match answer {
            Ok(answer) => answer.ok_or_else(ended),
            Err(e) if ChannelError::is_not_admitted(&e) => {
                Err(LineError::Channel(ChannelError::NotAdmitted))
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Sends what `next` fills the buffer with, until it gives 0; then, or as soon as the node
    /// does not want the rest, its answer.
    ///
    /// # Errors
    /// The connection's, and what `next` says.
    pub async fn send(
        &mut self,
        mut next: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> Result<Answer, LineError> {
        let (mut from, mut to) = split(&mut self.channel);
        let mut answer = std::pin::pin!(talk::read::<Answer>(&mut from, MAX_ANSWER));
        let mut buffer = vec![0; 256 * 1024];
        loop {
            let n = next(&mut buffer)?;
            if n == 0 {
                break;
            }
            tokio::select! {
                biased;
                early = &mut answer => return early?.ok_or_else(ended),
                written = to.write_all(&buffer[..n]) => if written.is_err() {
                    // The node may have said why before it went.
                    let said = talk::within(PATIENCE, "answer", answer).await;
                    return said.ok().flatten().ok_or_else(|| written.err().map_or_else(ended, Into::into));
                },
            }
        }
        to.flush().await?;
        talk::within(PATIENCE, "receipt", answer).await?.ok_or_else(ended)
    }

    /// Says goodbye.
    pub async fn close(mut self) {
        // The answers are here; nothing is lost with the goodbye.
        _ = timeout(Duration::from_secs(1), self.channel.shutdown()).await;
    }
}

fn ended() -> LineError {
    LineError::Broken(io::ErrorKind::UnexpectedEof.into())
}

/// All of its addresses, in their order; names that do not resolve are left out.
async fn addresses(port: &Port) -> Result<Vec<SocketAddr>, Cause> {
    let mut all = Vec::new();
    let mut failed = Cause::NoAddress;
    for destination in &port.addresses {
        match resolve(destination).await {
            Ok(found) => all.extend(found),
            Err(cause) => failed = cause,
        }
    }
    if all.is_empty() { Err(failed) } else { Ok(all) }
}
