//! Socket options that no library wraps, and registration with the runtime.
#![expect(unsafe_code, reason = "getsockopt and setsockopt take raw pointers")]

use std::{
    io,
    num::NonZeroU32,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
    time::Duration,
};
use tokio::io::unix::AsyncFd;

/// The bytes of the kernel's `struct tcp_info` that are requested (linux/tcp.h; 6.x has 248).
pub const TCP_INFO_BYTES: usize = 256;

/// The kernel's `struct tcp_info` for `socket`, and the number of its bytes that the kernel knows.
///
/// # Errors
/// If it is not a TCP socket.
pub fn tcp_info(socket: BorrowedFd<'_>) -> io::Result<([u8; TCP_INFO_BYTES], usize)> {
    let mut info = [0u8; TCP_INFO_BYTES];
    let mut length = TCP_INFO_BYTES as libc::socklen_t;
    // SAFETY: the descriptor is borrowed and therefore open; the kernel writes at most `length` bytes to `info`, which
    // is that long and valid for any bytes.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &mut length,
        )
    };
    if status == 0 { Ok((info, length as usize)) } else { Err(io::Error::last_os_error()) }
}

/// Binds `socket` to the interface with this index. Needs no privilege since Linux 5.7.
///
/// # Errors
/// The kernel's error. An interface that does not exist shows only when connecting.
pub fn bind_to_interface(socket: BorrowedFd<'_>, index: NonZeroU32) -> io::Result<()> {
    set(socket, (libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX), index.get() as libc::c_int)
}

/// From linux/tcp.h, since Linux 6.15.
const TCP_RTO_MAX_MS: libc::c_int = 44;

/// Limits the time between two TCP retransmissions (1 s to 120 s, the default), so that the end of a long outage is
/// noticed within this time.
///
/// # Errors
/// The kernel's error: kernels before 6.15 do not know the option.
pub fn retransmits_within(socket: BorrowedFd<'_>, most: Duration) -> io::Result<()> {
    let ms = libc::c_int::try_from(most.as_millis()).unwrap_or(libc::c_int::MAX);
    set(socket, (libc::IPPROTO_TCP, TCP_RTO_MAX_MS), ms)
}

/// Announces no larger receive window than this, bytes, from now on. What the peer was offered before it may still send.
///
/// # Errors
/// The kernel's error.
pub fn limit_receive_window(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    set(socket, (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP), bytes)
}

/// Sends no faster than this, bytes per second.
///
/// # Errors
/// The kernel's error.
pub fn limit_pace(socket: BorrowedFd<'_>, bytes: u64) -> io::Result<()> {
    // All bits set mean no limit.
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    set(socket, (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE), bytes)
}

fn set(
    socket: BorrowedFd<'_>,
    (level, name): (libc::c_int, libc::c_int),
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the descriptor is borrowed and therefore open; the kernel reads one `c_int` from `value`, which outlives
    // the call.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(&value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Registers a descriptor with the runtime, which then reports its readiness. Must be called within a runtime.
///
/// # Errors
/// The system's error.
pub fn watched(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open, is always the same descriptor, and is closed only when it is dropped, together with
    // the `AsyncFd` that owns it.
    Ok(unsafe { AsyncFd::register(descriptor) }?)
}
