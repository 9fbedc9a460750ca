//! Datagrams with a limited number of hops, and the ICMP errors of the routers where they expire (ip(7): `IP_TTL`,
//! `IP_RECVERR`). They need no raw socket and therefore no privilege.
#![expect(unsafe_code, reason = "no library reads the queue of errors")]

use super::{
    now,
    stamped::{set, time, whole},
};
use std::{
    io, mem,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::fd::{AsFd as _, AsRawFd as _},
    time::Duration,
};
use thalweg_units::{Time, WallTime};

/// A router's report that a datagram has expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expired {
    /// The router.
    pub by: IpAddr,
    /// The kernel's time of arrival of the report.
    pub at: WallTime,
    /// The bytes of the datagram that the report quotes. Routers after RFC 1812 quote what fits into 576 bytes; older
    /// ones need not quote any payload.
    pub quoted: Vec<u8>,
}

/// The most bytes that are read of a quotation.
const MAX_QUOTED: usize = 64;

/// The capacity of the error queue, bytes: a few hundred reports.
const BUFFER: i32 = 1 << 20;

/// A socket connected to one destination, so that it receives only the errors of its own datagrams.
#[derive(Debug)]
pub struct HopSocket {
    socket: UdpSocket,
    is_v4: bool,
}

impl HopSocket {
    /// Opens a socket to this destination.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn to(to: SocketAddr) -> io::Result<Self> {
        let is_v4 = to.is_ipv4();
        let any: SocketAddr = match is_v4 {
            true => (Ipv4Addr::UNSPECIFIED, 0).into(),
            false => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(to)?;
        set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, BUFFER)?;
        match is_v4 {
            true => set(socket.as_fd(), libc::IPPROTO_IP, libc::IP_RECVERR, 1)?,
            false => set(socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1)?,
        }
        whole(socket.as_fd())?;
        Ok(Self { socket, is_v4 })
    }

    /// Sends a datagram that expires after `hops` hops; `None`: the system's default.
    ///
    /// # Errors
    /// If the kernel refuses. A pending error about an earlier datagram does not count: this datagram is sent all the
    /// same.
    pub fn send(&self, datagram: &[u8], hops: Option<u8>) -> io::Result<()> {
        // -1 selects the system's default.
        let hops = hops.map_or(-1, i32::from);
        match self.is_v4 {
            true => set(self.socket.as_fd(), libc::IPPROTO_IP, libc::IP_TTL, hops)?,
            false => {
                set(self.socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, hops)?;
            }
        }
        loop {
            match self.socket.send(datagram) {
                // The kernel reports a pending error once, instead of sending the datagram.
                Err(e) if is_icmp_error(&e) => {}
                sent => return sent.map(drop),
            }
        }
    }

    /// The next report of a router, or `None` if none arrives until `until`, by the clock of [`now`].
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn expired(&self, until: Time) -> io::Result<Option<Expired>> {
        loop {
            match self.queued() {
                Ok(Some(expired)) => return Ok(Some(expired)),
                // A report of another kind.
                Ok(None) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let left = until.since(now());
                    if left.is_zero() || !self.wait(left)? {
                        return Ok(None);
                    }
                    // A socket error without an entry in the queue would wake the poll for ever.
                    self.socket.take_error()?;
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Whether the queue has an entry, after waiting for at most `wait`.
    fn wait(&self, wait: Duration) -> io::Result<bool> {
        let mut one = libc::pollfd { fd: self.socket.as_raw_fd(), events: 0, revents: 0 };
        // Rounded up to whole milliseconds: otherwise the last fraction of one would be spent without sleeping.
        let millis = i32::try_from(wait.as_millis() + 1).unwrap_or(i32::MAX);
        // SAFETY: there is one descriptor, which is open and outlives the call.
        match unsafe { libc::poll(&raw mut one, 1, millis) } {
            0 => Ok(false),
            n if n > 0 => Ok(true),
            _ => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => Ok(true),
                e => Err(e),
            },
        }
    }

    /// Takes the first entry of the queue; `None` if it does not report an expired datagram.
    fn queued(&self) -> io::Result<Option<Expired>> {
        let mut quoted = vec![0; MAX_QUOTED];
        let mut control = ErrorBuffer([0; 512]);
        let mut part = libc::iovec { iov_base: quoted.as_mut_ptr().cast(), iov_len: MAX_QUOTED };
        // SAFETY: all fields of `msghdr` may be zero.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len() as _;
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        let socket = self.socket.as_raw_fd();
        // SAFETY: `message` points to a data buffer and to a control buffer that outlive the call.
        let length = unsafe { libc::recvmsg(socket, &raw mut message, flags) };
        if length < 0 {
            return Err(io::Error::last_os_error());
        }
        quoted.truncate(length as usize);
        let (mut at, mut by) = (None, None);
        // SAFETY: the kernel has filled `message`; the macros stay within the length it has set, and each value is read
        // unaligned as the type that its level and type name. The offender's address follows its error (ip(7)); an IPv4
        // address is shorter than the bytes read, which then include the rest of `control`: 512 bytes, of which some
        // 150 are used.
        unsafe {
            let mut next = libc::CMSG_FIRSTHDR(&raw const message);
            while let Some(head) = next.as_ref() {
                let data = libc::CMSG_DATA(next);
                match (head.cmsg_level, head.cmsg_type) {
                    (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                        at = Some(time(data.cast::<libc::timespec>().read_unaligned()));
                    }
                    (libc::IPPROTO_IP, libc::IP_RECVERR)
                    | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) => {
                        by = offender(data.cast::<ErrorWithOffender>().read_unaligned());
                    }
                    _ => {}
                }
                next = libc::CMSG_NXTHDR(&raw const message, next);
            }
        }
        Ok(at.zip(by).map(|(at, by)| Expired { by, at, quoted }))
    }
}

/// Whether the error only reports what happened to an earlier datagram.
fn is_icmp_error(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [libc::EHOSTUNREACH, libc::ENETUNREACH, libc::ECONNREFUSED, libc::EPROTO]
        .iter()
        .any(|one| code == Some(*one))
}

/// A buffer for all control messages, with their alignment.
#[repr(C, align(8))]
struct ErrorBuffer([u8; 512]);

/// A `sock_extended_err` and the address behind it, long enough for both families.
#[repr(C)]
#[derive(Clone, Copy)]
struct ErrorWithOffender {
    error: libc::sock_extended_err,
    address: [u8; 24],
}

/// The router that reports an expired datagram; `None` for other errors.
fn offender(of: ErrorWithOffender) -> Option<IpAddr> {
    const TIME_EXCEEDED_V4: u8 = 11;
    const TIME_EXCEEDED_V6: u8 = 3;
    let [f0, f1, ..] = of.address;
    let family = i32::from(u16::from_ne_bytes([f0, f1]));
    match (of.error.ee_origin, of.error.ee_type, family) {
        (libc::SO_EE_ORIGIN_ICMP, TIME_EXCEEDED_V4, libc::AF_INET) => {
            let ip: [u8; 4] = of.address[4..8].try_into().ok()?;
            Some(Ipv4Addr::from(ip).into())
        }
        (libc::SO_EE_ORIGIN_ICMP6, TIME_EXCEEDED_V6, libc::AF_INET6) => {
            let ip: [u8; 16] = of.address[8..24].try_into().ok()?;
            Some(Ipv6Addr::from(ip).into())
        }
        _ => None,
    }
}
