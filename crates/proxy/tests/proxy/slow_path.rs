//! A relay or a direct path that is as slow as a test wants, or falls silent.

use std::{
    future::pending,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::JoinSet,
    time::{Instant, sleep_until},
};

/// A listener whose connections all lead to one destination.
pub struct SlowPath {
    pub at: SocketAddr,
    how: Arc<SlowPathSettings>,
    _tasks: JoinSet<()>,
}

struct SlowPathSettings {
    to: SocketAddr,
    socks: bool,
    /// Bytes per second of each connection, towards the client.
    rate: u64,
    moved: AtomicU64,
    silent: AtomicBool,
}

impl SlowPath {
    pub async fn direct(to: SocketAddr, rate: u64) -> Self {
        Self::new(to, false, rate).await
    }

    /// A relay that speaks SOCKS5, and goes to `to` whatever is requested.
    pub async fn relay(to: SocketAddr, rate: u64) -> Self {
        Self::new(to, true, rate).await
    }

    async fn new(to: SocketAddr, socks: bool, rate: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (moved, silent) = (AtomicU64::new(0), AtomicBool::new(false));
        let how = Arc::new(SlowPathSettings { to, socks, rate, moved, silent });
        let mut tasks = JoinSet::new();
        let served = Arc::clone(&how);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                connections.spawn(serve(Arc::clone(&served), tcp));
            }
        });
        Self { at, how, _tasks: tasks }
    }

    /// Bytes that it has brought.
    pub fn moved(&self) -> u64 {
        self.how.moved.load(Relaxed)
    }

    /// From now on nothing is passed on, and nothing is closed.
    pub fn fall_silent(&self) {
        self.how.silent.store(true, Relaxed);
    }
}

async fn serve(how: Arc<SlowPathSettings>, mut tcp: TcpStream) {
    if how.socks {
        let (mut greeting, mut request) = ([0; 3], [0; 10]);
        tcp.read_exact(&mut greeting).await.unwrap();
        tcp.write_all(&[5, 0]).await.unwrap();
        tcp.read_exact(&mut request).await.unwrap();
        tcp.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
    }
    let far = TcpStream::connect(how.to).await.unwrap();
    let (from_near, to_near) = tcp.into_split();
    let (from_far, to_far) = far.into_split();
    // Each side may break off at any time.
    tokio::join!(
        pass(&how, from_near, to_far, None),
        pass(&how, from_far, to_near, Some(how.rate))
    );
}

async fn pass(
    how: &SlowPathSettings,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    rate: Option<u64>,
) {
    let (mut piece, mut due) = (vec![0; 16 << 10], Instant::now());
    while let Ok(n @ 1..) = from.read(&mut piece).await {
        if how.silent.load(Relaxed) {
            return pending().await;
        }
        if let Some(rate) = rate {
            due = due.max(Instant::now()) + Duration::from_secs_f64(n as f64 / rate as f64);
            sleep_until(due).await;
            how.moved.fetch_add(n as u64, Relaxed);
        }
        if to.write_all(&piece[..n]).await.is_err() {
            return;
        }
    }
}
