//! A TCP port that stays reserved while no socket listens on it.

use socket2::{Domain, SockAddr, Socket, Type};
use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

/// A port reserved by a socket that is bound and never listens.
///
/// The system does not assign the port to a socket that asks for any port, and does not use it for outgoing
/// connections. A socket that asks for this port gets it: on Linux several sockets may be bound to a port if all of
/// them set `SO_REUSEADDR`, as servers do, and one of them may listen.
pub struct Port {
    number: u16,
    _socket: Socket,
}

impl Port {
    /// Reserves a free port at this address.
    ///
    /// # Errors
    /// If the system refuses the socket or has no free port.
    pub fn reserve(ip: Ipv4Addr) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&SockAddr::from(SocketAddr::from((ip, 0))))?;
        let at = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { number: at.port(), _socket: socket })
    }

    /// The port number.
    pub const fn number(&self) -> u16 {
        self.number
    }
}
