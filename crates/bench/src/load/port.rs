//! A TCP port that stays a host's own while nothing listens there.

use socket2::{Domain, SockAddr, Socket, Type};
use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

/// Bound, and never listening: the system gives the port to nobody who asks for any, and takes
/// it for no outgoing connection. Who asks for this one gets it: on Linux several sockets may be
/// bound to a port that all say they reuse addresses, as servers do, and one of them listen there.
pub struct Port {
    number: u16,
    _kept: Socket,
}

impl Port {
    /// A free one at this address.
    ///
    /// # Errors
    /// The system's.
    pub fn at(ip: Ipv4Addr) -> io::Result<Self> {
        let kept = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        kept.set_reuse_address(true)?;
        kept.bind(&SockAddr::from(SocketAddr::from((ip, 0))))?;
        let at = kept.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { number: at.port(), _kept: kept })
    }

    /// Its number.
    pub const fn number(&self) -> u16 {
        self.number
    }
}
