//! The program's connection as hyper sees it: request targets are removed from what hyper reads, and interim answers
//! are inserted into what it writes.
//!
//! Targets are taken out of the request lines that arrive, see [`request_scanner`](super::request_scanner).
//!
//! hyper's server sends no interim answers (1xx) except its own `100 Continue`, but a proxy must pass them on (RFC 9110
//! §15.2). hyper flushes its connection whenever it has written all that it holds. At that moment, as long as the final
//! answer has not begun, an interim answer can be put in.

use super::{
    answer, linger,
    request_scanner::{ContentFraming, RequestScanner, RequestTarget},
};
use hyper::{HeaderMap, StatusCode};
use parking_lot::{Mutex, MutexGuard};
use socket2::SockRef;
use std::{
    io,
    pin::{Pin, pin},
    sync::{
        Arc, Weak,
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

/// Bytes that are read at once where a head may come, as in hyper's own first read.
const READ_SIZE: usize = 8 << 10;

/// Bytes of interim answers that may wait for a slow program. Further ones are dropped; a proxy may do so, because a
/// client must not depend on interim answers.
const MAX_WAITING: usize = 64 << 10;

/// Interim answers that wait to be sent to the program.
#[derive(Clone, Debug, Default)]
pub struct InterimAnswers(Arc<Mutex<Queue>>);

#[derive(Debug, Default)]
struct Queue {
    open: bool,
    /// Whole answers that wait; some bytes of the first may be sent already.
    bytes: Vec<u8>,
    begun: usize,
}

impl InterimAnswers {
    /// A request begins: interim answers belong to it from now on.
    pub fn open(&self) {
        self.0.lock().open = true;
    }

    /// The final answer begins: waiting interim answers are dropped, except one that is partly sent, which is completed
    /// first.
    pub fn close(&self) {
        let mut queue = self.0.lock();
        queue.open = false;
        if queue.begun == 0 {
            queue.bytes.clear();
        }
    }

    /// Queues an answer; the caller then wakes hyper's task, which flushes.
    pub fn put(&self, status: StatusCode, fields: &HeaderMap) {
        let mut queue = self.0.lock();
        let answer = written(status, fields);
        if queue.open && queue.bytes.len() + answer.len() <= MAX_WAITING {
            queue.bytes.extend_from_slice(&answer);
        }
    }

    /// Queues an answer of the proxy in place of hyper's own, which has no text.
    fn put_instead(&self, answer: &[u8]) {
        self.0.lock().bytes.extend_from_slice(answer);
    }

    /// Writes the answers that wait.
    fn poll_write(&self, cx: &mut Context<'_>, wire: &Wire) -> Poll<io::Result<()>> {
        let mut queue = self.0.lock();
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

    fn is_partly_sent(&self) -> bool {
        self.0.lock().begun > 0
    }
}

/// Encodes an interim answer. hyper has parsed its fields, so they hold no line ends.
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

/// A program's connection. Watchers hold only a weak reference to it.
#[derive(Debug)]
pub struct ClientIo {
    /// `None` once the connection was taken over.
    wire: Option<Arc<Wire>>,
    interim: InterimAnswers,
    heads: RequestScanner,
    /// Bytes that arrived and were not looked at yet: requests after the one that is being read.
    behind: Vec<u8>,
    /// Bytes that hyper reads next.
    seen: Vec<u8>,
    /// Everything that hyper has written is sent.
    is_flushed: bool,
    /// The value of `is_flushed` when hyper got the first bytes of the head that it is reading. If true, what hyper
    /// writes now is its own refusal of that head.
    is_refusal: bool,
    /// Receives the connection once hyper is done with it, to read and discard what the program still sends.
    left: Option<oneshot::Sender<Arc<Wire>>>,
}

/// The program's TCP connection, and the number of bytes written to it.
#[derive(Debug)]
pub struct Wire {
    tcp: TcpStream,
    written: AtomicU64,
    /// The connection is to be reset rather than ended.
    broken: AtomicBool,
    /// The program has sent a request.
    asked: AtomicBool,
    /// Shared by the part that takes targets out and the part that answers requests.
    request: Mutex<PendingRequest>,
}

/// What is known about the request whose head hyper is reading.
#[derive(Debug, Default)]
struct PendingRequest {
    line: Option<RequestTarget>,
    content: Option<ContentFraming>,
}

impl ClientIo {
    /// Returns the connection for hyper, its queue of interim answers, and a receiver of the connection once hyper is
    /// done with it, if part of a request is unread.
    pub fn new(tcp: TcpStream) -> (Self, InterimAnswers, oneshot::Receiver<Arc<Wire>>) {
        let interim = InterimAnswers::default();
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
            heads: RequestScanner::default(),
            behind: Vec::new(),
            seen: Vec::new(),
            is_flushed: true,
            is_refusal: false,
            left: Some(left),
        };
        (io, interim, rest)
    }

    /// A weak reference, for [`Wire::wait_until_left`] and [`Wire::reset_on_close`].
    pub fn weak_wire(&self) -> Weak<Wire> {
        self.wire.as_ref().map(Arc::downgrade).unwrap_or_default()
    }

    /// The connection itself once hyper is done with it, and the bytes that were read from it and that hyper has not
    /// seen.
    pub async fn into_tcp(mut self) -> Option<(TcpStream, Vec<u8>)> {
        let mut wire = self.wire.take()?;
        let unseen = [std::mem::take(&mut self.seen), std::mem::take(&mut self.behind)].concat();
        loop {
            match Arc::try_unwrap(wire) {
                Ok(wire) => return Some((wire.tcp, unseen)),
                // A watcher holds it for an instant.
                Err(shared) => wire = shared,
            }
            yield_now().await;
        }
    }

    fn wire(&self) -> io::Result<&Arc<Wire>> {
        self.wire.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn poll_partly_sent(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.interim.is_partly_sent() {
            true => self.interim.poll_write(cx, self.wire()?),
            false => Poll::Ready(Ok(())),
        }
    }

    /// Reads content straight into hyper's buffer.
    fn poll_content(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(tcp::poll_read(&self.wire()?.tcp, cx, buf))?;
        let passing = self.heads.take_content(&buf.filled()[before..]);
        self.behind.extend_from_slice(&buf.filled()[before + passing..]);
        buf.set_filled(before + passing);
        Poll::Ready(Ok(()))
    }

    /// Reads where a head may come. Returns whether the program has ended its direction.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut piece = Vec::with_capacity(READ_SIZE);
        let mut room = ReadBuf::uninit(piece.spare_capacity_mut());
        ready!(tcp::poll_read(&self.wire()?.tcp, cx, &mut room))?;
        let n = room.filled().len();
        self.behind.extend_from_slice(room.filled());
        Poll::Ready(Ok(n == 0))
    }

    /// Makes arrived bytes available to hyper, up to the point where hyper must first report which content follows.
    fn pass_on_arrived(&mut self) -> io::Result<()> {
        let was_in_head = self.heads.is_in_head();
        let (taken, line) = self.heads.take(&self.behind, &mut self.seen);
        self.behind.drain(..taken);
        if let Some(line) = line {
            self.wire()?.request().line = Some(line);
        }
        if self.heads.is_in_head() && !was_in_head {
            self.is_refusal = self.is_flushed;
        }
        Ok(())
    }

    /// Tells the scanner which content follows the head, as hyper has found it. Called before hyper gets more bytes.
    fn apply_framing(&mut self) -> io::Result<()> {
        let content = self.wire()?.request().content.take();
        if let Some(content) = content {
            self.heads.expect_content(content);
        }
        Ok(())
    }

    /// Whether hyper writes its own refusal of a head, which has no text; if so, queues the proxy's refusal in its
    /// place.
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

    /// Passes on what hyper writes.
    fn poll_pass(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_partly_sent(cx))?;
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
        // It fails if the connection was taken over.
        _ = self.apply_framing();
        let is_read = self.seen.is_empty() && self.behind.is_empty() && self.heads.is_idle();
        if let (Some(left), Some(wire)) = (self.left.take(), self.wire.take().filter(|_| !is_read))
        {
            // Nobody receives it if the proxy has cut the connection.
            _ = left.send(wire);
        }
    }
}

/// How often a connection is checked.
const LOOK: Duration = Duration::from_secs(5);

/// A program that has ended its direction and gets nothing for this long has most likely left: a program that only
/// half-closes waits for an answer.
const PATIENCE: Duration = Duration::from_secs(600);

impl Wire {
    /// Completes when the program has left while nothing is being written to it (hyper would notice only a failed
    /// write): its connection is reset, or half-closed and idle for [`PATIENCE`].
    pub async fn wait_until_left(wire: Weak<Self>) {
        let mut idle = (0, Instant::now());
        loop {
            sleep(LOOK).await;
            let Some(wire) = wire.upgrade() else { return std::future::pending().await };
            let written = wire.written.load(Relaxed);
            let looked = wire.socket_state();
            drop(wire);
            if written != idle.0 || !looked.half_closed {
                idle = (written, Instant::now());
            }
            if looked.reset || idle.1.elapsed() > PATIENCE {
                return;
            }
        }
    }

    /// Records that hyper has read the head of a request, which this content follows. Returns the head's request
    /// target; `None` is not expected.
    pub fn take_request_line(&self, content: ContentFraming) -> Option<RequestTarget> {
        self.asked.store(true, Relaxed);
        let mut request = self.request();
        request.content = Some(content);
        request.line.take()
    }

    /// Ignores poisoning: each change replaces one value, so a panic leaves no partial change.
    fn request(&self) -> MutexGuard<'_, PendingRequest> {
        self.request.lock()
    }

    /// After the last answer: reads and discards what the program still sends, until nothing has arrived for `silent`.
    /// Otherwise a reset could destroy the answer before the program reads it.
    pub async fn linger(&self, silent: Duration) {
        if !self.broken.load(Relaxed) && tcp::end_writing(&self.tcp).is_ok() {
            linger::read_off(&self.tcp, silent).await;
        }
    }

    /// Completes after `patience` if no head has arrived by then.
    pub async fn first_head_timeout(wire: Weak<Self>, patience: Duration) {
        sleep(patience).await;
        if wire.upgrade().is_none_or(|wire| wire.asked.load(Relaxed)) {
            std::future::pending().await
        }
    }

    /// Makes the connection end with a reset, because an incomplete answer must not look complete. Bytes that the
    /// kernel still holds are lost.
    pub fn reset_on_close(&self) {
        self.broken.store(true, Relaxed);
        // A socket that refuses this is gone already.
        _ = SockRef::from(&self.tcp).set_linger(Some(Duration::ZERO));
    }

    /// The state of the connection as known from the kernel.
    fn socket_state(&self) -> SocketState {
        let asked = pin!(self.tcp.ready(Interest::READABLE | Interest::ERROR));
        match asked.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(ready)) => {
                SocketState { reset: ready.is_error(), half_closed: ready.is_read_closed() }
            }
            Poll::Ready(Err(_)) => SocketState { reset: true, half_closed: true },
            Poll::Pending => SocketState { reset: false, half_closed: false },
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

struct SocketState {
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
        this.apply_framing()?;
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
                if this.heads.is_in_content() {
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
            this.pass_on_arrived()?;
            if this.behind.len() == before {
                // hyper wants more of a head that has ended: hyper and this parser disagree.
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
            // The drop that follows resets the connection.
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
    async fn only_a_connection_without_a_first_head_times_out() {
        let ((_slow, slow), (_quick, quick)) = (pair().await, pair().await);
        let (slow, quick) = (ClientIo::new(slow).0, ClientIo::new(quick).0);
        quick.wire().unwrap().take_request_line(ContentFraming::Length(0));
        tokio::time::pause();
        let (patience, long) = (Duration::from_secs(30), Duration::from_secs(300));
        assert!(timeout(long, Wire::first_head_timeout(slow.weak_wire(), patience)).await.is_ok());
        assert!(
            timeout(long, Wire::first_head_timeout(quick.weak_wire(), patience)).await.is_err()
        );
    }
}
