//! Reads and discards content that is no longer wanted, so that its sender receives the answer (lingering close).
//!
//! A program that sends all of its content before it reads loses its answer if the connection is closed meanwhile,
//! because data for a closed socket resets the connection. So servers close in stages (RFC 9112 §9.6), and a proxy does
//! so towards the program, however the origin's connection ended. What is read is discarded, and the time is bounded.
//! nginx has 30 s (`lingering_time`) and 5 s (`lingering_timeout`); these limits are twice as long, for programs that
//! are slow in making what they send.

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use socket2::SockRef;
use std::{io, mem::MaybeUninit, time::Duration};
use tokio::{io::Interest, net::TcpStream, time::timeout};

/// The longest time that discarding takes in total.
const MAX_TIME: Duration = Duration::from_secs(60);

/// The longest time without a byte.
pub const SILENT: Duration = Duration::from_secs(10);

/// The longest time without a byte once the proxy shuts down.
pub const STOPPING: Duration = Duration::from_millis(200);

/// Bytes that are read at once.
const READ_SIZE: usize = 64 << 10;

/// Reads a connection until the program closes its direction, or nothing has arrived for `silent`. The proxy's
/// direction is closed already.
pub async fn read_off(tcp: &TcpStream, silent: Duration) {
    let all = async { while let Ok(Ok(1..)) = timeout(silent, piece(tcp)).await {} };
    // What arrives later resets the connection.
    _ = timeout(MAX_TIME, all).await;
}

/// Reads and discards one piece; returns its length, 0 at the end.
async fn piece(tcp: &TcpStream) -> io::Result<usize> {
    tcp.async_io(Interest::READABLE, || {
        let mut unwanted = [MaybeUninit::uninit(); READ_SIZE];
        SockRef::from(tcp).recv(&mut unwanted)
    })
    .await
}

/// Reads a request's content to its end, so that the connection can be used again.
pub async fn read_off_content(mut content: Incoming) {
    let all = async { while let Ok(Some(Ok(_))) = timeout(SILENT, content.frame()).await {} };
    _ = timeout(MAX_TIME, all).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{
        io::AsyncWriteExt as _,
        net::TcpListener,
        time::{Instant, pause, sleep},
    };

    /// Both ends of a connection.
    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn a_program_that_never_ends_holds_its_place_for_a_bounded_time() {
        let ((near, mut far), (idle, _silent)) = (pair().await, pair().await);
        pause();
        let trickling = async {
            loop {
                far.write_all(&[7; 1000]).await.unwrap();
                sleep(SILENT / 2).await;
            }
        };
        let began = Instant::now();
        tokio::select! { () = read_off(&near, SILENT) => {}, () = trickling => {} }
        assert!((MAX_TIME..MAX_TIME + SILENT).contains(&began.elapsed()), "{:?}", began.elapsed());
        let began = Instant::now();
        read_off(&idle, SILENT).await;
        assert!((SILENT..MAX_TIME).contains(&began.elapsed()), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_program_that_ends_is_done_at_once() {
        let (near, mut far) = pair().await;
        far.write_all(&[7; 200_000]).await.unwrap();
        drop(far);
        pause();
        let began = Instant::now();
        read_off(&near, SILENT).await;
        assert!(began.elapsed() < SILENT);
    }
}
