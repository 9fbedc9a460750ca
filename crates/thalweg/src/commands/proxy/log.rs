//! The proxy's log, written by a separate thread, so that a slow terminal delays no connection.

use parking_lot::Mutex;
use std::{
    io,
    sync::{
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::{self, JoinHandle},
};
use thalweg_console::{note, say_line};
use thalweg_proxy::{ProxyEvent, ProxySink, TunnelKind};
use thalweg_units::ByteSize;

/// The most lines that wait to be written: a second of a busy proxy. Further lines are dropped and counted.
const MAX_WAITING: usize = 4096;

/// The format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// No log.
    Nothing,
    /// One line per event, on standard error.
    Lines,
    /// One JSON object per event, on standard output.
    Json,
}

/// The log.
pub struct Log {
    format: Format,
    lines: Mutex<Option<SyncSender<String>>>,
    lost: AtomicU64,
}

/// The thread that writes the log.
pub struct Writer(Option<JoinHandle<()>>);

impl Writer {
    /// Waits until all lines are written; the log must be closed.
    pub fn finish(self) {
        // If the thread panicked, the panic was printed.
        self.0.map(JoinHandle::join);
    }
}

impl Log {
    /// Starts a log and its writer.
    ///
    /// # Errors
    /// If the system allows no further thread.
    pub fn start(format: Format) -> io::Result<(Self, Writer)> {
        let (sender, receiver) = sync_channel(MAX_WAITING);
        let log = |lines| Self { format, lines: Mutex::new(lines), lost: AtomicU64::new(0) };
        if format == Format::Nothing {
            return Ok((log(None), Writer(None)));
        }
        let work = move || write(format, &receiver);
        let thread = thread::Builder::new().name("log".to_owned()).spawn(work)?;
        Ok((log(Some(sender)), Writer(Some(thread))))
    }

    /// Closes the log: the writer ends once the waiting lines are written.
    pub fn close(&self) {
        *self.lines.lock() = None;
    }
}

fn write(format: Format, lines: &Receiver<String>) {
    while let Ok(line) = lines.recv() {
        match format {
            Format::Json => {
                if let Err(error) = say_line(line) {
                    note!("thalweg: no more events are logged: {error}");
                    return;
                }
            }
            _ => note!("{line}"),
        }
    }
}

impl ProxySink for Log {
    fn event(&self, event: &ProxyEvent) {
        let lines = self.lines.lock();
        let Some(lines) = &*lines else { return };
        let lost = self.lost.swap(0, Relaxed);
        let line = match self.format {
            Format::Json => serde_json::to_string(event).unwrap_or_default(),
            _ => in_words(event),
        };
        let line = match (lost, self.format) {
            (0, _) => line,
            (n, Format::Json) => format!("{{\"event\":\"lost\",\"lines\":{n}}}\n{line}"),
            (n, _) => format!("({n} lines were dropped)\n{line}"),
        };
        if let Err(TrySendError::Full(_)) = lines.try_send(line) {
            self.lost.fetch_add(lost + 1, Relaxed);
        }
    }
}

fn in_words(event: &ProxyEvent) -> String {
    let size = |n: &u64| ByteSize::from_bytes(*n).to_string();
    match event {
        ProxyEvent::Request {
            client,
            method,
            to,
            path,
            status,
            up_bytes,
            down_bytes,
            seconds,
            split,
            complete,
        } => {
            let how = if *split { " in ranges" } else { "" };
            let end = if *complete { "" } else { ", incomplete" };
            let (up, down) = (size(up_bytes), size(down_bytes));
            format!(
                "{client} {method} {to} by {path}{how}: {status}, {up} up, {down} down, {seconds:.3} s{end}"
            )
        }
        ProxyEvent::Tunnel { client, kind, to, path, up_bytes, down_bytes, seconds, broken } => {
            let kind = match kind {
                TunnelKind::Connect => "CONNECT",
                TunnelKind::Socks => "SOCKS",
                TunnelKind::Upgrade => "upgrade",
                TunnelKind::Redirected => "redirected",
            };
            let end = broken.as_ref().map(|why| format!(", {why}")).unwrap_or_default();
            let (up, down) = (size(up_bytes), size(down_bytes));
            format!("{client} {kind} {to} by {path}: {up} up, {down} down, {seconds:.3} s{end}")
        }
        ProxyEvent::Refused { client, to, why } => format!("{client} {to} refused: {why}"),
    }
}
