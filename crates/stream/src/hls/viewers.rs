//! The connections of viewers, bounded in number and in the time without progress.

use axum::serve::Listener;
use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};

/// The most connections: a browser opens up to six. Each holds at most a segment.
const MAX_CONNECTIONS: usize = 96;

/// A viewer that acknowledges nothing for this long is disconnected.
const STALL: Duration = Duration::from_secs(30);

/// Accepts viewers while there are few enough.
pub struct Viewers {
    listener: TcpListener,
    free: Arc<Semaphore>,
}

impl Viewers {
    /// Wraps the listener.
    pub fn new(listener: TcpListener) -> Self {
        Self { listener, free: Arc::new(Semaphore::new(MAX_CONNECTIONS)) }
    }
}

impl Listener for Viewers {
    type Io = Viewer;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Viewer, SocketAddr) {
        // Never closed; without a permit the connection would only not be counted.
        let permit = Arc::clone(&self.free).acquire_owned().await.ok();
        let (stream, at) = Listener::accept(&mut self.listener).await;
        // Without the option the kernel gives up after a quarter of an hour.
        _ = socket2::SockRef::from(&stream).set_tcp_user_timeout(Some(STALL));
        (Viewer { stream, _permit: permit }, at)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// The connection of a viewer.
pub struct Viewer {
    stream: TcpStream,
    _permit: Option<OwnedSemaphorePermit>,
}

impl AsyncRead for Viewer {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Viewer {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
