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

use crate::destination::{Destination, Host};
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};
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

/// The first `N` bytes, or how many are lacking.
fn head<const N: usize>(bytes: &[u8]) -> Result<[u8; N], usize> {
    bytes.first_chunk().copied().ok_or(N - bytes.len().min(N))
}

/// As [`head`], but a wrong first byte is told at once.
fn versioned<const N: usize>(bytes: &[u8]) -> Result<Result<[u8; N], usize>, Socks5Error> {
    match bytes.first() {
        Some(&v) if v != VERSION => Err(Socks5Error::Version(v)),
        _ => Ok(head(bytes)),
    }
}

/// Reads a client's first message: whether it offers "no authentication" (§3).
///
/// # Errors
/// [`Socks5Error::Version`], [`Socks5Error::NoMethods`].
pub fn decode_methods(bytes: &[u8]) -> Result<Decoded<bool>, Socks5Error> {
    let [_, count] = match versioned(bytes)? {
        Ok(fixed) => fixed,
        Err(lacking) => return Ok(Decoded::Needs(lacking)),
    };
    let end = 2 + usize::from(count);
    match bytes.get(2..end) {
        _ if count == 0 => Err(Socks5Error::NoMethods),
        Some(methods) => Ok(Decoded::Message(methods.contains(&NO_AUTHENTICATION), end)),
        None => Ok(Decoded::Needs(end - bytes.len())),
    }
}

/// A client's first message, offering "no authentication" alone.
pub const fn encode_methods() -> [u8; 3] {
    [VERSION, 1, NO_AUTHENTICATION]
}

/// Reads the relay's choice of method, e.g. [`NO_AUTHENTICATION`].
///
/// # Errors
/// [`Socks5Error::Version`].
pub fn decode_method(bytes: &[u8]) -> Result<Decoded<u8>, Socks5Error> {
    Ok(match versioned(bytes)? {
        Ok([_, method]) => Decoded::Message(method, 2),
        Err(lacking) => Decoded::Needs(lacking),
    })
}

/// The relay's choice of method.
pub const fn encode_method(method: u8) -> [u8; 2] {
    [VERSION, method]
}

/// A host as it stands on the wire: checked for its form, not for its content.
enum RawHost<'a> {
    Ip(IpAddr),
    Name(&'a [u8]),
}

/// `ATYP ADDR PORT` after a fixed head of three bytes: host, port, message length.
type Tail<'a> = Decoded<(RawHost<'a>, u16)>;

fn decode_tail(bytes: &[u8]) -> Result<Tail<'_>, Socks5Error> {
    // Five bytes are in every message, and tell the length of all.
    let [_, _, reserved, kind, first] = match head::<5>(bytes) {
        Ok(fixed) => fixed,
        Err(lacking) => return Ok(Decoded::Needs(lacking)),
    };
    if reserved != 0 {
        return Err(Socks5Error::Reserved(reserved));
    }
    let (start, length) = match kind {
        1 => (4, 4),
        3 => (5, usize::from(first)),
        4 => (4, 16),
        other => return Err(Socks5Error::AddressType(other)),
    };
    let end = start + length + 2;
    let (Some(host), Some(&[high, low])) =
        (bytes.get(start..start + length), bytes.get(end - 2..end))
    else {
        return Ok(Decoded::Needs(end - bytes.len()));
    };
    Ok(Decoded::Message((raw_host(host, kind), u16::from_be_bytes([high, low])), end))
}

/// `host` has the length that `kind` asks for.
fn raw_host(host: &[u8], kind: u8) -> RawHost<'_> {
    if kind == 3 {
        return RawHost::Name(host);
    }
    let v4 = <[u8; 4]>::try_from(host).map(|b| Ipv4Addr::from(b).into());
    let v6 = || <[u8; 16]>::try_from(host).map(|b| Ipv6Addr::from(b).into());
    v4.or_else(|_| v6()).map_or(RawHost::Name(host), RawHost::Ip)
}

/// Reads a client's request (§4).
///
/// Differs: a name that is the text of an address becomes that address, so
/// that no rule about addresses can be passed by spelling one as a name.
///
/// # Errors
/// [`Socks5Error`]; for `Command` and `AddressType` the RFC has a reply.
pub fn decode_request(bytes: &[u8]) -> Result<Decoded<Request>, Socks5Error> {
    let command = match versioned(bytes)? {
        Ok([_, 1]) => Command::Connect,
        Ok([_, 2]) => Command::Bind,
        Ok([_, 3]) => Command::UdpAssociate,
        Ok([_, other]) => return Err(Socks5Error::Command(other)),
        // Five bytes are in every request.
        Err(_) => return Ok(Decoded::Needs(5 - bytes.len())),
    };
    let ((host, port), end) = match decode_tail(bytes)? {
        Decoded::Message(tail, end) => (tail, end),
        Decoded::Needs(n) => return Ok(Decoded::Needs(n)),
    };
    let host = match host {
        RawHost::Ip(ip) => Host::Ip(ip),
        RawHost::Name(name) => name_host(name)?,
    };
    if port == 0 {
        return Err(Socks5Error::Port);
    }
    Ok(Decoded::Message(Request { command, destination: Destination { host, port } }, end))
}

fn name_host(name: &[u8]) -> Result<Host, Socks5Error> {
    let text = std::str::from_utf8(name).map_err(|_| Socks5Error::Name)?;
    Host::parse(text).map_err(|_| Socks5Error::Name)
}

fn put_tail(out: &mut Vec<u8>, host: &Host, port: u16) {
    match host {
        Host::Ip(IpAddr::V4(ip)) => {
            out.push(1);
            out.extend(ip.octets());
        }
        Host::Ip(IpAddr::V6(ip)) => {
            out.push(4);
            out.extend(ip.octets());
        }
        Host::Name(name) => {
            // At most MAX_NAME = 253 bytes in every name that Host::parse made; cut otherwise.
            let name = &name.as_bytes()[..name.len().min(255)];
            out.extend([3, name.len() as u8]);
            out.extend(name);
        }
    }
    out.extend(port.to_be_bytes());
}

/// A CONNECT request for `destination` (§4); a name goes as a name, to be resolved there.
pub fn encode_connect(destination: &Destination) -> Vec<u8> {
    let mut out = vec![VERSION, 1, 0];
    put_tail(&mut out, &destination.host, destination.port);
    out
}

/// Reads a relay's reply (§6); the address it bound is checked for its form and dropped.
///
/// # Errors
/// [`Socks5Error::Version`], [`Socks5Error::AddressType`]. A refusal is an
/// `Ok` message with its [`Reply`]; RSV is not looked at, as clients never did.
pub fn decode_reply(bytes: &[u8]) -> Result<Decoded<Reply>, Socks5Error> {
    let code = match versioned(bytes)? {
        Ok([_, code]) => code,
        Err(_) => return Ok(Decoded::Needs(5 - bytes.len())),
    };
    let mut lenient = [0; MAX_MESSAGE];
    let seen = bytes.len().min(MAX_MESSAGE);
    lenient[..seen].copy_from_slice(&bytes[..seen]);
    lenient[2] = 0;
    Ok(match decode_tail(&lenient[..seen])? {
        Decoded::Message(_, end) => Decoded::Message(Reply::from_code(code), end),
        Decoded::Needs(n) => Decoded::Needs(n),
    })
}

/// A reply with the address that the relay's outgoing socket has (§6).
///
/// Refusals, and relays that keep their addresses to themselves, say `0.0.0.0:0`.
pub fn encode_reply(reply: Reply, bound: SocketAddr) -> Vec<u8> {
    let mut out = vec![VERSION, reply.code(), 0];
    put_tail(&mut out, &Host::Ip(bound.ip()), bound.port());
    out
}
