//! Compares the available bandwidth that tools estimate with the emulator's record (MGRP, Fig. 3).

use super::{
    super::{carrier::testbed::ChildGuard, report::Report},
    drive::drive,
    median, peers,
    probe_lab::ProbeLab,
};
use anyhow::Context as _;
use clap::ValueEnum;
use std::{
    fmt::Write as _,
    io::{BufRead as _, BufReader},
    process::{Child, ChildStdout, Stdio},
    time::Duration,
};
use thalweg_console::note;
use thalweg_measure::estimators::{Ends, Estimator, Pace};
use thalweg_probe::client::NodeSession;
use thalweg_units::{Rate, parse_duration};

/// The lengths of cross-traffic packets and each length's share of the bytes, as on core links of the Internet.
const LENGTHS: [(u32, f64); 3] = [(1500, 0.89), (576, 0.08), (60, 0.03)];

/// MGRP's STEP (§4.1), as shares of 10 Mbit/s.
const STEPS: [f64; 6] = [0.1, 0.3, 0.5, 0.6, 0.4, 0.2];

/// Nodes are started and calibrated before the first step.
const CALM: Duration = Duration::from_secs(10);

/// Bytes on the link per byte of the source's data for packets that do not ride: 1341 bytes of data, and the headers of
/// TCP and IP, of the carrier, and of UDP and IP again.
const ON_THE_WIRE: f64 = 1480.0 / 1341.0;

/// The queue holds the bytes that the link carries in this time, s: enough for Pathload's first burst at 10 Mbit/s.
const QUEUE: f64 = 0.1;

/// A public tool that ends sooner than this without a result did not reach the other host's program and is started
/// again, at most `TRIES` times in all.
const AT_ONCE: Duration = Duration::from_secs(5);
const TRIES: u32 = 5;

/// Arguments of `thalweg-bench load probe accuracy`.
#[derive(clap::Args)]
pub struct Args {
    /// The tool
    #[arg(long, value_enum)]
    by: MeasuringTool,
    /// The bottleneck's rate
    #[arg(long, value_name = "RATE", default_value = "10Mbit/s")]
    rate: Rate,
    /// The bottleneck's share taken by cross traffic with Poisson arrivals
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    used: f64,
    /// The share of the remaining rate that a TCP source sends, whose packets ride in our trains
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    riding: f64,
    /// The round trip without queues
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = parse_duration)]
    rtt: Duration,
    /// Cross traffic takes 1, 3, 5, 6, 4 and 2 tenths of the bottleneck for this time each; measure until it ends
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "used")]
    steps: Option<Duration>,
    /// Number of measurements, one after the other
    #[arg(long, default_value_t = 3)]
    times: u32,
    /// Time after which a measurement is aborted
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    within: Duration,
    /// Seed of the cross traffic's arrivals
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Args {
    /// The end of the steps, in the lab's time.
    fn ends(&self) -> Option<Duration> {
        self.steps.map(|step| CALM + step * STEPS.len() as u32)
    }
}

/// The measuring tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MeasuringTool {
    /// Our Pathload, with pauses of one round trip
    Pathload,
    /// Our Pathload, with the public tool's pauses
    PathloadSlow,
    /// Our pathChirp
    Pathchirp,
    /// The public C tool: `pathload_snd` and `pathload_rcv` in PATH
    PublicPathload,
    /// The public C tool: `pathchirp_snd` and `pathchirp_rcv` in PATH
    PublicPathchirp,
}

impl MeasuringTool {
    fn is_public(self) -> bool {
        matches!(self, Self::PublicPathload | Self::PublicPathchirp)
    }
}

/// The result of a tool, Mbit/s; NaN: none.
#[derive(Clone, Copy, Debug, Default)]
struct ToolResult {
    estimate: f64,
    /// The estimate without the correction for riders.
    raw: f64,
    /// Whether the tool has doubts about it.
    is_doubted: bool,
}

/// One measurement, Mbit/s.
#[derive(Clone, Copy, Debug, Default)]
struct ToolMeasurement {
    /// Its begin in the lab's time, s.
    began: f64,
    result: ToolResult,
    /// The available bandwidth in the record.
    truth: f64,
    /// Bytes that the tool sent, without riders, MB.
    sent: f64,
    took: f64,
    /// The number of starts, for a public tool.
    tries: u32,
}

impl ToolMeasurement {
    fn has_failed_at_once(&self) -> bool {
        self.result.estimate.is_nan() && self.took < AT_ONCE.as_secs_f64()
    }

    fn relative_error(&self, estimate: f64) -> f64 {
        100.0 * (estimate - self.truth) / self.truth
    }
}

/// Runs the measurements and prints the report.
///
/// # Errors
/// When a part does not start or fails.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut lab = ProbeLab::new(&topology(args))?;
    let all = match args.by.is_public() {
        true => measure_public(args, &lab)?,
        false => measure_own(args, &mut lab)?,
    };
    let (_, lateness) = lab.truth(false)?;
    let mut report = Report::default();
    add_results(&all, args.riding > 0.0, &mut report);
    report.add("lateness_p99", "us", lateness);
    report.print().context("cannot print the report")
}

fn topology(args: &Args) -> String {
    let bps = args.rate.as_bps() as f64;
    let mut text = format!(
        "seed = {}\nbin = \"50 ms\"\n[host.a]\n[host.b]\n[link.way]\nrate = \"{} bit/s\"\ndelay = \"{} us\"\n\
         queue = \"{} B\"\n[[path]]\nfrom = \"a\"\nto = \"b\"\nlinks = [\"way\"]\n",
        args.seed,
        args.rate.as_bps(),
        (args.rtt / 2).as_micros(),
        (bps * QUEUE / 8.0) as u64,
    );
    for (size, share) in LENGTHS.iter().filter(|_| args.steps.is_some()) {
        let step = |(at, of): (usize, &f64)| {
            let since = args.steps.unwrap_or_default() * at as u32 + CALM;
            format!("[\"{} ms\", \"{} bit/s\"]", since.as_millis(), (bps * of * share) as u64)
        };
        let steps = STEPS.iter().enumerate().map(step).collect::<Vec<_>>().join(", ");
        _ = write!(
            text,
            "[[cross]]\nlink = \"way.fwd\"\nkind = \"steps\"\nsize = \"{size} B\"\nstart = \"0 ms\"\n\
             stop = \"{} ms\"\nsteps = [{steps}]\n",
            args.ends().unwrap_or_default().as_millis(),
        );
    }
    for (size, share) in LENGTHS.iter().filter(|_| args.used > 0.0) {
        let rate = (bps * args.used * share) as u64;
        _ = write!(
            text,
            "[[cross]]\nlink = \"way.fwd\"\nkind = \"poisson\"\nrate = \"{rate} bit/s\"\nsize = \"{size} B\"\n"
        );
    }
    text
}

/// Measures repeatedly; each result comes with the record of its time.
fn measure_repeatedly(
    args: &Args,
    lab: &ProbeLab,
    source: f64,
    mut one: impl FnMut() -> anyhow::Result<ToolResult>,
) -> anyhow::Result<Vec<ToolMeasurement>> {
    let mut all = Vec::new();
    for at in 0.. {
        let is_over = match args.ends() {
            Some(ends) => lab.now() >= ends.as_secs_f64(),
            None => at >= args.times,
        };
        if is_over {
            break;
        }
        let mut measured = measurement(lab, source, &mut one)?;
        while args.by.is_public() && measured.has_failed_at_once() && measured.tries < TRIES {
            let tries = measured.tries + 1;
            measured = ToolMeasurement { tries, ..measurement(lab, source, &mut one)? };
        }
        all.push(measured);
    }
    Ok(all)
}

fn measurement(
    lab: &ProbeLab,
    source: f64,
    one: &mut impl FnMut() -> anyhow::Result<ToolResult>,
) -> anyhow::Result<ToolMeasurement> {
    let before = lab.truth(false)?.0;
    let began = lab.now();
    let result = one()?;
    let ended = lab.now();
    let (after, _) = lab.truth(true)?;
    let residual = after.residual(began, ended).map_or(f64::NAN, |rate| rate.as_mbps());
    // The record counts cross traffic separately.
    let own = after.bytes.saturating_sub(before.bytes);
    let (truth, took) = (residual - source, ended - began);
    let sent = (own as f64 * 1e-6 - source * took / 8.0).max(0.0);
    Ok(ToolMeasurement { began, result, truth, sent, took, tries: 1 })
}

fn measure_own(args: &Args, lab: &mut ProbeLab) -> anyhow::Result<Vec<ToolMeasurement>> {
    let overlay = lab.mesh()?;
    let mut node = NodeSession::open(lab.service()?, true)?;
    if args.riding == 0.0 {
        node = node.without_riders();
    }
    let ends = node.ends();
    let free = args.rate.as_mbps() * (1.0 - args.used);
    // The source's rate, and the link capacity that it would take if no packet rode.
    let payload = free * args.riding;
    let source = payload * ON_THE_WIRE;
    let _flow = if args.riding > 0.0 {
        Some(CarrierFlow::begin(lab, &overlay, payload, args)?)
    } else {
        None
    };
    let lab = &*lab;
    measure_repeatedly(args, lab, source, || {
        let mut tool = tool(args.by, &ends);
        run_tool(tool.as_mut(), &mut node, args)
    })
}

/// Runs one of our tools once.
fn run_tool(
    tool: &mut dyn Estimator,
    node: &mut NodeSession,
    args: &Args,
) -> anyhow::Result<ToolResult> {
    let driven = drive(tool, node, args.within)?;
    if let Some(why) = &driven.why {
        note!("{}: {why} after {:.1} s", tool.name(), driven.took.as_secs_f64());
    }
    let found = driven.findings.first().map(|of| (of.value * 1e-6, of.hidden * 1e-6));
    let (estimate, hidden) = found.unwrap_or((f64::NAN, f64::NAN));
    Ok(ToolResult { estimate, raw: estimate + hidden, is_doubted: !driven.doubts.is_empty() })
}

fn tool(by: MeasuringTool, ends: &Ends) -> Box<dyn Estimator> {
    match by {
        MeasuringTool::Pathchirp => Box::new(ends.pathchirp(true)),
        MeasuringTool::PathloadSlow => Box::new(ends.pathload(Pace::Slow, true)),
        _ => Box::new(ends.pathload(Pace::Fast, true)),
    }
}

/// Measures with the public tools, which do not support riders.
fn measure_public(args: &Args, lab: &ProbeLab) -> anyhow::Result<Vec<ToolMeasurement>> {
    peers::prepare(lab)?;
    let which = match args.by {
        MeasuringTool::PublicPathload => peers::PublicTool::Pathload,
        _ => peers::PublicTool::Pathchirp,
    };
    measure_repeatedly(args, lab, 0.0, || {
        let estimate = peers::measure(which, lab, args.within)?;
        Ok(ToolResult { estimate, raw: estimate, is_doubted: false })
    })
}

/// A TCP source over the carrier, which ends when it is dropped.
struct CarrierFlow {
    _sink: ChildGuard,
    _source: ChildGuard,
    /// Kept open, because the sink would end if it were closed.
    _out: BufReader<ChildStdout>,
}

impl CarrierFlow {
    fn begin(lab: &ProbeLab, overlay: &str, mbps: f64, args: &Args) -> anyhow::Result<Self> {
        let mut sink = lab.tool("b", &["tcp-sink", "--listen", &format!("[{overlay}]:0")]);
        let mut sink: Child = sink.stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        let mut out = BufReader::new(sink.stdout.take().context("cannot read the sink's output")?);
        out.read_line(&mut line)?;
        let sink = ChildGuard::from_child(sink);
        let ready: serde_json::Value = serde_json::from_str(&line)?;
        let to =
            ready["ready"]["address"].as_str().context("the sink did not report its address")?;
        // Longer than all measurements; dropping the flow ends it.
        let all = args.ends().unwrap_or(args.within * args.times) + args.within;
        let span = format!("{}ms", all.as_millis() + 30_000);
        let rate = format!("{}bit/s", (mbps * 1e6) as u64);
        let words = ["tcp-source", "--to", to, "--for", &span, "--rate", &rate];
        let mut source = lab.tool("a", &words);
        let source = ChildGuard::start(source.stdout(Stdio::null()))?;
        Ok(Self { _sink: sink, _source: source, _out: out })
    }
}

fn add_results(all: &[ToolMeasurement], has_riders: bool, report: &mut Report) {
    let found: Vec<&ToolMeasurement> =
        all.iter().filter(|one| one.result.estimate.is_finite()).collect();
    let of = |value: &dyn Fn(&ToolMeasurement) -> f64| {
        median(found.iter().map(|one| value(one)).collect())
    };
    report.add("error", "%", of(&|one| one.relative_error(one.result.estimate).abs()));
    report.add("bias", "%", of(&|one| one.relative_error(one.result.estimate)));
    if has_riders {
        report.add("error_raw", "%", of(&|one| one.relative_error(one.result.raw).abs()));
        report.add("hidden", "Mbit/s", of(&|one| one.result.raw - one.result.estimate));
    }
    report.add("estimate", "Mbit/s", of(&|one| one.result.estimate));
    report.add("truth", "Mbit/s", median(all.iter().map(|one| one.truth).collect()));
    report.add("found", "%", 100.0 * found.len() as f64 / all.len() as f64);
    let doubted = found.iter().filter(|one| one.result.is_doubted).count();
    report.add("doubted", "%", 100.0 * doubted as f64 / all.len() as f64);
    report.add("sent", "MB", median(all.iter().map(|one| one.sent).collect()));
    let tries = all.iter().map(|one| one.tries).max();
    report.add("tries", "starts", f64::from(tries.unwrap_or(0)));
    report.add("took", "s", median(all.iter().map(|one| one.took).collect()));
    let series = |value: &dyn Fn(&ToolMeasurement) -> f64| {
        found.iter().map(|one| [one.began, value(one)]).collect::<Vec<_>>()
    };
    report.series("time_estimate", series(&|one| one.result.estimate));
    report.series("time_raw", series(&|one| one.result.raw));
    report.series("time_truth", series(&|one| one.truth));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(used: f64) -> Args {
        Args {
            by: MeasuringTool::Pathload,
            rate: Rate::from_mbps(10.0),
            used,
            riding: 0.0,
            rtt: Duration::from_millis(20),
            steps: None,
            times: 1,
            within: Duration::from_secs(60),
            seed: 1,
        }
    }

    #[test]
    fn the_topology_is_valid_and_cross_traffic_has_its_share() {
        let of = |used| Topology::from_toml(&topology(&args(used))).unwrap();
        assert_eq!((of(0.0).cross.len(), of(0.4).cross.len()), (0, 3));
        let rates: f64 = of(0.4).cross.iter().map(|one| one.rate.unwrap().as_mbps()).sum();
        assert!((rates - 4.0).abs() < 1e-3, "{rates}");
        assert!(of(0.4).resolve().is_ok());
        let text = topology(&Args { steps: Some(Duration::from_secs(20)), ..args(0.0) });
        assert!(Topology::from_toml(&text).unwrap().resolve().is_ok());
        // 5 Mbit/s from 50 s on, of which 0.89 are long packets.
        assert!(text.contains("[\"50000 ms\", \"4450000 bit/s\"]"), "{text}");
        assert!(text.contains("stop = \"130000 ms\""), "{text}");
    }

    use thalweg_lab::topology::Topology;

    #[test]
    fn a_measurement_without_result_counts_as_not_found_and_has_no_error() {
        let one = |estimate: f64, raw| ToolMeasurement {
            result: ToolResult { estimate, raw, is_doubted: raw > 6.0 },
            truth: 5.0,
            ..ToolMeasurement::default()
        };
        let mut report = Report::default();
        add_results(&[one(5.5, 6.5), one(f64::NAN, f64::NAN)], true, &mut report);
        let value = |name| report.value(name).and_then(serde_json::Value::as_f64).unwrap();
        assert!((value("error") - 10.0).abs() < 1e-9 && (value("error_raw") - 30.0).abs() < 1e-9);
        assert!((value("doubted") - 50.0).abs() < 1e-9, "one of two");
        assert!((value("found") - 50.0).abs() < 1e-9 && (value("hidden") - 1.0).abs() < 1e-9);
    }
}
