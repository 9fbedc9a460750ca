//! Cases 34 and 35: half a connection, and a reader that hardly reads.

use super::{
    host::Host,
    member::{BOTH, dial},
};
use socket2::SockRef;
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    time::{Instant, sleep, timeout},
};

/// Whatever is waited for comes sooner, on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(60);

async fn text(from: &mut (impl tokio::io::AsyncRead + Unpin)) -> std::io::Result<String> {
    let mut text = String::new();
    from.read_to_string(&mut text).await.map(|_| text)
}

#[tokio::test(flavor = "multi_thread")]
async fn either_side_may_end_first_and_what_then_is_silent_is_reaped() {
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

        // Half a connection that carries nothing is reset at both ends.
        let mut client = dial(&fra, &fra, leg, &to).await.unwrap();
        let (mut far, _) = echo.accept().await.unwrap();
        client.shutdown().await.unwrap();
        assert_eq!(text(&mut far).await.unwrap(), "");
        let reaped = timeout(PATIENCE, text(&mut client)).await.unwrap();
        assert!(reaped.is_err(), "it looked complete");
        assert!(fra_runs.log_until("event=broken").contains("half-closed and idle"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_at_a_kilobyte_a_second_is_kept_and_holds_no_memory() {
    let fra = Host::founder();
    let fra_runs = fra.start_with("idle = \"1 s\"\n", None);
    let data: Vec<u8> = (0..30_000_000u32).map(|i| (i % 251) as u8).collect();
    for leg in BOTH {
        let echo = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = echo.local_addr().unwrap().into();
        let mut client = dial(&fra, &fra, leg, &to).await.unwrap();
        let (mut far, _) = echo.accept().await.unwrap();
        SockRef::from(&far).set_send_buffer_size(64 * 1024).unwrap();
        let before = fra_runs.memory();
        let sent = data.clone();
        let sending = tokio::spawn(async move {
            far.write_all(&sent).await?;
            far.shutdown().await?;
            Ok::<_, std::io::Error>(far)
        });
        // Four times the idle limit, at 1 kB/s.
        let (mut got, begun) = (Vec::new(), Instant::now());
        while begun.elapsed() < Duration::from_secs(4) {
            let mut some = [0; 1000];
            client.read_exact(&mut some).await.unwrap();
            got.extend_from_slice(&some);
            sleep(Duration::from_secs(1)).await;
        }
        let more = fra_runs.memory().saturating_sub(before);
        assert!(more < 4_000_000, "{more} bytes are held for one reader");
        assert!(!sending.is_finished(), "all was taken in");
        client.read_to_end(&mut got).await.unwrap();
        assert!(got == data, "{} bytes, or other ones", got.len());
        sending.await.unwrap().unwrap();
    }
}
