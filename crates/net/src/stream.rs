//! A dialed connection.

use crate::{Account, Route, TcpInfo, transport::Transport};
use socket2::SockRef;
use std::{
    fmt, io,
    mem::MaybeUninit,
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

/// A byte stream to a destination, over any route.
///
/// Displays as `www.example:80 via 10.1.0.3:1080`. Dropping it closes the connection;
/// [`tokio::io::AsyncWriteExt::shutdown`] closes only this end's direction, through all relays. On a route with a
/// sealed leg a write may be buffered until [`tokio::io::AsyncWriteExt::flush`].
#[derive(Debug)]
pub struct Stream {
    transport: Transport,
    route: Route,
    destination: Destination,
}

/// Reads a [`Stream`]'s kernel counters from elsewhere, without keeping the stream open.
///
/// It serves streams that were moved into another owner, such as an HTTP client or a pump.
#[derive(Clone, Debug, Default)]
pub struct Monitor(Weak<TcpStream>);

impl Monitor {
    /// The kernel's present counters.
    ///
    /// # Errors
    /// `NotConnected` after the stream was dropped, or if a carrier carries its first leg.
    pub fn tcp_info(&self) -> io::Result<TcpInfo> {
        let tcp = self.0.upgrade().ok_or(io::ErrorKind::NotConnected)?;
        TcpInfo::of(&*tcp)
    }

    /// Whether the other end has closed its direction or reset the connection, and everything before was read. The
    /// kernel is asked, because the stream's reader may not know yet. `false` if a carrier carries the first leg.
    pub fn has_ended(&self) -> bool {
        let Some(tcp) = self.0.upgrade() else { return false };
        match SockRef::from(&*tcp).peek(&mut [MaybeUninit::uninit()]) {
            Ok(n) => n == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }
}

impl Stream {
    pub(crate) fn new(transport: Transport, route: Route, destination: Destination) -> Self {
        Self { transport, route, destination }
    }

    /// The route of the stream.
    pub fn route(&self) -> &Route {
        &self.route
    }

    /// The destination of the stream.
    pub fn destination(&self) -> &Destination {
        &self.destination
    }

    /// The kernel's counters of this host's leg (the first one, if there are relays).
    ///
    /// # Errors
    /// `Unsupported` if a carrier carries that leg, because a bond has several connections. Otherwise the kernel's
    /// error, which is not expected on Linux.
    pub fn tcp_info(&self) -> io::Result<TcpInfo> {
        TcpInfo::of(self.tcp().ok_or(io::ErrorKind::Unsupported)?)
    }

    /// The round-trip time of this host's leg, including a carrier's; `None` if it is unknown.
    pub fn round_trip(&self) -> Option<Duration> {
        match self.transport.carried() {
            Some(carried) => carried.round_trip(),
            None => self.tcp_info().ok().map(|info| info.rtt),
        }
    }

    /// The TCP connection of this host's leg, for its options and counters only; `None` if a carrier carries that leg.
    pub fn tcp(&self) -> Option<&TcpStream> {
        self.transport.tcp().map(|tcp| &**tcp)
    }

    /// Makes the stream be reset when it is dropped, so that the other end does not mistake the bytes it has for the
    /// whole stream. Queued bytes are not sent any more.
    pub fn reset(&mut self) {
        self.transport.reset();
    }

    /// A monitor of the counters, which survives a move of the stream. It has no counters of a carrier's leg.
    pub fn monitor(&self) -> Monitor {
        Monitor(self.transport.tcp().map(Arc::downgrade).unwrap_or_default())
    }

    /// Takes the account of the connection, if it has one.
    pub fn take_account(&mut self) -> Option<Box<dyn Account>> {
        self.transport.take_account()
    }

    /// Unwraps the TCP connection, if there is no layer between it and the stream's bytes, which allows splicing.
    ///
    /// There is none on direct routes, and if all legs are open or plain SOCKS5.
    ///
    /// # Errors
    /// The stream itself, if there is a layer, if a monitor reads its counters at this moment, or if it has an account.
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
