//! Addresses of programs that deliver or receive a stream.

use std::{fmt, net::SocketAddr, str::FromStr};

/// An address with its transport: `tcp://ADDR:PORT` or `udp://ADDR:PORT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    Tcp(SocketAddr),
    Udp(SocketAddr),
}

impl FromStr for Endpoint {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = "expected an address like tcp://127.0.0.1:9000 or udp://127.0.0.1:9000";
        let (kind, address) = text.split_once("://").ok_or(form)?;
        let address = address.parse().map_err(|_| form)?;
        match kind {
            "tcp" => Ok(Self::Tcp(address)),
            "udp" => Ok(Self::Udp(address)),
            _ => Err(form),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "tcp://{address}"),
            Self::Udp(address) => write!(f, "udp://{address}"),
        }
    }
}

/// Parses the address at which programs deliver a stream. They are not authenticated, so it is a loopback address.
///
/// # Errors
/// When it is not an address, or not on loopback.
pub fn parse_listen_address(text: &str) -> Result<Endpoint, &'static str> {
    let endpoint: Endpoint = text.parse()?;
    let (Endpoint::Tcp(address) | Endpoint::Udp(address)) = endpoint;
    if address.ip().to_canonical().is_loopback() {
        Ok(endpoint)
    } else {
        Err("programs are not authenticated, so only a loopback address is allowed")
    }
}
