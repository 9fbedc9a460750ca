//! A normal download beside one with `--background`, on one bottleneck.
//!
//! The normal one is a plain HTTP/1.1 request of this program; the other is `thalweg get --background`. Both run in this
//! host, which should have nothing else to receive, since its interfaces tell what the two get together. The results:
//!
//! - `normal_alone`, `background_alone`: the rate of each without the other;
//! - `beside`, `beside_latecomer`: the normal one's rate while both run; which one began first differs;
//! - `kept`, `kept_latecomer`: these as parts of `normal_alone`; the rest is what the background takes from it;
//! - `used`: `background_alone` over `normal_alone`; `filled`: what both get together over it. What interfaces count has
//!   the packets' headers in it, 4 % more than a file's bytes.

use super::report::Report;
use crate::program;
use anyhow::{Context as _, ensure};
use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle, sleep},
    time::{Duration, Instant},
};
use tempfile::TempDir;
use thalweg_units::parse_duration;

/// Arguments of `thalweg-bench load background`.
#[derive(clap::Args)]
pub struct Args {
    /// A large file: `http://HOST:PORT/PATH`
    #[arg(long)]
    url: String,
    /// The time at the beginning of each phase that is not measured
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    warmup: Duration,
    /// The measured time of each phase
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    span: Duration,
}

/// Runs the phases and prints the report.
///
/// # Errors
/// When a download cannot be started, or ends with an error.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut report = Report::default();
    let normal = Normal::start(&args.url)?;
    let alone = args.measure(&normal)?;
    let background = Background::start(&args.url)?;
    let latecomer = args.measure(&normal)?;
    normal.end()?;
    drop(background);

    let background = Background::start(&args.url)?;
    let background_alone = args.measure_all()?;
    let normal = Normal::start(&args.url)?;
    sleep(args.warmup);
    let (bytes, all, begun) = (normal.bytes(), received()?, Instant::now());
    sleep(args.span);
    let seconds = begun.elapsed().as_secs_f64();
    let beside = megabits(normal.bytes() - bytes, seconds);
    let together = megabits(received()? - all, seconds);
    normal.end()?;
    drop(background);

    for (name, rate) in [
        ("normal_alone", alone),
        ("background_alone", background_alone),
        ("beside", beside),
        ("beside_latecomer", latecomer),
    ] {
        report.add(name, "Mbit/s", rate);
    }
    for (name, rate) in [
        ("kept", beside),
        ("kept_latecomer", latecomer),
        ("used", background_alone),
        ("filled", together),
    ] {
        report.add(name, "%", 100.0 * rate / alone);
    }
    report.print().context("cannot print the report")
}

impl Args {
    /// The rate of the normal download after the warm-up, Mbit/s.
    fn measure(&self, normal: &Normal) -> anyhow::Result<f64> {
        self.rate(|| Ok(normal.bytes()))
    }

    /// The rate of all that this host receives.
    fn measure_all(&self) -> anyhow::Result<f64> {
        self.rate(received)
    }

    fn rate(&self, count: impl Fn() -> anyhow::Result<u64>) -> anyhow::Result<f64> {
        sleep(self.warmup);
        let (before, begun) = (count()?, Instant::now());
        sleep(self.span);
        let moved = count()? - before;
        ensure!(moved > 0, "nothing arrived within {:?}", self.span);
        Ok(megabits(moved, begun.elapsed().as_secs_f64()))
    }
}

fn megabits(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 * 8e-6 / seconds
}

/// The bytes that all interfaces but loopback have received.
fn received() -> anyhow::Result<u64> {
    let text = fs::read_to_string("/proc/net/dev").context("cannot read the interfaces")?;
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let others = lines.filter(|(name, _)| name.trim() != "lo");
    Ok(others.filter_map(|(_, rest)| rest.split_whitespace().next()?.parse::<u64>().ok()).sum())
}

/// A plain download, on a thread, again and again.
struct Normal {
    bytes: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<()>>,
}

impl Normal {
    fn start(url: &str) -> anyhow::Result<Self> {
        let rest = url.strip_prefix("http://").context("the URL must begin with http://")?;
        let (host, path) = rest.split_once('/').context("the URL names no file")?;
        let (host, path) = (host.to_owned(), path.to_owned());
        let (bytes, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, over) = (Arc::clone(&bytes), Arc::clone(&is_over));
        let thread = thread::Builder::new().name("normal".into()).spawn(move || {
            while !over.load(Ordering::Relaxed) {
                download(&host, &path, &count, &over).context("the normal download failed")?;
            }
            Ok(())
        })?;
        Ok(Self { bytes, is_over, thread })
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn end(self) -> anyhow::Result<()> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow::anyhow!("the normal download panicked"))?
    }
}

/// Downloads the file once and counts its bytes.
fn download(host: &str, path: &str, count: &AtomicU64, over: &AtomicBool) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(host)?;
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
    let mut buffer = vec![0; 1 << 16];
    while !over.load(Ordering::Relaxed) {
        match stream.read(&mut buffer)? {
            0 => break,
            n => count.fetch_add(n as u64, Ordering::Relaxed),
        };
    }
    Ok(())
}

/// `thalweg get --background`; ended when dropped.
struct Background {
    child: Child,
    _dir: TempDir,
}

impl Background {
    fn start(url: &str) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let mut command = Command::new(program::product()?);
        command.args(["get", "--background", "--path", "direct", "--history", "none", "-q", url]);
        command.arg("-o").arg(dir.path().join("file")).env("THALWEG_STATE", dir.path());
        command.env("XDG_CONFIG_HOME", dir.path()).stdin(Stdio::null()).stdout(Stdio::null());
        Ok(Self { child: command.spawn().context("cannot start thalweg get")?, _dir: dir })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // It has most probably not ended by itself; its directory goes with it.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
