//! SOCKS version 5 (RFC 1928): the messages of a CONNECT.
//!
//! The client sends `METHODS`, the relay `METHOD`, the client `REQUEST`, the relay `REPLY`; the two byte streams
//! follow. Only "no authentication" (§3) and CONNECT (§4) are supported: peers are known by their channel, so
//! RFC 1929's clear-text passwords are not needed. Other commands are refused.
//!
//! Every `decode` function takes all bytes received so far, and returns the message with its length, or the number of
//! bytes that are **at least** missing. A caller that reads exactly this number never reads a byte of the stream that
//! follows, and never holds more than [`MAX_MESSAGE`] bytes.

mod codec;

pub use codec::{
    decode_method, decode_methods, decode_reply, decode_request, encode_connect, encode_method,
    encode_methods, encode_reply,
};

use std::fmt;
use thiserror::Error;

/// The protocol's version byte.
pub const VERSION: u8 = 5;
/// Method "no authentication required" (§3).
pub const NO_AUTHENTICATION: u8 = 0x00;
/// Method "no acceptable methods" (§3).
pub const NO_ACCEPTABLE_METHOD: u8 = 0xff;
/// The only supported command (§4).
pub const CONNECT: u8 = 1;
/// The longest message, bytes: a request with a name has 4 + 1 + 255 + 2; one with 255 methods has 257.
pub const MAX_MESSAGE: usize = 262;

/// The result of decoding: a message, or that bytes are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded<T> {
    /// The message, and its length in bytes.
    Message(T, usize),
    /// At least this number of bytes is missing; never 0.
    Needs(usize),
}

/// Why bytes are not a valid message of SOCKS version 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Socks5Error {
    /// The first byte is not 5.
    #[error("not SOCKS version 5: it starts with byte {0:#04x}")]
    Version(u8),
    /// A client offers no method.
    #[error("the client offers no authentication method")]
    NoMethods,
    /// RSV is not 0.
    #[error("the reserved byte is {0:#04x} instead of 0")]
    Reserved(u8),
    /// ATYP is not 1, 3 or 4; the reply is [`Reply::AddressTypeNotSupported`].
    #[error("unknown address type {0:#04x}")]
    AddressType(u8),
    /// CMD is not CONNECT; the reply is [`Reply::CommandNotSupported`].
    #[error("command {} is not supported; only CONNECT is", Named(.0))]
    Command(u8),
    /// The name is empty, too long, or contains bytes that are invalid in host names.
    #[error("the destination's name is not a host name")]
    Name,
    /// The port is 0.
    #[error("the destination's port is 0")]
    Port,
}

/// Displays a command by its name (RFC 1928 §4, and Tor's extensions), or else as a number.
struct Named<'a>(&'a u8);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            2 => f.write_str("BIND"),
            3 => f.write_str("UDP ASSOCIATE"),
            0xf0 => f.write_str("RESOLVE"),
            0xf1 => f.write_str("RESOLVE_PTR"),
            other => write!(f, "{other:#04x}"),
        }
    }
}

/// A relay's reply (§6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The connection is established.
    Succeeded,
    /// General SOCKS server failure.
    GeneralFailure,
    /// The relay's rules do not allow the connection.
    NotAllowed,
    /// No route to the network.
    NetworkUnreachable,
    /// No route to the host, or its name is unknown.
    HostUnreachable,
    /// The destination refused the connection.
    ConnectionRefused,
    /// The destination did not answer ("TTL expired").
    TtlExpired,
    /// The command is not supported.
    CommandNotSupported,
    /// The address type is not supported.
    AddressTypeNotSupported,
    /// A code that the RFC does not assign.
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
