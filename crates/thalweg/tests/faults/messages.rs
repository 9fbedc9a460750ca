//! Cases 30 and 32: disguised addresses, and clients that are too slow or send too much.

use super::{
    host::Host,
    member::{at, channel, dial},
};
use std::time::Duration;
use thalweg_wire::{
    Destination,
    mesh::{LegKind, Terms},
    socks5,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// The number of connections that never send a complete message.
const CROWD: usize = 300;

/// The permitted memory, bytes: more than the noise of the kernel's buffers.
const MEMORY: u64 = 30_000_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_disguised_address_is_denied_and_logged() {
    let fra = Host::founder();
    let mut fra_runs = fra.start_under("", None);
    for (to, kind) in [
        ("localhost:80", "loopback"),
        ("127.0.0.1:80", "loopback"),
        ("[::1]:443", "loopback"),
        ("[::ffff:127.0.0.1]:80", "IPv4-mapped"),
        ("[::ffff:8.8.8.8]:80", "IPv4-mapped"),
        ("[64:ff9b::7f00:1]:80", "NAT64"),
        ("[64:ff9b::8.8.8.8]:80", "NAT64"),
        ("[2002:7f00:1::1]:80", "6to4"),
        ("169.254.169.254:80", "cloud metadata"),
        ("[fd00:ec2::254]:80", "cloud metadata"),
        ("100.64.0.1:443", "carrier NAT"),
        ("10.1.2.3:443", "private"),
        ("0.0.0.0:80", "unspecified"),
    ] {
        let to: Destination = to.parse().unwrap();
        let error = dial(&fra, &fra, LegKind::Sealed, &to).await.unwrap_err().to_string();
        assert!(error.contains("not allowed by the relay's rules"), "{to}: {error}");
        let line = fra_runs.log_until("event=refused");
        assert!(line.contains(&format!("to={to}")), "{to}: {line}");
        assert!(line.contains("reason=address_class"), "{kind}: {line}");
        assert!(line.contains(&format!(" is a {kind} address")), "{to}: not {kind}: {line}");
    }
}

/// Reads until the relay closes the connection. Returns the number of bytes.
async fn to_its_end(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> usize {
    let mut got = Vec::new();
    _ = stream.read_to_end(&mut got).await;
    got.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_handshakes_are_closed_and_members_are_served() {
    let fra = Host::founder();
    let fra_runs = fra.start_with("handshake = \"2 s\"\n", None);
    let before = fra_runs.memory();
    let mut crowd = Vec::new();
    for _ in 0..CROWD {
        let mut tcp = TcpStream::connect(at(&fra)).await.unwrap();
        // The beginning of a ClientHello that never ends.
        tcp.write_all(b"\x16\x03\x01\x02\x00\x01").await.unwrap();
        crowd.push(tcp);
    }
    let echo = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = echo.local_addr().unwrap().into();
    dial(&fra, &fra, LegKind::Sealed, &to).await.unwrap();
    let more = fra_runs.memory().saturating_sub(before);
    assert!(more < MEMORY, "{more} bytes for {CROWD}");
    for tcp in &mut crowd {
        assert_eq!(to_its_end(tcp).await, 0);
    }
}

/// Messages inside a channel that the relay must refuse, with a description.
fn bad_messages() -> Vec<(&'static str, Vec<u8>)> {
    let terms = Terms::default().encode();
    let connect = socks5::encode_connect(&Destination::new("name.test", 80).unwrap());
    let good = [&[5, 1, 0x80][..], &terms, &connect].concat();
    let mut all: Vec<_> = (1..good.len()).map(|n| ("truncated", good[..n].to_vec())).collect();
    all.push(("no SOCKS", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()));
    all.push(("SOCKS4", b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00".to_vec()));
    all.push(("only methods that nobody has", [&[5, 255][..], &[7; 255]].concat()));
    all.push(("BIND", b"\x05\x01\x00\x05\x02\x00\x01\x01\x02\x03\x04\x00\x50".to_vec()));
    all.push(("a name of no bytes", b"\x05\x01\x00\x05\x01\x00\x03\x00\x00\x50".to_vec()));
    all.push(("a megabyte of 0xff", vec![0xff; 1 << 20]));
    all.push(("a megabyte after terms", [&[5, 1, 0x80][..], &vec![0xff; 1 << 20]].concat()));
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn oversize_and_truncated_messages_end_the_channel_with_few_bytes() {
    let fra = Host::founder();
    let mut fra_runs = fra.start();
    let before = fra_runs.memory();
    let all = bad_messages();
    assert!(all.len() > 20);
    for (what, bytes) in &all {
        let mut channel = channel(&fra, &fra).await;
        // The relay may hang up before it has read everything.
        _ = channel.write_all(bytes).await;
        _ = channel.shutdown().await;
        let got = to_its_end(&mut channel).await;
        assert!(got <= 12, "{what}: {got} bytes");
        let line = fra_runs.log_until("event=refused");
        assert!(line.contains("reason="), "{what}: {line}");
    }
    let more = fra_runs.memory().saturating_sub(before);
    assert!(more < MEMORY, "{more} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_without_a_request_is_closed_at_the_deadline() {
    let fra = Host::founder();
    let mut fra_runs = fra.start_with("handshake = \"500 ms\"\n", None);
    for beginning in [&b""[..], b"\x05", b"\x05\x01\x80"] {
        let mut channel = channel(&fra, &fra).await;
        channel.write_all(beginning).await.unwrap();
        channel.flush().await.unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(60), to_its_end(&mut channel));
        assert_eq!(ended.await.unwrap(), 0, "{beginning:?}");
        fra_runs.log_until("event=refused");
    }
}
