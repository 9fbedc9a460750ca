//! Receives datagrams with the kernel's time of arrival.
#![expect(unsafe_code, reason = "no library reads these control messages")]

use std::{
    io, mem,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6},
    os::fd::{AsRawFd as _, BorrowedFd},
};
use thalweg_units::WallTime;

/// A received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamped {
    /// Its length, at most the buffer's.
    pub length: usize,
    /// When the kernel received it, by the wall clock (`SO_TIMESTAMPNS`).
    pub at: Option<WallTime>,
    /// The datagrams that this socket has dropped so far because its buffer was full (`SO_RXQ_OVFL`). These are losses
    /// of the host, not of the path.
    pub dropped: u32,
    pub from: Option<SocketAddr>,
}

/// Prepares a socket for probes: the kernel timestamps incoming datagrams, counts the ones it drops, buffers `buffer`
/// bytes (as far as it allows), and never fragments outgoing ones. A probe that exceeds the path MTU is not sent
/// ([`too_long`]), because its fragments would not be one probe.
///
/// # Errors
/// If the kernel refuses.
pub fn prepare(socket: BorrowedFd<'_>, buffer: usize) -> io::Result<()> {
    let size = i32::try_from(buffer).unwrap_or(i32::MAX);
    set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
    set(socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
    set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, size)?;
    whole(socket)
}

/// Prevents fragmentation of outgoing datagrams.
pub(super) fn whole(socket: BorrowedFd<'_>) -> io::Result<()> {
    set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)?;
    // Fails on an IPv4 socket, which does not have this option.
    _ = set(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IP_PMTUDISC_DO);
    Ok(())
}

/// Whether a datagram was not sent because it exceeds the path MTU.
pub fn too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMSGSIZE)
}

pub(super) fn set(socket: BorrowedFd<'_>, level: i32, option: i32, value: i32) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the kernel reads one `c_int`.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    match status {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A buffer for both control messages, with their alignment.
#[repr(C, align(8))]
struct TimestampBuffer([u8; 128]);

/// Receives the next datagram. The socket need not be connected.
///
/// # Errors
/// The kernel's error; [`io::ErrorKind::WouldBlock`] if no datagram is there and the socket does not block.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Stamped> {
    let mut control = TimestampBuffer([0; 128]);
    // SAFETY: all fields of `sockaddr_storage` may be zero.
    let mut from: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all fields of `msghdr` may be zero.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    message.msg_name = (&raw mut from).cast();
    message.msg_namelen = size_of::<libc::sockaddr_storage>() as _;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    // SAFETY: `message` points to a data buffer and to a control buffer that outlive the call.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    if length < 0 {
        return Err(io::Error::last_os_error());
    }
    let from = address(&from);
    let mut stamped = Stamped { length: length as usize, at: None, dropped: 0, from };
    // SAFETY: the kernel has filled `message`; the macros stay within the length it has set, and each value is read
    // unaligned as the type that its level and type name.
    unsafe {
        let mut next = libc::CMSG_FIRSTHDR(&raw const message);
        while let Some(head) = next.as_ref() {
            let data = libc::CMSG_DATA(next);
            match (head.cmsg_level, head.cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    stamped.at = Some(time(data.cast::<libc::timespec>().read_unaligned()));
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    stamped.dropped = data.cast::<u32>().read_unaligned();
                }
                _ => {}
            }
            next = libc::CMSG_NXTHDR(&raw const message, next);
        }
    }
    Ok(stamped)
}

/// The address in a `sockaddr_storage` (ip(7), ipv6(7)); `None` for other families or an empty one.
pub(super) fn address(of: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let of = std::ptr::from_ref(of);
    // SAFETY: the kernel has written an address of this family, which is no longer than the storage.
    unsafe {
        match i32::from((*of).ss_family) {
            libc::AF_INET => {
                let v4 = of.cast::<libc::sockaddr_in>().read();
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Some(SocketAddr::new(ip.into(), u16::from_be(v4.sin_port)))
            }
            libc::AF_INET6 => {
                let v6 = of.cast::<libc::sockaddr_in6>().read();
                let (ip, port) = (Ipv6Addr::from(v6.sin6_addr.s6_addr), u16::from_be(v6.sin6_port));
                Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

pub(super) fn time(of: libc::timespec) -> WallTime {
    WallTime::from_unix_nanos(of.tv_sec as u64 * 1_000_000_000 + of.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::UdpSocket, os::fd::AsFd as _, time::SystemTime};

    #[test]
    fn datagrams_have_the_kernels_time_and_drops_are_counted() {
        let to = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        prepare(to.as_fd(), 1).unwrap();
        let from = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        from.connect(to.local_addr().unwrap()).unwrap();
        let before =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
        // More than the smallest buffer holds.
        (0..20).for_each(|_| _ = from.send(&[7; 1000]).unwrap());
        let mut buffer = [0; 2000];
        let first = receive(to.as_fd(), &mut buffer).unwrap();
        let at = first.at.unwrap().as_unix_nanos();
        assert_eq!(first.from, from.local_addr().ok());
        assert!(first.length == 1000 && buffer[..1000] == [7; 1000]);
        assert!((before..before + 60_000_000_000).contains(&at), "{before} {at}");
        to.set_nonblocking(true).unwrap();
        let mut came = 1;
        let ended = loop {
            match receive(to.as_fd(), &mut buffer) {
                Ok(next) => came += usize::from(next.at.unwrap() >= first.at.unwrap()),
                Err(e) => break e,
            }
        };
        assert_eq!(ended.kind(), io::ErrorKind::WouldBlock);
        // The count arrives with the next received datagram.
        from.send(&[7; 10]).unwrap();
        let last = receive(to.as_fd(), &mut buffer).unwrap();
        assert_eq!((came + last.dropped as usize, last.length), (20, 10));
        assert!(last.dropped > 0);
    }
}
