//! Refusals: the reasons why a client gets no connection, and the SOCKS5 replies that report them.

use super::{
    denial::Denial, handshake::NOWHERE, mesh::ReverseError, quota::OverQuota,
    resolver::TooManyNames,
};
use std::{io, time::Duration};
use thalweg_net::{Cause, socks5::ReadError};
use thalweg_wire::{
    mesh::TermsError,
    socks5::{self, Reply, Socks5Error},
};
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::timeout,
};

/// How long a refused client may take to read its reply and close.
///
/// A connection that is closed with unread bytes (of a client that sent its data at once) is reset, and a reply in
/// transit is lost.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);

/// A reason why a client gets no connection.
#[derive(Debug, Error)]
pub enum Refusal {
    /// The client's messages took too long.
    #[error("handshake took longer than allowed")]
    Slow,
    /// The client left during the handshake.
    #[error("client disconnected during the handshake: {0}")]
    Left(#[source] io::Error),
    /// The client does not speak SOCKS5. It gets no byte, or a reply where the RFC defines one.
    #[error("{0}")]
    NotSocks(#[source] Socks5Error),
    /// The client offers no supported method.
    #[error("client offers no supported authentication method")]
    NoMethod,
    /// The client's terms are invalid.
    #[error(transparent)]
    Terms(#[from] TermsError),
    /// The egress policy or a rule of the mesh denies the destination.
    #[error("denied: {0}")]
    Denied(#[from] Denial),
    /// The client has used up its quota.
    #[error("over quota: {0}")]
    Quota(#[from] OverQuota),
    /// The member that the client asks for has used up its own quota.
    #[error("the member that the client asks for is over its quota: {0}")]
    MemberQuota(#[source] OverQuota),
    /// The member that the client asks for gave no connection.
    #[error(transparent)]
    Reverse(#[from] ReverseError),
    /// The relay serves as many connections as it may.
    #[error("this relay has reached its limit of connections")]
    Full,
    /// The relay also has as many connections to refuse as it may, so this one is closed without a byte.
    #[error("this relay has reached its limits of served and of refused connections")]
    Crowded,
    /// The client has as many name look-ups as it may.
    #[error("too many name look-ups at once: {0}")]
    Names(#[from] TooManyNames),
    /// The second leg could not be established.
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
    /// The reply in the encoding of RFC 1928; empty if the client gets none.
    pub fn message(&self) -> Vec<u8> {
        match self {
            Self::NoMethod | Self::NotSocks(Socks5Error::NoMethods) | Self::Terms(_) => {
                socks5::encode_method(socks5::NO_ACCEPTABLE_METHOD).into()
            }
            _ => self.reply().map(|r| socks5::encode_reply(r, NOWHERE)).unwrap_or_default(),
        }
    }

    /// The reply code, where the RFC defines one.
    fn reply(&self) -> Option<Reply> {
        Some(match self {
            Self::Slow | Self::Left(_) | Self::NoMethod | Self::Terms(_) | Self::Crowded => {
                return None;
            }
            Self::NotSocks(Socks5Error::Command(_)) => Reply::CommandNotSupported,
            Self::NotSocks(Socks5Error::AddressType(_)) => Reply::AddressTypeNotSupported,
            Self::NotSocks(Socks5Error::Name | Socks5Error::Port | Socks5Error::Reserved(_)) => {
                Reply::GeneralFailure
            }
            Self::NotSocks(_) => return None,
            Self::Denied(_) | Self::Quota(_) | Self::MemberQuota(_) => Reply::NotAllowed,
            Self::Reverse(why) => reply_without_member(*why),
            Self::Full | Self::Names(_) => Reply::GeneralFailure,
            Self::NoLeg(cause) => reply_to(cause),
        })
    }

    /// The label for counters, from a fixed set.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::Left(_) => "left",
            Self::NotSocks(Socks5Error::Command(_)) => "command",
            Self::NotSocks(_) => "not_socks",
            Self::NoMethod => "no_method",
            Self::Terms(_) => "terms",
            Self::Denied(denial) => denial.reason(),
            Self::Quota(over) | Self::MemberQuota(over) => over.reason(),
            Self::Reverse(why) => why.reason(),
            Self::Full => "full",
            Self::Crowded => "crowded",
            Self::Names(_) => "names",
            Self::NoLeg(Cause::Resolve(_) | Cause::NoAddress) => "resolve",
            Self::NoLeg(_) => "connect",
        }
    }

    /// Sends the reply, if there is one, and waits until the client has read it.
    ///
    /// `prefix` is sent before the reply (`Handshake::prefix`).
    pub async fn tell<S>(&self, client: &mut S, prefix: Vec<u8>)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let message = self.message();
        if !message.is_empty() {
            let reply = [prefix, message].concat();
            // Best effort: the client may be gone.
            _ = timeout(REFUSAL_TIMEOUT, deliver(client, &reply)).await;
        }
    }
}

/// The reply code for a member that gave no connection.
fn reply_without_member(why: ReverseError) -> Reply {
    match why {
        ReverseError::Unnamed => Reply::NotAllowed,
        ReverseError::NotStanding => Reply::HostUnreachable,
        ReverseError::Declined | ReverseError::Broken => Reply::ConnectionRefused,
        ReverseError::Late(_) => Reply::TtlExpired,
        ReverseError::Full | ReverseError::Random => Reply::GeneralFailure,
    }
}

/// The reply code of RFC 1928 §6 for a leg that could not be established.
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

/// Writes the message, ends this direction, and reads and discards the client's bytes until its end.
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
