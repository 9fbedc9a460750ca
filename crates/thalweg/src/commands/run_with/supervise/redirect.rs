//! Handles one `connect` of a program: redirects it to the proxy, or leaves it alone.
//!
//! The program's own socket is connected, through a duplicate descriptor, so that the program can change nothing
//! between the check and the connect. Whatever is not understood is left to the kernel, as if it had not been
//! intercepted.

use super::seccomp::{Answer, Held};
use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open},
};
use socket2::{Domain, Protocol, SockRef, Type};
use std::{
    fs::{self, File},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::{fd::OwnedFd, unix::fs::FileExt as _},
};
use thalweg_proxy::{RedirectDestinations, RedirectPorts};

/// The size of the kernel's `sockaddr_in6`, the longest address that is read.
const MAX_LENGTH: usize = 28;
/// The size of the kernel's `sockaddr_in`.
const V4_LENGTH: usize = 16;

/// The connection that a program asks for.
pub struct HeldConnect {
    /// A duplicate descriptor of the program's socket.
    socket: OwnedFd,
    to: SocketAddr,
}

impl HeldConnect {
    /// Reads the arguments of a held `connect`. `None` if the address is of another kind, or the program does not let
    /// this user inspect it.
    pub fn read(held: &Held) -> Option<Self> {
        let [descriptor, address, length, ..] = held.arguments;
        let to = read_address(held.thread, address, usize::try_from(length).ok()?)?;
        let program = Pid::from_raw(i32::try_from(program_of(held.thread)?).ok()?)?;
        let program = pidfd_open(program, PidfdFlags::empty()).ok()?;
        // The argument is the lower half of the register.
        let descriptor = (descriptor & u64::from(u32::MAX)) as i32;
        let socket = pidfd_getfd(program, descriptor, PidfdGetfdFlags::empty()).ok()?;
        Some(Self { socket, to })
    }

    /// Connects the socket to the proxy, if the destination is another host and the program has not chosen an
    /// interface.
    pub fn lead(&self, ports: RedirectPorts, meant: &RedirectDestinations) -> Answer {
        let socket = SockRef::from(&self.socket);
        match redirection(&socket, self.to, ports) {
            Some((from, proxy)) => connect(&socket, from, proxy, self.to, meant),
            None => Answer::Go,
        }
    }
}

/// The local address to bind and the proxy's address, in the socket's own family.
fn redirection(
    socket: &SockRef<'_>,
    to: SocketAddr,
    ports: RedirectPorts,
) -> Option<(IpAddr, SocketAddr)> {
    let is_tcp = socket.r#type().ok()? == Type::STREAM
        && matches!(socket.protocol().ok()?, None | Some(Protocol::TCP));
    let is_bound = socket.device().ok()?.is_some() || is_bound(socket);
    if !is_tcp || is_bound || !leads_out(to, local_address_to) {
        return None;
    }
    let (host, port) = match (socket.domain().ok()?, to.ip()) {
        (Domain::IPV4, IpAddr::V4(_)) => (Ipv4Addr::LOCALHOST.into(), ports.v4),
        (Domain::IPV6, IpAddr::V6(ip)) if ip.to_ipv4_mapped().is_some() => {
            (Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(), ports.v4)
        }
        (Domain::IPV6, IpAddr::V6(_)) => (Ipv6Addr::LOCALHOST.into(), ports.v6?),
        _ => return None,
    };
    Some((host, SocketAddr::new(host, port)))
}

/// Whether the socket is bound: then the program wants an address or a port of its own.
fn is_bound(socket: &SockRef<'_>) -> bool {
    let at = socket.local_addr().ok().and_then(|at| at.as_socket());
    at.is_none_or(|at| at.port() != 0 || !at.ip().is_unspecified())
}

/// Whether `to` is an address of another host with a route to it. Without a route, the program must get the error, so
/// that it tries its next address.
fn leads_out(to: SocketAddr, local_address_to: impl Fn(SocketAddr) -> Option<IpAddr>) -> bool {
    let ip = to.ip().to_canonical();
    let is_near = ip.is_loopback() || ip.is_unspecified() || ip.is_multicast();
    let own = || local_address_to(SocketAddr::new(ip, to.port()));
    !is_near && to.port() != 0 && own().is_some_and(|own| own != ip)
}

/// The local address from which the kernel would connect to `to`. Nothing is sent.
fn local_address_to(to: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(to).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

fn connect(
    socket: &SockRef<'_>,
    from: IpAddr,
    proxy: SocketAddr,
    to: SocketAddr,
    meant: &RedirectDestinations,
) -> Answer {
    // Bound first, so that the proxy knows the destination when it accepts the connection.
    let bound = socket.bind(&SocketAddr::new(from, 0).into());
    let Some(own) = bound.ok().and_then(|()| socket.local_addr().ok()?.as_socket()) else {
        return Answer::Go;
    };
    if own.port() == 0 {
        // `IP_BIND_ADDRESS_NO_PORT` without an own address, which no known program uses.
        return Answer::Failed(Errno::ADDRNOTAVAIL);
    }
    let own = SocketAddr::new(own.ip().to_canonical(), own.port());
    let to = SocketAddr::new(to.ip().to_canonical(), to.port());
    if !meant.expect(own, to) {
        return Answer::Failed(Errno::NOBUFS);
    }
    let Err(error) = socket.connect(&proxy.into()) else { return Answer::Done };
    let errno = Errno::from_io_error(&error).unwrap_or(Errno::CONNREFUSED);
    if errno != Errno::INPROGRESS {
        meant.take(own);
    }
    Answer::Failed(errno)
}

/// The process of a thread.
fn program_of(thread: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

fn read_address(thread: u32, at: u64, length: usize) -> Option<SocketAddr> {
    let mut bytes = [0; MAX_LENGTH];
    let bytes = &mut bytes[..length.min(MAX_LENGTH)];
    File::open(format!("/proc/{thread}/mem")).ok()?.read_exact_at(bytes, at).ok()?;
    parse(bytes)
}

/// Parses `sockaddr_in` and `sockaddr_in6` (ip(7), ipv6(7)): the family in host byte order, the rest in network byte
/// order. An address with a scope is link-local and is not redirected.
fn parse(bytes: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    let ip: IpAddr = match family {
        libc::AF_INET if bytes.len() >= V4_LENGTH => {
            <[u8; 4]>::try_from(bytes.get(4..8)?).ok()?.into()
        }
        libc::AF_INET6 => {
            let has_scope = bytes.get(24..28)? != [0; 4];
            let ip: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            (!has_scope).then_some(ip)?.into()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(port: u16, ip: [u8; 4]) -> Vec<u8> {
        let mut bytes = (libc::AF_INET as u16).to_ne_bytes().to_vec();
        bytes.extend(port.to_be_bytes());
        bytes.extend(ip);
        bytes.extend([0; 8]);
        bytes
    }

    fn v6(port: u16, ip: Ipv6Addr, scope: u32) -> Vec<u8> {
        let mut bytes = (libc::AF_INET6 as u16).to_ne_bytes().to_vec();
        bytes.extend(port.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend(ip.octets());
        bytes.extend(scope.to_ne_bytes());
        bytes
    }

    #[test]
    fn addresses_are_parsed_as_by_the_kernel() {
        let is = |bytes: &[u8], text: &str| assert_eq!(parse(bytes), text.parse().ok(), "{text}");
        is(&v4(443, [192, 0, 2, 1]), "192.0.2.1:443");
        is(&v6(80, "2001:db8::1".parse().unwrap(), 0), "[2001:db8::1]:80");
        is(&v6(80, "fe80::1".parse().unwrap(), 2), "a link's");
        is(&v4(443, [192, 0, 2, 1])[..15], "too short");
        is(&[1, 0, b'/', b'x', 0], "a name in the file system");
        is(&[], "nothing");
    }

    #[test]
    fn connections_within_this_host_are_left_alone() {
        // This host is 198.51.100.1, and has no IPv6.
        let own = IpAddr::from([198, 51, 100, 1]);
        let out =
            |text: &str| leads_out(text.parse().unwrap(), |to| to.ip().is_ipv4().then_some(own));
        assert!(out("192.0.2.1:443") && out("[::ffff:192.0.2.1]:443"));
        for near in ["127.0.0.1:80", "0.0.0.0:80", "224.0.0.1:9", "192.0.2.1:0", "198.51.100.1:80"]
        {
            assert!(!out(near), "{near}");
        }
        assert!(!out("[::1]:80") && !out("[::ffff:127.0.0.1]:80") && !out("[ff02::1]:80"));
        assert!(!out("[2001:db8::1]:443"), "there is no way to it");
    }

    #[test]
    fn the_local_address_to_this_host_is_its_own() {
        let own = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(local_address_to(SocketAddr::new(own, 9)), Some(own));
    }
}
