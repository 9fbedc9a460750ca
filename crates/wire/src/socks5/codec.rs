//! Encoding and decoding of the messages.

use super::{CONNECT, Decoded, NO_AUTHENTICATION, Reply, Socks5Error, VERSION};
use crate::{Destination, Host};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The first `N` bytes, or the number of missing bytes.
fn head<const N: usize>(bytes: &[u8]) -> Result<[u8; N], usize> {
    bytes.first_chunk().copied().ok_or(N - bytes.len().min(N))
}

/// As [`head`], but a wrong version byte is an error even if other bytes are missing.
fn versioned<const N: usize>(bytes: &[u8]) -> Result<Result<[u8; N], usize>, Socks5Error> {
    match bytes.first() {
        Some(&v) if v != VERSION => Err(Socks5Error::Version(v)),
        _ => Ok(head(bytes)),
    }
}

/// Decodes a client's first message: whether it offers "no authentication" (§3).
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

/// Encodes a client's first message, which offers only "no authentication".
pub const fn encode_methods() -> [u8; 3] {
    [VERSION, 1, NO_AUTHENTICATION]
}

/// Decodes the relay's choice of method, e.g. [`NO_AUTHENTICATION`].
///
/// # Errors
/// [`Socks5Error::Version`].
pub fn decode_method(bytes: &[u8]) -> Result<Decoded<u8>, Socks5Error> {
    Ok(match versioned(bytes)? {
        Ok([_, method]) => Decoded::Message(method, 2),
        Err(lacking) => Decoded::Needs(lacking),
    })
}

/// Encodes the relay's choice of method.
pub const fn encode_method(method: u8) -> [u8; 2] {
    [VERSION, method]
}

/// A host as encoded on the wire: its form is checked, its content is not.
enum RawHost<'a> {
    Ip(IpAddr),
    Name(&'a [u8]),
}

/// Host and port, decoded from `ATYP ADDR PORT` after three bytes that the caller decodes.
type Tail<'a> = Decoded<(RawHost<'a>, u16)>;

fn decode_tail(bytes: &[u8]) -> Result<Tail<'_>, Socks5Error> {
    // Every message has at least five bytes, and the fifth may be the length of a name.
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

/// Decodes the host; `host` has the length for `kind`.
fn raw_host(host: &[u8], kind: u8) -> RawHost<'_> {
    if kind == 3 {
        return RawHost::Name(host);
    }
    let v4 = <[u8; 4]>::try_from(host).map(|b| Ipv4Addr::from(b).into());
    let v6 = || <[u8; 16]>::try_from(host).map(|b| Ipv6Addr::from(b).into());
    v4.or_else(|_| v6()).map_or(RawHost::Name(host), RawHost::Ip)
}

/// Decodes a client's request (§4) and returns the destination.
///
/// The command is checked first, and for commands other than CONNECT nothing after it is decoded: with UDP ASSOCIATE
/// clients send the unusable address `0.0.0.0:0` (§7).
///
/// Differs from the RFC: a name that is the text of an address becomes that address, so that no rule about addresses
/// can be evaded by spelling one as a name.
///
/// # Errors
/// [`Socks5Error`]; for `Command` and `AddressType` the RFC defines a reply. The rest of such a request is unread: read
/// it before closing the connection, or else the kernel sends a reset that discards the reply.
pub fn decode_request(bytes: &[u8]) -> Result<Decoded<Destination>, Socks5Error> {
    match versioned(bytes)? {
        Ok([_, CONNECT]) => {}
        Ok([_, other]) => return Err(Socks5Error::Command(other)),
        Err(lacking) => return Ok(Decoded::Needs(lacking)),
    }
    if let Some(&reserved @ 1..) = bytes.get(2) {
        return Err(Socks5Error::Reserved(reserved));
    }
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
    Ok(Decoded::Message(Destination { host, port }, end))
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
            // Names from Host::parse have at most MAX_NAME = 253 bytes; any other name is truncated.
            let name = &name.as_bytes()[..name.len().min(255)];
            out.extend([3, name.len() as u8]);
            out.extend(name);
        }
    }
    out.extend(port.to_be_bytes());
}

/// Encodes a CONNECT request for `destination` (§4). A name is sent as a name, which the relay resolves.
pub fn encode_connect(destination: &Destination) -> Vec<u8> {
    let mut out = vec![VERSION, CONNECT, 0];
    put_tail(&mut out, &destination.host, destination.port);
    out
}

/// Decodes a relay's reply (§6); the form of the bound address is checked, and the address is ignored.
///
/// # Errors
/// [`Socks5Error::Version`], [`Socks5Error::AddressType`]. A refusal is an `Ok` message with its [`Reply`]. RSV is
/// ignored, as clients always did.
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

/// Encodes a reply with the address of the relay's outgoing socket (§6).
///
/// Refusals, and relays that do not disclose their addresses, send `0.0.0.0:0`.
pub fn encode_reply(reply: Reply, bound: SocketAddr) -> Vec<u8> {
    let mut out = vec![VERSION, reply.code(), 0];
    put_tail(&mut out, &Host::Ip(bound.ip()), bound.port());
    out
}
