//! The connecting end of a channel.

use super::{Channel, Protocol, incoming::Incoming, session::Session, tls};
use crate::PrivateKey;
use rustls::{ClientConfig, ClientConnection, pki_types::ServerName};
use std::{io, net::Ipv4Addr, sync::Arc};
use thalweg_units::NodeId;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};

/// Opens channels with this node's key. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Connector {
    config: Arc<ClientConfig>,
}

/// The error of a channel that could not be opened.
#[derive(Debug, Error)]
pub enum ChannelError {
    /// A node with another key answered.
    #[error("a node other than {0:?} answered")]
    WrongKey(NodeId),
    /// The server does not admit this key: it is not a member (any more), or not admitted for this protocol.
    #[error(
        "it does not admit this host's key: this host was revoked or has not joined, or its roster \
         is old"
    )]
    NotAdmitted,
    /// The server does not serve this protocol.
    #[error("{}", .0.unserved())]
    NotServed(Protocol),
    /// TLS or the connection failed.
    #[error("{0}")]
    Handshake(#[source] io::Error),
}

impl Connector {
    /// Creates a connector that proves `key`.
    ///
    /// # Errors
    /// If TLS rejects the key, which is not expected.
    pub fn new(key: &PrivateKey) -> io::Result<Self> {
        Ok(Self { config: Arc::new(tls::client_config(key)?) })
    }

    /// Opens a channel to the node with key `server` on `io`. It has no deadline: the caller sets one.
    ///
    /// The channel is open before the server has checked this node's key, so a refusal may show only at the first read,
    /// whose error then satisfies [`ChannelError::is_not_admitted`].
    ///
    /// # Errors
    /// [`ChannelError`].
    pub async fn connect<IO>(
        &self,
        io: IO,
        server: NodeId,
        protocol: Protocol,
    ) -> Result<Channel<IO>, ChannelError>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let config = Arc::new(tls::expecting(&self.config, server, protocol));
        // No server name is sent, because the key identifies the server.
        let nameless = ServerName::IpAddress(Ipv4Addr::UNSPECIFIED.into());
        let tls = ClientConnection::new(config, nameless)
            .map_err(|e| ChannelError::Handshake(io::Error::other(e)))?;
        let mut session = Session { io, tls: tls.into(), incoming: Incoming::small() };
        let done = session.handshake(None).await;
        done.map_err(|e| ChannelError::from_handshake(e, server, protocol))?;
        if session.tls.alpn_protocol() != Some(protocol.alpn()) {
            return Err(ChannelError::NotServed(protocol));
        }
        Ok(Channel { session, peer: server, protocol, depth: 0 })
    }
}
