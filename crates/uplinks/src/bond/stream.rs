//! One stream of a bond, as an application uses it.

use super::{Bond, engine::Engine, flow::StreamError};
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use thalweg_net::CarriedStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A byte stream over all links of a bond.
///
/// Shutting it down ends only our direction, and waits until the far end has all bytes. Dropping it lets it go: what
/// was written is still sent; if more arrives, the far end is told that nobody reads it.
#[derive(Debug)]
pub struct BondStream {
    engine: Arc<Engine>,
    stream: u32,
    /// Keeps the bond alive while it has streams.
    bond: Option<Arc<Bond>>,
}

impl BondStream {
    pub(super) fn new(engine: Arc<Engine>, stream: u32) -> Self {
        Self { engine, stream, bond: None }
    }

    /// The same stream, which keeps its bond alive.
    pub(super) fn with_bond(mut self, bond: Arc<Bond>) -> Self {
        self.bond = Some(bond);
        self
    }

    /// Resets both directions, so that the far end does not take what it has for the whole stream.
    pub fn reset(&mut self, why: &str) {
        let broken = || StreamError::Reset(why.to_owned());
        self.engine.with(self.stream, |flow| flow.reset(broken()));
    }

    /// Its number in the bond.
    pub fn number(&self) -> u32 {
        self.stream
    }
}

/// The error of a stream that the bond has forgotten.
fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the stream no longer exists in the bond")
}

impl AsyncRead for BondStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = |flow: &mut super::flow::Flow| flow.poll_read(cx, buf);
        self.engine.with(self.stream, read).unwrap_or(Poll::Ready(Err(gone())))
    }
}

impl AsyncWrite for BondStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let write = |flow: &mut super::flow::Flow| flow.poll_write(cx, bytes);
        self.engine.with(self.stream, write).unwrap_or(Poll::Ready(Err(gone())))
    }

    /// What is written is sent without a flush.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let end = |flow: &mut super::flow::Flow| {
            flow.end();
            flow.poll_settled(cx)
        };
        self.engine.with(self.stream, end).unwrap_or(Poll::Ready(Err(gone())))
    }
}

impl CarriedStream for BondStream {
    fn reset(&mut self) {
        Self::reset(self, "the stream was given up");
    }

    fn round_trip(&self) -> Option<Duration> {
        self.engine.round_trip()
    }
}

impl Drop for BondStream {
    fn drop(&mut self) {
        self.engine.release(self.stream);
    }
}
