//! `thalweg-bench load stream-reroute`: a stream over two disjoint paths, for the experiment of that name.
//!
//! ```text
//!            ┌── a1 ── west ── b1 ──┐
//! studio ────┤                      ├──── hall          gs (oracle): links of its own to all
//!            └── a2 ── east ── b2 ──┘
//! ```
//!
//! A viewer at the hall names no parent. In each round the path in use is first congested and later dies; each time
//! the experiment measures how long it takes until the stream arrives over the other path.

use super::{
    super::{
        carrier_hosts::CarrierHosts, mgrp::program::Program, mgrp::starved::Starved, report::Report,
    },
    media::{Decoder, PERIOD, frame},
};
use anyhow::{Context as _, ensure};
use parking_lot::Mutex;
use serde_json::Value;
use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_lab::{
    client::Lab,
    topology::{LinkChange, Topology},
};
use thalweg_stream::local::{self, Publisher, ReceivedItem, Subscriber};
use thalweg_units::{Rate, parse_duration};
use thalweg_wire::stream::leg::{ParentMessage, PublishRequest, SubscribeRequest, Track};
use tokio::time::{sleep, sleep_until, timeout};

/// The port of the nodes.
const PORT: u16 = 7373;

/// The relays, and the links from them to the hall.
const RELAYS: [(&str, &str); 2] = [("west", "b1"), ("east", "b2")];

/// The rate of each path's narrow link, Mbit/s.
const RATE: f64 = 10.0;

/// The port of other traffic at the hall.
const FLOOD_PORT: u16 = 9099;

/// The longest flood, so that it ends by itself.
const FLOOD: Duration = Duration::from_secs(180);

/// The longest wait for anything.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Arguments of `thalweg-bench load stream-reroute`.
#[derive(clap::Args)]
pub struct Args {
    /// The number of rounds, each with a congested and a dead path
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Whether probe trains measure the legs
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    measure: bool,
    /// The rate that other traffic leaves on a congested path
    #[arg(long, value_name = "RATE", default_value = "0.6 Mbit/s")]
    congested: Rate,
    /// The deadline of frames
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    latency: Duration,
    /// The round trip of each path
    #[arg(long, value_name = "TIME", default_value = "40ms", value_parser = parse_duration)]
    rtt: Duration,
    /// The time between two events, for new measurements of the paths
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_duration)]
    calm: Duration,
    /// The lab's seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Copy the nodes' logs to this directory
    #[arg(long, value_name = "DIRECTORY")]
    logs: Option<PathBuf>,
}

fn topology(args: &Args) -> String {
    let delay = (args.rtt / 2).as_micros();
    let mut text = format!("seed = {}\ncongestion = \"cubic\"\nbin = \"100 ms\"\n", args.seed);
    for host in ["studio", "west", "east", "hall", "gs"] {
        _ = writeln!(text, "[host.{host}]");
    }
    for (number, (relay, narrow)) in (1..).zip(RELAYS) {
        _ = write!(
            text,
            "[link.a{number}]\nrate = \"100 Mbit/s\"\nqueue = \"1 MB\"\n\
             [link.{narrow}]\nrate = \"{RATE} Mbit/s\"\nqueue = \"75 kB\"\ndelay = \"{delay} us\"\n\
             [[path]]\nfrom = \"studio\"\nto = \"{relay}\"\nlinks = [\"a{number}\"]\n\
             [[path]]\nfrom = \"{relay}\"\nto = \"hall\"\nlinks = [\"{narrow}\"]\n"
        );
    }
    for (number, host) in ["studio", "west", "east", "hall"].iter().enumerate() {
        _ = write!(
            text,
            "[link.g{number}]\nrate = \"100 Mbit/s\"\nqueue = \"1 MB\"\ndelay = \"5 ms\"\n\
             [[path]]\nfrom = \"gs\"\nto = \"{host}\"\nlinks = [\"g{number}\"]\n"
        );
    }
    text
}

fn settings(args: &Args) -> String {
    let measure = if args.measure { "degraded" } else { "off" };
    format!(
        "[log]\nformat = \"json\"\n[measure]\nmax_bytes_per_day = \"1 TB\"\n\
         [relay]\nallow_to = [\"10.0.0.0/8\", \"fd54::/16\"]\n\
         [stream]\nsubscribe = [\"*\"]\nrelay = true\nmeasure = \"{measure}\"\n"
    )
}

/// The mesh; stopped on drop.
struct RerouteNodes {
    dir: PathBuf,
    _nodes: Vec<Program>,
}

impl RerouteNodes {
    fn create(lab: &Lab, dir: &Path, args: &Args) -> anyhow::Result<Self> {
        fs::write(dir.join("node.toml"), settings(args))?;
        fs::write(dir.join("gs.toml"), "[oracle.measure]\nenabled = false\n")?;
        let hosts = CarrierHosts { lab, dir, port: PORT };
        hosts.create_mesh("gs")?;
        let mut nodes = vec![hosts.start_node("gs", "gs.toml")?];
        for host in ["studio", "west", "east", "hall"] {
            hosts.join(host, "gs")?;
            nodes.push(hosts.start_node(host, "node.toml")?);
        }
        Ok(Self { dir: dir.to_owned(), _nodes: nodes })
    }

    fn socket(&self, host: &str) -> PathBuf {
        self.dir.join(host).join("stream.sock")
    }

    /// A host's parent of the stream.
    async fn parent(&self, host: &str) -> anyhow::Result<Option<String>> {
        let status = local::status(&self.socket(host)).await?;
        Ok(status["streams"][0]["parent"].as_str().map(str::to_owned))
    }

    /// The number of successful measurements of a host's leg so far, and the lower end of the last one in bit/s.
    fn measured(&self, host: &str, to: &str) -> anyhow::Result<(usize, Option<f64>)> {
        let text = fs::read_to_string(self.dir.join(format!("{host}.log")))?;
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let lines = lines.filter(|line| line["event"] == "stream_measured" && line["to"] == to);
        let found: Vec<f64> = lines.filter_map(|line| line["low_bps"].as_f64()).collect();
        Ok((found.len(), found.last().copied()))
    }
}

/// A frame at the viewer.
#[derive(Clone, Copy)]
struct SeenFrame {
    /// When it was due and when it arrived.
    due: Instant,
    at: Instant,
    is_decoded: bool,
}

/// The viewer's frames, without those that never arrived.
type FrameLog = Arc<Mutex<Vec<SeenFrame>>>;

fn lock(log: &FrameLog) -> parking_lot::MutexGuard<'_, Vec<SeenFrame>> {
    log.lock()
}

/// The longest wait for another parent.
const PATIENCE: Duration = Duration::from_secs(30);

/// The result of one event.
#[derive(Clone, Copy, Debug)]
struct Event {
    /// The time until the viewer's node followed another parent, s; [`PATIENCE`] if it did not.
    moved: f64,
    /// The time until the first frame arrived from it, s; likewise.
    resumed: f64,
    /// Frames that were not decoded in time, of those due in the ten seconds after the event less the latency.
    lost: f64,
}

/// What happens to the path in use.
#[derive(Clone, Copy, Debug)]
enum PathFault {
    /// Datagrams fill the narrow link, towards the viewer.
    Congestion,
    /// Both directions of the narrow link are down.
    Death,
}

/// Datagrams from a relay to the hall; they end on drop.
struct Flood {
    _sink: Program,
    _blast: Program,
}

impl Flood {
    fn start(lab: &Lab, relay: &str, rate: Rate) -> anyhow::Result<Self> {
        let address = format!("{}:{FLOOD_PORT}", lab.address("hall"));
        let mut sink = Program::tool(lab, "hall", &["train-sink", "--listen", &address])?;
        sink.ready()?;
        let (bits, time) = (format!("{} bit/s", rate.as_bps()), format!("{} s", FLOOD.as_secs()));
        let args = ["udp-blast", "--to", &address, "--rate", &bits, "--size", "1200"];
        let blast = Program::tool(lab, relay, &[&args[..], &["--for", &time]].concat())?;
        Ok(Self { _sink: sink, _blast: blast })
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
    let nodes = RerouteNodes::create(&lab, directory.path(), args)?;
    let done = crate::runtime()?.block_on(run_events(args, &lab, &nodes));
    if let Some(kept) = &args.logs {
        for host in ["gs", "studio", "west", "east", "hall"] {
            let log = format!("{host}.log");
            fs::copy(directory.path().join(&log), kept.join(&log))?;
        }
    }
    done?.print().context("cannot print the report")
}

async fn run_events(args: &Args, lab: &Lab, nodes: &RerouteNodes) -> anyhow::Result<Report> {
    let begin = Instant::now();
    let source = tokio::spawn(publish(nodes.socket("studio"), begin, args.latency));
    let published = || async {
        let status = local::status(&nodes.socket("studio")).await?;
        Ok(status["streams"][0]["next"].as_u64().filter(|next| *next > 0))
    };
    wait_for("the publisher", published).await?;
    let log = FrameLog::default();
    let viewer = tokio::spawn(view(nodes.socket("hall"), begin, args.latency, Arc::clone(&log)));
    wait_for("a parent", || async { nodes.parent("hall").await }).await?;
    let first = begin.elapsed();
    if args.measure {
        for (relay, _) in RELAYS {
            wait_for_measurement(nodes, "studio", relay).await?;
            wait_for_measurement(nodes, relay, "hall").await?;
        }
    }
    lab.reset_stats()?;
    let starved = Starved::watch();
    let (mut congested, mut dead) = (Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        congested.push(event(args, lab, nodes, &log, PathFault::Congestion).await?);
        dead.push(event(args, lab, nodes, &log, PathFault::Death).await?);
        ensure!(!source.is_finished() && !viewer.is_finished(), "the stream ended");
    }
    let (stats, starved) = (lab.stats(false)?, starved.end());
    source.abort();
    viewer.abort();
    let mut report = Report::default();
    report.add("first", "s", first.as_secs_f64());
    add("congested", &congested, &mut report);
    add("dead", &dead, &mut report);
    let mut count = 0;
    for (relay, _) in RELAYS {
        count += nodes.measured("studio", relay)?.0 + nodes.measured(relay, "hall")?.0;
    }
    report.add("measured", "measurements", count as f64);
    report.add("lateness_p99", "us", stats.lateness.p99_us as f64);
    report.add("cpu_pressure", "%", starved);
    report.series("age_ms", ages(begin, &log));
    Ok(report)
}

/// Adds the median and the worst of each figure.
fn add(name: &str, events: &[Event], report: &mut Report) {
    for (what, unit, of) in [
        ("moved", "s", (|event| event.moved) as fn(&Event) -> f64),
        ("resumed", "s", |event| event.resumed),
        ("lost", "frames", |event| event.lost),
    ] {
        let mut all: Vec<f64> = events.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        report.add(
            format!("{name}_{what}"),
            unit,
            all.get(all.len() / 2).copied().unwrap_or(f64::NAN),
        );
        report.add(format!("{name}_{what}_worst"), unit, all.last().copied().unwrap_or(f64::NAN));
    }
}

/// Of every fifth decoded frame, the time at which it was due, s, and its age on arrival, ms.
fn ages(begin: Instant, log: &FrameLog) -> Vec<[f64; 2]> {
    let of = |seen: &SeenFrame| {
        let age = seen.at.saturating_duration_since(seen.due).as_secs_f64() * 1e3;
        [(seen.due - begin).as_secs_f64(), age]
    };
    lock(log).iter().filter(|seen| seen.is_decoded).step_by(5).map(of).collect()
}

/// Disturbs the narrow link of the path in use, waits until the stream arrives over the other path, and repairs the
/// link.
async fn event(
    args: &Args,
    lab: &Lab,
    nodes: &RerouteNodes,
    log: &FrameLog,
    fault: PathFault,
) -> anyhow::Result<Event> {
    let parent = nodes.parent("hall").await?.context("the viewer's node has no parent")?;
    let used = RELAYS.iter().find(|(relay, _)| *relay == parent);
    let (_, link) =
        used.with_context(|| format!("the stream arrives from {parent}, which is not a relay"))?;
    let set_up = |is_up: bool| {
        let set = |half| lab.set(&format!("{link}.{half}"), &LinkChange::up(is_up));
        ["fwd", "rev"].into_iter().try_for_each(set)
    };
    let began = Instant::now();
    let flood = match fault {
        PathFault::Congestion => {
            let bps = Rate::from_mbps(RATE).as_bps().saturating_sub(args.congested.as_bps());
            Some(Flood::start(lab, &parent, Rate::from_bps(bps))?)
        }
        PathFault::Death => {
            set_up(false)?;
            None
        }
    };
    let others = || async {
        let now = nodes.parent("hall").await?;
        Ok(now.filter(|now| *now != parent))
    };
    let found = timeout(PATIENCE, wait_for("another parent", others)).await;
    let moved = began.elapsed().min(PATIENCE);
    let at = Instant::now();
    let newer = || async {
        let newest = lock(log).last().copied();
        Ok(newest.filter(|seen| seen.at >= at && seen.is_decoded))
    };
    let resumed = match found {
        Ok(found) => {
            found?;
            wait_for("a frame from the other parent", newer).await?.at - began
        }
        // It stays with its parent.
        Err(_) => PATIENCE,
    };
    sleep(Duration::from_secs(10).saturating_sub(began.elapsed())).await;
    let until = began + Duration::from_secs(10) - args.latency;
    let due = |seen: &&SeenFrame| seen.due >= began && seen.due < until;
    let decoded = lock(log).iter().filter(due).filter(|seen| seen.is_decoded).count();
    let expected = (until - began).as_secs_f64() / PERIOD.as_secs_f64();
    drop(flood);
    set_up(true)?;
    let (before, _) = nodes.measured(&parent, "hall")?;
    sleep(args.calm).await;
    if args.measure {
        wait_until_wide(nodes, &parent, before).await?;
    }
    Ok(Event {
        moved: moved.as_secs_f64(),
        resumed: resumed.as_secs_f64(),
        lost: (expected - decoded as f64).max(0.0).floor(),
    })
}

async fn wait_for_measurement(nodes: &RerouteNodes, from: &str, to: &str) -> anyhow::Result<()> {
    let found = || async { Ok(Some(nodes.measured(from, to)?.0).filter(|count| *count > 0)) };
    // The path in use is not measured.
    let used = || async {
        Ok(nodes.parent("hall").await?.filter(|parent| *parent == from || *parent == to))
    };
    tokio::select! {
        found = wait_for("a measurement", found) => drop(found?),
        used = wait_for("a path in use", used) => drop(used?),
    }
    Ok(())
}

/// Waits until trains have measured the full rate of the path that was left, more often than `before`.
async fn wait_until_wide(nodes: &RerouteNodes, relay: &str, before: usize) -> anyhow::Result<()> {
    let wide = || async {
        let (count, low) = nodes.measured(relay, "hall")?;
        Ok(low.filter(|low| count > before && *low > RATE * 0.3e6))
    };
    wait_for("a new measurement of the path that was left", wide).await.map(drop)
}

async fn wait_for<T, F: Future<Output = anyhow::Result<Option<T>>>>(
    what: &str,
    look: impl Fn() -> F,
) -> anyhow::Result<T> {
    let began = Instant::now();
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        ensure!(began.elapsed() < TIMEOUT * 2, "{what} did not appear within {:?}", TIMEOUT * 2);
        sleep(Duration::from_millis(10)).await;
    }
}

/// Publishes Table 2's frames in real time.
async fn publish(socket: PathBuf, begin: Instant, latency: Duration) -> anyhow::Result<()> {
    let tracks = vec![Track { label: "test".to_owned(), rates: [0, 0, 216_000, 488_000, 456_000] }];
    let latency_ms = u32::try_from(latency.as_millis())?;
    let request = PublishRequest { stream: "stage".parse()?, tracks, latency_ms };
    let mut publisher = Publisher::begin(&socket, request).await?;
    for place in 0.. {
        sleep_until((begin + PERIOD * place as u32).into()).await;
        publisher.send(&frame(place)).await?;
    }
    Ok(())
}

/// Receives the stream without naming a parent.
async fn view(
    socket: PathBuf,
    begin: Instant,
    latency: Duration,
    log: FrameLog,
) -> anyhow::Result<()> {
    let latency_ms = u32::try_from(latency.as_millis())?;
    let request = SubscribeRequest { latency_ms, ..SubscribeRequest::for_stream("stage".parse()?) };
    let mut subscriber = Subscriber::begin(&socket, request).await?;
    let mut decoder = Decoder::default();
    loop {
        match subscriber.next().await? {
            ReceivedItem::Frame(head, frame) if frame.class.is_video() => {
                let (due, at) = (begin + frame.time, Instant::now());
                let in_time = at.saturating_duration_since(due) <= latency;
                let is_decoded = decoder.receive(head.sequence, &frame, in_time);
                lock(&log).push(SeenFrame { due, at, is_decoded });
            }
            ReceivedItem::Message(ParentMessage::Lost(lost)) => {
                lost.iter().for_each(|lost| decoder.receive_lost(lost));
            }
            ReceivedItem::Message(ParentMessage::End(why)) => {
                anyhow::bail!("the stream ended: {why}")
            }
            ReceivedItem::Frame(..) | ReceivedItem::Message(_) => {}
        }
    }
}
