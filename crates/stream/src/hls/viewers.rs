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
    time::{Instant, Sleep, sleep},
};

/// The most connections: a browser opens up to six. Each holds at most a segment.
const MAX_CONNECTIONS: usize = 96;

/// A viewer that acknowledges nothing, or sends no request, for this long is disconnected.
const STALL: Duration = Duration::from_secs(30);

/// Accepts viewers up to a maximum number.
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
        (Viewer { stream, idle: Box::pin(sleep(STALL)), _permit: permit }, at)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// The connection of a viewer.
pub struct Viewer {
    stream: TcpStream,
    /// Ends when nothing was read or written for [`STALL`].
    idle: Pin<Box<Sleep>>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Viewer {
    fn record_progress(&mut self) {
        self.idle.as_mut().reset(Instant::now() + STALL);
    }
}

impl AsyncRead for Viewer {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_read(cx, buffer) {
            Poll::Pending => {
                self.idle.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
            }
            done => {
                self.record_progress();
                done
            }
        }
    }
}

impl AsyncWrite for Viewer {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if written.is_ready() {
            self.record_progress();
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
