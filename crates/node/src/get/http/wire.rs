//! What HTTP is spoken over: a dialled stream, or TLS within it.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};
use thalweg_net::{
    ClosedOnDrop,
    tls::{self, TlsStream},
};
use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf};

/// What is read at once from beneath TLS. rustls asks for 4 kB at a time: sixteen times as
/// many system calls, where a relay or a fast link has more to give.
const READ: usize = 64 << 10;

/// Bytes of one connection. Where the path altered them, reading fails with
/// [`tls::ALTERED`], which survives what HTTP libraries make of errors.
pub(super) enum Wire {
    Plain(ClosedOnDrop),
    Tls(Box<TlsStream<BufReader<ClosedOnDrop>>>),
}

/// `stream` as TLS reads it.
pub(super) fn beneath_tls(stream: ClosedOnDrop) -> BufReader<ClosedOnDrop> {
    BufReader::with_capacity(READ, stream)
}

/// Does `$call` on whichever it is.
macro_rules! either {
    ($self:ident, $io:ident => $call:expr) => {
        match $self.get_mut() {
            Wire::Plain($io) => $call,
            Wire::Tls($io) => $call,
        }
    };
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(either!(self, io => Pin::new(io).poll_read(cx, buf)));
        Poll::Ready(read.map_err(tls::name_altered))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        either!(self, io => Pin::new(io).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self, io => Pin::new(io).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(io) => io.is_write_vectored(),
            Self::Tls(io) => io.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, io => Pin::new(io).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, io => Pin::new(io).poll_shutdown(cx))
    }
}
