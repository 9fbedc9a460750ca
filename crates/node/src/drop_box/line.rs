//! A channel to a node that serves boxes.

use super::talk;
use std::{io, time::Duration};
use thalweg_net::{
    DialError, DialOptions, Dialer, Hop, Route, Stream,
    channel::{Channel, ChannelError, Connector, Protocol},
};
use thalweg_units::NodeId;
use thalweg_wire::{
    Destination,
    bistro::{Answer, Ask, MAX_ANSWER, SheetNode},
    mesh::{Member, Terms},
};
use thiserror::Error;
use tokio::{
    io::{AsyncWriteExt as _, split},
    time::timeout,
};

/// For each answer: a commitment waits for a sync of the destination's disk.
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
    /// A member's node, if it has one; where it is, is not known of those that are no relays.
    pub fn of(member: &Member) -> Option<Self> {
        Some(Self { key: member.node?, addresses: member.addresses.clone() })
    }

    /// A node of a box's sheet.
    pub fn on(node: &SheetNode) -> Self {
        Self { key: node.key, addresses: node.addresses.clone() }
    }
}

/// No answer.
#[derive(Debug, Error)]
pub enum LineError {
    /// Nobody has said where it is.
    #[error(
        "the roster has no address of it: only relays have one. Let it join anew with a token of \
         the role relay (`thalweg token --role relay`) and `--address HOST:PORT`"
    )]
    Unlisted,
    /// No connection to any of its addresses, or another node is there.
    #[error("{0}")]
    Unreached(Box<DialError>),
    /// It does not admit us.
    #[error("{0}")]
    Channel(#[from] ChannelError),
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
}

/// An open channel, on which one question is asked at a time.
#[derive(Debug)]
pub struct Line(Channel<Stream>);

impl Line {
    /// Opens one, at whichever of the addresses answers first.
    ///
    /// # Errors
    /// [`LineError`].
    pub async fn open(connector: &Connector, port: &Port) -> Result<Self, LineError> {
        let (first, others) = port.addresses.split_first().ok_or(LineError::Unlisted)?;
        // The terms are for relays; nothing is relayed here.
        let to = Hop::mesh(first.clone(), port.key, Terms::default()).or_at(others.to_vec());
        let dialer = Dialer::with_identity(DialOptions::default(), connector.clone());
        let opened = dialer.channel(&Route::direct(), &to, Protocol::Submit).await;
        Ok(Self(opened.map_err(|e| LineError::Unreached(Box::new(e)))?))
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// The connection's.
    pub async fn ask(&mut self, ask: &Ask) -> Result<Answer, LineError> {
        talk::write(&mut self.0, ask).await?;
        self.answer().await
    }

    async fn answer(&mut self) -> Result<Answer, LineError> {
        let read = talk::read(&mut self.0, MAX_ANSWER);
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
        let (mut from, mut to) = split(&mut self.0);
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
        _ = timeout(Duration::from_secs(1), self.0.shutdown()).await;
    }
}

fn ended() -> LineError {
    LineError::Broken(io::ErrorKind::UnexpectedEof.into())
}
