//! `thalweg-bench load stream-peers`: `thalweg stream` beside HLS and SRT, for the experiment of that name.
//!
//! ```text
//! bottleneck:  m3 ── 100 Mbit/s ── x1 ── 10 Mbit/s, PEAKS ── x2 ── m5      the network of stream-table3
//! lossy:       m3 ── 10 Mbit/s, half the RTT and loss ── x ── the same ── m5
//! ```
//!
//! All systems get the same transport stream, written to the standard input of their sender at its own pace:
//! `thalweg stream publish`, ffmpeg's HLS muxer behind nginx, or srt-live-transmit. What arrives is read from the
//! standard output of `thalweg stream subscribe` and srt-live-transmit, or asked of hls.js in headless Chromium.
//!
//! - [`media`]: the stream and its pace; [`viewer`]: what arrives of it;
//! - [`mesh`], [`srt`], [`hls`]: the systems;
//! - [`outcome`]: the results.

mod hls;
mod media;
mod mesh;
mod outcome;
mod srt;
mod viewer;

use super::{
    super::{mgrp::starved::Starved, report::Report},
    Adapt, Measure, Media, Riders, Scheduler, StreamTool, network,
};
use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use outcome::ViewerOutcome;
use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use thalweg_lab::{
    client::Lab,
    topology::{Queue, Topology},
};
use thalweg_units::parse_duration;

/// How long the stream runs over the bottleneck before counting begins: players of HLS start three segments late.
const LEAD: Duration = Duration::from_secs(10);

/// The same on the lossy path.
const LOSSY_LEAD: Duration = Duration::from_secs(5);

/// Arguments of `thalweg-bench load stream-peers`.
#[derive(clap::Args)]
pub struct Args {
    /// The system that transmits the stream
    #[arg(long, value_enum)]
    system: System,
    /// `srt` and `stream`: directly, or through the relay in the middle
    #[arg(long, value_enum, default_value = "alone")]
    via: Via,
    /// TCP's congestion control on the lossy path
    #[arg(long, value_enum, default_value = "cubic")]
    congestion: Congestion,
    /// `ladder`: how it adapts
    #[arg(long, value_enum, default_value = "queue")]
    adapt: Adapt,
    /// `ladder`: the component that chooses renditions
    #[arg(long, value_enum, default_value = "oracle")]
    scheduler: Scheduler,
    /// `hls`: the duration of segments
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    segment: Duration,
    /// `hls`: play one segment behind the live edge instead of three, the default of hls.js
    #[arg(long)]
    close: bool,
    /// The end-to-end latency of `ladder`, `stream` and `srt`
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    latency: Duration,
    /// The lossy path's round trip without queues
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = parse_duration)]
    rtt: Duration,
    /// The lossy path's loss in each direction, %
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    loss: f64,
    /// The duration of the measured part: over the bottleneck of all seven intervals of PEAKS
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    span: Duration,
    /// How many of the seven intervals to run
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u8).range(1..=7))]
    peaks: u8,
    /// The time reserved for starting all programs, because cross traffic follows the lab's clock
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    found: Duration,
    /// The lab's seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory in which encoded video is kept for further runs
    #[arg(long, value_name = "DIRECTORY")]
    cache: Option<PathBuf>,
    /// Copy the logs of nodes and programs to this directory
    #[arg(long, value_name = "DIRECTORY")]
    logs: Option<PathBuf>,
}

/// What carries the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum System {
    /// `thalweg stream` with a ladder over the bottleneck
    Ladder,
    /// HLS with the same ladder over the bottleneck, played by hls.js
    Hls,
    /// `thalweg stream` with one rendition over the lossy path
    Stream,
    /// SRT with the same rendition over the lossy path
    Srt,
}

/// How the lossy path is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Via {
    /// From end to end
    Alone,
    /// Through the relay in the middle
    Relay,
}

/// TCP's congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Congestion {
    Cubic,
    Bbr,
}

/// Runs one arm and prints the report.
///
/// # Errors
/// When a program does not start or fails.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let directory = tempfile::TempDir::new().context("cannot create a directory")?;
    let done = match args.system {
        System::Ladder | System::Hls => run_bottleneck(args, directory.path()),
        System::Stream | System::Srt => run_lossy(args, directory.path()),
    };
    if let Some(kept) = &args.logs {
        for entry in std::fs::read_dir(directory.path())?.flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "log") {
                std::fs::copy(entry.path(), kept.join(entry.file_name()))?;
            }
        }
    }
    done?.print().context("cannot print the report")
}

impl Args {
    /// The network of stream-table3, as the arguments of `load stream` describe it.
    fn bottleneck(&self) -> super::Args {
        super::Args {
            tool: StreamTool::None,
            riders: Riders::Off,
            adapt: self.adapt,
            media: Media::Table2,
            measure: Measure::Degraded,
            scheduler: self.scheduler,
            latency: self.latency,
            rtt: Duration::from_millis(40),
            span: self.span,
            before: Duration::ZERO,
            after: Duration::ZERO,
            queue: Queue::Packets(50),
            peaks: self.peaks,
            cycles: None,
            found: self.found,
            seed: self.seed,
            carrier: Vec::new(),
            logs: None,
        }
    }

    fn congestion(&self) -> &'static str {
        match self.congestion {
            Congestion::Cubic => "cubic",
            Congestion::Bbr => "bbr",
        }
    }

    /// Two links in a row, each with half of the round trip and of the loss.
    fn lossy(&self) -> String {
        let mut text = format!("seed = {}\ncongestion = \"{}\"\n", self.seed, self.congestion());
        for host in ["m3", "x", "m5", "gs"] {
            _ = writeln!(text, "[host.{host}]");
        }
        // Of what the first link passes, the second one loses the same share.
        let each = 100.0 * (1.0 - (1.0 - self.loss / 100.0).sqrt());
        for link in ["left", "right"] {
            _ = write!(
                text,
                "[link.{link}]\nrate = \"10 Mbit/s\"\nqueue = \"250 kB\"\ndelay = \"{} us\"\nloss = \"{each:.4} %\"\n",
                self.rtt.as_micros() / 4,
            );
        }
        for (from, to, links) in
            [("m3", "m5", "\"left\", \"right\""), ("m3", "x", "\"left\""), ("x", "m5", "\"right\"")]
        {
            _ = write!(text, "[[path]]\nfrom = \"{from}\"\nto = \"{to}\"\nlinks = [{links}]\n");
        }
        for host in ["m3", "x", "m5"] {
            _ = write!(
                text,
                "[link.gs-{host}]\nrate = \"100 Mbit/s\"\nqueue = \"1 MB\"\ndelay = \"5 ms\"\n\
                 [[path]]\nfrom = \"gs\"\nto = \"{host}\"\nlinks = [\"gs-{host}\"]\n"
            );
        }
        text
    }
}

/// Runs a ladder over the bottleneck.
fn run_bottleneck(args: &Args, dir: &Path) -> anyhow::Result<Report> {
    let bottleneck = args.bottleneck();
    let span = network::span(&bottleneck);
    let cache = args.cache.as_deref().unwrap_or(dir);
    let source = Arc::new(media::encode(&media::LADDER, LEAD + span + args.latency * 3, cache)?);
    let begin = args.found + LEAD;
    let topology = Topology::from_toml(&network::topology(&bottleneck, begin))?;
    let lab = Lab::start(&topology)?;
    let since = Instant::now();
    let elapsed = Duration::from_secs_f64(lab.stats(false)?.elapsed_s);
    let counts_from =
        (since + begin).checked_sub(elapsed).context("the lab's clock has no such time")?;
    let first = counts_from.checked_sub(LEAD).context("the lab's clock has no such time")?;
    let check = || {
        ensure!(
            Instant::now() <= first,
            "starting the programs took {:.1} s, more than the {:.1} s of --found; give a longer --found",
            since.elapsed().as_secs_f64(),
            args.found.as_secs_f64()
        );
        Ok(())
    };
    let until = counts_from + span;
    let (mut outcome, starved);
    if args.system == System::Hls {
        let mut hls = hls::Hls::start(args, &lab, dir, &source)?;
        check()?;
        let feed = hls.feed(&source, first, until + args.segment)?;
        hls.open_page(first + args.segment.mul_f64(1.5))?;
        // Samples around the measured part tell what was shown at its ends.
        pause_until(counts_from - hls::EVERY * 2);
        lab.reset_stats()?;
        let watch = Starved::watch();
        let samples = hls.watch(until + hls::EVERY * 2)?;
        starved = watch.end();
        feed.end()?;
        outcome = outcome::of_player(&source, &samples, (first, counts_from, span), args.segment);
    } else {
        let mesh =
            mesh::PeersMesh::create(&lab, dir, &["m3", "m5"], &mesh::bottleneck_settings(args))?;
        check()?;
        let after = until + args.latency * 2;
        let (feed, viewer) = mesh.stream(&source, (first, after), args.latency, "m3")?;
        pause_until(counts_from);
        lab.reset_stats()?;
        let watch = Starved::watch();
        pause_until(until);
        starved = watch.end();
        pause_until(after);
        feed.end()?;
        outcome = viewer.end(&source, (first, counts_from, span), args.latency)?;
    }
    let stats = lab.stats(false)?;
    let truth =
        stats.link(network::BOTTLENECK).context("the lab has no record of the bottleneck")?;
    let (drops, passed) = (truth.cross_drops as f64, truth.cross_packets as f64);
    outcome.cross_lost = Some(100.0 * drops / (drops + passed));
    Ok(finish(&outcome, stats.lateness.p99_us as f64, starved))
}

/// Runs one rendition over the lossy path.
fn run_lossy(args: &Args, dir: &Path) -> anyhow::Result<Report> {
    let cache = args.cache.as_deref().unwrap_or(dir);
    let length = LOSSY_LEAD + args.span + args.latency * 3;
    let source = Arc::new(media::encode(&media::SINGLE, length, cache)?);
    let lab = Lab::start(&Topology::from_toml(&args.lossy())?)?;
    let mesh = match args.system {
        System::Srt => None,
        _ => {
            let hosts: &[&str] =
                if args.via == Via::Relay { &["m3", "x", "m5"] } else { &["m3", "m5"] };
            Some(mesh::PeersMesh::create(&lab, dir, hosts, mesh::LOSSY_SETTINGS)?)
        }
    };
    let first = Instant::now() + Duration::from_millis(1500);
    let counts_from = first + LOSSY_LEAD;
    let until = counts_from + args.span;
    let after = until + args.latency * 2;
    let (feed, viewer) = match &mesh {
        None => srt::start(args, &lab, dir, &source, (first, after))?,
        Some(mesh) => {
            let from = if args.via == Via::Relay { "x" } else { "m3" };
            mesh.stream(&source, (first, after), args.latency, from)?
        }
    };
    pause_until(counts_from);
    lab.reset_stats()?;
    let watch = Starved::watch();
    pause_until(until);
    let starved = watch.end();
    pause_until(after);
    feed.end()?;
    let outcome = viewer.end(&source, (first, counts_from, args.span), args.latency)?;
    let stats = lab.stats(false)?;
    Ok(finish(&outcome, stats.lateness.p99_us as f64, starved))
}

fn finish(outcome: &ViewerOutcome, lateness_us: f64, starved: f64) -> Report {
    let mut report = outcome::report(outcome);
    report.add("lateness_p99", "us", lateness_us);
    report.add("cpu_pressure", "%", starved);
    report
}

fn pause_until(at: Instant) {
    thread::sleep(at.saturating_duration_since(Instant::now()));
}
