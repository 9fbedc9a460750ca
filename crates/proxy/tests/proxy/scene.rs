//! A proxy, with programs and origins whose bytes the test decides.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};
use thalweg_net::{DialOptions, Dialer, SocketOptions};
use thalweg_paths::{chooser::PathChooser, history_chooser::HistoryChooser};
use thalweg_proxy::{Proxy, ProxyConfig, ProxyEvent, ProxySink, Reviewer, Summary};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinHandle,
    time::timeout,
};

/// A test that waits this long has failed. It says nothing about how fast anything must be.
pub const HANGS: Duration = Duration::from_secs(60);

/// Waits, but not forever.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(HANGS, what).await.expect("it hangs")
}

#[derive(Default)]
pub struct Events(Mutex<Vec<ProxyEvent>>);

impl ProxySink for Events {
    fn event(&self, event: &ProxyEvent) {
        self.0.lock().unwrap().push(event.clone());
    }
}

/// A running proxy.
pub struct Scene {
    pub at: SocketAddr,
    pub events: Arc<Events>,
    pub reviewer: Reviewer,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Summary>,
}

impl Scene {
    /// A proxy without relays.
    pub async fn new() -> Self {
        Self::choosing(Arc::new(HistoryChooser::new(Box::new(|_| Vec::new()), None))).await
    }

    pub async fn choosing(chooser: Arc<dyn PathChooser>) -> Self {
        Self::with(ProxyConfig::new("127.0.0.1:0".parse().unwrap()), chooser).await
    }

    pub async fn with(config: ProxyConfig, chooser: Arc<dyn PathChooser>) -> Self {
        let socket = SocketOptions { user_timeout: None, ..SocketOptions::default() };
        let dialer = Dialer::new(DialOptions { socket, ..DialOptions::default() });
        let events = Arc::new(Events::default());
        let proxy = Proxy::bind(config, dialer, chooser, events.clone()).await.unwrap();
        let (at, reviewer) = (proxy.local_addr(), proxy.reviewer());
        let (stop, asked) = oneshot::channel::<()>();
        let running = tokio::spawn(proxy.run(async { _ = asked.await }));
        Self { at, events, reviewer, stop, running }
    }

    /// A program's connection.
    pub async fn program(&self) -> Peer {
        Peer::new(TcpStream::connect(self.at).await.unwrap())
    }

    /// Makes the proxy drain.
    pub fn stop(self) -> (JoinHandle<Summary>, Arc<Events>) {
        drop(self.stop);
        (self.running, self.events)
    }

    /// Drains, and returns the counts and events.
    pub async fn end(self) -> (Summary, Vec<ProxyEvent>) {
        let (running, events) = self.stop();
        let summary = soon(running).await.unwrap();
        let events = events.0.lock().unwrap().clone();
        (summary, events)
    }
}

/// A listening origin.
pub struct Origin {
    pub at: SocketAddr,
    listener: TcpListener,
}

impl Origin {
    pub async fn new() -> Self {
        Self::at("127.0.0.1:0").await
    }

    pub async fn at(address: &str) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        Self { at: listener.local_addr().unwrap(), listener }
    }

    pub async fn accept(&self) -> Peer {
        Peer::new(soon(self.listener.accept()).await.unwrap().0)
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.at)
    }

    /// A bodiless request for `path` in absolute form, with these further lines.
    pub fn get(&self, path: &str, lines: &str) -> String {
        self.ask("GET", path, lines)
    }

    pub fn ask(&self, method: &str, path: &str, lines: &str) -> String {
        format!("{method} {} HTTP/1.1\r\nHost: {}\r\n{lines}\r\n", self.url(path), self.at)
    }
}

/// One end of a connection, which the test reads and writes.
pub struct Peer {
    pub tcp: TcpStream,
    ahead: Vec<u8>,
}

impl Peer {
    pub fn new(tcp: TcpStream) -> Self {
        Self { tcp, ahead: Vec::new() }
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        soon(self.tcp.write_all(bytes.as_ref())).await.unwrap();
    }

    /// Ends our direction.
    pub async fn end(&mut self) {
        self.tcp.shutdown().await.unwrap();
    }

    /// The next head, with the empty line that ends it.
    pub async fn head(&mut self) -> String {
        text(self.head_bytes().await)
    }

    /// The same, for any bytes.
    pub async fn head_bytes(&mut self) -> Vec<u8> {
        self.bytes_until("\r\n\r\n").await
    }

    /// All bytes up to `mark`, including it.
    pub async fn until(&mut self, mark: &str) -> String {
        text(self.bytes_until(mark).await)
    }

    async fn bytes_until(&mut self, mark: &str) -> Vec<u8> {
        loop {
            if let Some(at) = self.ahead.windows(mark.len()).position(|w| w == mark.as_bytes()) {
                let rest = self.ahead.split_off(at + mark.len());
                return std::mem::replace(&mut self.ahead, rest);
            }
            let n = soon(self.tcp.read_buf(&mut self.ahead)).await.unwrap();
            assert!(n > 0, "ended in {:?}", String::from_utf8_lossy(&self.ahead));
        }
    }

    /// The next `n` bytes.
    pub async fn take(&mut self, n: usize) -> Vec<u8> {
        while self.ahead.len() < n {
            let read = soon(self.tcp.read_buf(&mut self.ahead)).await.unwrap();
            assert!(read > 0, "ended {} bytes early", n - self.ahead.len());
        }
        let rest = self.ahead.split_off(n);
        std::mem::replace(&mut self.ahead, rest)
    }

    /// All that arrives until the other end closes; a reset counts as well.
    pub async fn rest(&mut self) -> Vec<u8> {
        while matches!(soon(self.tcp.read_buf(&mut self.ahead)).await, Ok(n) if n > 0) {}
        std::mem::take(&mut self.ahead)
    }

    /// The next answer's head, and its content as given by Content-Length.
    pub async fn answer(&mut self) -> (String, Vec<u8>) {
        let head = self.head().await;
        let length = field(&head, "content-length").map_or(0, |n| n.parse().unwrap());
        let content = self.take(length).await;
        (head, content)
    }
}

pub fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

/// The value of the first line of this name.
pub fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    lines.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

pub fn status(head: &str) -> u16 {
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

/// An answer with this content.
pub fn ok(content: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{content}", content.len())
}
