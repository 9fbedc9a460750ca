//! The scripted server: the sockets around [`ScriptedServer`].
//!
//! HTTP is written by hand, because a library would not let us break the framing. Each connection has a thread. `GET
//! /counts/KIND/DOWNLOAD` returns the counts as JSON.

use super::{
    answer::{Answer, Piece, ScriptedServer},
    kinds::ServerKind,
    request::{HEAD_MAX, Request},
    site::Site,
};
use anyhow::{Context as _, bail};
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;
use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};
use thalweg_net::TcpInfo;

/// The most concurrent connections, far more than a download opens; further ones are reset.
const CONNECTIONS_MAX: usize = 256;
/// The most downloads with counts of their own: sixty kinds, five tools and five rounds are 1,500.
const SITES_MAX: usize = 16_384;
/// A client that neither sends nor reads for this time is disconnected.
const IDLE: Duration = Duration::from_secs(60);

/// Arguments of `thalweg-bench load servers serve`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The file that is served under every name
    #[arg(long, value_name = "FILE")]
    content: PathBuf,
}

/// Serves until the program is ended.
///
/// # Errors
/// When it cannot listen or read the file.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let content = fs::read(&args.content)
        .with_context(|| format!("cannot read {}", args.content.display()))?;
    let listener = TcpListener::bind(args.listen)
        .with_context(|| format!("cannot listen on {}", args.listen))?;
    let ready = json!({ "event": "ready", "listen": listener.local_addr()?.to_string() });
    writeln!(io::stdout().lock(), "{ready}")?;
    serve(&listener, content)
}

/// Serves `content` to all clients.
///
/// # Errors
/// When it cannot accept.
pub fn serve(listener: &TcpListener, content: Vec<u8>) -> anyhow::Result<()> {
    let shared = Arc::new(ServerState::new(content));
    let open = Arc::new(AtomicUsize::new(0));
    for connection in 0.. {
        let (stream, _) = listener.accept().context("cannot accept connections")?;
        if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            open.fetch_sub(1, Ordering::Relaxed);
            reset(&stream);
            continue;
        }
        let (shared, open) = (Arc::clone(&shared), Arc::clone(&open));
        thread::spawn(move || {
            let mut place = None;
            // A client may disconnect at any time.
            _ = shared.connection(&stream, connection, &mut place);
            if let Some(place) = place {
                let acknowledged = TcpInfo::of(&stream).map_or(0, |info| info.acknowledged);
                shared.update_site(&place, |site| site.disconnect(acknowledged));
            }
            open.fetch_sub(1, Ordering::Relaxed);
        });
    }
    Ok(())
}

fn reset(stream: &TcpStream) {
    _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

/// Both versions of the file, and the counts of all downloads.
struct ServerState {
    versions: [Vec<u8>; 2],
    sites: Mutex<BTreeMap<String, Site>>,
}

/// Whether a connection continues after an answer.
#[derive(PartialEq)]
enum ConnectionFate {
    Continues,
    Ends,
}

impl ServerState {
    fn new(content: Vec<u8>) -> Self {
        let other = content.iter().map(|byte| !byte).collect();
        Self { versions: [content, other], sites: Mutex::default() }
    }

    fn sites(&self) -> MutexGuard<'_, BTreeMap<String, Site>> {
        self.sites.lock()
    }

    fn update_site<T>(&self, place: &str, what: impl FnOnce(&mut Site) -> T) -> Option<T> {
        let mut sites = self.sites();
        if sites.len() >= SITES_MAX && !sites.contains_key(place) {
            return None;
        }
        Some(what(sites.entry(place.to_owned()).or_default()))
    }

    /// Answers one request after the other; `place` becomes the download of the last one.
    fn connection(
        &self,
        stream: &TcpStream,
        number: u64,
        place: &mut Option<String>,
    ) -> anyhow::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(IDLE))?;
        stream.set_write_timeout(Some(IDLE))?;
        let mut heads = HeadReader { stream, read: Vec::new() };
        while let Some(head) = heads.next()? {
            let request = Request::parse(&head).context("the client sent an invalid request")?;
            let closes =
                request.field("connection").is_some_and(|c| c.eq_ignore_ascii_case("close"));
            let after = match request.target.strip_prefix("/counts") {
                Some(of) => self.counts(stream, of)?,
                None => self.answer(stream, &request, number, place)?,
            };
            if after == ConnectionFate::Ends || closes {
                break;
            }
        }
        Ok(())
    }

    fn counts(&self, stream: &TcpStream, of: &str) -> anyhow::Result<ConnectionFate> {
        let place = format!("{}/", of.trim_end_matches('/'));
        let counts =
            self.sites().get(&place).map_or_else(|| Site::default().counts(), Site::counts);
        respond(stream, 200, &counts.to_string())?;
        Ok(ConnectionFate::Continues)
    }

    fn answer(
        &self,
        stream: &TcpStream,
        request: &Request,
        number: u64,
        place: &mut Option<String>,
    ) -> anyhow::Result<ConnectionFate> {
        let mut parts = request.target.split('/').skip(1);
        let (name, download) = parts.next().zip(parts.next()).unwrap_or_default();
        let Some(kind) = ServerKind::find(name) else {
            respond(stream, 404, &format!("there is no kind of server {name}"))?;
            return Ok(ConnectionFate::Continues);
        };
        let at = format!("/{name}/{download}/");
        let Some(before) = self.update_site(&at, |site| site.begin(request, number)) else {
            bail!("more than {SITES_MAX} downloads");
        };
        *place = Some(at.clone());
        let length = if kind.empty().is_some() { 0 } else { self.versions[0].len() as u64 };
        let answer = ScriptedServer { kind, place: &at, length }.answer(request, &before);
        let sent = self.send(stream, &answer);
        self.update_site(&at, |site| site.end(answer.breaks_at.is_some()));
        sent
    }

    fn send(&self, mut stream: &TcpStream, answer: &Answer) -> anyhow::Result<ConnectionFate> {
        thread::sleep(answer.waits);
        if answer.resets {
            reset(stream);
            return Ok(ConnectionFate::Ends);
        }
        let mut head = answer.interim.clone();
        head.extend_from_slice(&answer.head);
        stream.write_all(&head)?;
        let mut left = answer.breaks_at.unwrap_or(u64::MAX);
        for piece in &answer.body {
            let bytes = match piece {
                Piece::Bytes(bytes) => bytes,
                Piece::File(version, range) => {
                    &self.versions[*version][range.start as usize..range.end as usize]
                }
            };
            let n = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
            stream.write_all(&bytes[..n])?;
            left -= n as u64;
        }
        // The connection is closed in order: the sent bytes arrive, and the length shows that they are incomplete.
        Ok(if answer.closes || answer.breaks_at.is_some() {
            ConnectionFate::Ends
        } else {
            ConnectionFate::Continues
        })
    }
}

fn respond(mut stream: &TcpStream, status: u16, text: &str) -> io::Result<()> {
    let head = format!("HTTP/1.1 {status} Said\r\nContent-Length: {}\r\n\r\n{text}", text.len());
    stream.write_all(head.as_bytes())
}

/// Reads the heads of requests, which have no bodies.
struct HeadReader<'a> {
    stream: &'a TcpStream,
    read: Vec<u8>,
}

impl HeadReader<'_> {
    /// The next head without its empty line; `None` at the end of the connection.
    fn next(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        let mut buffer = [0; 4096];
        loop {
            if let Some(end) = self.read.windows(4).position(|w| w == b"\r\n\r\n") {
                let rest = self.read.split_off(end + 4);
                let mut head = std::mem::replace(&mut self.read, rest);
                head.truncate(end + 2);
                return Ok(Some(head));
            }
            if self.read.len() > HEAD_MAX {
                bail!("a head of more than {HEAD_MAX} bytes");
            }
            match self.stream.read(&mut buffer)? {
                0 => return Ok(None),
                n => self.read.extend_from_slice(&buffer[..n]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::counts, *};

    /// Starts a server with this content, which runs until the test process ends.
    fn start(content: &[u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let content = content.to_vec();
        thread::spawn(move || serve(&listener, content));
        address
    }

    fn get(at: SocketAddr, target: &str, fields: &str) -> Vec<u8> {
        let mut stream = TcpStream::connect(at).unwrap();
        let head = format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{fields}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        _ = stream.read_to_end(&mut answer);
        answer
    }

    #[test]
    fn a_kind_is_served_and_counted() {
        let at = start(b"0123456789");
        let whole = get(at, "/range-403/one/data.bin", "");
        assert!(whole.starts_with(b"HTTP/1.1 200") && whole.ends_with(b"\r\n\r\n0123456789"));
        assert!(
            get(at, "/range-403/one/data.bin", "Range: bytes=0-1\r\n").starts_with(b"HTTP/1.1 403")
        );
        assert!(get(at, "/honest/two/data.bin", "Range: bytes=2-4\r\n").ends_with(b"\r\n\r\n234"));
        let counts = counts::read_counts(&format!("http://{at}"), "range-403/one").unwrap();
        assert_eq!((counts.requests, counts.ranged), (2, 1));
        assert!(counts.bytes >= Some(whole.len() as u64), "{counts:?}");
        assert!(get(at, "/nothing/x/y", "").starts_with(b"HTTP/1.1 404"));
    }

    #[test]
    fn a_broken_answer_is_short_and_the_next_is_whole() {
        let at = start(&[7; 1000]);
        let first = get(at, "/breaks-first/0/data.bin", "");
        assert!(first.ends_with(&[7; 400]) && !first.ends_with(&[7; 401]));
        assert!(get(at, "/breaks-first/0/data.bin", "").ends_with(&[7; 1000]));
        assert!(get(at, "/range-reset/0/data.bin", "Range: bytes=0-1\r\n").is_empty());
    }
}
