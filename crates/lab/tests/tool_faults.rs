//! The server and the relay with injected faults: the named fault happens, and no other.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod tool_support;

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::TcpStream,
};
use tempfile::TempDir;
use tool_support::{ServerTool, run_failing};

const LENGTH: usize = 400_000;

fn content(seed: u32) -> Vec<u8> {
    (0..LENGTH as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 24) as u8)
        .collect()
}

fn serve() -> (TempDir, ServerTool) {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("a"), content(1)).unwrap();
    fs::write(dir.path().join("a.next"), content(1 << 30)).unwrap();
    let directory = dir.path().to_str().unwrap().to_owned();
    let server = ServerTool::start(&["web-faults", &directory, "--listen", "127.0.0.1:0"]);
    (dir, server)
}

/// The received answer, and whether the connection was reset.
#[derive(Debug)]
struct FaultAnswer {
    head: String,
    body: Vec<u8>,
    reset: bool,
}

impl FaultAnswer {
    fn status(&self) -> u16 {
        self.head.split(' ').nth(1).unwrap().parse().unwrap()
    }

    fn field(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|l| l.split_once(": "));
        lines.filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v).next()
    }
}

fn read(mut stream: TcpStream) -> FaultAnswer {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 10_000]);
    let reset = loop {
        match stream.read(&mut buffer) {
            Ok(0) => break false,
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
            Err(e) => break e.kind() == ErrorKind::ConnectionReset,
        }
    };
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    FaultAnswer { head, body: bytes[end + 4..].to_vec(), reset }
}

fn request(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{fields}\r\n")
}

fn ask(server: &ServerTool, path: &str, fields: &str) -> FaultAnswer {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.write_all(request(path, fields).as_bytes()).unwrap();
    read(stream)
}

#[test]
fn without_a_fault_the_server_is_correct() {
    let (_dir, server) = serve();
    let content = content(1);
    let whole = ask(&server, "/honest/a", "");
    assert!(whole.status() == 200 && whole.body == content && !whole.reset);
    let tag = whole.field("etag").unwrap().to_owned();
    let part = ask(&server, "/honest/a", &format!("Range: bytes=10-99\r\nIf-Match: {tag}\r\n"));
    assert_eq!((part.status(), &part.body[..]), (206, &content[10..100]));
    assert_eq!(part.field("content-range"), Some("bytes 10-99/400000"));
    let list = ask(&server, "/honest/a", "Range: bytes=0-0,-1\r\n");
    let (first, last) = (char::from(content[0]), content[LENGTH - 1]);
    let text = String::from_utf8_lossy(&list.body);
    assert!(text.contains(&format!("bytes 0-0/400000\r\n\r\n{first}")) || first > '\x7f');
    assert!(list.body.contains(&last) && text.contains("bytes 399999-399999/400000"), "{text}");
    assert_eq!(ask(&server, "/honest/a", "If-Match: \"x\"\r\n").status(), 412);
    assert_eq!(ask(&server, "/honest/a", "Range: bytes=400000-\r\n").status(), 416);
    assert_eq!(ask(&server, "/honest/b", "").status(), 400);
    assert_eq!(ask(&server, "/honest/../a", "").status(), 400);
    assert_eq!(ask(&server, "/nonsense/a", "").status(), 400);
}

#[test]
fn wrong_lengths_are_injected() {
    let (_dir, server) = serve();
    let range = "Range: bytes=0-999\r\n";
    let early = ask(&server, "/short=10/a", range);
    assert_eq!((early.field("content-length"), early.body.len()), (Some("1000"), 990));
    let longer = ask(&server, "/long=10/a", range);
    assert_eq!((longer.field("content-length"), longer.body.len()), (Some("1000"), 1010));
    let differs = ask(&server, "/length=10x1/a", range);
    assert_eq!((differs.field("content-length"), differs.body.len()), (Some("990"), 990));
    assert_eq!(differs.field("content-range"), Some("bytes 0-999/400000"));
    assert_eq!(ask(&server, "/length=10x1/a", range).body.len(), 1000, "only once");
    let whole = ask(&server, "/ignore-range,no-validator/a", range);
    assert_eq!((whole.status(), whole.body.len(), whole.field("etag")), (200, LENGTH, None));
}

#[test]
fn busy_answers_follow_the_first_request_as_often_as_given() {
    let (_dir, server) = serve();
    let statuses = |url: &str| [(); 4].map(|()| ask(&server, url, "").status());
    assert_eq!(statuses("/busy=429:7x2/a"), [200, 429, 429, 200]);
    assert_eq!(statuses("/busy=503/a"), [200, 503, 503, 503]);
    let url = "/busy=429:7x2/a?again";
    ask(&server, url, "");
    assert_eq!(ask(&server, url, "").field("retry-after"), Some("7"));
    let counts = ask(&server, &format!("/counts{url}"), "").body;
    let counts: serde_json::Value = serde_json::from_slice(&counts).unwrap();
    assert_eq!((&counts["requests"], &counts["refused"]), (&2.into(), &1.into()));
    assert_eq!(counts["bytes"], LENGTH);
}

#[test]
fn connections_are_reset_at_the_given_byte() {
    let (_dir, server) = serve();
    let first = ask(&server, "/reset@0.75/a", "");
    assert!(first.reset && first.body.len() <= 300_000);
    assert_eq!(ask(&server, "/reset@0.75/a", "").body.len(), LENGTH, "only once");
    // A range without that byte is not affected.
    let other = ask(&server, "/reset@0.75/a?other", "Range: bytes=0-99\r\n");
    assert!(!other.reset && other.body.len() == 100);
}

#[test]
fn the_file_changes_after_the_given_number_of_bytes() {
    let (_dir, server) = serve();
    let before = ask(&server, "/change@100000/a", "");
    assert!(before.reset && before.body.len() < LENGTH);
    assert!(content(1).starts_with(&before.body));
    let after = ask(&server, "/change@100000/a", "");
    assert!(!after.reset && after.body == content(1 << 30));
    assert_ne!(before.field("etag"), after.field("etag"));
}

/// Requests the whole file through a relay without SOCKS.
fn relayed(fault: &[&str]) -> (Vec<u8>, bool) {
    let (_dir, server) = serve();
    let args = ["relay-faults", "--listen", "127.0.0.1:0", "--to", &server.address];
    let relay = ServerTool::start(&[&args[..], fault].concat());
    let answer = ask(&relay, "/honest/a", "");
    (answer.body, answer.reset)
}

#[test]
fn a_relay_flips_one_bit() {
    let (body, _) = relayed(&["--corrupt-at", "200 kB"]);
    let wrong: Vec<_> =
        content(1).iter().zip(&body).map(|(a, b)| a ^ b).filter(|x| *x != 0).collect();
    assert_eq!((body.len(), wrong), (LENGTH, vec![1]));
}

#[test]
fn a_relay_resets_the_connection() {
    let (body, reset) = relayed(&["--reset-after", "200 kB"]);
    assert!(reset && body.len() < 200_000);
}

#[test]
fn a_relay_stalls_and_the_connection_stays() {
    let (_dir, server) = serve();
    let relay =
        ServerTool::start(&["relay-faults", "--listen", "127.0.0.1:0", "--stall-after", "200 kB"]);
    let mut stream = TcpStream::connect(&relay.address).unwrap();
    // SOCKS5, no authentication, CONNECT to the server.
    let address: std::net::SocketAddrV4 = server.address.parse().unwrap();
    let mut words = vec![5, 1, 0, 5, 1, 0, 1];
    words.extend(address.ip().octets());
    words.extend(address.port().to_be_bytes());
    stream.write_all(&words).unwrap();
    let mut said = [0; 12];
    stream.read_exact(&mut said).unwrap();
    assert_eq!(said[..4], [5, 0, 5, 0]);
    stream.write_all(request("/honest/a", "").as_bytes()).unwrap();
    let mut some = vec![0; 150_000];
    stream.read_exact(&mut some).unwrap();
    // No bytes arrive, but the connection is neither closed nor reset.
    stream.set_read_timeout(Some(std::time::Duration::from_millis(300))).unwrap();
    let error = loop {
        match stream.read(&mut some) {
            Ok(n) => assert!(n > 0, "it ended"),
            // With a timeout the kernel does not restart the call after the process was stopped.
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => break e.kind(),
        }
    };
    assert!(matches!(error, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
}

#[test]
fn invalid_arguments_are_explained() {
    assert!(
        run_failing(&["web-faults", "/dev/null/site", "--listen", "127.0.0.1:0"])
            .contains("not a directory")
    );
    assert!(run_failing(&["relay-faults", "--listen", "127.0.0.1:0"]).contains("--corrupt-at"));
}
