//! The byte stream below HTTP: a dialled stream, or TLS over it.

use super::first_answer::{FirstAnswer, Notes};
use bytes::Bytes;
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use thalweg_net::{
    ClosedOnDrop,
    tls::{self, TlsStream},
};
use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf};

/// The size of a read beneath TLS, bytes. rustls reads 4 kB at a time: sixteen times as many system calls on a relay or
/// a fast link.
const READ: usize = 64 << 10;

/// The byte stream of one connection.
///
/// If the path altered bytes, reading fails with an error that [`tls::says_altered`] recognises. rustls reports a bad
/// record of an answer to the next call on the session, often a flush; hyper would then tell the reader of the answer
/// only that the connection is gone. So the error of a flush is kept for the next read.
pub(super) struct Wire {
    layer: Layer,
    failed: Option<io::Error>,
    /// Rewrites the first answer for hyper.
    first: FirstAnswer,
    /// Rewritten bytes that hyper has not read yet.
    ready: Bytes,
}

enum Layer {
    Plain(ClosedOnDrop),
    Tls(Box<TlsStream<BufReader<ClosedOnDrop>>>),
}

/// Buffers the reads of `stream` for TLS.
pub(super) fn beneath_tls(stream: ClosedOnDrop) -> BufReader<ClosedOnDrop> {
    BufReader::with_capacity(READ, stream)
}

impl Wire {
    pub(super) fn plain(stream: ClosedOnDrop) -> Self {
        Self::over(Layer::Plain(stream))
    }

    pub(super) fn tls(stream: TlsStream<BufReader<ClosedOnDrop>>) -> Self {
        Self::over(Layer::Tls(Box::new(stream)))
    }

    fn over(layer: Layer) -> Self {
        Self { layer, failed: None, first: FirstAnswer::default(), ready: Bytes::new() }
    }

    /// Observations about the first answer on HTTP/1.
    pub(super) fn notes(&self) -> Arc<Notes> {
        self.first.notes()
    }

    /// Passes all bytes on unchanged, because the protocol is not HTTP/1.
    pub(super) fn unread(mut self) -> Self {
        self.first = FirstAnswer::through();
        self
    }

    /// Gives hyper as many ready bytes as fit.
    fn give(&mut self, buf: &mut ReadBuf<'_>) {
        let n = self.ready.len().min(buf.remaining());
        buf.put_slice(&self.ready.split_to(n));
    }
}

/// Evaluates `$call` with the stream of the layer.
macro_rules! either {
    ($self:expr, $io:ident => $call:expr) => {
        match &mut $self.layer {
            Layer::Plain($io) => $call,
            Layer::Tls($io) => $call,
        }
    };
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Err(error));
        }
        loop {
            if !self.ready.is_empty() {
                self.give(buf);
                return Poll::Ready(Ok(()));
            }
            let before = buf.filled().len();
            let read = ready!(either!(self, io => Pin::new(io).poll_read(cx, buf)));
            read.map_err(tls::name_altered)?;
            if self.first.is_through() {
                return Poll::Ready(Ok(()));
            }
            let has_ended = buf.filled().len() == before;
            self.ready = self.first.read(&buf.filled()[before..]).into();
            buf.set_filled(before);
            if has_ended && self.ready.is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(either!(self, io => Pin::new(io).poll_write(cx, buf)));
        Poll::Ready(written.map_err(tls::name_altered))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(either!(self, io => Pin::new(io).poll_write_vectored(cx, bufs)));
        Poll::Ready(written.map_err(tls::name_altered))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.layer {
            Layer::Plain(io) => io.is_write_vectored(),
            Layer::Tls(io) => io.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(either!(self, io => Pin::new(io).poll_flush(cx)));
        match flushed.map_err(tls::name_altered) {
            Err(error) if tls::says_altered(&error) => {
                self.failed = Some(error);
                cx.waker().wake_by_ref();
                Poll::Ready(Ok(()))
            }
            flushed => Poll::Ready(flushed),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, io => Pin::new(io).poll_shutdown(cx))
    }
}
