//! The requesting side of a channel to a node that serves boxes.

use super::node_timeout::{answer_timeout, watch_connection};
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
    bistro::{MAX_SUBMIT_REPLY, SheetNode, SubmitReply, SubmitRequest},
    mesh::{Member, Terms},
};
use thiserror::Error;
use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _, split},
    time::timeout,
};

/// The addresses of a node, and the public key whose possession it must prove when a channel opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddress {
    /// The key of its daemon.
    pub key: NodeId,
    /// Its addresses, the best first.
    pub addresses: Vec<Destination>,
}

impl NodeAddress {
    /// The node of a member, or `None` if the member has no node. The addresses are empty unless it is a relay: the
    /// roster lists only those of relays.
    pub fn of_member(member: &Member) -> Option<Self> {
        Some(Self { key: member.node?, addresses: member.dialled_addresses().cloned().collect() })
    }

    /// A node listed in a box's sheet.
    pub fn from_sheet(node: &SheetNode) -> Self {
        Self { key: node.key, addresses: node.addresses.clone() }
    }
}

/// A request got no reply.
#[derive(Debug, Error)]
pub enum NodeChannelError {
    /// The node's address is unknown.
    #[error(
        "the roster has no address of this node, because only relays have one. Let it join again \
         with a token of the role relay (`thalweg mesh token --role relay`) and \
         `--address HOST:PORT`"
    )]
    Unlisted,
    /// No connection to any of its addresses, or another node answered.
    #[error("{0}")]
    Unreached(Box<DialError>),
    /// The node does not admit this client.
    #[error("{0}")]
    Channel(#[from] ChannelError),
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
}

/// An open channel, on which one request is under way at a time.
#[derive(Debug)]
pub struct NodeChannel(Channel<Stream>);

impl NodeChannel {
    /// Opens a channel to the address that answers first.
    ///
    /// # Errors
    /// [`NodeChannelError`].
    pub async fn open(connector: &Connector, port: &NodeAddress) -> Result<Self, NodeChannelError> {
        let (first, others) = port.addresses.split_first().ok_or(NodeChannelError::Unlisted)?;
        // The terms are for relays; nothing is relayed here.
        let to = Hop::mesh(first.clone(), port.key, Terms::default())
            .with_other_addresses(others.to_vec());
        let dialer = Dialer::with_identity(DialOptions::default(), connector.clone());
        let opened = dialer.channel(&Route::direct(), &to, Protocol::Submit).await;
        Ok(Self(opened.map_err(|e| NodeChannelError::Unreached(Box::new(e)))?))
    }

    /// Sends a request, and waits for the reply.
    ///
    /// # Errors
    /// Returns the connection's error.
    pub async fn ask(&mut self, ask: &SubmitRequest) -> Result<SubmitReply, NodeChannelError> {
        self.ask_about(ask, 0).await
    }

    /// As [`NodeChannel::ask`], for a request that makes the node read this many bytes of earlier pushed data before it
    /// replies.
    pub(super) async fn ask_about(
        &mut self,
        ask: &SubmitRequest,
        bytes: u64,
    ) -> Result<SubmitReply, NodeChannelError> {
        message::write(&mut self.0, ask).await?;
        let read = message::read(&mut self.0, MAX_SUBMIT_REPLY);
        let answer = within(answer_timeout(bytes), "answer", read).await;
        match answer {
            Ok(answer) => answer.ok_or_else(ended),
            Err(e) if ChannelError::is_not_admitted(&e) => {
                Err(NodeChannelError::Channel(ChannelError::NotAdmitted))
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Sends the data that `next` writes into the buffer, until it returns 0, and returns the node's reply. Ends early
    /// if the node replies before it has all data. Waits as long as bytes arrive at the node, and then as long as the
    /// node needs to store them (see `node_timeout.rs`).
    ///
    /// # Errors
    /// Returns the connection's error, or that of `next`.
    pub async fn send(
        &mut self,
        next: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> Result<SubmitReply, NodeChannelError> {
        let monitor = self.0.get_ref().monitor();
        let (mut from, mut to) = split(&mut self.0);
        let mut answer = pin!(message::read::<SubmitReply>(&mut from, MAX_SUBMIT_REPLY));
        let sent = tokio::select! {
            biased;
            early = &mut answer => return early?.ok_or_else(ended),
            sent = send_data(&mut to, next) => sent,
            why = watch_connection(&monitor, None) => return Err(why.into()),
        };
        let (bytes, broken) = match sent {
            Ok(bytes) => (bytes, None),
            Err(SendError::Source(e)) => return Err(e.into()),
            // The node may have sent a reason before it closed the connection.
            Err(SendError::Connection(e)) => (0, Some(e)),
        };
        let answered = tokio::select! {
            biased;
            answered = answer => answered,
            why = watch_connection(&monitor, Some(answer_timeout(bytes))) => Err(why),
        };
        match (answered, broken) {
            (Ok(Some(answer)), _) => Ok(answer),
            (_, Some(e)) | (Err(e), None) => Err(e.into()),
            (Ok(None), None) => Err(ended()),
        }
    }

    /// Closes the channel; waits a second at most.
    pub async fn close(mut self) {
        // All answers have arrived, so a failed goodbye loses nothing.
        _ = timeout(Duration::from_secs(1), self.0.shutdown()).await;
    }
}

fn ended() -> NodeChannelError {
    NodeChannelError::Broken(io::ErrorKind::UnexpectedEof.into())
}

/// Why writing ended early.
enum SendError {
    /// `next` failed.
    Source(io::Error),
    Connection(io::Error),
}

/// Writes the data that `next` supplies until it returns 0. Returns the number of bytes.
async fn send_data(
    to: &mut (impl AsyncWrite + Unpin),
    mut next: impl FnMut(&mut [u8]) -> io::Result<usize>,
) -> Result<u64, SendError> {
    let (mut buffer, mut bytes) = (vec![0; 256 * 1024], 0);
    loop {
        match next(&mut buffer).map_err(SendError::Source)? {
            0 => break,
            n => {
                to.write_all(&buffer[..n]).await.map_err(SendError::Connection)?;
                bytes += n as u64;
            }
        }
    }
    to.flush().await.map_err(SendError::Connection)?;
    Ok(bytes)
}
