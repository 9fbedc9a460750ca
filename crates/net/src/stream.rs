//! A connection that was dialled.

use crate::{Account, Route, TcpInfo, transport::Transport};
use std::{
    fmt, io,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::Duration,
};
use thalweg_wire::Destination;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// A byte stream to a destination, by whatever route.
///
/// Prints as `www.example:80 via 10.1.0.3:1080`. Dropping it closes the
/// connection; [`tokio::io::AsyncWriteExt::shutdown`] closes our direction alone,
/// through all relays. On a route with a sealed leg a write may be held back
/// until [`tokio::io::AsyncWriteExt::flush`].
#[derive(Debug)]
pub struct Stream {
    transport: Transport,
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
    /// `NotConnected` once the stream is dropped, or if its own leg is a carrier's.
    pub fn tcp_info(&self) -> io::Result<TcpInfo> {
        let tcp = self.0.upgrade().ok_or(io::ErrorKind::NotConnected)?;
        TcpInfo::of(&*tcp)
    }
}

impl Stream {
    pub(crate) fn new(transport: Transport, route: Route, destination: Destination) -> Self {
        Self { transport, route, destination }
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
    /// `Unsupported` if that leg is a carrier's: a bond has several connections. If the kernel
    /// gives none; not expected on Linux.
    pub fn tcp_info(&self) -> io::Result<TcpInfo> {
        TcpInfo::of(self.tcp().ok_or(io::ErrorKind::Unsupported)?)
    }

    /// The round trip of our own leg, also where that is a carrier's; `None` if it is not known.
    pub fn round_trip(&self) -> Option<Duration> {
        match self.transport.carried() {
            Some(carried) => carried.round_trip(),
            None => self.tcp_info().ok().map(|info| info.rtt),
        }
    }

    /// The TCP connection of our own leg, for its options and counters alone; `None` if that leg
    /// is a carrier's.
    pub fn tcp(&self) -> Option<&TcpStream> {
        self.transport.tcp().map(|tcp| &**tcp)
    }

    /// Has it end, when it is dropped, so that the other end does not take what it has for all
    /// there is. What is queued is not sent any more.
    pub fn reset(&mut self) {
        self.transport.reset();
    }

    /// A look at the counters that outlives a move of the stream; of a carrier's leg it sees
    /// none.
    pub fn monitor(&self) -> Monitor {
        Monitor(self.transport.tcp().map(Arc::downgrade).unwrap_or_default())
    }

    /// The account of the connection, which the taker keeps from now on; `None`: nobody keeps one.
    pub fn take_account(&mut self) -> Option<Box<dyn Account>> {
        self.transport.take_account()
    }

    /// The TCP connection, if nothing is between it and the stream's bytes.
    ///
    /// So on direct routes, and where all legs are open or plain SOCKS5: for whoever splices.
    ///
    /// # Errors
    /// The stream itself, if there is a layer, a monitor looks at it just now, or somebody keeps account of it.
    pub fn into_tcp(self) -> Result<TcpStream, Self> {
        let Self { transport, route, destination } = self;
        match transport {
            Transport::Tcp(leg) => leg.into_inner().map_err(Transport::Tcp),
            layered => Err(layered),
        }
        .map_err(|transport| Self { transport, route, destination })
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.destination, self.route)
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.transport).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.transport).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.transport.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_shutdown(cx)
    }
}
