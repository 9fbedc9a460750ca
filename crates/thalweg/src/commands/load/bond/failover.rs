//! Streams in several hosts at once, whose interfaces are lost and come back; how long each stands still.

use super::{
    super::report::Report,
    gaps::{self, Line},
    trouble::{Kind, Victim},
};
use anyhow::{Context as _, bail, ensure};
use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::{
    env,
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::{Child, ChildStdin, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use thalweg_lab::client::Lab;
use thalweg_units::parse_duration;

/// A stream begins by then.
const BEGINS: Duration = Duration::from_secs(30);

/// All kinds of trouble, for who takes them by chance.
const KINDS: [Kind; 4] = [Kind::Down, Kind::Blackhole, Kind::Loss, Kind::Address];

/// Arguments of `thalweg load bond failover`.
#[derive(clap::Args)]
pub struct Args {
    /// The lab's socket
    #[arg(long, value_name = "SOCKET")]
    lab: PathBuf,
    /// The hosts with two interfaces; all streams at the same time
    #[arg(long, value_name = "HOST,…", value_delimiter = ',', required = true)]
    hosts: Vec<String>,
    /// What goes wrong; absent: any of these, at random times, with either interface
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// How often, in each host
    #[arg(long, default_value_t = 40)]
    events: usize,
    /// An interface is away so long; at random: up to twice as long
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    gone: Duration,
    /// And there so long before the other is away
    #[arg(long, value_name = "TIME", default_value = "1500ms", value_parser = parse_duration)]
    back: Duration,
    /// Of what is random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run the streams under `mptcpize`
    #[arg(long)]
    mptcpize: bool,
    /// Arguments of the streams, as of `bulk`
    #[arg(last = true)]
    stream: Vec<String>,
}

/// A stream in a host.
struct Stream {
    child: Child,
    /// Dropped, it has it end.
    input: Option<ChildStdin>,
    heard: Arc<Mutex<Vec<Line>>>,
    hears: JoinHandle<()>,
}

/// What happens next.
struct Event {
    kind: Kind,
    /// Which interface.
    which: usize,
    gone: Duration,
    back: Duration,
}

/// Measures, and prints the report.
///
/// # Errors
/// When a stream breaks, or carries a wrong byte.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let lab = Lab::attach(&args.lab)?;
    let victims = |host: &String| -> anyhow::Result<Vec<Victim<'_>>> {
        ["wan0", "wan1"].iter().map(|name| Victim::new(&lab, host, name)).collect()
    };
    let victims: Vec<Vec<Victim<'_>>> = args.hosts.iter().map(victims).collect::<Result<_, _>>()?;
    let streams = args.hosts.iter().map(|host| Stream::begin(args, &lab, host));
    let mut streams: Vec<Stream> = streams.collect::<Result<_, _>>()?;
    streams.iter_mut().try_for_each(Stream::begun)?;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(args.seed);
    let mut struck = Vec::with_capacity(args.events);
    for number in 0..args.events {
        if number == args.events / 5 {
            streams.iter_mut().try_for_each(Stream::ask_memory)?;
        }
        let event = event(args, number, &mut rng);
        let hit: Vec<&Victim<'_>> = victims.iter().filter_map(|all| all.get(event.which)).collect();
        struck.push(gaps::now());
        hit.iter().try_for_each(|victim| victim.strike(event.kind))?;
        thread::sleep(event.gone);
        hit.iter().try_for_each(|victim| victim.mend(event.kind))?;
        thread::sleep(event.back);
    }
    struck.push(gaps::now());
    let told = streams.into_iter().map(Stream::end).collect::<anyhow::Result<Vec<_>>>()?;
    report(&struck, &told)?.print().context("cannot print the report")
}

fn event(args: &Args, number: usize, rng: &mut Xoshiro256PlusPlus) -> Event {
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
        let program = env::current_exe()?;
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
        let (input, output) = (child.stdin.take(), child.stdout.take().context("its output")?);
        let heard: Arc<Mutex<Vec<Line>>> = Arc::default();
        let told = Arc::clone(&heard);
        let hears = thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            for line in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
                told.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        Ok(Self { child, input, heard, hears })
    }

    fn begun(&mut self) -> anyhow::Result<()> {
        let since = Instant::now();
        while self.heard.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            ensure!(self.child.try_wait()?.is_none(), "a stream ended before it began");
            ensure!(since.elapsed() < BEGINS, "a stream does not begin");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn ask_memory(&mut self) -> anyhow::Result<()> {
        let input = self.input.as_mut().context("it runs")?;
        Ok(input.write_all(b"?")?)
    }

    fn end(mut self) -> anyhow::Result<Vec<Line>> {
        if let Some(ended) = self.child.try_wait()? {
            bail!("a stream broke: {ended}");
        }
        drop(self.input.take());
        let ended = self.child.wait()?;
        ensure!(ended.success(), "a stream broke: {ended}");
        let heard = self.hears.join();
        ensure!(heard.is_ok(), "nobody heard it");
        Ok(std::mem::take(&mut *self.heard.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Stalls of all hosts after all events, ms, each from the event on and until the next.
fn report(struck: &[u64], told: &[Vec<Line>]) -> anyhow::Result<Report> {
    let mut stalls = Vec::new();
    let (mut bytes, mut grown) = (0, 0.0f64);
    for lines in told {
        stalls.extend(struck.windows(2).map(|pair| stall(pair[0], pair[1], lines)));
        let early = lines.iter().find_map(|line| match line {
            Line::Memory { rss_kb } => Some(*rss_kb),
            _ => None,
        });
        let Some(Line::Ended { bytes: came, rss_kb }) = lines.last() else {
            bail!("a stream did not say how it ended");
        };
        bytes += came;
        grown = grown.max(*rss_kb as f64 / early.context("it was asked")?.max(1) as f64);
    }
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
    let span = (struck.last().unwrap_or(&0) - struck.first().unwrap_or(&0)) as f64 / 1e9;
    report.add("rate", "Mbit/s", bytes as f64 * 8e-6 / span / told.len() as f64);
    report.add("memory_growth", "", grown);
    Ok(report)
}

/// The longest time without a byte in `from..until`, ms.
fn stall(from: u64, until: u64, lines: &[Line]) -> f64 {
    let within = lines.iter().filter_map(|line| match line {
        Line::Gap { from: began, to } => Some(to.min(&until).saturating_sub(*began.max(&from))),
        _ => None,
    });
    within.max().unwrap_or(0) as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_counted_from_its_event_on() {
        let gap = |from: u64, to: u64| Line::Gap { from: from * 1_000_000, to: to * 1_000_000 };
        let lines = [Line::Begun, gap(90, 130), gap(140, 160), gap(190, 500)];
        let at = |from: u64, until: u64| stall(from * 1_000_000, until * 1_000_000, &lines);
        assert_eq!((at(100, 180), at(180, 300), at(600, 700)), (30.0, 110.0, 0.0));
    }
}
