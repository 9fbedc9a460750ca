//! Moves bytes between a local program and a stream through the mesh.

use socket2::SockRef;
use std::{
    io,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes},
    net::TcpStream,
    time::{MissedTickBehavior, interval},
};

/// Bytes held of one direction: a TLS record.
const CHUNK: usize = 16 * 1024;

/// Moves bytes until both directions have ended; the end of one is passed on as such.
///
/// Whatever goes wrong resets the program's connection, so that it never takes a
/// truncated stream for a complete one; the other side is closed without `close_notify`.
/// Given up after `idle` without a byte in either direction.
///
/// # Errors
/// What broke it; `TimedOut` for idleness.
pub async fn carry<S>(client: TcpStream, stream: S, idle: Duration) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let moved = Arc::new(AtomicU64::new(0));
    let mut client = Counted { inner: client, moved: Arc::clone(&moved) };
    let mut stream = stream;
    let done = {
        let copying = copy_bidirectional_with_sizes(&mut client, &mut stream, CHUNK, CHUNK);
        tokio::select! {
            done = copying => done.map(|_| ()),
            e = gone_idle(&moved, idle) => Err(e),
        }
    };
    if done.is_err() {
        // A socket that refuses this is already gone.
        _ = SockRef::from(&client.inner).set_linger(Some(Duration::ZERO));
    }
    done
}

/// Ends when nothing has moved for so long.
async fn gone_idle(moved: &AtomicU64, idle: Duration) -> io::Error {
    let mut ticks = interval((idle / 4).max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut last, mut since) = (0, Instant::now());
    loop {
        ticks.tick().await;
        let now = moved.load(Ordering::Relaxed);
        if now != last {
            (last, since) = (now, Instant::now());
        } else if since.elapsed() >= idle {
            return io::Error::new(io::ErrorKind::TimedOut, "idle");
        }
    }
}

/// Counts what is read and written.
struct Counted<S> {
    inner: S,
    moved: Arc<AtomicU64>,
}

impl<S> Counted<S> {
    fn count(&self, n: usize) {
        self.moved.fetch_add(n as u64, Ordering::Relaxed);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = pin!(&mut self.inner).poll_read(cx, buf);
        self.count(buf.filled().len() - before);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = pin!(&mut self.inner).poll_write(cx, buf);
        if let Poll::Ready(Ok(n)) = &polled {
            self.count(*n);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        pin!(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        pin!(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, duplex},
        net::TcpListener,
    };

    const LONG: Duration = Duration::from_secs(3600);

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dialled = TcpStream::connect(listener.local_addr().unwrap());
        let (program, accepted) = tokio::join!(dialled, listener.accept());
        (program.unwrap(), accepted.unwrap().0)
    }

    #[tokio::test]
    async fn half_a_connection_goes_on_when_the_other_half_has_ended() {
        let ((mut program, client), (stream, mut far)) = (pair().await, duplex(64));
        let carrying = tokio::spawn(carry(client, stream, LONG));
        program.write_all(b"request").await.unwrap();
        program.shutdown().await.unwrap();
        let mut text = String::new();
        far.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "request");
        far.write_all(&[7; 1000]).await.unwrap();
        drop(far);
        let mut got = Vec::new();
        program.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, [7; 1000]);
        carrying.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_break_beyond_resets_the_program() {
        let (mut program, client) = pair().await;
        let (stream, far) = pair().await;
        SockRef::from(&far).set_linger(Some(Duration::ZERO)).unwrap();
        drop(far);
        assert!(carry(client, stream, LONG).await.is_err());
        let e = program.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn silence_ends_it() {
        let ((mut program, client), (stream, _far)) = (pair().await, duplex(64));
        let e = carry(client, stream, Duration::from_millis(20)).await.unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::TimedOut);
        assert!(program.read(&mut [0; 1]).await.is_err());
    }
}
