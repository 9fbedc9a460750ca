//! Cases 34 and 35: a half-closed connection, and a very slow reader.

use super::{
    host::Host,
    member::{BOTH, dial},
};
use socket2::SockRef;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use thalweg_net::Stream;
use thalweg_wire::mesh::LegKind;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::{sleep, timeout},
};

/// Longer than any wait, on the busiest machine.
const TIMEOUT: Duration = Duration::from_secs(60);

async fn text(from: &mut (impl tokio::io::AsyncRead + Unpin)) -> std::io::Result<String> {
    let mut text = String::new();
    from.read_to_string(&mut text).await.map(|_| text)
}

#[tokio::test(flavor = "multi_thread")]
async fn either_side_may_end_first_and_a_silent_half_is_reaped() {
    let fra = Host::founder();
    let mut fra_runs = fra.start_with("linger = \"1 s\"\n", None);
    let echo = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = echo.local_addr().unwrap().into();
    for leg in BOTH {
        // The client ends first, and is answered after that.
        let mut client = dial(&fra, &fra, leg, &to).await.unwrap();
        let (mut far, _) = echo.accept().await.unwrap();
        client.write_all(b"request").await.unwrap();
        client.shutdown().await.unwrap();
        assert_eq!(text(&mut far).await.unwrap(), "request");
        far.write_all(b"answer").await.unwrap();
        drop(far);
        assert_eq!(text(&mut client).await.unwrap(), "answer");
        drop(client);
        let line = fra_runs.log_until("event=closed");
        assert!(line.contains("up_bytes=7 down_bytes=6"), "{line}");

        // The far end ends first, and still receives.
        let mut client = dial(&fra, &fra, leg, &to).await.unwrap();
        let (mut far, _) = echo.accept().await.unwrap();
        far.write_all(b"banner").await.unwrap();
        far.shutdown().await.unwrap();
        assert_eq!(text(&mut client).await.unwrap(), "banner");
        client.write_all(b"late").await.unwrap();
        client.shutdown().await.unwrap();
        assert_eq!(text(&mut far).await.unwrap(), "late");
        fra_runs.log_until("event=closed");

        // A half-closed connection that carries nothing is reset at both ends.
        let mut client = dial(&fra, &fra, leg, &to).await.unwrap();
        let (mut far, _) = echo.accept().await.unwrap();
        client.shutdown().await.unwrap();
        assert_eq!(text(&mut far).await.unwrap(), "");
        let reaped = timeout(TIMEOUT, text(&mut client)).await.unwrap();
        assert!(reaped.is_err(), "it looked complete");
        assert!(fra_runs.log_until("event=broken").contains("half-closed and idle"));
    }
}

/// The number of idle connections that are reaped while the slow one is kept: each waits for the idle limit by the
/// relay's own clock.
const REAPED: usize = 4;

/// The attempts to fill a connection. On a busy machine, a connection may be reaped before its sender has filled it.
const TRIES: usize = 20;

/// A connection whose sender is blocked because its reader does not read, and the task that sends. `None` if the
/// connection was reaped before.
async fn filled(
    fra: &Host,
    leg: LegKind,
    data: &Arc<Vec<u8>>,
) -> Option<(Stream, JoinHandle<std::io::Result<TcpStream>>)> {
    let echo = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = echo.local_addr().unwrap().into();
    let written = Arc::new(AtomicUsize::new(0));
    let (sent, counter) = (Arc::clone(data), Arc::clone(&written));
    let sending = tokio::spawn(async move {
        let (mut far, _) = echo.accept().await?;
        SockRef::from(&far).set_send_buffer_size(64 * 1024)?;
        for piece in sent.chunks(64 * 1024) {
            far.write_all(piece).await?;
            counter.fetch_add(piece.len(), Ordering::Relaxed);
        }
        far.shutdown().await?;
        Ok(far)
    });
    let client = dial(fra, fra, leg, &to).await.unwrap();
    let mut before = 0;
    loop {
        // Each wait in which nothing was written is longer than a piece takes; a wrong guess is harmless.
        sleep(Duration::from_millis(500)).await;
        let now = written.load(Ordering::Relaxed);
        if sending.is_finished() {
            return None;
        }
        if now > 0 && now == before {
            return Some((client, sending));
        }
        before = now;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_at_a_kilobyte_a_second_is_kept_and_uses_no_memory() {
    let fra = Host::founder();
    let fra_runs = fra.start_with("idle = \"1 s\"\n", None);
    let data: Vec<u8> = (0..30_000_000u32).map(|i| (i % 251) as u8).collect();
    let data = Arc::new(data);
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent_at = silent.local_addr().unwrap().into();
    for leg in BOTH {
        let before = fra_runs.memory();
        let mut found = None;
        for _ in 0..TRIES {
            found = filled(&fra, leg, &data).await;
            if found.is_some() {
                break;
            }
        }
        let (mut client, sending) = found.expect("a connection that is filled");
        let mut got = Vec::new();
        for _ in 0..REAPED {
            let mut some = [0; 1000];
            client.read_exact(&mut some).await.unwrap();
            got.extend_from_slice(&some);
            let mut idle = dial(&fra, &fra, leg, &silent_at).await.unwrap();
            let (_far, _) = silent.accept().await.unwrap();
            _ = timeout(TIMEOUT, text(&mut idle)).await.expect("the idle one is reaped");
        }
        let more = fra_runs.memory().saturating_sub(before);
        assert!(more < 4_000_000, "{more} bytes are held for one reader");
        assert!(!sending.is_finished(), "all was taken in, or the connection was given up");
        client.read_to_end(&mut got).await.unwrap();
        assert!(got == **data, "{} bytes, or other ones", got.len());
        sending.await.unwrap().unwrap();
    }
}
