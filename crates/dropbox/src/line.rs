//! A channel to a node that serves boxes.

use super::waiting::{gone, patience};
use std::{io, pin::pin, time::Duration};
use thalweg_base::message;
use thalweg_base::timeout::within;
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
    io::{AsyncWrite, AsyncWriteExt as _, split},
    time::timeout,
};

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
         the role relay (`thalweg mesh token --role relay`) and `--address HOST:PORT`"
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
        self.ask_about(ask, 0).await
    }

    /// The same, of somebody who may have to read so many bytes before the answer.
    pub(super) async fn ask_about(&mut self, ask: &Ask, bytes: u64) -> Result<Answer, LineError> {
        message::write(&mut self.0, ask).await?;
        let read = message::read(&mut self.0, MAX_ANSWER);
        let answer = within(patience(bytes), "answer", read).await;
        match answer {
            Ok(answer) => answer.ok_or_else(ended),
            Err(e) if ChannelError::is_not_admitted(&e) => {
                Err(LineError::Channel(ChannelError::NotAdmitted))
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Sends what `next` fills the buffer with, until it gives 0; then, or as soon as the node
    /// does not want the rest, its answer. It is waited for as long as bytes arrive there, and
    /// then as long as the node needs to keep them (see `waiting.rs`).
    ///
    /// # Errors
    /// The connection's, and what `next` says.
    pub async fn send(
        &mut self,
        next: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> Result<Answer, LineError> {
        let monitor = self.0.get_ref().monitor();
        let (mut from, mut to) = split(&mut self.0);
        let mut answer = pin!(message::read::<Answer>(&mut from, MAX_ANSWER));
        let sent = tokio::select! {
            biased;
            early = &mut answer => return early?.ok_or_else(ended),
            sent = pour(&mut to, next) => sent,
            why = gone(&monitor, None) => return Err(why.into()),
        };
        let (bytes, broken) = match sent {
            Ok(bytes) => (bytes, None),
            Err(Pour::Own(e)) => return Err(e.into()),
            // The node may have said why before it went.
            Err(Pour::Line(e)) => (0, Some(e)),
        };
        let answered = tokio::select! {
            biased;
            answered = answer => answered,
            why = gone(&monitor, Some(patience(bytes))) => Err(why),
        };
        match (answered, broken) {
            (Ok(Some(answer)), _) => Ok(answer),
            (_, Some(e)) | (Err(e), None) => Err(e.into()),
            (Ok(None), None) => Err(ended()),
        }
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

/// Why not all was written.
enum Pour {
    /// There is nothing to write: what `next` says.
    Own(io::Error),
    /// The connection.
    Line(io::Error),
}

/// Writes what `next` gives until it gives 0; how many bytes.
async fn pour(
    to: &mut (impl AsyncWrite + Unpin),
    mut next: impl FnMut(&mut [u8]) -> io::Result<usize>,
) -> Result<u64, Pour> {
    let (mut buffer, mut bytes) = (vec![0; 256 * 1024], 0);
    loop {
        match next(&mut buffer).map_err(Pour::Own)? {
            0 => break,
            n => {
                to.write_all(&buffer[..n]).await.map_err(Pour::Line)?;
                bytes += n as u64;
            }
        }
    }
    to.flush().await.map_err(Pour::Line)?;
    Ok(bytes)
}
