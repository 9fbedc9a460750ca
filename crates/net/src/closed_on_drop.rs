//! A stream that is shut down when it is dropped.

use crate::Stream;
use std::{
    io,
    pin::Pin,
    task::{Context, Poll, Waker},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A [`Stream`] that is shut down when dropped, as far as this is possible without waiting.
///
/// It is meant for streams that may be dropped at any time without harm, such as a client's that has sent its whole
/// request: relays then see a proper end, not a broken connection. It is not for uploads: a truncated one would look
/// complete.
#[derive(Debug)]
pub struct ClosedOnDrop(Stream);

impl Stream {
    /// Makes the stream shut down when it is dropped.
    pub fn closed_on_drop(self) -> ClosedOnDrop {
        ClosedOnDrop(self)
    }
}

impl Drop for ClosedOnDrop {
    fn drop(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        // If the kernel has no room now, relays see a broken connection instead.
        _ = Pin::new(&mut self.0).poll_shutdown(&mut cx);
    }
}

impl AsyncRead for ClosedOnDrop {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for ClosedOnDrop {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
