//! SOCKS version 5 (RFC 1928): the messages of a CONNECT, read and written.
//!
//! `METHODS` → `METHOD` ← then `REQUEST` → `REPLY` ←, then the two byte
//! streams. Only "no authentication" (§3) and CONNECT (§4) are used: peers
//! are known by their channel, so RFC 1929's clear-text passwords are not
//! spoken. The other commands are read, so that they can be refused by name.
//!
//! Every `decode` takes all that has arrived so far and returns the message
//! with its length, or how many more bytes it needs **at least**. Whoever
//! reads just that many never takes a byte of the stream that follows, and
//! never holds more than [`MAX_MESSAGE`].

mod codec;

pub use codec::{
    decode_method, decode_methods, decode_reply, decode_request, encode_connect, encode_method,
    encode_methods, encode_reply,
};

use crate::Destination;
use std::fmt;
use thiserror::Error;

/// The protocol's version byte.
pub const VERSION: u8 = 5;
/// Method "no authentication required" (§3).
pub const NO_AUTHENTICATION: u8 = 0x00;
/// Method "no acceptable methods" (§3).
pub const NO_ACCEPTABLE_METHOD: u8 = 0xff;
/// The longest message: a request with a name, 4 + 1 + 255 + 2 bytes; 255 methods are 257.
pub const MAX_MESSAGE: usize = 262;

/// A message that was read, or the lack of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded<T> {
    /// The message, and how many of the bytes it took.
    Message(T, usize),
    /// At least so many more bytes are needed; never 0.
    Needs(usize),
}

/// Bytes that are not SOCKS version 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Socks5Error {
    /// The first byte is not 5.
    #[error("not SOCKS version 5: it starts with byte {0:#04x}")]
    Version(u8),
    /// A client offered no method at all.
    #[error("the client offers no authentication method")]
    NoMethods,
    /// RSV is not 0.
    #[error("reserved byte is {0:#04x} instead of 0")]
    Reserved(u8),
    /// ATYP is none of 1, 3, 4; the reply is [`Reply::AddressTypeNotSupported`].
    #[error("unknown address type {0:#04x}")]
    AddressType(u8),
    /// CMD is none of 1, 2, 3; the reply is [`Reply::CommandNotSupported`].
    #[error("unknown command {0:#04x}")]
    Command(u8),
    /// The name is empty, too long or has bytes that no host name has.
    #[error("the destination's name is not a host name")]
    Name,
    /// Port 0 cannot be connected to.
    #[error("the destination's port is 0")]
    Port,
}

/// What a client asks for (§4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// A TCP connection; the only one that is served.
    Connect,
    /// Accept a TCP connection; refused.
    Bind,
    /// Carry datagrams; refused.
    UdpAssociate,
}

/// A client's request (§4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is to be done.
    pub command: Command,
    /// Where to.
    pub destination: Destination,
}

/// A relay's answer (§6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The connection stands.
    Succeeded,
    /// General SOCKS server failure.
    GeneralFailure,
    /// Not allowed by the relay's rules.
    NotAllowed,
    /// No route to the network.
    NetworkUnreachable,
    /// No route to the host, or its name is unknown.
    HostUnreachable,
    /// The destination refused.
    ConnectionRefused,
    /// The destination did not answer ("TTL expired").
    TtlExpired,
    /// Not CONNECT.
    CommandNotSupported,
    /// An address type that is not known.
    AddressTypeNotSupported,
    /// A code that the RFC leaves unassigned.
    Unassigned(u8),
}

impl Reply {
    /// The code on the wire.
    pub const fn code(self) -> u8 {
        match self {
            Self::Succeeded => 0,
            Self::GeneralFailure => 1,
            Self::NotAllowed => 2,
            Self::NetworkUnreachable => 3,
            Self::HostUnreachable => 4,
            Self::ConnectionRefused => 5,
            Self::TtlExpired => 6,
            Self::CommandNotSupported => 7,
            Self::AddressTypeNotSupported => 8,
            Self::Unassigned(code) => code,
        }
    }

    /// The reply with this code.
    pub const fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Succeeded,
            1 => Self::GeneralFailure,
            2 => Self::NotAllowed,
            3 => Self::NetworkUnreachable,
            4 => Self::HostUnreachable,
            5 => Self::ConnectionRefused,
            6 => Self::TtlExpired,
            7 => Self::CommandNotSupported,
            8 => Self::AddressTypeNotSupported,
            code => Self::Unassigned(code),
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Succeeded => "connected",
            Self::GeneralFailure => "general failure at the relay",
            Self::NotAllowed => "not allowed by the relay's rules",
            Self::NetworkUnreachable => "network unreachable from the relay",
            Self::HostUnreachable => "host unknown or unreachable from the relay",
            Self::ConnectionRefused => "connection refused by destination",
            Self::TtlExpired => "no answer from destination",
            Self::CommandNotSupported => "command not supported",
            Self::AddressTypeNotSupported => "address type not supported",
            Self::Unassigned(code) => return write!(f, "unassigned reply code {code:#04x}"),
        })
    }
}
