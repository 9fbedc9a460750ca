//! The receiver of a stream's bytes.

use super::endpoint::Endpoint;
use anyhow::Context as _;
use std::{
    io::ErrorKind,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _},
    net::{TcpStream, UdpSocket},
};

/// Seven transport stream packets: the datagram size that UDP players expect.
const DATAGRAM: usize = 7 * 188;

/// Standard output, a connection, or datagrams.
pub enum Sink {
    Bytes(Box<dyn AsyncWrite + Unpin>),
    Datagrams(UdpSocket),
}

impl Sink {
    /// Opens standard output, or the given address.
    ///
    /// # Errors
    /// When the address cannot be reached.
    pub async fn open(to: Option<Endpoint>) -> anyhow::Result<Self> {
        Ok(match to {
            None => Self::Bytes(Box::new(tokio::io::stdout())),
            Some(Endpoint::Tcp(at)) => {
                let to = TcpStream::connect(at).await;
                Self::Bytes(Box::new(to.with_context(|| format!("cannot connect to {at}"))?))
            }
            Some(Endpoint::Udp(at)) => {
                let any: SocketAddr = match at {
                    SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                    SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
                };
                let socket = UdpSocket::bind(any).await.context("cannot open a socket")?;
                socket.connect(at).await.with_context(|| format!("cannot send to {at}"))?;
                Self::Datagrams(socket)
            }
        })
    }

    /// Writes the bytes.
    ///
    /// # Errors
    /// When the receiver is gone. Datagrams to a player that has not started are lost without an error.
    pub async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Self::Bytes(to) => {
                to.write_all(bytes).await?;
                to.flush().await
            }
            Self::Datagrams(socket) => {
                for piece in bytes.chunks(DATAGRAM) {
                    match socket.send(piece).await {
                        // Nobody listens at present, but the player may start later.
                        Err(why) if why.kind() == ErrorKind::ConnectionRefused => {}
                        sent => drop(sent?),
                    }
                }
                Ok(())
            }
        }
    }
}
