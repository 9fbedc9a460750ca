//! Links to a node that are as slow as a test wants, and break when it wants.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpSocket, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep_until},
};

/// The most bytes that pass at once: few, so that slow links are slow from the first byte.
const PIECE: usize = 16 << 10;

/// Forwards connections to a node, at the rate of `pace` for all of them together.
#[derive(Debug)]
pub struct Way {
    /// The address where it listens.
    pub at: SocketAddr,
    pace: Arc<Pace>,
    cut: watch::Sender<bool>,
    _work: JoinSet<()>,
}

#[derive(Debug)]
struct Pace {
    /// Bytes a second, both directions together.
    rate: AtomicU64,
    next: Mutex<Instant>,
}

impl Way {
    /// Forwards to this address, at this many bytes a second.
    pub async fn to(target: SocketAddr, rate: u64) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        // Data in the kernel's buffers is not held back, so these are as small as possible.
        socket.set_recv_buffer_size(PIECE as u32).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(64).unwrap();
        let at = listener.local_addr().unwrap();
        let pace = Pace { rate: AtomicU64::new(rate), next: Mutex::new(Instant::now()) };
        let pace = Arc::new(pace);
        let mut work = JoinSet::new();
        let cut = watch::Sender::new(false);
        work.spawn(accept(listener, target, Arc::clone(&pace), cut.subscribe()));
        Self { at, pace, cut, _work: work }
    }

    /// Breaks all connections, present and future ones, until it is healed.
    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// Forwards again.
    pub fn heal(&self) {
        self.cut.send_replace(false);
    }

    pub fn set(&self, rate: u64) {
        self.pace.rate.store(rate, Relaxed);
    }
}

async fn accept(
    listener: TcpListener,
    target: SocketAddr,
    pace: Arc<Pace>,
    cut: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    while let Ok((from, _)) = listener.accept().await {
        let (pace, mut cut) = (Arc::clone(&pace), cut.clone());
        connections.spawn(async move {
            // A connection that breaks ends at both ends.
            tokio::select! {
                biased;
                _ = cut.wait_for(|is_cut| *is_cut) => {}
                _ = forward(from, target, &pace) => {}
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn forward(from: TcpStream, target: SocketAddr, pace: &Pace) -> io::Result<()> {
    let to = TcpStream::connect(target).await?;
    let ((hear, say), (there, back)) = (from.into_split(), to.into_split());
    tokio::try_join!(pump(hear, back, pace), pump(there, say, pace)).map(|_| ())
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, pace: &Pace) -> io::Result<()> {
    let mut buffer = vec![0; PIECE];
    loop {
        match from.read(&mut buffer).await? {
            0 => return to.shutdown().await,
            read => {
                pace.wait(read).await;
                to.write_all(&buffer[..read]).await?;
            }
        }
    }
}

impl Pace {
    async fn wait(&self, bytes: usize) {
        let rate = self.rate.load(Relaxed).max(1);
        let until = {
            let mut next = self.next.lock().unwrap();
            *next =
                (*next).max(Instant::now()) + Duration::from_secs_f64(bytes as f64 / rate as f64);
            *next
        };
        sleep_until(until).await;
    }
}
