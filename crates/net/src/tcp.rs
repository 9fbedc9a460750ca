//! Reads, writes and half-closes a TCP connection through a shared reference.
//!
//! Tokio's own stream needs `&mut`, but a connection that is shared with a monitor is only available as `&`.

use socket2::SockRef;
use std::{
    io,
    net::Shutdown,
    task::{Context, Poll, ready},
};
use tokio::{io::ReadBuf, net::TcpStream};

/// Polls for bytes and reads them. No bytes mean that the peer has ended its direction.
///
/// # Errors
/// The connection's error.
pub fn poll_read(
    tcp: &TcpStream,
    cx: &mut Context<'_>,
    buf: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    loop {
        ready!(tcp.poll_read_ready(cx))?;
        // `initialize_unfilled` is avoided, because it would zero the whole of a reader's large buffer before each
        // read.
        match tcp.try_read_buf(buf) {
            Ok(_) => return Poll::Ready(Ok(())),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Poll::Ready(Err(e)),
        }
    }
}

/// Polls for room and calls `write` until it makes progress or fails.
///
/// # Errors
/// The connection's error.
pub fn poll_write_by(
    tcp: &TcpStream,
    cx: &mut Context<'_>,
    write: impl Fn(&TcpStream) -> io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        ready!(tcp.poll_write_ready(cx))?;
        match write(tcp) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            done => return Poll::Ready(done),
        }
    }
}

/// Shuts down this end's direction.
///
/// # Errors
/// The connection's error; none if the peer has reset it already, because the direction is closed then.
pub fn end_writing(tcp: &TcpStream) -> io::Result<()> {
    match SockRef::from(tcp).shutdown(Shutdown::Write) {
        Err(e) if e.kind() == io::ErrorKind::NotConnected => Ok(()),
        done => done,
    }
}
