//! Counts the bytes between a browser and the API: a TCP proxy on the same port of the other loopback address, so that the
//! API's check of `Host` holds.

use anyhow::Context as _;
use std::{
    net::{Ipv6Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// A running counter; ended on drop.
pub struct Counter {
    port: u16,
    bytes: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Counter {
    /// Listens on `[::1]` and passes everything on to `to`.
    ///
    /// # Errors
    /// When it cannot listen there.
    pub async fn start(to: SocketAddr) -> anyhow::Result<Self> {
        let port = to.port();
        let listener = TcpListener::bind((Ipv6Addr::LOCALHOST, port)).await;
        let listener = listener.with_context(|| format!("cannot listen on [::1]:{port}"))?;
        let bytes = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&bytes);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A browser that leaves is no failure.
                tokio::spawn(pass(stream, to, Arc::clone(&counted)));
            }
        });
        Ok(Self { port, bytes, task })
    }

    /// The port on `[::1]`.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The bytes so far, both directions together.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(browser: TcpStream, to: SocketAddr, bytes: Arc<AtomicU64>) {
    let Ok(node) = TcpStream::connect(to).await else { return };
    let (from_browser, to_browser) = browser.into_split();
    let (from_node, to_node) = node.into_split();
    // The end of either direction ends both: HTTP does not use half-open connections.
    tokio::select! {
        () = copy(from_browser, to_node, &bytes) => {}
        () = copy(from_node, to_browser, &bytes) => {}
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    bytes: &AtomicU64,
) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        bytes.fetch_add(n as u64, Relaxed);
        if to.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
}
