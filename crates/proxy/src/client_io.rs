//! The program's connection as hyper sees it: without the targets of requests, and with interim answers put in.
//!
//! Targets are taken out of the request lines that come in, see [`heads`](super::heads).
//!
//! hyper's server sends no interim answer (1xx) but its own `100 Continue`; a proxy must pass
//! them on (RFC 9110 §15.2). hyper flushes its connection each time that it has written all
//! that it holds: at that moment, and while the final answer is not begun, an interim one may
//! be put in between.

use super::{
    answer,
    heads::{Content, Heads, Line},
    linger,
};
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
    sync::oneshot,
    task::yield_now,
    time::sleep,
};

/// What is read at once where a head may come: hyper's own first read.
const PIECE: usize = 8 << 10;

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

    /// Queues an answer of our own where hyper would have sent one without words.
    fn put_instead(&self, answer: &[u8]) {
        self.lock().bytes.extend_from_slice(answer);
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
    /// `None` once another has the connection.
    wire: Option<Arc<Wire>>,
    interim: Interim,
    heads: Heads,
    /// What came and was not looked at yet: requests behind the one that is read.
    behind: Vec<u8>,
    /// What hyper is to see next.
    seen: Vec<u8>,
    /// All that hyper has written is sent.
    is_flushed: bool,
    /// It was so when hyper got the first bytes of the head that it has not read yet. What it writes now is its own
    /// refusal of that head.
    is_refusal: bool,
    /// Who reads the program off once hyper is done.
    left: Option<oneshot::Sender<Arc<Wire>>>,
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
    /// Between who takes targets out and who answers requests.
    request: Mutex<Asked>,
}

/// What is known of the request whose head hyper reads.
#[derive(Debug, Default)]
struct Asked {
    line: Option<Line>,
    content: Option<Content>,
}

impl ClientIo {
    /// The connection, the way for interim answers on it, and the connection again once hyper is done with it, if
    /// something of a request is unread.
    pub fn new(tcp: TcpStream) -> (Self, Interim, oneshot::Receiver<Arc<Wire>>) {
        let interim = Interim::default();
        let wire = Arc::new(Wire {
            tcp,
            written: AtomicU64::new(0),
            broken: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            request: Mutex::default(),
        });
        let (left, rest) = oneshot::channel();
        let io = Self {
            wire: Some(wire),
            interim: interim.clone(),
            heads: Heads::default(),
            behind: Vec::new(),
            seen: Vec::new(),
            is_flushed: true,
            is_refusal: false,
            left: Some(left),
        };
        (io, interim, rest)
    }

    /// For [`Wire::left`] and [`Wire::break_off`].
    pub fn watched(&self) -> Weak<Wire> {
        self.wire.as_ref().map(Arc::downgrade).unwrap_or_default()
    }

    /// The connection itself, when hyper is done with it, and what was read of it and hyper has not seen.
    pub async fn into_tcp(mut self) -> Option<(TcpStream, Vec<u8>)> {
        let mut wire = self.wire.take()?;
        let unseen = [std::mem::take(&mut self.seen), std::mem::take(&mut self.behind)].concat();
        loop {
            match Arc::try_unwrap(wire) {
                Ok(wire) => return Some((wire.tcp, unseen)),
                // A watcher's look, which takes no time.
                Err(shared) => wire = shared,
            }
            yield_now().await;
        }
    }

    fn wire(&self) -> io::Result<&Arc<Wire>> {
        self.wire.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn poll_half_out(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.interim.is_half_out() {
            true => self.interim.poll_write(cx, self.wire()?),
            false => Poll::Ready(Ok(())),
        }
    }

    /// Reads what is part of a content straight into hyper's buffer.
    fn poll_content(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(tcp::poll_read(&self.wire()?.tcp, cx, buf))?;
        let passing = self.heads.passes(&buf.filled()[before..]);
        self.behind.extend_from_slice(&buf.filled()[before + passing..]);
        buf.set_filled(before + passing);
        Poll::Ready(Ok(()))
    }

    /// Reads where a head may come; whether the program has ended its side.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut piece = Vec::with_capacity(PIECE);
        let mut room = ReadBuf::uninit(piece.spare_capacity_mut());
        ready!(tcp::poll_read(&self.wire()?.tcp, cx, &mut room))?;
        let n = room.filled().len();
        self.behind.extend_from_slice(room.filled());
        Poll::Ready(Ok(n == 0))
    }

    /// Looks at what came.
    fn look(&mut self) -> io::Result<()> {
        let was_in_head = self.heads.in_head();
        let (taken, line) = self.heads.take(&self.behind, &mut self.seen);
        self.behind.drain(..taken);
        if let Some(line) = line {
            self.wire()?.request().line = Some(line);
        }
        if self.heads.in_head() && !was_in_head {
            self.is_refusal = self.is_flushed;
        }
        Ok(())
    }

    /// Before hyper gets more: what it made of the head.
    fn catch_up(&mut self) -> io::Result<()> {
        let content = self.wire()?.request().content.take();
        if let Some(content) = content {
            self.heads.follows(content);
        }
        Ok(())
    }

    /// Whether hyper writes its own refusal of a head, which has no words: ours is put in its place.
    fn refuses(&mut self, written: &[u8]) -> bool {
        if !self.is_refusal {
            return false;
        }
        let is_unread = self.wire.as_ref().is_some_and(|wire| wire.request().line.is_some());
        let status = written.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2..5));
        let status = status.and_then(|digits| StatusCode::from_bytes(digits).ok());
        let Some(status) = status.filter(|_| is_unread) else { return false };
        self.is_refusal = false;
        self.interim.put_instead(&answer::refusal(status));
        true
    }

    /// What hyper writes.
    fn poll_pass(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_half_out(cx))?;
        let first = bufs.iter().find(|buf| !buf.is_empty());
        if first.is_some_and(|first| self.refuses(first)) {
            return Poll::Ready(Ok(bufs.iter().map(|buf| buf.len()).sum()));
        }
        self.is_flushed = false;
        self.wire()?.poll_try_write(cx, |tcp| tcp.try_write_vectored(bufs))
    }
}

impl Drop for ClientIo {
    fn drop(&mut self) {
        // One that is gone tells nothing.
        _ = self.catch_up();
        let is_read = self.seen.is_empty() && self.behind.is_empty() && self.heads.is_between();
        if let (Some(left), Some(wire)) = (self.left.take(), self.wire.take().filter(|_| !is_read))
        {
            // Nobody waits for it where the proxy has cut it.
            _ = left.send(wire);
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

    /// A request's head is here, and this content follows; its request line. `None`: it has none, which is not
    /// expected.
    pub fn asked(&self, content: Content) -> Option<Line> {
        self.asked.store(true, Relaxed);
        let mut request = self.request();
        request.content = Some(content);
        request.line.take()
    }

    /// Each change is one value.
    fn request(&self) -> MutexGuard<'_, Asked> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last answer is sent: reads off what the program still sends, so that it gets it, until nothing has come for
    /// `silent`.
    pub async fn linger(&self, silent: Duration) {
        if !self.broken.load(Relaxed) && tcp::end_writing(&self.tcp).is_ok() {
            linger::read_off(&self.tcp, silent).await;
        }
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
        let this = self.get_mut();
        this.catch_up()?;
        loop {
            if !this.seen.is_empty() {
                let n = this.seen.len().min(buf.remaining());
                buf.put_slice(&this.seen[..n]);
                this.seen.drain(..n);
                return Poll::Ready(Ok(()));
            }
            if this.behind.is_empty() {
                if this.heads.is_over() {
                    return Poll::Ready(Ok(()));
                }
                if this.heads.in_content() {
                    return this.poll_content(cx, buf);
                }
                if ready!(this.poll_more(cx))? {
                    this.heads.end(&mut this.seen);
                    if this.seen.is_empty() {
                        return Poll::Ready(Ok(()));
                    }
                    continue;
                }
            }
            let before = this.behind.len();
            this.look()?;
            if this.behind.len() == before {
                // hyper wants more of a head that has ended: they disagree.
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
        }
    }
}

impl AsyncWrite for ClientIo {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_pass(cx, &[io::IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_pass(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.interim.poll_write(cx, this.wire()?))?;
        this.is_flushed = true;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let wire = self.wire()?;
        match wire.broken.load(Relaxed) {
            // The end that follows is the reset.
            true => Poll::Ready(Ok(())),
            false => Poll::Ready(tcp::end_writing(&wire.tcp)),
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
        quick.wire().unwrap().asked(Content::Length(0));
        tokio::time::pause();
        let (patience, long) = (Duration::from_secs(30), Duration::from_secs(300));
        assert!(timeout(long, Wire::slow(slow.watched(), patience)).await.is_ok());
        assert!(timeout(long, Wire::slow(quick.watched(), patience)).await.is_err());
    }
}
