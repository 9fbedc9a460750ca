//! Socket calls that have no safe wrapper: `recvmsg` with kernel receive timestamps, the socket options that request
//! them, and `TCP_INFO`.
#![allow(unsafe_code)]

use std::{
    io, mem,
    net::UdpSocket,
    os::fd::{AsFd, AsRawFd},
};

/// A received datagram: its length, its receive timestamp, and the socket's drops up to then.
#[derive(Clone, Copy, Debug)]
pub struct StampedDatagram {
    /// Bytes written to the buffer.
    pub len: usize,
    /// The time at which the kernel received it, `CLOCK_REALTIME`, ns; `None` without a timestamp.
    pub received_ns: Option<u64>,
    /// Datagrams that the socket has dropped since its creation, because its buffer was full or their checksum was
    /// wrong; `None` while there are none.
    pub drops: Option<u32>,
}

/// Makes the kernel timestamp received datagrams (`SO_TIMESTAMPNS`) and count dropped ones (`SO_RXQ_OVFL`).
///
/// # Errors
/// The error of `setsockopt`.
pub fn stamp_datagrams(socket: &UdpSocket) -> io::Result<()> {
    set_flag(socket, libc::SO_TIMESTAMPNS)?;
    set_flag(socket, libc::SO_RXQ_OVFL)
}

fn set_flag(socket: &UdpSocket, option: libc::c_int) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the pointer and the length describe `on`, which outlives the call.
    let r = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const on).cast(),
            mem::size_of_val(&on) as libc::socklen_t,
        )
    };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Room for one `timespec` and one `u32` with their headers, aligned as `cmsghdr` must be.
#[repr(C, align(8))]
struct Ancillary([u8; 128]);

/// Receives one datagram with its timestamp, without waiting. Requires [`stamp_datagrams`].
///
/// # Errors
/// The error of `recvmsg`; `WouldBlock` if there is no datagram.
pub fn recv_stamped(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<StampedDatagram> {
    let mut ancillary = Ancillary([0; 128]);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all-zero is a valid `msghdr` (null pointers, zero lengths).
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = ancillary.0.as_mut_ptr().cast();
    message.msg_controllen = ancillary.0.len() as _;
    // SAFETY: `message` points to `part` and `ancillary`, which outlive the call,
    // and `part` to `buffer`, borrowed mutably for as long.
    let n = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    let len = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
    let (received_ns, drops) = read_ancillary(&message);
    Ok(StampedDatagram { len, received_ns, drops })
}

/// Extracts the timestamp and the number of drops from a message that `recvmsg` filled.
fn read_ancillary(message: &libc::msghdr) -> (Option<u64>, Option<u32>) {
    let (mut stamp, mut drops) = (None, None);
    // SAFETY: `message` was filled by the kernel, so that its control buffer is
    // a valid sequence of headers; the data of the two types are a `timespec`
    // and a `u32`, read unaligned.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            let data = libc::CMSG_DATA(header);
            match ((*header).cmsg_level, (*header).cmsg_type) {
                (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS) => {
                    let t = data.cast::<libc::timespec>().read_unaligned();
                    stamp = Some(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64);
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    drops = Some(data.cast::<u32>().read_unaligned());
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    (stamp, drops)
}

/// The kernel's `TCP_INFO` of a connection. Fields that the kernel does not know are 0.
///
/// # Errors
/// The error of `getsockopt`.
pub fn tcp_info(socket: &impl AsFd) -> io::Result<libc::tcp_info> {
    // SAFETY: `tcp_info` holds integers only, so all-zero is a valid value.
    let mut info: libc::tcp_info = unsafe { mem::zeroed() };
    let mut len = mem::size_of_val(&info) as libc::socklen_t;
    // SAFETY: the pointer and the length describe `info`; the kernel writes at most `len` bytes.
    let r = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut len,
        )
    };
    if r == 0 { Ok(info) } else { Err(io::Error::last_os_error()) }
}
