//! The connecting end.

use super::{Channel, Protocol};
use crate::PrivateKey;
use std::io;
use thalweg_units::NodeId;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};

/// Opens channels with our key; cheap to clone.
#[derive(Clone, Debug)]
pub struct Connector {}

/// No channel could be opened.
#[derive(Debug, Error)]
pub enum ChannelError {
    /// Somebody else answered there.
    #[error("another node than {0:?} answered")]
    WrongKey(NodeId),
    /// It does not admit us: not a member (any more), or not for this protocol.
    #[error("it does not admit this host's key: revoked, not joined, or its roster is old")]
    NotAdmitted,
    /// TLS or the connection failed.
    #[error("{0}")]
    Handshake(#[source] io::Error),
}

impl Connector {
    /// A connector that proves `key`.
    ///
    /// # Errors
    /// If TLS does not take the key; not expected.
    pub fn new(_key: &PrivateKey) -> io::Result<Self> {
        Ok(Self {})
    }

    /// Opens a channel to the node with key `server` on `io`. No deadline: the caller has one.
    ///
    /// # Errors
    /// [`ChannelError`].
    pub async fn connect<IO>(
        &self,
        _io: IO,
        _server: NodeId,
        _protocol: Protocol,
    ) -> Result<Channel<IO>, ChannelError>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send,
    {
        Err(ChannelError::Handshake(io::ErrorKind::Unsupported.into()))
    }
}
