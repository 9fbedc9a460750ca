//! The relay's side of SOCKS5: what the client asks, and what it is told when refused.

use super::egress::Denial;
use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};
use thalweg_net::{
    Cause,
    socks5::{ReadError, read_message},
};
use thalweg_wire::socks5::{self, Command, Reply, Request, Socks5Error};
use thiserror::Error;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// No address: what a reply says it bound if there is none (RFC 1928 §6 leaves it open).
pub const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// How long a refused client may take to read its reply and close.
///
/// A connection that is closed with bytes unread (a client that sent its data
/// at once) is reset, and the reply on its way is lost with it.
const REFUSAL: Duration = Duration::from_secs(2);

/// Why a client got no connection.
#[derive(Debug, Error)]
pub enum Refusal {
    /// Its messages took too long.
    #[error("handshake took longer than allowed")]
    Slow,
    /// It went away within the handshake.
    #[error("client left within the handshake: {0}")]
    Left(#[source] io::Error),
    /// It does not speak SOCKS5; it gets no byte, or a reply where the RFC has one.
    #[error("{0}")]
    NotSocks(#[source] Socks5Error),
    /// It insists on an authentication.
    #[error("client offers no method without authentication")]
    NoMethod,
    /// BIND or UDP ASSOCIATE.
    #[error("command {0:?} is not served")]
    Command(Command),
    /// The egress policy.
    #[error("denied: {0}")]
    Denied(#[from] Denial),
    /// No second leg.
    #[error("{0}")]
    NoLeg(#[source] Cause),
}

impl From<ReadError> for Refusal {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Leg(e) => Self::Left(e),
            ReadError::NotSocks(e) => Self::NotSocks(e),
        }
    }
}

impl Refusal {
    /// What the client is told, in the RFC's bytes; empty: nothing.
    fn message(&self) -> Vec<u8> {
        let reply = match self {
            Self::Slow | Self::Left(_) => return Vec::new(),
            Self::NoMethod => return socks5::encode_method(socks5::NO_ACCEPTABLE_METHOD).into(),
            Self::NotSocks(Socks5Error::Command(_)) | Self::Command(_) => {
                Reply::CommandNotSupported
            }
            Self::NotSocks(Socks5Error::AddressType(_)) => Reply::AddressTypeNotSupported,
            Self::NotSocks(Socks5Error::Name | Socks5Error::Port) => Reply::GeneralFailure,
            Self::NotSocks(_) => return Vec::new(),
            Self::Denied(_) => Reply::NotAllowed,
            Self::NoLeg(cause) => reply_to(cause),
        };
        socks5::encode_reply(reply, NOWHERE)
    }

    /// Tells the client, where the RFC has words for it, and lets it read them.
    pub async fn tell(&self, client: &mut TcpStream) {
        let message = self.message();
        if !message.is_empty() {
            // A client that is gone by now does not miss it.
            _ = timeout(REFUSAL, deliver(client, &message)).await;
        }
    }
}

/// RFC 1928 §6's code for a leg that could not be made.
fn reply_to(cause: &Cause) -> Reply {
    let source = match cause {
        Cause::Connect { source, .. } => source,
        Cause::TimedOut(_) => return Reply::TtlExpired,
        Cause::Resolve(_) | Cause::NoAddress => return Reply::HostUnreachable,
        _ => return Reply::GeneralFailure,
    };
    match source.kind() {
        io::ErrorKind::ConnectionRefused => Reply::ConnectionRefused,
        io::ErrorKind::NetworkUnreachable => Reply::NetworkUnreachable,
        io::ErrorKind::HostUnreachable => Reply::HostUnreachable,
        io::ErrorKind::TimedOut => Reply::TtlExpired,
        _ => Reply::GeneralFailure,
    }
}

/// Writes the message, ends our direction, and reads the client's off.
async fn deliver(client: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    client.write_all(message).await?;
    client.shutdown().await?;
    let mut unread = [0; 1024];
    while client.read(&mut unread).await? > 0 {}
    Ok(())
}

/// Reads the client's two messages within `limit`, and not a byte beyond them.
///
/// # Errors
/// [`Refusal`]; the client has not been told yet.
pub async fn read_request(client: &mut TcpStream, limit: Duration) -> Result<Request, Refusal> {
    let request = timeout(limit, read_messages(client)).await.unwrap_or(Err(Refusal::Slow))?;
    match request.command {
        Command::Connect => Ok(request),
        other => Err(Refusal::Command(other)),
    }
}

async fn read_messages(client: &mut TcpStream) -> Result<Request, Refusal> {
    if !read_message(client, socks5::decode_methods).await? {
        return Err(Refusal::NoMethod);
    }
    let chosen = socks5::encode_method(socks5::NO_AUTHENTICATION);
    client.write_all(&chosen).await.map_err(Refusal::Left)?;
    Ok(read_message(client, socks5::decode_request).await?)
}
