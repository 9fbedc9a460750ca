//! An HTTP/1.1 server of one file at a fixed rate, on threads of its own: what the node's runtime does beside it must not
//! slow it down.

use anyhow::Context as _;
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    ops::Range,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use thalweg_units::Rate;

/// What is sent at once, bytes: 1 ms at 500 Mbit/s.
const CHUNK: u64 = 62_500;

/// How much the server may catch up after it was late: as a queue of this length would.
const CREDIT: Duration = Duration::from_millis(5);

/// A server for the rest of the process's life.
pub struct PacedServer {
    address: SocketAddr,
    /// The size of the file, bytes.
    pub size: u64,
    pace: Arc<Pace>,
}

/// When the first and the last byte of a download were sent.
type Span = (Instant, Instant);

struct Pace {
    rate: Rate,
    /// When the next chunk may be sent.
    next: Mutex<Instant>,
    /// The downloads by their path.
    spans: Mutex<BTreeMap<String, Span>>,
}

impl Pace {
    /// Waits until this many bytes may be sent.
    fn wait(&self, bytes: u64) {
        let at = {
            let mut next = self.next.lock();
            let now = Instant::now();
            let at = (*next).max(now.checked_sub(CREDIT).unwrap_or(now));
            *next = at + Duration::from_secs_f64(bytes as f64 * 8.0 / self.rate.as_bps() as f64);
            at
        };
        thread::sleep(at.saturating_duration_since(Instant::now()));
    }
}

impl PacedServer {
    /// Serves a file of this size on loopback; all its connections together have this rate.
    ///
    /// # Errors
    /// When it cannot listen.
    pub fn start(size: u64, rate: Rate) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen")?;
        let address = listener.local_addr()?;
        let (next, spans) = (Mutex::new(Instant::now()), Mutex::default());
        let pace = Arc::new(Pace { rate, next, spans });
        let serves = Arc::clone(&pace);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let pace = Arc::clone(&serves);
                // A client that leaves is no failure.
                thread::spawn(move || drop(serve(stream, size, &pace)));
            }
        });
        Ok(Self { address, size, pace })
    }

    /// How long a download took, from its first byte to its last one; `None` if there was none.
    pub fn seconds(&self, number: usize) -> Option<f64> {
        let spans = self.pace.spans.lock();
        spans.get(&format!("/{number}")).map(|(first, last)| (*last - *first).as_secs_f64())
    }

    /// The URL of the file; the number keeps URLs of downloads apart.
    pub fn url(&self, number: usize) -> String {
        format!("http://{}/{number}", self.address)
    }
}

fn serve(mut stream: TcpStream, size: u64, pace: &Pace) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let mut lines = BufReader::new(stream.try_clone()?);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if lines.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let range = range(&head, size);
        let part = range.clone().unwrap_or(0..size);
        let (status, more) = match range {
            Some(r) => (
                "206 Partial Content",
                format!("Content-Range: bytes {}-{}/{size}\r\n", r.start, r.end - 1),
            ),
            None => ("200 OK", String::new()),
        };
        let length = part.end - part.start;
        write!(
            stream,
            "HTTP/1.1 {status}\r\nETag: \"1\"\r\nAccept-Ranges: bytes\r\n{more}Content-Length: {length}\r\n\r\n"
        )?;
        if !head.starts_with("HEAD") {
            send(&mut stream, head.split(' ').nth(1).unwrap_or_default(), length, pace)?;
        }
    }
}

fn send(stream: &mut TcpStream, path: &str, mut left: u64, pace: &Pace) -> anyhow::Result<()> {
    let content = vec![0x5a; CHUNK as usize];
    let now = Instant::now();
    pace.spans.lock().entry(path.to_owned()).or_insert((now, now));
    while left > 0 {
        let n = left.min(CHUNK);
        pace.wait(n);
        stream.write_all(&content[..n as usize])?;
        left -= n;
        if let Some((_, last)) = pace.spans.lock().get_mut(path) {
            *last = Instant::now();
        }
    }
    Ok(())
}

/// The part that a request asks for; `None`: all of it.
fn range(head: &str, size: u64) -> Option<Range<u64>> {
    let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with("range:"))?;
    let (from, until) = line.split_once("bytes=")?.1.split_once('-')?;
    let from: u64 = from.trim().parse().ok()?;
    let until = until.trim().parse().map_or(size, |last: u64| (last + 1).min(size));
    (from < until).then_some(from..until)
}
