//! Tests of pumps between real sockets on loopback.

mod channels;
mod ends;
mod flow;
mod guards;

use super::*;
use crate::channel::Channel;
use socket2::SockRef;
use std::{
    future::pending,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinHandle,
};

/// The ways in which bytes are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Spliced,
    Copied,
    /// The pump of sealed legs, with plain TCP instead of the channel.
    Polled,
}

const ALL: [How; 3] = [How::Spliced, How::Copied, How::Polled];

const LIMITS: Limits = Limits {
    idle: Duration::from_secs(600),
    linger: Duration::from_secs(60),
    black_hole: Duration::from_secs(30),
};

/// A running pump, and the far ends of its legs.
struct Carried {
    client: TcpStream,
    server: TcpStream,
    moved: Arc<Moved>,
    pipes: Arc<PipePool>,
    cut: oneshot::Sender<()>,
    pump: JoinHandle<Result<(), Stopped>>,
}

/// The settings of a pump.
struct Setup {
    how: How,
    early: Vec<u8>,
    limits: Limits,
    pipes: Arc<PipePool>,
    throttle: Option<Arc<dyn Throttle>>,
}

impl Setup {
    fn new(how: How) -> Self {
        let pipes = if how == How::Spliced { 4 } else { 0 };
        Self {
            how,
            early: Vec::new(),
            limits: LIMITS,
            pipes: Arc::new(PipePool::new(pipes)),
            throttle: None,
        }
    }

    async fn start(self) -> Carried {
        let ((client, near), (server, far)) = (pair().await, pair().await);
        let (moved, pipes) = (Arc::new(Moved::default()), Arc::clone(&self.pipes));
        let (cut, cut_off) = oneshot::channel();
        let counted = Arc::clone(&moved);
        let pump = tokio::spawn(async move {
            let throttle = self.throttle.as_deref();
            let mut terms = Terms::new(self.limits, &counted);
            (terms.pipes, terms.throttle) = (&self.pipes, throttle);
            let (near, mut far) = (ResetOnDrop::new(near), ResetOnDrop::new(far));
            // A dropped `cut` sender is not a cut.
            let cut = async {
                if cut_off.await.is_err() {
                    pending().await
                }
            };
            if self.how != How::Polled {
                return clear(near, self.early, far, terms, cut).await;
            }
            let mut near = near;
            unless(cut, sealed::both(&mut *near, &mut *far, terms)).await?;
            near.close();
            far.close();
            Ok(())
        });
        Carried { client, server, moved, pipes, cut, pump }
    }
}

impl Carried {
    async fn by(how: How) -> Self {
        Setup::new(how).start().await
    }

    fn counts(&self) -> (u64, u64) {
        (self.moved.up.load(Ordering::Relaxed), self.moved.down.load(Ordering::Relaxed))
    }
}

/// Both ends of a connection.
async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connecting = TcpStream::connect(listener.local_addr().unwrap());
    let (far, near) = tokio::join!(connecting, listener.accept());
    (far.unwrap(), near.unwrap().0)
}

async fn read_all(from: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).await?;
    Ok(bytes)
}

fn reset(tcp: TcpStream) {
    SockRef::from(&tcp).set_linger(Some(Duration::ZERO)).unwrap();
}

/// Bytes that differ wherever they are: a shift or a swap of chunks shows.
fn pattern(length: usize) -> Vec<u8> {
    let words = (0..length as u64 / 8 + 1).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.truncate(length);
    bytes
}
