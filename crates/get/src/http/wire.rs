//! What HTTP is spoken over: a dialled stream, or TLS within it.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
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

/// Bytes of one connection.
///
/// Where the path altered them, reading fails with an error that [`tls::says_altered`] knows.
/// rustls reports the failure of an answer's record to whoever touches the session next,
/// often a flush; hyper then tells who reads the answer only that the connection is gone.
/// So a flush's error is kept for the next read.
pub(super) struct Wire {
    layer: Layer,
    failed: Option<io::Error>,
    version: OldVersion,
}

/// Reads the answer of an `HTTP/1.0` server as one of 1.1: some send chunks all the same, which hyper takes of the latter
/// alone, and curl of both. The connection then serves this one answer, as 1.0 has it.
#[derive(Default)]
struct OldVersion {
    /// So many bytes of [`OLD`] have come; more than these: it is something else.
    seen: usize,
    is_old: Arc<AtomicBool>,
}

/// With what the first answer of such a server begins.
const OLD: &[u8] = b"HTTP/1.0";

impl OldVersion {
    /// Looks at bytes as they come, and changes the last of these eight.
    fn read(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            match OLD.get(self.seen) {
                None => return,
                Some(wanted) if byte == wanted => self.seen += 1,
                Some(_) => self.seen = OLD.len() + 1,
            }
            if self.seen == OLD.len() {
                *byte = b'1';
                self.is_old.store(true, Ordering::Relaxed);
            }
        }
    }
}

enum Layer {
    Plain(ClosedOnDrop),
    Tls(Box<TlsStream<BufReader<ClosedOnDrop>>>),
}

/// `stream` as TLS reads it.
pub(super) fn beneath_tls(stream: ClosedOnDrop) -> BufReader<ClosedOnDrop> {
    BufReader::with_capacity(READ, stream)
}

impl Wire {
    pub(super) fn plain(stream: ClosedOnDrop) -> Self {
        Self { layer: Layer::Plain(stream), failed: None, version: OldVersion::default() }
    }

    pub(super) fn tls(stream: TlsStream<BufReader<ClosedOnDrop>>) -> Self {
        let layer = Layer::Tls(Box::new(stream));
        Self { layer, failed: None, version: OldVersion::default() }
    }

    /// Turns true if the server speaks HTTP/1.0.
    pub(super) fn is_old(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.version.is_old)
    }
}

/// Does `$call` on whichever it is.
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
        let before = buf.filled().len();
        let read = ready!(either!(self, io => Pin::new(io).poll_read(cx, buf)));
        if self.version.seen < OLD.len() {
            self.version.read(&mut buf.filled_mut()[before..]);
        }
        Poll::Ready(read.map_err(tls::name_altered))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_answers_version_is_read_anew_however_it_comes() {
        for step in [1, 3, 8, 100] {
            let mut wire = OldVersion::default();
            let mut bytes = b"HTTP/1.0 200 OK\r\n\r\nHTTP/1.0".to_vec();
            bytes.chunks_mut(step).for_each(|piece| wire.read(piece));
            assert_eq!(bytes, b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.0", "{step}");
            assert!(wire.is_old.load(Ordering::Relaxed));
            for other in ["HTTP/1.1 HTTP/1.0", "HTTP/1.HTTP/1.0", "ttp/1.0", ""] {
                let (mut wire, mut bytes) = (OldVersion::default(), other.as_bytes().to_vec());
                bytes.chunks_mut(step).for_each(|piece| wire.read(piece));
                assert_eq!((bytes, wire.is_old.load(Ordering::Relaxed)), (other.into(), false));
            }
        }
    }
}
