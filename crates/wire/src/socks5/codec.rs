//! Reading and writing the messages.

use super::{Command, Decoded, NO_AUTHENTICATION, Reply, Request, Socks5Error, VERSION};
use crate::{Destination, Host};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

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

/// `ATYP ADDR PORT` after three bytes that the caller looks at: host, port, message length.
type Tail<'a> = Decoded<(RawHost<'a>, u16)>;

fn decode_tail(bytes: &[u8]) -> Result<Tail<'_>, Socks5Error> {
    // Five bytes are in every message, and tell the length of all.
    let [_, _, _, kind, first] = match head::<5>(bytes) {
        Ok(fixed) => fixed,
        Err(lacking) => return Ok(Decoded::Needs(lacking)),
    };
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
/// [`Socks5Error`]; for `Command` and `AddressType` the RFC has a reply. An
/// unknown command is told once the whole request is there: a relay that
/// answers and closes with bytes unread would reset its own answer.
pub fn decode_request(bytes: &[u8]) -> Result<Decoded<Request>, Socks5Error> {
    let code = match versioned(bytes)? {
        Ok([_, code]) => code,
        // Five bytes are in every request.
        Err(_) => return Ok(Decoded::Needs(5 - bytes.len())),
    };
    if let Some(&reserved @ 1..) = bytes.get(2) {
        return Err(Socks5Error::Reserved(reserved));
    }
    let ((host, port), end) = match decode_tail(bytes)? {
        Decoded::Message(tail, end) => (tail, end),
        Decoded::Needs(n) => return Ok(Decoded::Needs(n)),
    };
    let command = command(code)?;
    let host = match host {
        RawHost::Ip(ip) => Host::Ip(ip),
        RawHost::Name(name) => name_host(name)?,
    };
    if port == 0 {
        return Err(Socks5Error::Port);
    }
    Ok(Decoded::Message(Request { command, destination: Destination { host, port } }, end))
}

fn command(code: u8) -> Result<Command, Socks5Error> {
    match code {
        1 => Ok(Command::Connect),
        2 => Ok(Command::Bind),
        3 => Ok(Command::UdpAssociate),
        other => Err(Socks5Error::Command(other)),
    }
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
    Ok(match decode_tail(bytes)? {
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
