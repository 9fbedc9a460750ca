//! `thalweg-bench load stream-fanout`: one publication and many subscribers, for the experiment of that name.
//!
//! ```text
//!                    ┌── high1, high2, …      8 Mbit/s each
//! studio ─── hub ────┼── medium1, medium2, …  4 Mbit/s each
//!                    ├── low1, low2, …        2 Mbit/s each
//!                    └── far                  1 Mbit/s       gs (oracle): a link of its own to all
//! ```
//!
//! The hub has the whole ladder, because of a subscriber of its own, and relays it. All hosts run nodes. Each
//! subscriber is a process `thalweg stream subscribe` at one of them; subscribers at one node share its leg. The ladder
//! has three renditions, and a host's subscribers request the one that fits its link. With `--trouble` there are two
//! more: one at `high1` whose output nobody reads, and one at `far`.

use super::{
    super::{
        carrier_hosts::CarrierHosts,
        mgrp::{program::Program, starved::Starved},
        process,
        report::Report,
    },
    media::{GROUP, PERIOD, shape},
    process::StreamProcess,
};
use anyhow::{Context as _, ensure};
use bytes::Bytes;
use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    process::{ChildStdin, ChildStdout},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use thalweg_lab::{client::Lab, stats::Stats, topology::Topology};
use thalweg_media::Frame;
use thalweg_stream::{
    container::{PlainSplitter, Splitter as _},
    local,
};
use thalweg_units::parse_duration;
use thalweg_wire::stream::leg::FrameHead;

/// The port of the nodes.
const PORT: u16 = 7373;

/// The renditions: their hosts' names, the rates of these hosts' links in Mbit/s, and the lengths of frames relative
/// to Table 2's.
const LADDER: [(&str, f64, f64); 3] = [("high", 8.0, 2.0), ("medium", 4.0, 1.0), ("low", 2.0, 0.5)];

/// The link of the subscriber at `far`, Mbit/s: less than a rendition and a half.
const FAR: f64 = 1.0;

/// The longest wait for the first frame at all subscribers.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How long the publication runs before anybody subscribes.
const LEAD: Duration = Duration::from_secs(3);

/// How long all subscribers receive frames before counting begins.
const SETTLE: Duration = Duration::from_secs(2);

/// Arguments of `thalweg-bench load stream-fanout`.
#[derive(clap::Args)]
pub struct Args {
    /// The number of subscribers; subscriber n is at host n, and its rendition is n modulo three
    #[arg(long, default_value_t = 98)]
    subscribers: usize,
    /// Add a subscriber whose output nobody reads, and one on a link of 1 Mbit/s
    #[arg(long)]
    trouble: bool,
    /// The number of hosts of each rendition
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u8).range(1..=80))]
    hosts: u8,
    /// How long frames are counted
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    span: Duration,
    /// The deadline: frames that are older on arrival do not count
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    latency: Duration,
    /// The lab's seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Copy the logs of nodes and commands to this directory
    #[arg(long, value_name = "DIRECTORY")]
    logs: Option<PathBuf>,
}

/// The hosts of subscribers: their names, renditions and links' rates in Mbit/s.
fn receivers(args: &Args) -> Vec<(String, usize, f64)> {
    let of = |number: u8| {
        let named = move |(at, (name, rate, _)): (usize, &(&str, f64, f64))| {
            (format!("{name}{number}"), at, *rate)
        };
        LADDER.iter().enumerate().map(named)
    };
    (1..=args.hosts).flat_map(of).collect()
}

fn topology(args: &Args) -> String {
    let mut text = format!("seed = {}\ncongestion = \"cubic\"\nbin = \"100 ms\"\n", args.seed);
    let far = ("far".to_owned(), 0, FAR);
    let receivers: Vec<_> = receivers(args).into_iter().chain([far]).collect();
    let names = receivers.iter().map(|(name, ..)| name.as_str());
    let names: Vec<&str> = ["gs", "studio", "hub"].into_iter().chain(names).collect();
    for name in &names {
        _ = writeln!(text, "[host.{name}]");
    }
    _ = write!(
        text,
        "[link.control]\nrate = \"100 Mbit/s\"\nqueue = \"1 MB\"\ndelay = \"5 ms\"\n\
         [link.studio]\nrate = \"20 Mbit/s\"\nqueue = \"150 kB\"\ndelay = \"10 ms\"\n\
         [[path]]\nfrom = \"studio\"\nto = \"hub\"\nlinks = [\"studio\"]\n"
    );
    for name in &names[1..] {
        _ = write!(text, "[[path]]\nfrom = \"gs\"\nto = \"{name}\"\nlinks = [\"control\"]\n");
    }
    for (name, _, rate) in &receivers {
        // A queue of 100 ms.
        let queue = rate * 1e5 / 8.0;
        _ = write!(
            text,
            "[link.{name}]\nrate = \"{rate} Mbit/s\"\nqueue = \"{queue} B\"\ndelay = \"10 ms\"\n\
             [[path]]\nfrom = \"hub\"\nto = \"{name}\"\nlinks = [\"{name}\"]\n"
        );
    }
    text
}

/// The settings of all nodes but the oracle's. Nothing but the stream crosses the links.
fn settings(is_hub: bool) -> String {
    format!(
        "[log]\nformat = \"json\"\n[measure]\nenabled = false\n[oracle.measure]\nenabled = false\n\
         [relay]\nallow_to = [\"10.0.0.0/8\", \"fd54::/16\"]\n\
         [stream]\nsubscribe = [\"*\"]\nrelay = {is_hub}\nmeasure = \"off\"\nscheduler = \"local\"\n"
    )
}

/// The mesh; stopped on drop.
struct FanoutMesh<'a> {
    hosts: CarrierHosts<'a>,
    studio: Program,
    hub: Program,
    _others: Vec<Program>,
}

impl<'a> FanoutMesh<'a> {
    fn create(lab: &'a Lab, dir: &'a Path, args: &Args) -> anyhow::Result<Self> {
        fs::write(dir.join("node.toml"), settings(false))?;
        fs::write(dir.join("hub.toml"), settings(true))?;
        fs::write(dir.join("gs.toml"), "[oracle.measure]\nenabled = false\n")?;
        let hosts = CarrierHosts { lab, dir, port: PORT };
        hosts.create_mesh("gs")?;
        let oracle = hosts.start_node("gs", "gs.toml")?;
        let names = receivers(args).into_iter().map(|(name, ..)| (name, "node.toml"));
        let first = [("studio".to_owned(), "node.toml"), ("hub".to_owned(), "hub.toml")];
        let all: Vec<_> =
            first.into_iter().chain(names).chain([("far".to_owned(), "node.toml")]).collect();
        let mut nodes = hosts.join_and_start("gs", &all)?.into_iter();
        let (studio, hub) = nodes.next().zip(nodes.next()).context("two nodes")?;
        Ok(Self { hosts, studio, hub, _others: nodes.chain([oracle]).collect() })
    }
}

/// The bytes of frames by rendition and position in a group.
struct Ladder {
    content: Bytes,
}

impl Ladder {
    fn new() -> Self {
        Self {
            content: (0..64_u32 << 10)
                .map(|n| (n.wrapping_mul(2_654_435_761) >> 7) as u8)
                .collect(),
        }
    }

    fn frame(&self, place: u64, rendition: usize) -> Frame {
        let (class, length) = shape(place);
        let bytes = self.content.slice(..(length as f64 * LADDER[rendition].2) as usize);
        Frame { track: rendition as u8, class, time: PERIOD * place as u32, bytes }
    }

    /// The rate of the whole ladder, Mbit/s.
    fn rate(&self) -> f64 {
        let of_place = |place| {
            let of = |rendition| self.frame(place, rendition).bytes.len();
            (0..LADDER.len()).map(of).sum::<usize>()
        };
        let bytes: usize = (0..GROUP).map(of_place).sum();
        bytes as f64 * 8e-6 / (PERIOD.as_secs_f64() * GROUP as f64)
    }

    /// Writes frames in real time until told to stop.
    fn feed(&self, mut to: ChildStdin, began: Instant, stop: &AtomicBool) -> std::io::Result<()> {
        for place in 0.. {
            thread::sleep(
                (began + PERIOD * place as u32).saturating_duration_since(Instant::now()),
            );
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let mut all = Vec::new();
            for rendition in 0..LADDER.len() {
                let frame = self.frame(place, rendition);
                let head = FrameHead {
                    sequence: place * LADDER.len() as u64 + rendition as u64,
                    track: frame.track,
                    class: frame.class as u8,
                    time_us: frame.time.as_micros() as u64,
                    age_us: 0,
                    sent_us: 0,
                    length: frame.bytes.len() as u32,
                };
                all.extend_from_slice(&PlainSplitter::encode(head, &frame));
            }
            to.write_all(&all)?;
        }
        Ok(())
    }
}

/// A frame at a subscriber.
#[derive(Clone, Copy, Debug, PartialEq)]
struct FrameArrival {
    place: u32,
    track: u8,
    bytes: u32,
    age: Duration,
}

/// Reads the output of a subscriber to its end. Frames that cannot be decoded are not in it.
fn read(mut from: ChildStdout, began: Instant, started: &AtomicUsize) -> Vec<FrameArrival> {
    let (mut splitter, mut frames) = (PlainSplitter::default(), Vec::new());
    let (mut buffer, mut arrivals) = (vec![0; 64 << 10], Vec::new());
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if splitter.push(&buffer[..read], &mut frames).is_err() {
            break;
        }
        for frame in frames.drain(..).filter(|frame| frame.class.is_video()) {
            if arrivals.is_empty() {
                started.fetch_add(1, Ordering::Relaxed);
            }
            let place = (frame.time.as_secs_f64() / PERIOD.as_secs_f64()).round() as u32;
            arrivals.push(FrameArrival {
                place,
                track: frame.track,
                bytes: frame.bytes.len() as u32,
                age: (began + PERIOD * place).elapsed(),
            });
        }
    }
    arrivals
}

/// A running subscriber.
struct Subscriber {
    process: StreamProcess,
    reader: JoinHandle<Vec<FrameArrival>>,
    rendition: usize,
}

impl Subscriber {
    fn end(self) -> anyhow::Result<(usize, Vec<FrameArrival>)> {
        drop(self.process);
        let arrivals = self.reader.join().ok().context("a reader panicked")?;
        Ok((self.rendition, arrivals))
    }
}

/// Runs the experiment and prints the report.
///
/// # Errors
/// When a component does not start or fails.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let topology = Topology::from_toml(&topology(args))?;
    let directory = tempfile::TempDir::new().context("cannot create a directory")?;
    let lab = Lab::start(&topology)?;
    let done =
        FanoutMesh::create(&lab, directory.path(), args).and_then(|mesh| run_streams(args, &mesh));
    if let Some(kept) = &args.logs {
        for entry in fs::read_dir(directory.path())? {
            let path = entry?.path();
            if let Some(name) = path.file_name().filter(|_| path.is_file()) {
                fs::copy(&path, kept.join(name))?;
            }
        }
    }
    done?.print().context("cannot print the report")
}

/// Publishes and subscribes, and counts.
fn run_streams(args: &Args, mesh: &FanoutMesh<'_>) -> anyhow::Result<Report> {
    let latency = format!("{}ms", args.latency.as_millis());
    let publish = ["publish", "stage", "--format", "frames", "--latency", &latency];
    let mut publisher = StreamProcess::start(&mesh.hosts, "studio", true, &publish)?;
    let input = publisher.take_input()?;
    let (ladder, began, stop) = (Ladder::new(), Instant::now(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            // If the publisher ends early, the subscribers' frames are missing.
            _ = ladder.feed(input, began, &stop);
        });
        let done = observe(args, mesh, began, ladder.rate());
        stop.store(true, Ordering::Relaxed);
        // Otherwise a publisher that does not read could block the writer.
        drop(publisher);
        done
    })
}

/// What the source and the hub have spent.
struct ResourceUse {
    stats: Stats,
    studio: f64,
    hub: f64,
}

impl ResourceUse {
    fn read(mesh: &FanoutMesh<'_>) -> anyhow::Result<Self> {
        let cpu = |node: &Program| {
            process::family(node.id())
                .into_iter()
                .map(process::cpu_seconds)
                .sum::<anyhow::Result<f64>>()
        };
        let (studio, hub) = (cpu(&mesh.studio)?, cpu(&mesh.hub)?);
        Ok(Self { stats: mesh.hosts.lab.stats(false)?, studio, hub })
    }

    /// Adds what source and hub have spent since an earlier state.
    fn add_costs(&self, before: &Self, args: &Args, ladder: f64, report: &mut Report) {
        let seconds = args.span.as_secs_f64();
        let mbps = |bytes: f64| bytes * 8e-6 / seconds;
        let sent = mbps(self.passed_bytes(before, "studio.fwd"));
        report.add("source_sent", "Mbit/s", sent);
        report.add("source_ladders", "", sent / ladder);
        report.add("source_cpu", "%", 100.0 * (self.studio - before.studio) / seconds);
        let hosts = receivers(args).into_iter().map(|(name, ..)| name);
        let by_hub = hosts.map(|name| self.passed_bytes(before, &format!("{name}.fwd"))).sum();
        report.add("hub_sent", "Mbit/s", mbps(by_hub));
        report.add("hub_cpu", "%", 100.0 * (self.hub - before.hub) / seconds);
    }

    /// The bytes that passed a link's half since an earlier state.
    fn passed_bytes(&self, before: &Self, half: &str) -> f64 {
        let of = |spent: &Self| spent.stats.link(half).map_or(0.0, |link| link.bytes as f64);
        of(self) - of(before)
    }
}

/// All subscribers; ended on drop.
struct Subscribers {
    /// The one at the hub, which keeps the whole ladder there.
    _hub: Subscriber,
    others: Vec<Subscriber>,
    /// The one whose output nobody reads.
    staller: Option<StreamProcess>,
    /// The one on the narrow link.
    far: Option<Subscriber>,
}

impl Subscribers {
    /// Starts the subscribers and waits until each has a frame.
    fn start(args: &Args, mesh: &FanoutMesh<'_>, began: Instant) -> anyhow::Result<Self> {
        let started = Arc::new(AtomicUsize::new(0));
        let latency = format!("{}ms", args.latency.as_millis());
        let subscribe = |host: &str, rendition: &str| {
            let from = if host == "hub" { "studio" } else { "hub" };
            let ask = ["subscribe", "stage", "--format", "frames", "--latency", &latency];
            let args = [&ask[..], &["--rendition", rendition, "--from", from]].concat();
            StreamProcess::start(&mesh.hosts, host, false, &args)
        };
        let begin = |host: &str, rendition: &str, number: usize| {
            let mut process = subscribe(host, rendition)?;
            let output = process.take_output()?;
            let started = Arc::clone(&started);
            let reader = thread::spawn(move || read(output, began, &started));
            anyhow::Ok(Subscriber { process, reader, rendition: number })
        };
        let hub = begin("hub", "all", 0)?;
        wait_for_all(&started, 1)?;
        let hosts = receivers(args);
        let others = hosts.iter().cycle().take(args.subscribers);
        let others = others.map(|(host, at, _)| begin(host, &at.to_string(), *at));
        let others = others.collect::<anyhow::Result<Vec<_>>>()?;
        let staller = args.trouble.then(|| subscribe(&hosts[0].0, "0")).transpose()?;
        let far = args.trouble.then(|| begin("far", "auto", 0)).transpose()?;
        wait_for_all(&started, 1 + others.len() + usize::from(args.trouble))?;
        Ok(Self { _hub: hub, others, staller, far })
    }
}

/// Whether a leg at the node of the first host has dropped frames for lack of room or lateness, or was ended: that of
/// the subscriber that does not read, because the others there receive all frames.
fn is_stalled(args: &Args, mesh: &FanoutMesh<'_>) -> anyhow::Result<bool> {
    let hosts = receivers(args);
    let socket = mesh.hosts.dir.join(&hosts[0].0).join("stream.sock");
    let status = crate::runtime()?.block_on(local::status(&socket))?;
    let legs = status["streams"][0]["legs"].as_array().context("the host has no stream")?;
    let counts = |leg: &serde_json::Value| {
        let reasons =
            ["room", "late"].into_iter().filter_map(|why| leg["dropped"][why].as_array().cloned());
        let counts = reasons.flatten();
        counts.filter_map(|count| count.as_u64()).sum::<u64>()
    };
    let is_ended = legs.len() <= args.subscribers.div_ceil(hosts.len());
    Ok(is_ended || legs.iter().map(counts).sum::<u64>() > 0)
}

fn observe(
    args: &Args,
    mesh: &FanoutMesh<'_>,
    began: Instant,
    ladder: f64,
) -> anyhow::Result<Report> {
    let since = began.elapsed() + LEAD;
    thread::sleep(LEAD);
    let crowd = Subscribers::start(args, mesh, began)?;
    let started = began.elapsed() - since;
    thread::sleep(SETTLE);
    mesh.hosts.lab.reset_stats()?;
    let (starved, before) = (Starved::watch(), ResourceUse::read(mesh)?);
    let window = Window::from(began.elapsed(), args);
    thread::sleep(args.span);
    let (after, starved) = (ResourceUse::read(mesh)?, starved.end());
    let mut report = Report::default();
    report.add("started", "s", started.as_secs_f64());
    if crowd.staller.is_some() {
        report.add("stalled", "", f64::from(is_stalled(args, mesh)?));
    }
    thread::sleep(args.latency);
    let others = crowd.others.into_iter().map(Subscriber::end);
    window.add_others(&others.collect::<anyhow::Result<Vec<_>>>()?, &mut report);
    if let Some(far) = crowd.far {
        window.add_far(&far.end()?.1, &mut report);
    }
    report.add("ladder", "Mbit/s", ladder);
    after.add_costs(&before, args, ladder, &mut report);
    report.add("lateness_p99", "us", after.stats.lateness.p99_us as f64);
    report.add("cpu_pressure", "%", starved);
    Ok(report)
}

fn wait_for_all(started: &AtomicUsize, awaited: usize) -> anyhow::Result<()> {
    let since = Instant::now();
    while started.load(Ordering::Relaxed) < awaited {
        let count = started.load(Ordering::Relaxed);
        ensure!(
            since.elapsed() < TIMEOUT,
            "{count} of {awaited} subscribers got a frame within {TIMEOUT:?}"
        );
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The frames that count.
struct Window {
    from: u32,
    count: u32,
    latency: Duration,
}

impl Window {
    /// The frames that are due in the span from `since` the first frame.
    fn from(since: Duration, args: &Args) -> Self {
        let places = |time: Duration| (time.as_secs_f64() / PERIOD.as_secs_f64()).ceil() as u32;
        Self { from: places(since), count: places(args.span), latency: args.latency }
    }

    /// The arrivals of the window that were in time.
    fn in_time<'a>(
        &self,
        arrivals: &'a [FrameArrival],
    ) -> impl Iterator<Item = &'a FrameArrival> + use<'a> {
        let (from, until, latency) = (self.from, self.from + self.count, self.latency);
        arrivals.iter().filter(move |one| (from..until).contains(&one.place) && one.age <= latency)
    }

    fn seconds(&self) -> f64 {
        f64::from(self.count) * PERIOD.as_secs_f64()
    }

    /// Adds the figures of the subscribers without trouble.
    fn add_others(&self, others: &[(usize, Vec<FrameArrival>)], report: &mut Report) {
        let share = |arrivals: &[FrameArrival]| {
            100.0 * self.in_time(arrivals).count() as f64 / f64::from(self.count)
        };
        let least = others.iter().map(|(_, arrivals)| share(arrivals)).reduce(f64::min);
        report.add("least", "%", least.unwrap_or(f64::NAN));
        for (rendition, (name, ..)) in LADDER.iter().enumerate() {
            let of = others.iter().filter(|(own, _)| *own == rendition);
            let shares: Vec<f64> = of.map(|(_, arrivals)| share(arrivals)).collect();
            report.add(*name, "%", shares.iter().sum::<f64>() / shares.len() as f64);
        }
        let mut ages: Vec<Duration> = others
            .iter()
            .flat_map(|(_, arrivals)| self.in_time(arrivals).map(|arrival| arrival.age))
            .collect();
        ages.sort_unstable();
        for percent in [50, 99] {
            let at = (percent * ages.len()).div_ceil(100).saturating_sub(1);
            let age = ages.get(at).map_or(f64::NAN, Duration::as_secs_f64);
            report.add(format!("age_p{percent}"), "ms", age * 1e3);
        }
        let all = others.iter().map(|(_, arrivals)| arrivals.as_slice());
        report.series("fps_others", self.by_second(all, others.len()));
    }

    /// Adds the figures of the subscriber on the narrow link.
    fn add_far(&self, arrivals: &[FrameArrival], report: &mut Report) {
        // While the rendition changes, frames of two may come.
        let places: BTreeSet<u32> = self.in_time(arrivals).map(|arrival| arrival.place).collect();
        report.add("far", "%", 100.0 * places.len() as f64 / f64::from(self.count));
        let bytes: f64 = self.in_time(arrivals).map(|arrival| f64::from(arrival.bytes)).sum();
        report.add("far_rate", "Mbit/s", bytes * 8e-6 / self.seconds());
        report.series("fps_far", self.by_second([arrivals].into_iter(), 1));
    }

    /// Frames in time by second, the mean of `count` subscribers.
    fn by_second<'a>(
        &self,
        all: impl Iterator<Item = &'a [FrameArrival]>,
        count: usize,
    ) -> Vec<[f64; 2]> {
        // Whole seconds only.
        let mut seconds = vec![0_u32; self.seconds() as usize];
        for arrival in all.flat_map(|arrivals| self.in_time(arrivals)) {
            let at = (PERIOD * (arrival.place - self.from)).as_secs() as usize;
            if let Some(second) = seconds.get_mut(at) {
                *second += 1;
            }
        }
        let mean =
            |(at, frames): (usize, &u32)| [at as f64, f64::from(*frames) / count.max(1) as f64];
        seconds.iter().enumerate().map(mean).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct TestCli {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn the_network_and_the_ladder_are_what_the_plan_says() {
        let args = TestCli::parse_from(["x"]).args;
        let all = receivers(&args);
        let resolved = Topology::from_toml(&topology(&args)).unwrap().resolve().unwrap();
        assert_eq!((all.len(), resolved.hosts.len()), (21, 25));
        assert_eq!(all[3], ("high2".to_owned(), 0, 8.0));
        assert!((Ladder::new().rate() - 4.06).abs() < 0.01);
    }

    #[test]
    fn frames_count_in_the_window_and_in_time() {
        let window = Window { from: 30, count: 60, latency: Duration::from_millis(500) };
        let arrival = |place, ms| FrameArrival {
            place,
            track: 0,
            bytes: 1000,
            age: Duration::from_millis(ms),
        };
        // One is before the window, one after it, and the last second has one late frame.
        let whole: Vec<FrameArrival> =
            (29..=90).map(|n| arrival(n, if n == 70 { 501 } else { 9 })).collect();
        let half: Vec<FrameArrival> = (30..60).map(|n| arrival(n, 9)).collect();
        let mut report = Report::default();
        window.add_others(&[(0, whole), (2, half)], &mut report);
        let value = |name| report.value(name).and_then(serde_json::Value::as_f64);
        assert_eq!(value("least"), Some(50.0));
        assert_eq!(value("high").map(f64::round), Some(98.0));
        assert_eq!((value("medium"), value("low")), (None, Some(50.0)));
        assert_eq!(value("age_p99"), Some(9.0));
    }

    #[test]
    fn a_subscribers_output_is_read_as_arrivals() {
        let ladder = Ladder::new();
        use std::process::{Command, Stdio};
        let mut program =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (program.stdin.take().unwrap(), program.stdout.take().unwrap());
        let (began, stop, started) = (Instant::now(), AtomicBool::new(false), AtomicUsize::new(0));
        let arrivals = thread::scope(|scope| {
            let feeder = scope.spawn(|| ladder.feed(input, began, &stop));
            let reader = scope.spawn(|| read(output, began, &started));
            while started.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
            feeder.join().unwrap().unwrap();
            reader.join().unwrap()
        });
        program.wait().unwrap();
        let tracks: Vec<(u32, u8)> =
            arrivals.iter().take(3).map(|one| (one.place, one.track)).collect();
        assert_eq!(tracks, [(0, 0), (0, 1), (0, 2)]);
        assert_eq!(arrivals[0].bytes, 27_000);
    }
}
