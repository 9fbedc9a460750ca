//! The transport of a dialed stream: a TCP connection, or layers over one.

use crate::{Account, ByteDirection, CarriedStream, TcpInfo, channel::Channel, tcp};
use socket2::SockRef;
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// The transport of a stream, with one layer for each relay whose leg is not left in the clear.
#[derive(Debug)]
pub(crate) enum Transport {
    /// The TCP connection itself.
    Tcp(TcpLeg),
    /// A sealed channel over the transport beneath.
    Sealed(Box<Channel<Transport>>),
    /// The transport beneath, preceded by bytes that were already read from it.
    Prefixed(Box<Prefixed>),
    /// A stream over several connections instead of one.
    Carried(Box<dyn CarriedStream>),
}

/// A TCP connection whose counters monitors may read.
///
/// Its only other owners are monitors, for the moment of a reading.
#[derive(Debug)]
pub(crate) struct TcpLeg {
    tcp: Arc<TcpStream>,
    account: Option<Box<dyn Account>>,
}

/// The most bytes of one write if the connection has an account, which must be paid before sending.
const PAID_AT_ONCE: usize = 64 << 10;

/// Clear bytes that arrived together with a channel's last record, followed by `beneath`.
#[derive(Debug)]
pub(crate) struct Prefixed {
    first: Vec<u8>,
    given: usize,
    beneath: Transport,
}

impl Transport {
    /// The transport beneath an open leg, preceded by `first`, which was already read from it.
    pub fn prefixed(first: Vec<u8>, beneath: Self) -> Self {
        match first.is_empty() {
            true => beneath,
            false => Self::Prefixed(Box::new(Prefixed { first, given: 0, beneath })),
        }
    }

    /// The TCP connection beneath all layers; `None` for a carried stream.
    pub fn tcp(&self) -> Option<&Arc<TcpStream>> {
        match self {
            Self::Tcp(leg) => Some(&leg.tcp),
            Self::Sealed(channel) => channel.get_ref().tcp(),
            Self::Prefixed(after) => after.beneath.tcp(),
            Self::Carried(_) => None,
        }
    }

    /// The carried stream beneath all layers; `None` for a TCP connection.
    pub fn carried(&self) -> Option<&dyn CarriedStream> {
        match self {
            Self::Tcp(_) => None,
            Self::Sealed(channel) => channel.get_ref().carried(),
            Self::Prefixed(after) => after.beneath.carried(),
            Self::Carried(carried) => Some(&**carried),
        }
    }

    /// Takes the account of the TCP connection beneath all layers, if it has one.
    pub fn take_account(&mut self) -> Option<Box<dyn Account>> {
        match self {
            Self::Tcp(leg) => leg.account.take(),
            Self::Sealed(channel) => channel.get_mut().take_account(),
            Self::Prefixed(after) => after.beneath.take_account(),
            Self::Carried(_) => None,
        }
    }

    /// Makes the connection end with a reset, so that no end of it looks proper.
    pub fn reset(&mut self) {
        match self {
            // An error means that the connection is already gone.
            Self::Tcp(leg) => _ = SockRef::from(&*leg.tcp).set_linger(Some(Duration::ZERO)),
            Self::Sealed(channel) => channel.get_mut().reset(),
            Self::Prefixed(after) => after.beneath.reset(),
            Self::Carried(carried) => carried.reset(),
        }
    }
}

/// Evaluates `$call` for the outermost layer.
macro_rules! outermost {
    ($self:ident, $layer:ident => $call:expr) => {
        match $self.get_mut() {
            Transport::Tcp($layer) => $call,
            Transport::Sealed($layer) => $call,
            Transport::Prefixed($layer) => $call,
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
            Self::Prefixed(after) => after.beneath.is_write_vectored(),
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

impl TcpLeg {
    /// Wraps a connection, with its account if it has one.
    pub fn new(tcp: TcpStream, account: Option<Box<dyn Account>>) -> Self {
        Self { tcp: Arc::new(tcp), account }
    }

    /// The connection, for monitors.
    pub fn tcp(&self) -> &Arc<TcpStream> {
        &self.tcp
    }

    /// The connection, unless a monitor reads its counters at this moment or it has an account.
    pub fn into_inner(self) -> Result<TcpStream, Self> {
        if self.account.is_some() {
            return Err(self);
        }
        let tcp = Arc::clone(&self.tcp);
        drop(self);
        Arc::try_unwrap(tcp).map_err(|tcp| Self { tcp, account: None })
    }

    fn poll_permission(
        &mut self,
        way: ByteDirection,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.account
            .as_mut()
            .map_or(Poll::Ready(Ok(())), |account| account.poll_permission(way, cx))
    }

    fn moved(&mut self, bytes: usize) {
        if let Some(account) = &mut self.account {
            account.moved(bytes, TcpInfo::of(&*self.tcp).ok().as_ref());
        }
    }
}

impl AsyncRead for TcpLeg {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_permission(ByteDirection::Down, cx))?;
        let before = buf.filled().len();
        let read = ready!(tcp::poll_read(&this.tcp, cx, buf));
        this.moved(buf.filled().len() - before);
        Poll::Ready(read)
    }
}

impl AsyncWrite for TcpLeg {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_permission(ByteDirection::Up, cx))?;
        let most = if this.account.is_some() { PAID_AT_ONCE } else { usize::MAX };
        let buf = &buf[..buf.len().min(most)];
        let wrote = ready!(tcp::poll_write_by(&this.tcp, cx, |tcp| tcp.try_write(buf)));
        this.moved(*wrote.as_ref().unwrap_or(&0));
        Poll::Ready(wrote)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.account.is_some() {
            let first = bufs.iter().find(|buf| !buf.is_empty());
            return self.poll_write(cx, first.map_or(&[], |buf| &**buf));
        }
        tcp::poll_write_by(&self.tcp, cx, |tcp| tcp.try_write_vectored(bufs))
    }

    fn is_write_vectored(&self) -> bool {
        self.account.is_none()
    }

    /// TCP sends without being told, so there is nothing to do.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(tcp::end_writing(&self.tcp))
    }
}

impl Drop for TcpLeg {
    fn drop(&mut self) {
        if let Some(account) = &mut self.account {
            account.close(TcpInfo::of(&*self.tcp).ok().as_ref());
        }
    }
}

impl AsyncRead for Prefixed {
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

impl AsyncWrite for Prefixed {
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
