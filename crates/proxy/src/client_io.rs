//! The program's connection as hyper sees it, through which interim answers can be passed.
//!
//! hyper's server sends no interim answer (1xx) but its own `100 Continue`; a proxy must pass
//! them on (RFC 9110 §15.2). hyper flushes its connection each time that it has written all
//! that it holds: at that moment, and while the final answer is not begun, an interim one may
//! be put in between.

use hyper::{HeaderMap, StatusCode};
use socket2::SockRef;
use std::{
    io,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker, ready},
    time::{Duration, Instant},
};
use thalweg_net::tcp;
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
    task::yield_now,
    time::sleep,
};

/// The most bytes of interim answers that wait for a slow program; more are dropped, which an
/// interim answer may always be by who cannot take it.
const MAX_WAITING: usize = 64 << 10;

/// Interim answers on their way to the program.
#[derive(Clone, Debug, Default)]
pub struct Interim(Arc<Mutex<Queue>>);

#[derive(Debug, Default)]
struct Queue {
    open: bool,
    /// What waits, whole answers; of the first some bytes may be out already.
    bytes: Vec<u8>,
    begun: usize,
}

impl Interim {
    /// A request begins: what comes now belongs to it.
    pub fn open(&self) {
        self.lock().open = true;
    }

    /// The final answer begins: nothing more may come before it but what is half out.
    pub fn close(&self) {
        let mut queue = self.lock();
        queue.open = false;
        if queue.begun == 0 {
            queue.bytes.clear();
        }
    }

    /// Queues an answer; the caller then wakes hyper's task, which flushes.
    pub fn put(&self, status: StatusCode, fields: &HeaderMap) {
        let mut queue = self.lock();
        let answer = written(status, fields);
        if queue.open && queue.bytes.len() + answer.len() <= MAX_WAITING {
            queue.bytes.extend_from_slice(&answer);
        }
    }

    /// Each change leaves whole answers.
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what waits.
    fn poll_write(&self, cx: &mut Context<'_>, wire: &Wire) -> Poll<io::Result<()>> {
        let mut queue = self.lock();
        while queue.begun < queue.bytes.len() {
            let rest = &queue.bytes[queue.begun..];
            let n = ready!(wire.poll_try_write(cx, |tcp| tcp.try_write(rest)))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            queue.begun += n;
        }
        queue.bytes.clear();
        queue.begun = 0;
        Poll::Ready(Ok(()))
    }

    fn is_half_out(&self) -> bool {
        self.lock().begun > 0
    }
}

/// An interim answer in bytes. Its fields were read by hyper, and so hold no line ends.
fn written(status: StatusCode, fields: &HeaderMap) -> Vec<u8> {
    let reason = status.canonical_reason().unwrap_or_default();
    let mut bytes = format!("HTTP/1.1 {} {reason}\r\n", status.as_u16()).into_bytes();
    for (name, value) in fields {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes
}

/// A program's connection. Whoever watches over it has a weak hand on it.
#[derive(Debug)]
pub struct ClientIo {
    wire: Arc<Wire>,
    interim: Interim,
}

/// The connection, and how much was written on it.
#[derive(Debug)]
pub struct Wire {
    tcp: TcpStream,
    written: AtomicU64,
    /// It is to be reset, not ended.
    broken: AtomicBool,
    /// It has asked for something.
    asked: AtomicBool,
}

impl ClientIo {
    /// The connection, and the way for interim answers on it.
    pub fn new(tcp: TcpStream) -> (Self, Interim) {
        let interim = Interim::default();
        let wire = Arc::new(Wire {
            tcp,
            written: AtomicU64::new(0),
            broken: AtomicBool::new(false),
            asked: AtomicBool::new(false),
        });
        (Self { wire, interim: interim.clone() }, interim)
    }

    /// For [`Wire::left`] and [`Wire::break_off`].
    pub fn watched(&self) -> Weak<Wire> {
        Arc::downgrade(&self.wire)
    }

    /// The connection itself, when hyper is done with it.
    pub async fn into_tcp(self) -> TcpStream {
        let mut wire = self.wire;
        loop {
            match Arc::try_unwrap(wire) {
                Ok(wire) => return wire.tcp,
                // A watcher's look, which takes no time.
                Err(shared) => wire = shared,
            }
            yield_now().await;
        }
    }

    fn poll_half_out(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.interim.is_half_out() {
            true => self.interim.poll_write(cx, &self.wire),
            false => Poll::Ready(Ok(())),
        }
    }
}

/// How often a connection is looked at.
const LOOK: Duration = Duration::from_secs(5);

/// A program that has ended its side and gets nothing for so long has most likely left: one
/// that only half-closes waits for an answer.
const PATIENCE: Duration = Duration::from_secs(600);

impl Wire {
    /// Ends when the program has left although nothing is being written to it, which alone
    /// would tell hyper: its connection is reset, or half-closed and idle for long.
    pub async fn left(wire: Weak<Self>) {
        let mut idle = (0, Instant::now());
        loop {
            sleep(LOOK).await;
            let Some(wire) = wire.upgrade() else { return std::future::pending().await };
            let written = wire.written.load(Relaxed);
            let looked = wire.look();
            drop(wire);
            if written != idle.0 || !looked.half_closed {
                idle = (written, Instant::now());
            }
            if looked.reset || idle.1.elapsed() > PATIENCE {
                return;
            }
        }
    }

    /// A request's head is here.
    pub fn asked(&self) {
        self.asked.store(true, Relaxed);
    }

    /// Ends after `patience` if no head came meanwhile.
    pub async fn slow(wire: Weak<Self>, patience: Duration) {
        sleep(patience).await;
        if wire.upgrade().is_none_or(|wire| wire.asked.load(Relaxed)) {
            std::future::pending().await
        }
    }

    /// Has the connection end with a reset: what was sent must not look whole. Bytes that the
    /// kernel still holds are lost.
    pub fn break_off(&self) {
        self.broken.store(true, Relaxed);
        // A socket that refuses this is already gone.
        _ = SockRef::from(&self.tcp).set_linger(Some(Duration::ZERO));
    }

    /// What the kernel has told of the connection.
    fn look(&self) -> Look {
        let asked = pin!(self.tcp.ready(Interest::READABLE | Interest::ERROR));
        match asked.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(ready)) => {
                Look { reset: ready.is_error(), half_closed: ready.is_read_closed() }
            }
            Poll::Ready(Err(_)) => Look { reset: true, half_closed: true },
            Poll::Pending => Look { reset: false, half_closed: false },
        }
    }

    fn poll_try_write(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let n = ready!(tcp::poll_write_by(&self.tcp, cx, write))?;
        self.written.fetch_add(n as u64, Relaxed);
        Poll::Ready(Ok(n))
    }
}

struct Look {
    reset: bool,
    half_closed: bool,
}

impl AsyncRead for ClientIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        tcp::poll_read(&self.wire.tcp, cx, buf)
    }
}

impl AsyncWrite for ClientIo {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_half_out(cx))?;
        self.wire.poll_try_write(cx, |tcp| tcp.try_write(buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_half_out(cx))?;
        self.wire.poll_try_write(cx, |tcp| tcp.try_write_vectored(bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.interim.poll_write(cx, &self.wire)
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.wire.broken.load(Relaxed) {
            // The end that follows is the reset.
            true => Poll::Ready(Ok(())),
            false => Poll::Ready(tcp::end_writing(&self.wire.tcp)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{net::TcpListener, time::timeout};

    /// Both ends of a connection.
    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn a_first_head_that_does_not_come_ends_the_waiting_and_one_that_came_does_not() {
        let ((_slow, slow), (_quick, quick)) = (pair().await, pair().await);
        let (slow, quick) = (ClientIo::new(slow).0, ClientIo::new(quick).0);
        quick.wire.asked();
        tokio::time::pause();
        let (patience, long) = (Duration::from_secs(30), Duration::from_secs(300));
        assert!(timeout(long, Wire::slow(slow.watched(), patience)).await.is_ok());
        assert!(timeout(long, Wire::slow(quick.watched(), patience)).await.is_err());
    }
}
