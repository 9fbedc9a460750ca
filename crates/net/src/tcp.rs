//! Reading, writing and half-closing a TCP connection that is held by reference.
//!
//! Tokio's own stream wants `&mut`; whoever shares a connection with a monitor has `&` alone.

use socket2::SockRef;
use std::{
    io,
    net::Shutdown,
    task::{Context, Poll, ready},
};
use tokio::{io::ReadBuf, net::TcpStream};

/// Polls for bytes and takes them. None taken: the peer has ended its direction.
///
/// # Errors
/// The connection's.
pub fn poll_read(
    tcp: &TcpStream,
    cx: &mut Context<'_>,
    buf: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    loop {
        ready!(tcp.poll_read_ready(cx))?;
        // Not into `initialize_unfilled`: that would write zeros over the whole of
        // a reader's large buffer before each read.
        match tcp.try_read_buf(buf) {
            Ok(_) => return Poll::Ready(Ok(())),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Poll::Ready(Err(e)),
        }
    }
}

/// Polls for room and tries `write` until it is done or there is none.
///
/// # Errors
/// The connection's.
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

/// Ends our direction.
///
/// # Errors
/// The connection's; none if the peer has reset it already: our direction is closed all the same.
pub fn end_writing(tcp: &TcpStream) -> io::Result<()> {
    match SockRef::from(tcp).shutdown(Shutdown::Write) {
        Err(e) if e.kind() == io::ErrorKind::NotConnected => Ok(()),
        done => done,
    }
}
