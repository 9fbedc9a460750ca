//! Measures how long streams stall when interfaces fail and recover, in several hosts at once.

use super::{
    super::{report::Report, server},
    gaps::{self, GapLine},
    trouble::{FailingInterface, FailureKind},
};
use crate::program;
use anyhow::{Context as _, ensure};
use parking_lot::Mutex;
use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::{Child, ChildStdin, Stdio},
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use thalweg_lab::client::Lab;
use thalweg_units::parse_duration;

/// The longest wait for a stream's first byte.
const BEGINS: Duration = Duration::from_secs(30);

/// All kinds of failures, to draw from.
const KINDS: [FailureKind; 4] =
    [FailureKind::Down, FailureKind::Blackhole, FailureKind::Loss, FailureKind::Address];

/// Arguments of `thalweg-bench load bond failover`.
#[derive(clap::Args)]
pub struct Args {
    /// The lab's socket
    #[arg(long, value_name = "SOCKET")]
    lab: PathBuf,
    /// The hosts with two interfaces; their streams run at the same time
    #[arg(long, value_name = "HOST,…", value_delimiter = ',', required = true)]
    hosts: Vec<String>,
    /// The kind of failure (default: any kind, at random times, of either interface)
    #[arg(long, value_enum)]
    kind: Option<FailureKind>,
    /// Number of failures in each host
    #[arg(long, default_value_t = 40)]
    events: usize,
    /// Time for which an interface is down; if random, up to twice as long
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    gone: Duration,
    /// Time for which it is up before the other interface fails
    #[arg(long, value_name = "TIME", default_value = "1500ms", value_parser = parse_duration)]
    back: Duration,
    /// Seed of the random failures
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Count a stream that breaks as stalled from then on, instead of ending the measurement
    #[arg(long)]
    may_break: bool,
    /// Address of the server in this host, whose memory is reported too
    #[arg(long, value_name = "ADDR:PORT")]
    far: Option<SocketAddr>,
    /// Run the streams under `mptcpize`
    #[arg(long)]
    mptcpize: bool,
    /// Remove and add MPTCP endpoints along with an interface's address, as NetworkManager does
    #[arg(long)]
    manage_endpoints: bool,
    /// Arguments of the streams, as for `bulk`
    #[arg(last = true)]
    stream: Vec<String>,
}

/// A stream in a host.
struct Stream {
    child: Child,
    /// Closing it ends the stream.
    input: Option<ChildStdin>,
    heard: Arc<Mutex<Vec<GapLine>>>,
    hears: JoinHandle<()>,
}

/// A failure and its times.
struct Event {
    kind: FailureKind,
    /// The index of the interface.
    which: usize,
    gone: Duration,
    back: Duration,
}

/// Measures and prints the report.
///
/// # Errors
/// When a stream breaks or carries a wrong byte.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let lab = Lab::attach(&args.lab)?;
    let victims = |host: &String| -> anyhow::Result<Vec<FailingInterface<'_>>> {
        let victim = |name: &&str| FailingInterface::new(&lab, host, name, args.manage_endpoints);
        ["wan0", "wan1"].iter().map(victim).collect()
    };
    let victims: Vec<Vec<FailingInterface<'_>>> =
        args.hosts.iter().map(victims).collect::<Result<_, _>>()?;
    let streams = args.hosts.iter().map(|host| Stream::begin(args, &lab, host));
    let mut streams: Vec<Stream> = streams.collect::<Result<_, _>>()?;
    streams.iter_mut().try_for_each(Stream::wait_until_begun)?;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(args.seed);
    let mut struck = Vec::with_capacity(args.events);
    let mut far_before = None;
    for number in 0..args.events {
        if number == args.events / 5 {
            streams.iter_mut().try_for_each(Stream::ask_memory)?;
            far_before = far_memory(args.far)?;
        }
        let event = draw_event(args, number, &mut rng);
        let hit: Vec<&FailingInterface<'_>> =
            victims.iter().filter_map(|all| all.get(event.which)).collect();
        struck.push(gaps::unix_nanos());
        hit.iter().try_for_each(|victim| victim.cause(event.kind))?;
        thread::sleep(event.gone);
        hit.iter().try_for_each(|victim| victim.repair(event.kind))?;
        thread::sleep(event.back);
    }
    struck.push(gaps::unix_nanos());
    let far_grown = far_memory(args.far)?.zip(far_before).map(|(after, before)| after / before);
    let end = |stream: Stream| stream.end(args.may_break);
    let records = streams.into_iter().map(end).collect::<anyhow::Result<Vec<_>>>()?;
    report(&struck, &records, far_grown)?.print().context("cannot print the report")
}

/// Memory of the server's process, kB.
fn far_memory(far: Option<SocketAddr>) -> anyhow::Result<Option<f64>> {
    let Some(far) = far else { return Ok(None) };
    let mut server =
        TcpStream::connect(far).context("cannot ask the server in this host for its memory")?;
    server.write_all(&[server::MEMORY])?;
    let mut kb = [0; 8];
    server.read_exact(&mut kb).context("the server does not report its memory")?;
    Ok(Some(u64::from_be_bytes(kb).max(1) as f64))
}

fn draw_event(args: &Args, number: usize, rng: &mut Xoshiro256PlusPlus) -> Event {
    if let Some(kind) = args.kind {
        return Event { kind, which: number % 2, gone: args.gone, back: args.back };
    }
    let mut share = || (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    let kind = KINDS[(share() * 4.0) as usize % 4];
    let which = usize::from(share() < 0.5);
    let (gone, back) = (args.gone.mul_f64(2.0 * share()), args.back.mul_f64(2.0 * share()));
    Event { kind, which, gone, back }
}

impl Stream {
    fn begin(args: &Args, lab: &Lab, host: &str) -> anyhow::Result<Self> {
        let program = program::own()?;
        let mut command = match args.mptcpize {
            true => {
                let mut command = lab.command(host, "mptcpize");
                command.arg("run").arg(program);
                command
            }
            false => lab.command(host, program),
        };
        command.args(["load", "bond", "gaps"]).args(&args.stream);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start a stream")?;
        let (input, output) =
            (child.stdin.take(), child.stdout.take().context("cannot read the stream's output")?);
        let heard: Arc<Mutex<Vec<GapLine>>> = Arc::default();
        let shared = Arc::clone(&heard);
        let hears = thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            for line in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
                shared.lock().push(line);
            }
        });
        Ok(Self { child, input, heard, hears })
    }

    fn wait_until_begun(&mut self) -> anyhow::Result<()> {
        let since = Instant::now();
        while self.heard.lock().is_empty() {
            ensure!(self.child.try_wait()?.is_none(), "a stream ended before its first byte");
            ensure!(since.elapsed() < BEGINS, "a stream did not begin in time");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn ask_memory(&mut self) -> anyhow::Result<()> {
        let input = self.input.as_mut().context("the stream has already ended")?;
        Ok(input.write_all(b"?")?)
    }

    /// Ends the stream and returns all its lines. If the stream broke, which `may_break` permits, its last line says
    /// so.
    fn end(mut self, may_break: bool) -> anyhow::Result<Vec<GapLine>> {
        let broke = self.child.try_wait()?;
        drop(self.input.take());
        let ended = self.child.wait()?;
        ensure!(ended.success() && broke.is_none() || may_break, "a stream broke: {ended}");
        ensure!(self.hears.join().is_ok(), "the thread that reads a stream panicked");
        Ok(std::mem::take(&mut *self.heard.lock()))
    }
}

/// The report of the stalls of all hosts after all events, ms.
fn report(struck: &[u64], records: &[Vec<GapLine>], far: Option<f64>) -> anyhow::Result<Report> {
    let over = *struck.last().context("there were no events")?;
    let streams = records.iter().map(|lines| StreamRecord::from_lines(lines, over));
    let streams: Vec<StreamRecord> = streams.collect::<anyhow::Result<_>>()?;
    let stalls = streams.iter().flat_map(|record| {
        struck.windows(2).map(|pair| longest_stall(pair[0], pair[1], &record.gaps))
    });
    let mut stalls: Vec<f64> = stalls.collect();
    stalls.sort_by(f64::total_cmp);
    let rank = |share: f64| {
        let at = (stalls.len() as f64 * share).ceil() as usize;
        stalls.get(at.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    };
    let mut report = Report::default();
    report.add("stall_p50", "ms", rank(0.5));
    report.add("stall_p99", "ms", rank(0.99));
    report.add("stall_max", "ms", rank(1.0));
    report.add("events", "events", stalls.len() as f64);
    report.add("broken", "streams", streams.iter().filter(|record| record.broke).count() as f64);
    let span = (over - struck.first().unwrap_or(&0)) as f64 / 1e9;
    let bytes: u64 = streams.iter().map(|record| record.bytes).sum();
    report.add("rate", "Mbit/s", bytes as f64 * 8e-6 / span / records.len() as f64);
    let grown = streams.iter().filter_map(|record| record.grown).fold(0.0, f64::max);
    report.add("memory_growth", "", grown);
    if let Some(far) = far {
        report.add("far_memory_growth", "", far);
    }
    Ok(report)
}

/// The record of one stream.
struct StreamRecord {
    gaps: Vec<(u64, u64)>,
    /// Right bytes received; 0 for a stream that broke.
    bytes: u64,
    /// The ratio of the memory at the end to that after a fifth of the events.
    grown: Option<f64>,
    broke: bool,
}

impl StreamRecord {
    /// Reads a stream's lines. A broken stream stalls until `over`.
    ///
    /// # Errors
    /// When the lines do not say how it ended.
    fn from_lines(lines: &[GapLine], over: u64) -> anyhow::Result<Self> {
        let mut record = Self { gaps: Vec::new(), bytes: 0, grown: None, broke: false };
        let (mut early, mut has_ended) = (None, false);
        for line in lines {
            match *line {
                GapLine::Begun => {}
                GapLine::Gap { from, to } => record.gaps.push((from, to)),
                GapLine::Memory { rss_kb } => early = Some(rss_kb.max(1) as f64),
                GapLine::Broke { at } => {
                    record.gaps.push((at, over.max(at)));
                    (record.broke, has_ended) = (true, true);
                }
                GapLine::Ended { bytes, rss_kb } => {
                    (record.bytes, has_ended) = (bytes, true);
                    record.grown = early.map(|early| rss_kb as f64 / early);
                }
            }
        }
        ensure!(has_ended, "a stream did not report how it ended");
        Ok(record)
    }
}

/// The longest pause that begins before the next event, counted from the event on to the pause's own end, ms. Pauses
/// shorter than [`gaps::PAUSE`] are not reported, so this is at least that long.
fn longest_stall(event: u64, next: u64, gaps: &[(u64, u64)]) -> f64 {
    let after = gaps.iter().filter(|(from, _)| *from < next);
    let longest = after.map(|(from, to)| to.saturating_sub(event.max(*from))).max().unwrap_or(0);
    (longest as f64 / 1e6).max(gaps::PAUSE.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_stall_lasts_from_its_event_to_its_own_end() {
        let gaps = [(90, 130), (140, 160), (190, 500)].map(|(from, to)| (from * MS, to * MS));
        let at = |event: u64, next: u64| longest_stall(event * MS, next * MS, &gaps);
        // A pause within the interval; one beyond the next event; one that began before the event; none.
        assert_eq!((at(100, 180), at(180, 300)), (30.0, 310.0));
        assert_eq!((at(300, 600), at(600, 700)), (200.0, 20.0));
    }

    #[test]
    fn a_broken_stream_stalls_until_the_end() {
        let lines = [GapLine::Begun, GapLine::Gap { from: 10, to: 20 }, GapLine::Broke { at: 70 }];
        let record = StreamRecord::from_lines(&lines, 100).unwrap();
        assert!(record.broke);
        assert_eq!(record.gaps, [(10, 20), (70, 100)]);
        let ended = GapLine::Ended { bytes: 3, rss_kb: 30 };
        let record =
            StreamRecord::from_lines(&[GapLine::Begun, GapLine::Memory { rss_kb: 20 }, ended], 100)
                .unwrap();
        assert_eq!((record.broke, record.bytes, record.grown), (false, 3, Some(1.5)));
        assert!(StreamRecord::from_lines(&lines[..2], 100).is_err());
    }
}
