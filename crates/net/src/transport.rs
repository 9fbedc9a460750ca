//! What carries a dialled stream: a TCP connection, or layers over one.

use crate::{Carried, channel::Channel, tcp};
use socket2::SockRef;
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// A stream's carrier: one layer for each relay that is not left in the clear.
#[derive(Debug)]
pub(crate) enum Transport {
    /// The TCP connection itself.
    Tcp(Leg),
    /// A sealed channel in the carrier beneath.
    Sealed(Box<Channel<Transport>>),
    /// The carrier beneath, after bytes that were read off it already.
    After(Box<After>),
    /// No connection of this host's, but a stream over several.
    Carried(Box<dyn Carried>),
}

/// A TCP connection whose counters others may look at.
///
/// Shared with no other owner than monitors' short looks.
#[derive(Debug)]
pub(crate) struct Leg(Arc<TcpStream>);

/// Clear bytes that came with a channel's last record, then `beneath`.
#[derive(Debug)]
pub(crate) struct After {
    first: Vec<u8>,
    given: usize,
    beneath: Transport,
}

impl Transport {
    /// The carrier beneath an open leg, and what was read off it already.
    pub fn after(first: Vec<u8>, beneath: Self) -> Self {
        match first.is_empty() {
            true => beneath,
            false => Self::After(Box::new(After { first, given: 0, beneath })),
        }
    }

    /// The TCP connection beneath all layers, if it is one.
    pub fn tcp(&self) -> Option<&Arc<TcpStream>> {
        match self {
            Self::Tcp(leg) => Some(&leg.0),
            Self::Sealed(channel) => channel.get_ref().tcp(),
            Self::After(after) => after.beneath.tcp(),
            Self::Carried(_) => None,
        }
    }

    /// What is beneath all layers, if it is no TCP connection.
    pub fn carried(&self) -> Option<&dyn Carried> {
        match self {
            Self::Tcp(_) => None,
            Self::Sealed(channel) => channel.get_ref().carried(),
            Self::After(after) => after.beneath.carried(),
            Self::Carried(carried) => Some(&**carried),
        }
    }

    /// Has it end so that no end of it looks like a good one.
    pub fn reset(&mut self) {
        match self {
            // A socket that refuses this is already gone.
            Self::Tcp(leg) => _ = SockRef::from(&*leg.0).set_linger(Some(Duration::ZERO)),
            Self::Sealed(channel) => channel.get_mut().reset(),
            Self::After(after) => after.beneath.reset(),
            Self::Carried(carried) => carried.reset(),
        }
    }
}

/// Does `$call` on whichever layer is outermost.
macro_rules! outermost {
    ($self:ident, $layer:ident => $call:expr) => {
        match $self.get_mut() {
            Transport::Tcp($layer) => $call,
            Transport::Sealed($layer) => $call,
            Transport::After($layer) => $call,
            Transport::Carried($layer) => $call,
        }
    };
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        outermost!(self, layer => Pin::new(layer).poll_read(cx, buf))
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        outermost!(self, layer => Pin::new(layer).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        outermost!(self, layer => Pin::new(layer).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(leg) => leg.is_write_vectored(),
            Self::Sealed(channel) => channel.is_write_vectored(),
            Self::After(after) => after.beneath.is_write_vectored(),
            Self::Carried(carried) => carried.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        outermost!(self, layer => Pin::new(layer).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        outermost!(self, layer => Pin::new(layer).poll_shutdown(cx))
    }
}

impl AsyncRead for Leg {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        tcp::poll_read(&self.0, cx, buf)
    }
}

impl Leg {
    pub fn new(tcp: TcpStream) -> Self {
        Self(Arc::new(tcp))
    }

    /// The connection, if no monitor looks at it just now.
    pub fn into_inner(self) -> Result<TcpStream, Self> {
        Arc::try_unwrap(self.0).map_err(Self)
    }
}

impl AsyncWrite for Leg {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        tcp::poll_write_by(&self.0, cx, |tcp| tcp.try_write(buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        tcp::poll_write_by(&self.0, cx, |tcp| tcp.try_write_vectored(bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// TCP sends by itself: nothing to do.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(tcp::end_writing(&self.0))
    }
}

impl AsyncRead for After {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let rest = &this.first[this.given..];
        if rest.is_empty() {
            return Pin::new(&mut this.beneath).poll_read(cx, buf);
        }
        let n = rest.len().min(buf.remaining());
        buf.put_slice(&rest[..n]);
        this.given += n;
        if this.given == this.first.len() {
            (this.first, this.given) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for After {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.beneath).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.beneath).poll_write_vectored(cx, bufs)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.beneath).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.beneath).poll_shutdown(cx)
    }
}
