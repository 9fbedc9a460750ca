//! The connecting end.

use super::{Channel, Protocol, incoming::Incoming, session::Session, tls};
use crate::PrivateKey;
use rustls::{ClientConfig, ClientConnection, pki_types::ServerName};
use std::{io, net::Ipv4Addr, sync::Arc};
use thalweg_units::NodeId;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};

/// Opens channels with our key; cheap to clone.
#[derive(Clone, Debug)]
pub struct Connector {
    config: Arc<ClientConfig>,
}

/// No channel could be opened.
#[derive(Debug, Error)]
pub enum ChannelError {
    /// Somebody else answered there.
    #[error("another node than {0:?} answered")]
    WrongKey(NodeId),
    /// It does not admit us: not a member (any more), or not for this protocol.
    #[error("it does not admit this host's key: revoked, not joined, or its roster is old")]
    NotAdmitted,
    /// It does not serve this protocol.
    #[error("{}", .0.unserved())]
    NotServed(Protocol),
    /// TLS or the connection failed.
    #[error("{0}")]
    Handshake(#[source] io::Error),
}

impl Connector {
    /// A connector that proves `key`.
    ///
    /// # Errors
    /// If TLS does not take the key; not expected.
    pub fn new(key: &PrivateKey) -> io::Result<Self> {
        Ok(Self { config: Arc::new(tls::client_config(key)?) })
    }

    /// Opens a channel to the node with key `server` on `io`. No deadline: the caller has one.
    ///
    /// It is open before the server has looked at our key: that the server does not
    /// admit it may show only at the first read, whose error is then one of
    /// [`ChannelError::is_not_admitted`].
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
        // No name is sent: the key says who is meant.
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
