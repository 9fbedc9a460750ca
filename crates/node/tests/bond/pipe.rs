//! A connection between two ends that can be paused and cut.

use std::time::Duration;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinSet,
};

/// Copies bytes until it is dropped.
pub struct Pipe {
    paused: watch::Sender<bool>,
    /// The copying tasks, which end when this is dropped.
    _copying: JoinSet<()>,
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dial = TcpStream::connect(listener.local_addr().unwrap());
    let (near, far) = tokio::join!(dial, listener.accept());
    (near.unwrap(), far.unwrap().0)
}

impl Pipe {
    /// Creates a pipe and its two ends.
    pub async fn new() -> (Self, TcpStream, TcpStream) {
        let ((near, left), (right, far)) = tokio::join!(pair(), pair());
        let paused = watch::Sender::new(false);
        let mut copying = JoinSet::new();
        let ((left_read, left_write), (right_read, right_write)) =
            (left.into_split(), right.into_split());
        copying.spawn(copy(left_read, right_write, paused.subscribe()));
        copying.spawn(copy(right_read, left_write, paused.subscribe()));
        (Self { paused, _copying: copying }, near, far)
    }

    /// Lets nothing pass while it is paused; neither end is told.
    pub fn pause(&self, paused: bool) {
        self.paused.send_replace(paused);
    }

    /// Drops the bytes that it holds; both ends learn that it is gone.
    pub fn cut(self) {}
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut paused: watch::Receiver<bool>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if paused.wait_for(|paused| !paused).await.is_err() {
            return;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
    // The other end learns of the end after the pause.
    if paused.wait_for(|paused| !paused).await.is_ok() {
        _ = tokio::time::timeout(Duration::from_secs(1), to.shutdown()).await;
    }
}
