//! An HTTP/1.1 server of small files, which counts what it sends of each.

use anyhow::Context as _;
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    ops::Range,
    sync::Arc,
    time::Instant,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// The longest head of a request, bytes.
const MAX_HEAD: usize = 16 * 1024;

/// Serves `/0`, `/1` … with a content for each number.
pub struct FileServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    size: usize,
    sent: Mutex<BTreeMap<u64, SentFile>>,
}

/// What was sent of a file.
#[derive(Clone, Copy, Debug)]
pub struct SentFile {
    /// When it was first asked for.
    pub first: Instant,
    /// The bytes of content that were handed to the kernel.
    pub bytes: u64,
}

impl FileServer {
    /// Starts the server on loopback, with files of `size` bytes.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start(size: usize) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("cannot listen")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { size, sent: Mutex::default() });
        let serves = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&serves);
                // A client that leaves, as killed ones do, is no failure.
                tokio::spawn(async move { drop(shared.serve(stream).await) });
            }
        });
        Ok(Self { address, shared })
    }

    /// The URL of a file.
    pub fn url(&self, n: u64) -> String {
        format!("http://{}/{n}", self.address)
    }

    /// The content of a file.
    pub fn content(&self, n: u64) -> Vec<u8> {
        content(n, self.shared.size)
    }

    /// What was sent of each file.
    pub fn sent(&self) -> BTreeMap<u64, SentFile> {
        self.shared.sent.lock().clone()
    }
}

impl Shared {
    async fn serve(&self, mut stream: TcpStream) -> anyhow::Result<()> {
        stream.set_nodelay(true)?;
        let mut buffer = Vec::new();
        loop {
            let end = loop {
                if let Some(end) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                    break end + 4;
                }
                anyhow::ensure!(buffer.len() < MAX_HEAD, "the head is too long");
                if stream.read_buf(&mut buffer).await? == 0 {
                    return Ok(());
                }
            };
            let head: Vec<u8> = buffer.drain(..end).collect();
            self.answer(&mut stream, &String::from_utf8_lossy(&head)).await?;
        }
    }

    async fn answer(&self, stream: &mut TcpStream, head: &str) -> anyhow::Result<()> {
        let mut words = head.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let Ok(n) = path.trim_start_matches('/').parse::<u64>() else {
            let reply = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
            return Ok(stream.write_all(reply.as_bytes()).await?);
        };
        self.sent.lock().entry(n).or_insert(SentFile { first: Instant::now(), bytes: 0 });
        let range = range(head, self.size);
        let part = range.clone().unwrap_or(0..self.size);
        let (status, more) = match &range {
            Some(r) => ("206 Partial Content", format!("Content-Range: bytes {}-{}/{}\r\n", r.start, r.end - 1, self.size)),
            None => ("200 OK", String::new()),
        };
        let reply = format!(
            "HTTP/1.1 {status}\r\nETag: \"{n}\"\r\nAccept-Ranges: bytes\r\n{more}Content-Length: {}\r\n\r\n",
            part.len()
        );
        stream.write_all(reply.as_bytes()).await?;
        if method == "HEAD" {
            return Ok(());
        }
        let content = content(n, self.size);
        for chunk in content[part].chunks(16 * 1024) {
            stream.write_all(chunk).await?;
            if let Some(file) = self.sent.lock().get_mut(&n) {
                file.bytes += chunk.len() as u64;
            }
        }
        Ok(())
    }
}

/// The part that a request asks for; `None`: all of it.
fn range(head: &str, size: usize) -> Option<Range<usize>> {
    let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with("range:"))?;
    let (from, until) = line.split_once("bytes=")?.1.split_once('-')?;
    let from: usize = from.trim().parse().ok()?;
    let until = until.trim().parse().map_or(size, |last: usize| (last + 1).min(size));
    (from < until).then_some(from..until)
}

fn content(n: u64, size: usize) -> Vec<u8> {
    let seed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..size).map(|i| seed[i % 8] ^ (i / 8) as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_within_the_file() {
        let range = |value: &str| range(&format!("GET /1 HTTP/1.1\r\nRange: {value}\r\n\r\n"), 100);
        assert_eq!(range("bytes=0-9"), Some(0..10));
        assert_eq!(range("bytes=90-"), Some(90..100));
        assert_eq!(range("bytes=90-500"), Some(90..100));
        assert_eq!(range("bytes=200-"), None);
    }
}
