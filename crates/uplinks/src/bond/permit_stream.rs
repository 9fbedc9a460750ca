//! A TCP connection that holds a semaphore permit until its peer sends something.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::OwnedSemaphorePermit,
};

/// The connection. The permit is released with the first byte that arrives, or at the end of the stream.
#[derive(Debug)]
pub struct PermitStream {
    tcp: TcpStream,
    permit: Option<OwnedSemaphorePermit>,
}

impl PermitStream {
    /// Holds `permit` until something is read.
    pub fn new(tcp: TcpStream, permit: OwnedSemaphorePermit) -> Self {
        Self { tcp, permit: Some(permit) }
    }

    /// The connection itself.
    pub fn tcp(&self) -> &TcpStream {
        &self.tcp
    }
}

impl AsyncRead for PermitStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(Pin::new(&mut self.tcp).poll_read(cx, buf));
        self.permit = None;
        Poll::Ready(read)
    }
}

impl AsyncWrite for PermitStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}
