//! A connection that was dialled.

use crate::{Route, TcpInfo};
use socket2::SockRef;
use std::{
    fmt, io,
    net::Shutdown,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, ready},
};
use thalweg_wire::Destination;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// A byte stream to a destination, by whatever route.
///
/// Prints as `www.example:80 via 10.1.0.3:1080`. Dropping it closes the
/// connection; [`tokio::io::AsyncWriteExt::shutdown`] closes our direction alone.
#[derive(Debug)]
pub struct Stream {
    // Shared with no other owner than monitors' short looks: never blocks.
    tcp: Arc<TcpStream>,
    route: Route,
    destination: Destination,
}

/// Looks at a [`Stream`]'s kernel counters from elsewhere, without keeping it open.
///
/// For a stream that a library has swallowed (an HTTP client, a pump). Passive
/// estimates, and a sampling phase that ends with slow start, will read it.
#[derive(Clone, Debug)]
pub struct Monitor(Weak<TcpStream>);

impl Monitor {
    /// The kernel's counters now.
    ///
    /// # Errors
    /// `NotConnected` once the stream is dropped.
    pub fn tcp_info(&self) -> io::Result<TcpInfo> {
        let tcp = self.0.upgrade().ok_or(io::ErrorKind::NotConnected)?;
        TcpInfo::of(&*tcp)
    }
}

impl Stream {
    pub(crate) fn new(tcp: TcpStream, route: Route, destination: Destination) -> Self {
        Self { tcp: Arc::new(tcp), route, destination }
    }

    /// The route it was dialled by.
    pub fn route(&self) -> &Route {
        &self.route
    }

    /// What it was dialled to.
    pub fn destination(&self) -> &Destination {
        &self.destination
    }

    /// The kernel's counters of our own leg (the first, if there are relays).
    ///
    /// # Errors
    /// If the kernel gives none; not expected on Linux.
    pub fn tcp_info(&self) -> io::Result<TcpInfo> {
        TcpInfo::of(&*self.tcp)
    }

    /// A look at the counters that outlives a move of the stream.
    pub fn monitor(&self) -> Monitor {
        Monitor(Arc::downgrade(&self.tcp))
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.destination, self.route)
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.tcp.poll_read_ready(cx))?;
            // Not into `initialize_unfilled`: that would write zeros over the whole of
            // a reader's large buffer before each read.
            match self.tcp.try_read_buf(buf) {
                Ok(_) => return Poll::Ready(Ok(())),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }
}

impl Stream {
    /// Polls for room and tries `write` until it is done or there is none.
    fn poll_try(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.tcp.poll_write_ready(cx))?;
            match write(&self.tcp) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_try(cx, |tcp| tcp.try_write(buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_try(cx, |tcp| tcp.try_write_vectored(bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// TCP sends by itself: nothing to do.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(match SockRef::from(&*self.tcp).shutdown(Shutdown::Write) {
            // The peer has reset it already: our direction is closed all the same.
            Err(e) if e.kind() == io::ErrorKind::NotConnected => Ok(()),
            done => done,
        })
    }
}
