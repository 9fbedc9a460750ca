//! Records each request and tunnel at its end: an event for it, and the proxy's total counters.

use super::event::{ProxyEvent, ProxySink, TunnelKind};
use parking_lot::Mutex;
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

/// The proxy's counters since its start.
#[derive(Debug, Default)]
pub struct Tally {
    pub(super) connections: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) tunnels: AtomicU64,
    pub(super) split: AtomicU64,
    pub(super) detoured: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) up: AtomicU64,
    pub(super) down: AtomicU64,
    pub(super) cut: AtomicU64,
}

/// Updates the counters and sends events to the sink.
#[derive(Clone)]
pub struct Recorder {
    pub(super) tally: Arc<Tally>,
    pub(super) sink: Arc<dyn ProxySink>,
}

impl Recorder {
    /// Records that a request or tunnel of `client` failed.
    pub(super) fn record_refusal(&self, client: SocketAddr, to: String, why: String) {
        self.tally.refused.fetch_add(1, Relaxed);
        self.sink.event(&ProxyEvent::Refused { client, to, why });
    }

    /// Records a tunnel that has ended.
    pub(super) fn record_tunnel(&self, ended: EndedTunnel<'_>) {
        let (up_bytes, down_bytes) = ended.moved;
        self.tally.tunnels.fetch_add(1, Relaxed);
        self.count(up_bytes, down_bytes, ended.path);
        self.sink.event(&ProxyEvent::Tunnel {
            client: ended.client,
            kind: ended.kind,
            to: ended.to,
            path: ended.path.to_owned(),
            up_bytes,
            down_bytes,
            seconds: ended.began.elapsed().as_secs_f64(),
            broken: ended.broken,
        });
    }

    fn count(&self, up: u64, down: u64, path: &str) {
        self.tally.up.fetch_add(up, Relaxed);
        self.tally.down.fetch_add(down, Relaxed);
        if path != thalweg_paths::chooser::DIRECT {
            self.tally.detoured.fetch_add(1, Relaxed);
        }
    }
}

/// A tunnel that has ended.
pub struct EndedTunnel<'a> {
    pub(super) client: SocketAddr,
    pub(super) kind: TunnelKind,
    pub(super) to: String,
    pub(super) path: &'a str,
    pub(super) moved: (u64, u64),
    pub(super) began: Instant,
    pub(super) broken: Option<String>,
}

/// One forwarded request, which is recorded when the last reference to it is dropped.
pub struct Record {
    pub(super) client: SocketAddr,
    pub(super) method: String,
    pub(super) to: String,
    pub(super) path: Mutex<String>,
    pub(super) status: AtomicU16,
    pub(super) up: AtomicU64,
    pub(super) down: AtomicU64,
    pub(super) split: AtomicBool,
    pub(super) complete: AtomicBool,
    /// The program's content could not be parsed.
    pub(super) malformed: AtomicBool,
    /// The origin answered before it asked for the content, so it does not get it.
    pub(super) withheld: AtomicBool,
    pub(super) began: Instant,
    pub(super) recorder: Recorder,
}

impl Record {
    pub(super) fn begin(
        recorder: &Recorder,
        client: SocketAddr,
        method: String,
        to: String,
    ) -> Arc<Self> {
        Arc::new(Self {
            client,
            method,
            to,
            path: Mutex::default(),
            status: AtomicU16::new(0),
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            split: AtomicBool::new(false),
            complete: AtomicBool::new(false),
            malformed: AtomicBool::new(false),
            withheld: AtomicBool::new(false),
            began: Instant::now(),
            recorder: recorder.clone(),
        })
    }

    pub(super) fn set_path(&self, path: &str) {
        path.clone_into(&mut self.path.lock());
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let status = self.status.load(Relaxed);
        if status == 0 {
            // It was refused, which is recorded elsewhere, or its program left.
            return;
        }
        let path = std::mem::take(self.path.get_mut());
        let (up_bytes, down_bytes) = (self.up.load(Relaxed), self.down.load(Relaxed));
        self.recorder.tally.requests.fetch_add(1, Relaxed);
        self.recorder.count(up_bytes, down_bytes, &path);
        self.recorder.sink.event(&ProxyEvent::Request {
            client: self.client,
            method: std::mem::take(&mut self.method),
            to: std::mem::take(&mut self.to),
            path,
            status,
            up_bytes,
            down_bytes,
            seconds: self.began.elapsed().as_secs_f64(),
            split: self.split.load(Relaxed),
            complete: self.complete.load(Relaxed),
        });
    }
}
