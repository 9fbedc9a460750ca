//! Tests of servers that deviate from HTTP, each written out byte by byte: a file that a plain `GET` delivers is
//! delivered, with the bytes of one version, and a cut or mixed file is not. Decision 0090 draws the line.
//!
//! If curl is installed, it fetches the same URLs, so that the tables claim no more than is true.

use crate::{Trial, server::Version};
use std::{
    net::SocketAddr,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// More than the first answer holds, and more than a few short answers hold.
const LENGTH: usize = 1 << 20;

/// A request.
struct Ask {
    target: String,
    /// The lines of its head, in lower case.
    head: String,
    /// The number of requests before it.
    number: usize,
    /// The requested range, cut to the file.
    range: Option<(usize, usize)>,
}

impl Ask {
    fn read(head: &str, number: usize) -> Self {
        let target = head.split(' ').nth(1).unwrap_or("/").to_owned();
        let head = head.to_ascii_lowercase();
        let range = head.split("range: bytes=").nth(1).and_then(|r| r.split("\r\n").next());
        let range = range.and_then(|r| {
            let (a, b) = r.split_once('-')?;
            Some((a.parse().ok()?, b.parse::<usize>().map_or(LENGTH, |b| b + 1).min(LENGTH)))
        });
        Self { target, head, number, range }
    }

    /// Whether the requested range starts after byte 0.
    fn is_later(&self) -> bool {
        self.range.is_some_and(|(a, _)| a > 0)
    }

    fn has(&self, field: &str) -> bool {
        self.head.contains(&format!("\r\n{field}:"))
    }
}

/// An answer: a head with its final empty line, a body, and whether the connection then stays open, closes or is reset;
/// or no answer at all.
enum Reply {
    Send(String, Vec<u8>),
    SendAndClose(String, Vec<u8>),
    Reset,
    Hang,
}
use Reply::{Hang, Reset, Send, SendAndClose};

type Answer = fn(&Ask, &[u8]) -> Reply;

/// A server that answers every request with `answer` from `data`.
struct Raw {
    address: SocketAddr,
    asks: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Raw {
    async fn start(answer: Answer, data: Arc<[u8]>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (asks, mut tasks) = (Arc::<AtomicUsize>::default(), JoinSet::new());
        let count = Arc::clone(&asks);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                connections.spawn(serve(tcp, answer, Arc::clone(&data), Arc::clone(&count)));
            }
        });
        Self { address, asks, _tasks: tasks }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

async fn serve(mut tcp: TcpStream, answer: Answer, data: Arc<[u8]>, asks: Arc<AtomicUsize>) {
    let mut read = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = read.windows(4).position(|w| w == b"\r\n\r\n") {
                break end + 4;
            }
            match tcp.read_buf(&mut read).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        };
        let head: Vec<u8> = read.drain(..end).collect();
        let ask = Ask::read(&String::from_utf8_lossy(&head), asks.fetch_add(1, Ordering::SeqCst));
        let (head, body, goes_on) = match answer(&ask, &data) {
            Send(head, body) => (head, body, true),
            SendAndClose(head, body) => (head, body, false),
            Hang => return std::future::pending().await,
            Reset => {
                _ = tcp.set_zero_linger();
                return;
            }
        };
        // Each character of the head is sent as one byte, so that both Latin-1 and UTF-8 can be written here.
        let head: Vec<u8> = head.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
        if tcp.write_all(&head).await.is_err() || tcp.write_all(&body).await.is_err() || !goes_on {
            return;
        }
    }
}

/// A head with these lines and the length of the body, unless that is `None`.
fn head(status: &str, lines: &[&str], length: Option<usize>) -> String {
    let length = length.map_or(String::new(), |n| format!("Content-Length: {n}\r\n"));
    let lines: String = lines.iter().map(|l| format!("{l}\r\n")).collect();
    format!("HTTP/1.1 {status}\r\n{lines}{length}\r\n")
}

fn status(status: &str) -> Reply {
    Send(head(status, &[], Some(0)), Vec::new())
}

fn whole(data: &[u8], lines: &[&str]) -> Reply {
    Send(head("200 OK", lines, Some(data.len())), data.to_vec())
}

/// Bytes `a..b` of `data`, with this Content-Range.
fn part(data: &[u8], (a, b): (usize, usize), range: &str, lines: &[&str]) -> Reply {
    let range = format!("Content-Range: {range}");
    let lines: Vec<&str> = lines.iter().copied().chain([range.as_str()]).collect();
    Send(head("206 Partial Content", &lines, Some(b - a)), data[a..b].to_vec())
}

const TAG: &str = "ETag: \"v1\"";

/// The answer of an ordinary server, with these additional lines.
fn good(ask: &Ask, data: &[u8], lines: &[&str]) -> Reply {
    match ask.range {
        Some((a, _)) if a >= data.len() => {
            let range = format!("Content-Range: bytes */{}", data.len());
            Send(head("416 No", &[&range], Some(0)), Vec::new())
        }
        Some((a, b)) => part(data, (a, b), &format!("bytes {a}-{}/{LENGTH}", b - 1), lines),
        None => whole(data, lines),
    }
}

/// Answers ranges with `reply`, and plain requests with the file.
fn to_ranges(ask: &Ask, data: &[u8], reply: impl Fn(usize, usize) -> Reply) -> Reply {
    match ask.range {
        Some((a, b)) => reply(a, b),
        None => whole(data, &[TAG]),
    }
}

/// Answers later ranges with `reply`, and everything else correctly.
fn later(ask: &Ask, data: &[u8], reply: impl Fn(usize, usize) -> Reply) -> Reply {
    match ask.range {
        Some((a, b)) if ask.is_later() => reply(a, b),
        _ => good(ask, data, &[TAG]),
    }
}

/// The correct Content-Range of `a..b`.
fn of(a: usize, b: usize) -> String {
    format!("bytes {a}-{}/{LENGTH}", b - 1)
}

/// Answers with at most `most` bytes.
fn clamped(ask: &Ask, data: &[u8], most: usize) -> Reply {
    to_ranges(ask, data, |a, b| part(data, (a, b.min(a + most)), &of(a, b.min(a + most)), &[TAG]))
}

/// Keeps only the first `n` bytes of the body.
fn cut(reply: Reply, n: usize) -> Reply {
    match reply {
        Send(head, body) => SendAndClose(head, body[..n.min(body.len())].to_vec()),
        other => other,
    }
}

/// Breaks off each range before byte `place` of the file.
fn torn(ask: &Ask, data: &[u8], place: usize) -> Reply {
    to_ranges(ask, data, |a, b| cut(part(data, (a, b), &of(a, b), &[TAG]), place.saturating_sub(a)))
}

/// Servers whose ranges are of little or no use.
const RANGES: &[(&str, Answer)] = &[
    ("400", |a, d| to_ranges(a, d, |_, _| status("400 No"))),
    ("403", |a, d| to_ranges(a, d, |_, _| status("403 No"))),
    ("404", |a, d| to_ranges(a, d, |_, _| status("404 No"))),
    ("405", |a, d| to_ranges(a, d, |_, _| status("405 No"))),
    ("416", |a, d| to_ranges(a, d, |_, _| status("416 No"))),
    ("500", |a, d| to_ranges(a, d, |_, _| status("500 No"))),
    ("503", |a, d| to_ranges(a, d, |_, _| status("503 No"))),
    ("reset", |a, d| to_ranges(a, d, |_, _| Reset)),
    ("closed", |a, d| to_ranges(a, d, |_, _| SendAndClose(String::new(), Vec::new()))),
    ("no http", |a, d| to_ranges(a, d, |_, _| SendAndClose("what?\r\n\r\n".into(), Vec::new()))),
    ("login", |a, d| match a.target.starts_with("/login") {
        true => Send(head("200 OK", &["Content-Type: text/html"], Some(6)), b"<html>".to_vec()),
        false => to_ranges(a, d, |_, _| {
            Send(head("302 Found", &["Location: /login?to=f"], Some(0)), Vec::new())
        }),
    }),
    ("page", |a, d| {
        to_ranges(a, d, |_, _| {
            Send(head("200 OK", &["Content-Type: text/html"], Some(6)), b"<html>".to_vec())
        })
    }),
    ("login in ranges", |a, d| match a.target.starts_with("/login") {
        true => Send(
            head("206 OK", &["Content-Type: text/html", "Content-Range: bytes 0-5/6"], Some(6)),
            b"<html>".to_vec(),
        ),
        false => to_ranges(a, d, |_, _| {
            Send(head("302 Found", &["Location: /login?to=f"], Some(0)), Vec::new())
        }),
    }),
    ("page in ranges", |a, d| {
        to_ranges(a, d, |_, _| {
            let lines = ["Content-Type: text/html", "Content-Range: bytes 0-5/6"];
            Send(head("206 OK", &lines, Some(6)), b"<html>".to_vec())
        })
    }),
    ("loop", |a, d| {
        to_ranges(a, d, |_, _| Send(head("302 Found", &["Location: /f.bin"], Some(0)), Vec::new()))
    }),
    ("long ranges", |a, d| {
        to_ranges(a, d, |x, y| match y - x > 300_000 {
            true => status("403 No"),
            false => part(d, (x, y), &of(x, y), &[TAG]),
        })
    }),
    ("later 503", |a, d| later(a, d, |_, _| status("503 No"))),
    ("later 404", |a, d| later(a, d, |_, _| status("404 No"))),
    ("later reset", |a, d| later(a, d, |_, _| Reset)),
    ("later 200", |a, d| later(a, d, |_, _| whole(d, &[TAG]))),
    ("200 first", |a, d| if a.number == 0 { whole(d, &[TAG]) } else { good(a, d, &[TAG]) }),
    ("206 once", |a, d| if a.number == 0 { good(a, d, &[TAG]) } else { whole(d, &[TAG]) }),
    ("torn at once", |a, d| torn(a, d, 0)),
    ("torn always at one place", |a, d| torn(a, d, 10_000)),
    ("later torn", |a, d| later(a, d, |x, y| cut(part(d, (x, y), &of(x, y), &[TAG]), 0))),
    ("clamp 1", |a, d| clamped(a, d, 1)),
    ("clamp 100000", |a, d| clamped(a, d, 100_000)),
    ("clamp 255999", |a, d| clamped(a, d, 255_999)),
    ("clamp 256000", |a, d| clamped(a, d, 256_000)),
    ("clamp 524288", |a, d| clamped(a, d, 524_288)),
    ("later clamp 1", |a, d| later(a, d, |x, _| part(d, (x, x + 1), &of(x, x + 1), &[TAG]))),
    ("no total", |a, d| {
        to_ranges(a, d, |x, y| part(d, (x, y), &format!("bytes {x}-{}/*", y - 1), &[TAG]))
    }),
    ("later no total", |a, d| {
        later(a, d, |x, y| part(d, (x, y), &format!("bytes {x}-{}/*", y - 1), &[TAG]))
    }),
    ("total of the part", |a, d| {
        to_ranges(a, d, |x, y| part(d, (x, y), &format!("bytes {x}-{}/{}", y - 1, y), &[TAG]))
    }),
    ("later total of the part", |a, d| {
        later(a, d, |x, y| part(d, (x, y), &format!("bytes {x}-{}/{}", y - 1, y - x), &[TAG]))
    }),
    ("total of a short part", |a, d| {
        to_ranges(a, d, |x, y| {
            let y = y.min(x + 100_000);
            part(d, (x, y), &format!("bytes {x}-{}/{y}", y - 1), &[TAG])
        })
    }),
    ("never", |a, d| to_ranges(a, d, |_, _| Hang)),
    ("total grows", |a, d| {
        to_ranges(a, d, |x, y| {
            part(d, (x, y), &format!("bytes {x}-{}/{}", y - 1, LENGTH + a.number), &[TAG])
        })
    }),
    ("overlong", |a, d| to_ranges(a, d, |x, _| part(d, (x, LENGTH), &of(x, LENGTH), &[TAG]))),
    ("one more", |a, d| {
        to_ranges(a, d, |x, y| {
            let y = (y + 1).min(LENGTH);
            part(d, (x, y), &of(x, y), &[TAG])
        })
    }),
    ("misaligned", |a, d| to_ranges(a, d, |x, y| part(d, (x + 1, y), &of(x + 1, y), &[TAG]))),
    ("the whole as 206", |a, d| {
        to_ranges(a, d, |_, _| part(d, (0, LENGTH), &of(0, LENGTH), &[TAG]))
    }),
    ("no Content-Range", |a, d| {
        to_ranges(a, d, |x, y| Send(head("206 OK", &[TAG], Some(y - x)), d[x..y].to_vec()))
    }),
    ("two Content-Ranges", |a, d| {
        to_ranges(a, d, |x, y| part(d, (x, y), &of(x, y), &[TAG, "Content-Range: bytes 0-1/2"]))
    }),
    ("one Content-Range twice", |a, d| {
        to_ranges(a, d, |x, y| {
            let range = format!("Content-Range: {}", of(x, y));
            part(d, (x, y), &of(x, y), &[TAG, &range])
        })
    }),
    ("no unit", |a, d| {
        to_ranges(a, d, |x, y| part(d, (x, y), &format!("{x}-{}/{LENGTH}", y - 1), &[TAG]))
    }),
    ("wrong length", |a, d| to_ranges(a, d, |x, y| part(d, (x, y - 1), &of(x, y), &[TAG]))),
    ("multipart", |a, d| {
        to_ranges(a, d, |x, y| {
            let before = format!("--x\r\nContent-Range: {}\r\n\r\n", of(x, y));
            let body = [before.as_bytes(), &d[x..y], b"\r\n--x--\r\n"].concat();
            let kind = "Content-Type: multipart/byteranges; boundary=x";
            Send(head("206 OK", &[TAG, kind], Some(body.len())), body)
        })
    }),
    ("identity is refused", |a, d| match a.has("accept-encoding") {
        true => status("406 No"),
        false => good(a, d, &[TAG]),
    }),
    ("identity and ranges are refused", |a, d| match a.has("accept-encoding") {
        true => status("500 No"),
        false => to_ranges(a, d, |_, _| status("403 No")),
    }),
    ("the digest of the part", |a, d| {
        to_ranges(a, d, |x, y| {
            part(
                d,
                (x, y),
                &of(x, y),
                &[TAG, "Repr-Digest: sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:"],
            )
        })
    }),
    ("206 for all", |a, d| match a.range {
        Some(_) => status("400 No"),
        None => Send(head("206 OK", &[TAG], Some(LENGTH)), d.to_vec()),
    }),
];

/// Servers whose versions prove nothing.
const VERSIONS: &[(&str, Answer)] = &[
    ("If-Match never holds", |a, d| match a.has("if-match") {
        true => Send(head("412 No", &["ETag: \"x\""], Some(0)), Vec::new()),
        false => good(a, d, &[TAG]),
    }),
    ("If-Unmodified-Since never holds", |a, d| match a.has("if-unmodified-since") {
        true => status("412 No"),
        false => good(a, d, &["Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT"]),
    }),
    ("nodes", |a, d| {
        let tag = format!("ETag: \"node{}\"", a.number % 3);
        let other = a.has("if-match") && !a.head.contains(&tag.to_ascii_lowercase()[6..]);
        if other { status("412 No") } else { good(a, d, &[&tag]) }
    }),
    ("a tag per answer", |a, d| good(a, d, &[&format!("ETag: \"{}\"", a.number)])),
    ("a weak tag per answer", |a, d| good(a, d, &[&format!("ETag: W/\"{}\"", a.number)])),
    ("a date per answer", |a, d| {
        good(a, d, &[&format!("Last-Modified: Mon, 01 Jan 2024 00:00:{:02} GMT", a.number % 60)])
    }),
    ("a tag that comes and goes", |a, d| good(a, d, if a.number % 2 == 0 { &[TAG] } else { &[] })),
    ("a second tag later", |a, d| {
        good(a, d, if a.number == 0 { &[TAG] } else { &[TAG, "ETag: \"2\""] })
    }),
    ("one tag twice", |a, d| good(a, d, &[TAG, TAG])),
    ("no version", |a, d| good(a, d, &[])),
    ("a coding that comes later", |a, d| {
        good(a, d, if a.is_later() { &[TAG, "Content-Encoding: gzip"] } else { &[TAG] })
    }),
];

/// Heads and framing that deviate, or are merely rare.
const HEADS: &[(&str, Answer)] = &[
    ("folded", |a, d| good(a, d, &[TAG, "X-A: b\r\n c\r\n\td"])),
    ("folded at once", |a, d| good(a, d, &[TAG, "X-A:\r\n b"])),
    ("a space before the colon", |a, d| good(a, d, &[TAG, "X-A : b"])),
    ("spaces in a name", |a, d| good(a, d, &[TAG, "X A: b"])),
    ("no token", |a, d| good(a, d, &[TAG, "X-(A): b"])),
    ("a UTF-8 name", |a, d| good(a, d, &[TAG, "X-Gr\u{c3}\u{b6}: b"])),
    ("no name", |a, d| good(a, d, &[TAG, ": b"])),
    ("a Latin-1 value", |a, d| good(a, d, &[TAG, "X-A: caf\u{e9}"])),
    ("5000 fields", |a, d| {
        let fields: String = (0..4990).map(|i| format!("X-{i}: v\r\n")).collect();
        good(a, d, &[TAG, fields.trim_end()])
    }),
    ("a field of 100 kB", |a, d| good(a, d, &[TAG, &format!("X-A: {}", "a".repeat(100_000))])),
    ("a length twice", |_, d| whole(d, &[&format!("Content-Length: {LENGTH}")])),
    ("a length as a list", |_, d| {
        Send(head("200 OK", &[&format!("Content-Length: {LENGTH}, {LENGTH}")], None), d.to_vec())
    }),
    ("chunks and a wrong length", |_, d| {
        let body = [format!("{:x}\r\n", d.len()).as_bytes(), d, b"\r\n0\r\n\r\n"].concat();
        Send(head("200 OK", &["Transfer-Encoding: chunked"], Some(5)), body)
    }),
    ("the transfer coding identity", |_, d| {
        let lines = ["Transfer-Encoding: identity", "Connection: close"];
        SendAndClose(head("200 OK", &lines, Some(LENGTH)), d.to_vec())
    }),
    ("until it closes", |_, d| SendAndClose(head("200 OK", &[], None), d.to_vec())),
    ("HTTP/1.0", |_, d| SendAndClose("HTTP/1.0 200 OK\r\n\r\n".to_owned(), d.to_vec())),
    ("HTTP/1.0 with chunks", |_, d| {
        let body = [format!("{:x}\r\n", d.len()).as_bytes(), d, b"\r\n0\r\n\r\n"].concat();
        SendAndClose("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(), body)
    }),
    ("no reason", |_, d| {
        Send(format!("HTTP/1.1 200\r\nContent-Length: {LENGTH}\r\n\r\n"), d.to_vec())
    }),
    ("bare line feeds", |_, d| {
        Send(format!("HTTP/1.1 200 OK\nContent-Length: {LENGTH}\n\n"), d.to_vec())
    }),
    ("chunked, chunked", |_, d| in_chunks(d, "Transfer-Encoding: chunked, chunked", "\r\n")),
    ("chunked twice", |_, d| {
        in_chunks(d, "Transfer-Encoding: chunked\r\nTransfer-Encoding: Chunked", "\r\n")
    }),
    ("identity, chunked", |_, d| in_chunks(d, "Transfer-Encoding: identity, chunked", "\r\n")),
    ("chunked and nothing", |_, d| in_chunks(d, "Transfer-Encoding: Chunked ,", "\r\n")),
    ("chunk lines of LF", |_, d| in_chunks(d, "Transfer-Encoding: chunked", "\n")),
    ("odd trailers", |_, d| trailing(d, "A (b): c\r\n: d\r\nE : f\r\n g\r\n\r\n")),
    ("3000 trailers", |_, d| trailing(d, &format!("{}\r\n", "A: b\r\n".repeat(3000)))),
    ("a length with a sign", |a, d| numbered(a, d, &format!("+{LENGTH}"))),
    ("a length with a word", |a, d| numbered(a, d, &format!("{LENGTH} bytes"))),
    ("a length with a parameter", |a, d| numbered(a, d, &format!("{LENGTH};x"))),
    ("HTTP/2.0", |a, d| versioned(a, d, "HTTP/2.0 ")),
    ("HTTP/2", |a, d| versioned(a, d, "HTTP/2 ")),
    ("http/1.1", |a, d| versioned(a, d, "http/1.1 ")),
    ("two blanks", |a, d| versioned(a, d, "HTTP/1.1  ")),
    ("no blank behind the status", |_, d| {
        Send(format!("HTTP/1.1 200OK\r\nContent-Length: {LENGTH}\r\n\r\n"), d.to_vec())
    }),
    ("a CR in a field", |a, d| good(a, d, &[TAG, "X-A: b\rc"])),
    ("300 without a place", |_, d| Send(head("300 So", &[], Some(LENGTH)), d.to_vec())),
    ("300 with an empty place", |_, d| {
        Send(head("300 So", &["Location: "], Some(LENGTH)), d.to_vec())
    }),
    ("203", |_, d| Send(head("203 So", &[], Some(LENGTH)), d.to_vec())),
    ("201", |_, d| Send(head("201 So", &[], Some(LENGTH)), d.to_vec())),
    ("hints before", |_, d| {
        let answer = head("200 OK", &[], Some(LENGTH));
        Send(format!("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n{answer}"), d.to_vec())
    }),
    ("gzip", |a, d| good(a, d, &[TAG, "Content-Encoding: gzip"])),
    ("x-gzip without a tag", |a, d| good(a, d, &["Content-Encoding: x-gzip"])),
    ("utf-8", |a, d| good(a, d, &[TAG, "Content-Encoding: UTF-8"])),
    ("aws-chunked, identity", |a, d| good(a, d, &[TAG, "Content-Encoding: aws-chunked, identity"])),
    ("none", |a, d| good(a, d, &[TAG, "Content-Encoding: none"])),
    ("no page, though it is said", |_, d| whole(d, &["Content-Type: text/html"])),
    ("a cookie that its place wants", |a, d| match (a.target.as_str(), a.has("cookie")) {
        ("/f.bin", _) => {
            let lines = ["Set-Cookie: a=b; Path=/; HttpOnly", "Location: /g/h.bin"];
            Send(head("302 Go", &lines, Some(0)), Vec::new())
        }
        (_, true) if a.head.contains("\r\ncookie: a=b\r\n") => good(a, d, &[TAG]),
        _ => status("403 No"),
    }),
    ("a cookie that the same URL wants", |a, d| match a.has("cookie") {
        true => good(a, d, &[TAG]),
        false => {
            let lines = ["Set-Cookie: a=b", "Location: /f.bin"];
            Send(head("302 Go", &lines, Some(0)), Vec::new())
        }
    }),
    ("a cookie for each step", |a, d| match a.target.strip_prefix("/step") {
        None => {
            let lines = ["Set-Cookie: s0=0; Path=/", "Location: /step0"];
            Send(head("302 Go", &lines, Some(0)), Vec::new())
        }
        Some(n) if !a.head.contains(&format!("s{n}={n}")) => status("401 No"),
        Some("3") => good(a, d, &[TAG]),
        Some(n) => {
            let n = n.parse::<u32>().unwrap() + 1;
            let lines = [&*format!("Set-Cookie: s{n}={n}"), &*format!("Location: /step{n}")];
            Send(head("302 Go", &lines, Some(0)), Vec::new())
        }
    }),
    ("cookies on a redirect", |a, d| match a.target.as_str() {
        "/f.bin" => {
            Send(head("307 Go", &["Set-Cookie: a=b", "Location: g.bin#there"], Some(0)), Vec::new())
        }
        _ => good(a, d, &[TAG]),
    }),
];

/// Like [`HEADS`], but curl refuses these answers and wget accepts them.
const HEADS_FOR_WGET: &[(&str, Answer)] = &[
    ("HTTP/1", |a, d| versioned(a, d, "HTTP/1 ")),
    ("HTTP/1.2", |a, d| versioned(a, d, "HTTP/1.2 ")),
    ("a tab", |a, d| versioned(a, d, "HTTP/1.1\t")),
    ("a NUL in a field", |a, d| good(a, d, &[TAG, "X-A: b\0c"])),
    ("no colon", |a, d| good(a, d, &[TAG, "Xyz"])),
    ("a folded length", |_, d| {
        whole(d, &["X: y"]).with("Content-Length: ", "Content-Length:\r\n ")
    }),
    ("empty lines before", |_, d| whole(d, &["X: y"]).with("HTTP", "\r\n\r\nHTTP")),
    ("no end behind the last chunk", |_, d| match trailing(d, "") {
        Send(head, body) => SendAndClose(head, body),
        other => other,
    }),
    ("in the middle of a connection", |a, d| match a.number {
        0 => Send(head("302 Go", &["Location: /f.bin"], Some(0)), Vec::new()),
        _ => in_chunks(d, "Transfer-Encoding: chunked ,", "\n"),
    }),
];

impl Reply {
    /// Replaces the first `old` in the head by `new`.
    fn with(self, old: &str, new: &str) -> Self {
        match self {
            Send(head, body) => Send(head.replacen(old, new, 1), body),
            other => other,
        }
    }
}

/// A chunked reply with these trailers after the last chunk.
fn trailing(data: &[u8], trailers: &str) -> Reply {
    match in_chunks(data, "Transfer-Encoding: chunked", "\r\n") {
        Send(head, mut body) => {
            body.truncate(body.len() - 2);
            body.extend_from_slice(trailers.as_bytes());
            Send(head, body)
        }
        other => other,
    }
}

/// The file in two chunks with these line ends.
fn in_chunks(data: &[u8], field: &str, end: &str) -> Reply {
    let mut body = Vec::new();
    for piece in data.chunks(LENGTH / 2 + 1) {
        body.extend_from_slice(format!("{:x}{end}", piece.len()).as_bytes());
        body.extend_from_slice(piece);
        body.extend_from_slice(end.as_bytes());
    }
    body.extend_from_slice(format!("0{end}{end}").as_bytes());
    Send(head("200 OK", &[field], None), body)
}

/// The whole file with this `Content-Length`.
fn numbered(_: &Ask, data: &[u8], length: &str) -> Reply {
    Send(head("200 OK", &[&format!("Content-Length: {length}")], None), data.to_vec())
}

/// A good answer with this HTTP version.
fn versioned(ask: &Ask, data: &[u8], version: &str) -> Reply {
    good(ask, data, &[TAG]).with("HTTP/1.1 ", version)
}

/// Redirect targets, as servers may write them.
const PLACES: &[&str] = &[
    "/there/a b.bin",
    "/there/caf\u{c3}\u{a9}.bin",
    "/there/caf\u{e9}.bin",
    "/there/x.bin?k[]=1|2",
    "/there/x.bin?n=\"a\"<b>{c}",
    "/there/a^b`c\\d.bin",
    "/there/100%.bin",
    "there/x.bin",
    "./there/../there/x.bin",
    "?there",
    "//HOST/there/x.bin",
    "http://HOST/there/x y.bin#f",
    "http://u:p@HOST/there/x.bin",
    "\t/there/x.bin ",
];

/// The bytes of the file: not a web page, and different at each position.
fn data() -> Arc<[u8]> {
    Version::new(1, LENGTH).bytes.to_vec().into()
}

/// The bytes that `curl -L` gets; `None` if there is no curl.
async fn by_curl(url: String) -> Option<Vec<u8>> {
    let run = move || {
        let mut curl = Command::new("curl");
        curl.args(["-q", "-s", "-g", "-L", "-b", "", "--noproxy", "*", "--max-time", "60", &url]);
        curl.stdin(Stdio::null()).output().ok()
    };
    tokio::task::spawn_blocking(run).await.unwrap().map(|output| output.stdout)
}

/// Downloads in one answer and in segments. Returns the error, or the larger number of requests.
async fn deliver(name: &str, answer: Answer, digest: bool) -> Result<usize, String> {
    let whole = deliver_by(name, answer, digest, |trial| trial).await?;
    let in_segments = deliver_by(name, answer, digest, Trial::in_segments).await?;
    Ok(in_segments.max(whole))
}

async fn deliver_by(
    name: &str,
    answer: Answer,
    digest: bool,
    paths: fn(Trial) -> Trial,
) -> Result<usize, String> {
    let data = data();
    let server = Raw::start(answer, Arc::clone(&data)).await;
    let mut trial = paths(Trial::of(&server.url("/f.bin"), &[]));
    if digest {
        trial.request.digests = vec![format!("blake3:{}", blake3::hash(&data)).parse().unwrap()];
    }
    let got = trial.run().await.map_err(|e| format!("{name}: {e}; {:?}", trial.told()))?;
    let file = std::fs::read(trial.target()).unwrap();
    let asks = server.asks.load(Ordering::SeqCst);
    if file != *data {
        return Err(format!("{name}: {} wrong bytes after {asks} asks", got.length));
    }
    Ok(asks)
}

async fn all_deliver(table: &[(&str, Answer)], digest: bool) {
    let mut wrong = Vec::new();
    for (name, answer) in table {
        match deliver(name, *answer, digest).await {
            // A clamped part takes five requests.
            Ok(asks) if asks > 16 => wrong.push(format!("{name}: {asks} asks")),
            Ok(_) => {}
            Err(why) => wrong.push(why),
        }
        let server = Raw::start(*answer, data()).await;
        if let Some(got) = by_curl(server.url("/f.bin")).await {
            assert!(got == *data(), "{name}: not even curl gets it");
        }
    }
    // One line, so that a list of failed tests shows it.
    assert!(wrong.is_empty(), "{} of {}: {}", wrong.len(), table.len(), wrong.join("; "));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_is_delivered_despite_faulty_ranges() {
    all_deliver(RANGES, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_is_delivered_despite_unreliable_versions() {
    all_deliver(VERSIONS, false).await;
    all_deliver(VERSIONS, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_is_delivered_despite_odd_heads() {
    all_deliver(HEADS, false).await;
    for (name, answer) in HEADS_FOR_WGET {
        deliver(name, *answer, false).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_not_http_is_requested_twice_and_named() {
    const NONE: &[(&str, Answer, &str)] = &[
        (
            "SSH",
            |_, _| Send("SSH-2.0-x\r\n\x01".into(), Vec::new()),
            r"the server's answer is not HTTP: it begins with `SSH-2.0-x\r\n\x01` (",
        ),
        (
            "HTTP/0.9",
            |_, d| SendAndClose(String::new(), d.to_vec()),
            "is not HTTP: it begins with `",
        ),
        (
            "TLS",
            |_, _| SendAndClose("\x15\x03\x01\0\x02\x02\x28".into(), Vec::new()),
            "TLS: try https",
        ),
        (
            "a status of four digits",
            |a, d| versioned(a, d, "HTTP/1.1 1"),
            "it begins with `HTTP/1.1 120",
        ),
        ("no status", |_, _| Send("HTTP/1.1 OK\r\n\r\n".into(), Vec::new()), "`HTTP/1.1 OK\\r\\n"),
        ("ICY", |a, d| versioned(a, d, "ICY "), "begins with `ICY 20"),
        (
            "a huge length",
            |a, d| numbered(a, d, "99999999999999999999"),
            "an invalid length: `Content-Length: 99999999999999999999`",
        ),
        (
            "the longest number",
            |a, d| numbered(a, d, "18446744073709551615"),
            "an invalid length: `Content-Length: 18446744073709551615`",
        ),
        ("below zero", |a, d| numbered(a, d, "-1"), "invalid length: `Content-Length: -1`"),
        (
            "no number",
            |a, d| numbered(a, d, "0x100000"),
            "invalid length: `Content-Length: 0x100000`",
        ),
        (
            "no chunks",
            |_, _| {
                SendAndClose(
                    head("200 OK", &["Transfer-Encoding: chunked"], None),
                    b"what?\r\n".to_vec(),
                )
            },
            "the server's chunked body is malformed",
        ),
    ];
    for (name, answer, expected) in NONE {
        let server = Raw::start(*answer, data()).await;
        let trial = Trial::of(&server.url("/f.bin"), &[]);
        let message = trial.fails().await;
        assert!(message.contains(expected), "{name}: {message}");
        assert_eq!(server.asks.load(Ordering::SeqCst), 2, "{name}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_file_is_delivered_whatever_the_answer_to_ranges() {
    const EMPTY: &[(&str, Answer)] = &[
        ("bare", |a, d| to_ranges(a, d, |_, _| status("416 No"))),
        ("page", |a, d| {
            let page = || (head("416 No", &["Content-Type: text/html"], Some(2)), b"no".to_vec());
            to_ranges(a, d, |_, _| Send(page().0, page().1))
        }),
        ("star", |a, d| to_ranges(a, d, |_, _| nothing("416 No", "bytes */*"))),
        ("rfc", |a, d| to_ranges(a, d, |_, _| nothing("416 No", "bytes */0"))),
        ("206", |a, d| to_ranges(a, d, |_, _| nothing("206 So", "bytes 0-0/0"))),
        ("backwards", |a, d| to_ranges(a, d, |_, _| nothing("206 So", "bytes 0--1/0"))),
        ("206 of nothing", |a, d| to_ranges(a, d, |_, _| status("206 So"))),
        ("500", |a, d| to_ranges(a, d, |_, _| status("500 No"))),
        ("200", |_, _| status("200 OK")),
    ];
    fn nothing(text: &str, range: &str) -> Reply {
        Send(head(text, &[&format!("Content-Range: {range}")], Some(0)), Vec::new())
    }
    for (name, answer) in EMPTY {
        let server = Raw::start(*answer, Arc::from([])).await;
        let trial = Trial::of(&server.url("/f.bin"), &[]);
        let got = trial.run().await.unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!((got.length.as_bytes(), std::fs::read(trial.target()).unwrap().len()), (0, 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redirect_targets_may_be_written_in_any_way() {
    for (i, place) in PLACES.iter().enumerate() {
        let server = Raw::start(
            |ask, data| match ask.target.strip_prefix("/go/").and_then(|i| i.parse::<usize>().ok())
            {
                Some(i) => {
                    let host = ask.head.split("host: ").nth(1).and_then(|h| h.split("\r\n").next());
                    let place = PLACES[i].replace("HOST", host.unwrap_or(""));
                    Send(head("302 Go", &[&format!("Location: {place}")], Some(0)), Vec::new())
                }
                None if ask.target.contains("there") => good(ask, data, &[TAG]),
                None => status("404 No"),
            },
            data(),
        )
        .await;
        let trial = Trial::of(&server.url(&format!("/go/{i}")), &[]);
        trial.run().await.unwrap_or_else(|e| panic!("{place}: {e}"));
        assert!(std::fs::read(trial.target()).unwrap() == *data(), "{place}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_answers_and_errors_are_never_taken_for_the_file() {
    const CUT: &[(&str, Answer)] = &[
        ("half of its length", |_, d| {
            SendAndClose(head("200 OK", &[], Some(LENGTH)), d[..LENGTH / 2].to_vec())
        }),
        ("half of its chunks", |_, d| {
            let body =
                [format!("{:x}\r\n", LENGTH / 2).as_bytes(), &d[..LENGTH / 2], b"\r\n"].concat();
            SendAndClose(head("200 OK", &["Transfer-Encoding: chunked"], None), body)
        }),
        ("half of a chunk", |_, d| {
            let body = [format!("{LENGTH:x}\r\n").as_bytes(), &d[..LENGTH / 2]].concat();
            SendAndClose(head("200 OK", &["Transfer-Encoding: chunked"], None), body)
        }),
        ("two lengths", |_, d| {
            Send(
                head("200 OK", &[&format!("Content-Length: {}", LENGTH / 2)], Some(LENGTH)),
                d.to_vec(),
            )
        }),
        ("a part that nobody asked for", |_, d| part(d, (0, 9), &of(0, 9), &[TAG])),
        ("an error", |_, _| status("404 No")),
        ("a redirect to nowhere", |_, _| status("302 Go")),
        ("a page", |_, _| {
            Send(head("200 OK", &["Content-Type: text/html"], Some(6)), b"<html>".to_vec())
        }),
        ("a redirect to an empty place", |_, d| {
            Send(head("302 Go", &["Location: "], Some(LENGTH)), d.to_vec())
        }),
        ("a length field that is folded into another", |_, d| {
            SendAndClose(head("200 OK", &[&format!("Content-Length: {LENGTH}x")], None), d.to_vec())
        }),
    ];
    for (name, answer) in CUT {
        let server = Raw::start(*answer, data()).await;
        let trial = Trial::of(&server.url("/f.bin"), &[]);
        let failed = trial.run().await.err().unwrap_or_else(|| panic!("{name} is no file"));
        assert!(!trial.target().exists(), "{name}: {failed}");
    }
}

/// curl creates an empty file too.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_content_is_an_empty_file_unless_another_is_expected() {
    const EMPTY: &[(&str, Answer)] = &[
        ("204", |_, _| Send(head("204 None", &[], None), Vec::new())),
        ("204 with a length", |_, _| Send(head("204 None", &[], Some(5)), Vec::new())),
        ("204 with chunks", |_, _| {
            Send(head("204 None", &["Transfer-Encoding: chunked"], None), Vec::new())
        }),
        ("205", |_, _| status("205 None")),
        ("205 until it closes", |_, _| SendAndClose(head("205 None", &[], None), Vec::new())),
    ];
    for (name, answer) in EMPTY {
        let server = Raw::start(*answer, data()).await;
        for in_segments in [false, true] {
            let trial = Trial::of(&server.url("/f.bin"), &[]);
            let trial = if in_segments { trial.in_segments() } else { trial };
            trial.run().await.unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(std::fs::read(trial.target()).unwrap(), b"", "{name}");
        }
        let got = by_curl(server.url("/f.bin")).await;
        assert!(got.is_none_or(|got| got.is_empty()), "{name}");
        let mut trial = Trial::of(&server.url("/f.bin"), &[]);
        trial.request.digests = vec![format!("blake3:{}", blake3::hash(b"x")).parse().unwrap()];
        trial.fails().await;
        let mut trial = Trial::of(&server.url("/f.bin"), &[]);
        trial.request.expected_length = Some(1);
        trial.fails().await;
    }
}

/// Versions also differ in their bytes, so answers must not be combined.
#[tokio::test(flavor = "multi_thread")]
async fn two_versions_are_never_mixed() {
    /// The version of answer number `number`.
    fn version(data: &[u8], number: usize) -> Vec<u8> {
        data.iter().map(|b| b.wrapping_add(number as u8)).collect()
    }
    const CHANGING: &[(&str, Answer)] = &[
        ("a tag each", |a, d| {
            good(a, &version(d, a.number), &[&format!("ETag: \"{}\"", a.number)])
        }),
        ("a weak tag each", |a, d| {
            good(a, &version(d, a.number), &[&format!("ETag: W/\"{}\"", a.number)])
        }),
        ("no tag", |a, d| good(a, &version(d, a.number), &[])),
        ("a fresh date", |a, d| {
            let date = "Mon, 01 Jan 2024 00:00:00 GMT";
            let lines = [&*format!("Last-Modified: {date}"), &*format!("Date: {date}")];
            good(a, &version(d, a.number), &lines)
        }),
        ("the same weak tag", |a, d| good(a, &version(d, a.number), &["ETag: W/\"1\""])),
        ("compressed anew", |a, d| {
            let date = "Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT";
            good(a, &version(d, a.number), &[date, "Content-Encoding: gzip"])
        }),
    ];
    for (name, answer) in CHANGING {
        let server = Raw::start(*answer, data()).await;
        let trial = Trial::of(&server.url("/f.bin"), &[]);
        trial.run().await.unwrap_or_else(|e| panic!("{name}: {e}"));
        let got = std::fs::read(trial.target()).unwrap();
        let number = got[0].wrapping_sub(data()[0]) as usize;
        assert!(got == version(&data(), number), "{name}: mixed");
    }
}
