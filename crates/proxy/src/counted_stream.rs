//! The stream below hyper's client on an origin connection: counts the bytes, waits for caps and rate limits, and
//! writes each request's own target in place of hyper's placeholder.
//!
//! An origin may answer and close while a request is still being sent. Writing then fails at any moment, and hyper
//! would discard the answer that it has not read. So the stream reports such a failure only after the answer has been
//! read to its end.

use super::request_line::RequestLine;
use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll, ready},
    time::Duration,
};
use thalweg_net::Stream;
use thalweg_net::pump::Moved;
use thalweg_uplinks::interfaces::{CapError, Passage};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// The stream, and the bytes that it has moved.
pub struct CountedStream {
    pub stream: Stream,
    moved: Arc<Moved>,
    /// Enforces caps and rate limits, if the connection was assigned to an interface.
    passage_limits: Option<Arc<Passage>>,
    waits: Option<PermitWait>,
    line: RequestLine,
    /// The beginning of a request that hyper has written, with its target put in; and how much of it is sent.
    begun: (Vec<u8>, usize),
    /// The error of a write after the other end has closed, and the time limit of reading on.
    closed: Option<(io::Error, Pin<Box<Sleep>>)>,
}

/// Bytes of a request that are written at once with its target: its head, and the first of its content.
const AT_ONCE: usize = 64 << 10;

/// How long a connection that the other end has closed may still be read. What has arrived is in the kernel already,
/// but a relay may still hold some of the answer.
const READ_ON: Duration = Duration::from_secs(10);

type PermitWait = Pin<Box<dyn Future<Output = Result<(), CapError>> + Send>>;

impl CountedStream {
    /// Counts from the beginning of the stream.
    pub fn new(stream: Stream, line: RequestLine, passage: Option<&Arc<Passage>>) -> Self {
        let (moved, passage_limits) = (Arc::default(), passage.map(Arc::clone));
        Self {
            stream,
            moved,
            passage_limits,
            waits: None,
            line,
            begun: (Vec::new(), 0),
            closed: None,
        }
    }

    /// Writes the begun request; ready when the stream has taken all of it.
    fn poll_write_begun(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.begun.1 < self.begun.0.len() {
            ready!(self.poll_permit(cx))?;
            let rest = &self.begun.0[self.begun.1..];
            let written = Pin::new(&mut self.stream).poll_write(cx, rest);
            let n = ready!(self.sent(written))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.begun.1 += n;
        }
        self.begun = (Vec::new(), 0);
        Poll::Ready(Ok(()))
    }

    /// Writes these pieces, or as much of them as there is room for.
    fn poll_pieces(
        &mut self,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_write_begun(cx))?;
        if self.line.is_set() {
            let written = pieces.iter().map(|piece| &**piece).filter(|piece| !piece.is_empty());
            if let Some((taken, begun)) = self.line.rewrite(&written.collect::<Vec<_>>(), AT_ONCE) {
                self.begun = (begun, 0);
                return Poll::Ready(Ok(taken));
            }
        }
        ready!(self.poll_permit(cx))?;
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.sent(written)
    }

    /// If the other end has closed the connection, returns that error only after [`READ_ON`], so that the connection is
    /// read to its end.
    fn poll_unless_closed<T>(
        &mut self,
        cx: &mut Context<'_>,
        done: impl FnOnce(&mut Self, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if self.closed.is_none() {
            match ready!(done(self, cx)) {
                Err(error) if is_closed(&error) => {
                    self.closed = Some((error, Box::pin(sleep(READ_ON))));
                }
                done => return Poll::Ready(done),
            }
        }
        let Some((error, patience)) = &mut self.closed else { return Poll::Pending };
        ready!(patience.as_mut().poll(cx));
        Poll::Ready(Err(error.kind().into()))
    }

    /// Ready when caps and rate limits permit more bytes.
    fn poll_permit(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(waits) = &mut self.waits {
            let done = ready!(waits.as_mut().poll(cx));
            self.waits = None;
            done.map_err(io::Error::other)?;
        }
        Poll::Ready(Ok(()))
    }

    /// After bytes were moved: if the passage has a cap or a rate limit, makes the next ones wait until it permits
    /// them.
    fn schedule_wait(&mut self) {
        // A cap or limit may have been set since the connection began.
        if let Some(passage) = self.passage_limits.as_ref().filter(|passage| passage.is_limited()) {
            passage.counts(&self.moved);
            let passage = Arc::clone(passage);
            self.waits = Some(Box::pin(async move { passage.wait_to_move().await }));
        }
    }

    /// The counts of the bytes moved.
    pub fn moved(&self) -> Arc<Moved> {
        Arc::clone(&self.moved)
    }

    fn sent(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(n)) = &written {
            self.moved.up.fetch_add(*n as u64, Relaxed);
            self.schedule_wait();
        }
        written
    }
}

/// Whether the other end has closed the connection, as opposed to a failure on this host.
fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset | ConnectionAborted)
}

impl AsyncRead for CountedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_permit(cx))?;
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.moved.down.fetch_add((buf.filled().len() - before) as u64, Relaxed);
        self.schedule_wait();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for CountedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.poll_unless_closed(cx, |this, cx| this.poll_pieces(cx, &[IoSlice::new(buf)]))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_unless_closed(cx, |this, cx| this.poll_pieces(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_unless_closed(cx, |this, cx| {
            ready!(this.poll_write_begun(cx))?;
            Pin::new(&mut this.stream).poll_flush(cx)
        })
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
