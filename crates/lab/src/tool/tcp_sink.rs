//! `tcp-sink`: receives flows and counts their bytes over time.

use super::{
    control::{Control, read_hello},
    net, output,
    wire::{Greeting, SyncMessage, TcpCount, TcpPlan},
};
use anyhow::{Context, bail};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    net::{TcpListener, TcpStream},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};
use thalweg_console::note;

/// The most simultaneous connections, each with a thread; a lab of 50 hosts with 10 flows each needs 500.
const CONNECTIONS_MAX: usize = 1024;
/// The most bins of one measurement: 100 flows over an hour in steps of 100 ms, 29 MB.
const BINS_MAX: u64 = 3_600_000;
/// Flows and control connections are closed after this time without data.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes discarded at once.
const BUFFER: usize = 256 * 1024;

/// Arguments of `tcp-sink`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    at: net::Listening,
    /// End after this many measurements; 0: end only after --max
    #[arg(long, default_value_t = 0)]
    sessions: usize,
}

/// Serves until `--sessions` or `--max`, and prints the counts of each measurement.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let deadline = Instant::now() + args.at.max;
    let listener = net::listen(&args.at.listen)?;
    output::print_ready(listener.local_addr()?)?;
    let (finish, finished) = mpsc::sync_channel(CONNECTIONS_MAX);
    thread::spawn(move || Sink::new(finish).accept_all(&listener));
    let mut sessions = 0;
    while let Ok(ended) = finished.recv_timeout(deadline.saturating_duration_since(Instant::now()))
    {
        match ended {
            Ok(count) => output::print_line(&count)?,
            Err(e) => note!("tcp-sink: {e:#}"),
        }
        sessions += 1;
        if sessions == args.sessions {
            break;
        }
    }
    Ok(())
}

type SinkResult = anyhow::Result<TcpCount>;

/// The state shared by the sink's threads.
#[derive(Clone)]
struct Sink {
    sessions: Arc<Mutex<BTreeMap<u64, Arc<SinkSession>>>>,
    connections: Arc<AtomicUsize>,
    finish: mpsc::SyncSender<SinkResult>,
}

impl Sink {
    fn new(finish: mpsc::SyncSender<SinkResult>) -> Self {
        Self { sessions: Arc::default(), connections: Arc::default(), finish }
    }

    fn accept_all(&self, listener: &TcpListener) {
        loop {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(e) => {
                    let _ = self.finish.send(Err(e).context("cannot accept a connection"));
                    return;
                }
            };
            if self.connections.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
                self.connections.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let sink = self.clone();
            thread::spawn(move || {
                sink.serve(stream);
                sink.connections.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }

    fn serve(&self, mut stream: TcpStream) {
        let greeting = stream
            .set_read_timeout(Some(PATIENCE))
            .map_err(Into::into)
            .and_then(|()| read_hello(&mut stream));
        match greeting {
            Ok(Greeting::Measure(plan)) => {
                let _ = self.finish.send(self.measure(stream, plan));
            }
            Ok(Greeting::Flow { session, flow }) => match self.session(session) {
                Some(session) => discard(&stream, |n| session.count(flow, n, &stream)),
                None => note!("tcp-sink: refused a flow of an unknown measurement"),
            },
            Ok(Greeting::Discard) => discard(&stream, |_| {}),
            Err(e) => note!("tcp-sink: {e:#}"),
        }
    }

    fn session(&self, id: u64) -> Option<Arc<SinkSession>> {
        self.sessions.lock().get(&id).cloned()
    }

    fn measure(&self, stream: TcpStream, plan: TcpPlan) -> SinkResult {
        let session = Arc::new(SinkSession::new(plan)?);
        let lock = || self.sessions.lock();
        lock().insert(plan.session, Arc::clone(&session));
        let counted = session.conduct(stream);
        lock().remove(&plan.session);
        counted
    }
}

/// Discards all received bytes, and passes their number to `count`.
///
/// With `MSG_TRUNC` the kernel discards the bytes without copying (tcp(7)), so that the receiver takes as little CPU
/// time from the emulator as possible.
fn discard(stream: &TcpStream, mut count: impl FnMut(usize)) {
    let mut buffer = vec![0u8; BUFFER];
    while let Ok((_, n)) = rustix::net::recv(stream, &mut buffer[..], rustix::net::RecvFlags::TRUNC)
    {
        if n == 0 {
            return;
        }
        count(n);
    }
}

/// One measurement in progress.
struct SinkSession {
    plan: TcpPlan,
    started: OnceLock<Instant>,
    bytes: Vec<Vec<AtomicU64>>,
    receive_buffers: Vec<AtomicU64>,
}

impl SinkSession {
    fn new(plan: TcpPlan) -> anyhow::Result<Self> {
        let all = plan.bins().checked_mul(plan.flows as u64);
        if plan.bins() == 0 || !all.is_some_and(|n| (1..=BINS_MAX).contains(&n)) {
            bail!("a measurement needs 1 to {BINS_MAX} bins in all; choose wider ones");
        }
        let bins = plan.bins() as usize;
        let row = || (0..bins).map(|_| AtomicU64::new(0)).collect();
        Ok(Self {
            plan,
            started: OnceLock::new(),
            bytes: (0..plan.flows).map(|_| row()).collect(),
            receive_buffers: (0..plan.flows).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    /// Adds `n` bytes of `flow` to the present bin. Does nothing before and after the measurement.
    fn count(&self, flow: usize, n: usize, stream: &TcpStream) {
        let Some(bin) =
            self.started.get().map(|t| t.elapsed().as_nanos() / u128::from(self.plan.bin_ns))
        else {
            return;
        };
        let cell = usize::try_from(bin).ok().and_then(|bin| self.bytes.get(flow)?.get(bin));
        if let Some(cell) = cell
            && cell.fetch_add(n as u64, Ordering::Relaxed) == 0
        {
            let size = socket2::SockRef::from(stream).recv_buffer_size().unwrap_or(0);
            self.receive_buffers[flow].store(size as u64, Ordering::Relaxed);
        }
    }

    fn conduct(&self, stream: TcpStream) -> SinkResult {
        let mut control = Control::new(stream, PATIENCE)?;
        control.send(&SyncMessage::Ready)?;
        control.expect(SyncMessage::Go)?;
        self.started.get_or_init(Instant::now);
        control.send(&SyncMessage::Started)?;
        thread::sleep(Duration::from_nanos(self.plan.duration_ns));
        let count = self.report();
        control.send(&count)?;
        // The source sends a little longer than this side counts. Waiting for it keeps this process, which may end with
        // its last measurement, from breaking the flows.
        control.expect(SyncMessage::Done)?;
        Ok(count)
    }

    fn report(&self) -> TcpCount {
        let load = |c: &AtomicU64| c.load(Ordering::Relaxed);
        TcpCount {
            plan: self.plan,
            bytes: self.bytes.iter().map(|row| row.iter().map(load).collect()).collect(),
            receive_buffers: self.receive_buffers.iter().map(load).collect(),
        }
    }
}
