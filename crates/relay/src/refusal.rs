//! Why a client got no connection, and what it is told.

use super::{denial::Denial, handshake::NOWHERE, quota::OverQuota, resolver::TooManyNames};
use std::{io, time::Duration};
use thalweg_net::{Cause, socks5::ReadError};
use thalweg_wire::{
    mesh::TermsError,
    socks5::{self, Command, Reply, Socks5Error},
};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::timeout,
};

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
    #[error("client offers no method that is spoken here")]
    NoMethod,
    /// It announced terms, and sent others.
    #[error(transparent)]
    Terms(#[from] TermsError),
    /// BIND or UDP ASSOCIATE.
    #[error("command {0:?} is not served")]
    Command(Command),
    /// The egress policy or a rule of the mesh.
    #[error("denied: {0}")]
    Denied(#[from] Denial),
    /// It has used up what it may.
    #[error("over quota: {0}")]
    Quota(#[from] OverQuota),
    /// As many connections as this relay serves at a time.
    #[error("this relay serves as many connections as it may")]
    Full,
    /// So many beyond that, that this one was not even listened to; it gets no byte.
    #[error("this relay serves and refuses as many connections as it may")]
    Crowded,
    /// It has as many look-ups as it may.
    #[error("too many names at once: {0}")]
    Names(#[from] TooManyNames),
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
    pub fn message(&self) -> Vec<u8> {
        match self {
            Self::NoMethod | Self::Terms(_) => {
                socks5::encode_method(socks5::NO_ACCEPTABLE_METHOD).into()
            }
            _ => self.reply().map(|r| socks5::encode_reply(r, NOWHERE)).unwrap_or_default(),
        }
    }

    /// The RFC's reply, where it has one.
    fn reply(&self) -> Option<Reply> {
        Some(match self {
            Self::Slow | Self::Left(_) | Self::NoMethod | Self::Terms(_) | Self::Crowded => {
                return None;
            }
            Self::NotSocks(Socks5Error::Command(_)) | Self::Command(_) => {
                Reply::CommandNotSupported
            }
            Self::NotSocks(Socks5Error::AddressType(_)) => Reply::AddressTypeNotSupported,
            Self::NotSocks(Socks5Error::Name | Socks5Error::Port) => Reply::GeneralFailure,
            Self::NotSocks(_) => return None,
            Self::Denied(_) | Self::Quota(_) => Reply::NotAllowed,
            Self::Full | Self::Names(_) => Reply::GeneralFailure,
            Self::NoLeg(cause) => reply_to(cause),
        })
    }

    /// One word for counters, of a fixed set.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::Left(_) => "left",
            Self::NotSocks(_) => "not_socks",
            Self::NoMethod => "no_method",
            Self::Terms(_) => "terms",
            Self::Command(_) => "command",
            Self::Denied(denial) => denial.reason(),
            Self::Quota(over) => over.reason(),
            Self::Full => "full",
            Self::Crowded => "crowded",
            Self::Names(_) => "names",
            Self::NoLeg(Cause::Resolve(_) | Cause::NoAddress) => "resolve",
            Self::NoLeg(_) => "connect",
        }
    }

    /// Tells the client, where the RFC has words for it, and lets it read them.
    ///
    /// `prefix` is what was kept back to go with the reply.
    pub async fn tell<S>(&self, client: &mut S, prefix: Vec<u8>)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let message = self.message();
        if !message.is_empty() {
            let told = [prefix, message].concat();
            // A client that is gone by now does not miss it.
            _ = timeout(REFUSAL, deliver(client, &told)).await;
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
async fn deliver<S>(client: &mut S, message: &[u8]) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    client.write_all(message).await?;
    client.shutdown().await?;
    let mut unread = [0; 1024];
    while client.read(&mut unread).await? > 0 {}
    Ok(())
}
