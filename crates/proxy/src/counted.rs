//! A connection to an origin whose bytes are counted while HTTP is spoken on it.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll, ready},
};
use thalweg_net::Stream;
use thalweg_net::pump::Moved;
use thalweg_uplinks::interfaces::{NoMore, Passage};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The stream, and what it has moved.
pub struct Counted {
    /// The connection.
    pub stream: Stream,
    moved: Arc<Moved>,
    /// Who says when more may be moved, where somebody does.
    toll: Option<Arc<Passage>>,
    waits: Option<Waiting>,
}

type Waiting = Pin<Box<dyn Future<Output = Result<(), NoMore>> + Send>>;

impl Counted {
    /// From its beginning.
    pub fn new(stream: Stream, passage: Option<&Arc<Passage>>) -> Self {
        Self { stream, moved: Arc::default(), toll: passage.map(Arc::clone), waits: None }
    }

    /// Ready when more may be moved.
    fn poll_may(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(waits) = &mut self.waits {
            let done = ready!(waits.as_mut().poll(cx));
            self.waits = None;
            done.map_err(io::Error::other)?;
        }
        Poll::Ready(Ok(()))
    }

    /// Something was moved.
    fn pay(&mut self) {
        // A cap or limit may have been set since it began.
        if let Some(passage) = self.toll.as_ref().filter(|passage| passage.is_tolled()) {
            passage.counts(&self.moved);
            let passage = Arc::clone(passage);
            self.waits = Some(Box::pin(async move { passage.may().await }));
        }
    }

    /// What it has moved by now.
    pub fn moved(&self) -> Arc<Moved> {
        Arc::clone(&self.moved)
    }

    fn sent(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(n)) = &written {
            self.moved.up.fetch_add(*n as u64, Relaxed);
            self.pay();
        }
        written
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_may(cx))?;
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.moved.down.fetch_add((buf.filled().len() - before) as u64, Relaxed);
        self.pay();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_may(cx))?;
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.sent(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_may(cx))?;
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.sent(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
