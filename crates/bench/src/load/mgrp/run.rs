//! The sequence of a run: all copies are founded and calibrated, then source, cross traffic and tool start together.

use super::{
    Args, Cross, ProbingTool, RiderUse,
    network::{self, WEB},
    outcome::CopyRun,
    pair::{self, Pair},
    pathload,
    program::Program,
    shots::{self, ProbeLog},
    starved::Starved,
    summary,
};
use anyhow::{Context as _, bail, ensure};
use std::{
    path::Path,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use thalweg_lab::{client::Lab, topology::Topology};
use thalweg_measure::estimators::{PK1, PK2, PK3, Pace};
use thalweg_probe::client::{NodeSession, ProbeServiceClient};

/// The time for founding and calibrating each further copy.
const FURTHER: Duration = Duration::from_secs(4);

/// The source starts this long before the measured time, so that its window has grown.
const LEAD: Duration = Duration::from_secs(3);

/// A copy that is ready.
pub struct ReadyCopy<'a> {
    /// The copy's nodes.
    pub pair: &'a Pair,
    /// The node of m3 with a session to the node of m5.
    pub node: NodeSession,
}

/// Converts to the lab's time, s.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// The lab's start, ns since 1970.
    zero: u64,
}

impl Clock {
    fn new(lab: &Lab) -> anyhow::Result<Self> {
        let elapsed = Duration::from_secs_f64(lab.stats(false)?.elapsed_s);
        Ok(Self { zero: unix_time()?.saturating_sub(elapsed).as_nanos() as u64 })
    }

    /// The lab's time of a time in ns since 1970.
    pub fn lab_time_of(&self, ns: u64) -> f64 {
        ns.saturating_sub(self.zero) as f64 / 1e9
    }

    /// The present time.
    pub fn now(&self) -> f64 {
        unix_time().map_or(0.0, |since| self.lab_time_of(since.as_nanos() as u64))
    }

    /// Waits until `at`.
    pub fn sleep_until(&self, at: f64) {
        thread::sleep(Duration::from_secs_f64((at - self.now()).max(0.0)));
    }
}

fn unix_time() -> anyhow::Result<Duration> {
    SystemTime::now().duration_since(UNIX_EPOCH).context("this host's clock is before 1970")
}

/// Runs the measurement and prints the report.
///
/// # Errors
/// When a part does not start or fails.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let begin = args.found + LEAD + FURTHER * u32::from(args.copies - 1);
    let topology = Topology::from_toml(&network::topology(args, begin))?;
    let lab = Lab::start(&topology)?;
    let directory = pair::directory()?;
    let pairs = create_pairs(&lab, directory.path(), args)?;
    let mut ready = pairs.iter().map(open).collect::<anyhow::Result<Vec<_>>>()?;
    let clock = Clock::new(&lab)?;
    let (begin, lead) = (begin.as_secs_f64(), LEAD.as_secs_f64());
    ensure!(
        clock.now() + lead <= begin,
        "founding took {:.1} s, more than the reserved {:.1} s; give a longer --found",
        clock.now(),
        begin - lead
    );
    clock.sleep_until(begin - lead);
    let sources = pairs.iter().map(|pair| SourceFlow::begin(&lab, pair, args));
    let sources = sources.collect::<anyhow::Result<Vec<_>>>()?;
    clock.sleep_until(begin);
    lab.reset_stats()?;
    let web = start_web(&lab, &pairs, args)?;
    let until = begin + args.span().as_secs_f64();
    let starved = Starved::watch();
    let tried = all(&mut ready, |ready| probe(args, ready, &clock, until))?;
    drop(web);
    let starved = starved.end();
    let stats = lab.stats(true)?;
    let mut copies = Vec::new();
    for ((pair, flow), (log, rounds)) in pairs.iter().zip(sources).zip(tried) {
        let truth = stats
            .link(&pair.names().bottleneck)
            .context("the lab has no record of the bottleneck")?
            .clone();
        let counts = pair.counts(&lab, &pair.names().m3)?;
        copies.push(CopyRun { log, rounds, source: flow.end()?, truth, counts, begin, until });
    }
    summary::report(args, &copies, (&stats, starved)).print().context("cannot print the report")
}

/// Founds the copies, two at a time, because this machine may have two cores.
fn create_pairs(lab: &Lab, dir: &Path, args: &Args) -> anyhow::Result<Vec<Pair>> {
    let mut pairs = Vec::new();
    let copies: Vec<u8> = (0..args.copies).collect();
    for some in copies.chunks(2) {
        let found = thread::scope(|scope| {
            let begun: Vec<_> = some
                .iter()
                .map(|copy| scope.spawn(move || Pair::create(lab, dir, args, *copy)))
                .collect();
            let ended = begun.into_iter().map(|one| one.join().unwrap_or_else(|_| bail!("panic")));
            ended.collect::<anyhow::Result<Vec<_>>>()
        })?;
        pairs.extend(found);
    }
    Ok(pairs)
}

/// Opens a session between a copy's nodes, for which both nodes are calibrated. This is done for one copy at a time, so
/// that they do not disturb each other.
fn open(pair: &Pair) -> anyhow::Result<ReadyCopy<'_>> {
    let service = ProbeServiceClient::at(&pair.sockets()[0], &pair.names().m5)?;
    Ok(ReadyCopy { pair, node: NodeSession::open(service, true)? })
}

/// Does the work for all copies concurrently.
fn all<'a, T: Send>(
    ready: &mut [ReadyCopy<'a>],
    work: impl Fn(&mut ReadyCopy<'a>) -> anyhow::Result<T> + Sync,
) -> anyhow::Result<Vec<T>> {
    let work = &work;
    thread::scope(|scope| {
        let begun: Vec<_> = ready.iter_mut().map(|one| scope.spawn(move || work(one))).collect();
        let ended = begun.into_iter().map(|one| one.join().unwrap_or_else(|_| bail!("panic")));
        ended.collect()
    })
}

/// Runs the tool until `until`.
fn probe(
    args: &Args,
    ready: &mut ReadyCopy<'_>,
    clock: &Clock,
    until: f64,
) -> anyhow::Result<(ProbeLog, Vec<pathload::Round>)> {
    let fixed = match args.tool {
        ProbingTool::Pk1 => PK1,
        ProbingTool::Pk2 => PK2,
        ProbingTool::Pk3 => PK3,
        ProbingTool::Pslow => {
            return pathload::measure(Pace::Slow, ready, clock, (until, args.patience));
        }
        ProbingTool::Pfast => {
            return pathload::measure(Pace::Fast, ready, clock, (until, args.patience));
        }
        ProbingTool::None => {
            clock.sleep_until(until);
            return Ok(Default::default());
        }
    };
    Ok((shots::send_trains(fixed, ready, clock, until)?, Vec::new()))
}

/// Starts WEB of each copy; dropping the programs ends it.
fn start_web(lab: &Lab, pairs: &[Pair], args: &Args) -> anyhow::Result<Vec<[Program; 2]>> {
    if args.cross != Cross::Web {
        return Ok(Vec::new());
    }
    let web = |(copy, pair): (usize, &Pair)| -> anyhow::Result<[Program; 2]> {
        let names = pair.names();
        let mut sink =
            Program::tool(lab, &names.c2, &["tcp-sink", "--listen", &format!("0.0.0.0:{WEB}")])?;
        sink.ready()?;
        // The sink listens on IPv4 only, and the host names resolve to both address families.
        let to = format!("{}:{WEB}", lab.address(&names.c2));
        let seed = (args.seed + copy as u64).to_string();
        let (span, rate) = (millis(args.span()), format!("{}bit/s", args.web.as_bps()));
        let more = ["--for", &span, "--rate", &rate, "--seed", &seed];
        let web =
            Program::tool(lab, &names.c1, &[&["tcp-web", "--to", &to][..], &more[..]].concat())?;
        Ok([sink, web])
    };
    pairs.iter().enumerate().map(web).collect()
}

fn millis(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}

/// The source's connection, over the carrier or beside it.
struct SourceFlow {
    _sink: Program,
    source: Program,
}

impl SourceFlow {
    fn begin(lab: &Lab, pair: &Pair, args: &Args) -> anyhow::Result<Self> {
        let names = pair.names();
        let listen = match args.riders {
            RiderUse::Plain => format!("{}:0", lab.address(&names.m5)),
            _ => format!("[{}]:0", pair.overlay),
        };
        let mut sink = Program::tool(lab, &names.m5, &["tcp-sink", "--listen", &listen])?;
        let ready: serde_json::Value = serde_json::from_str(&sink.ready()?)?;
        let to =
            ready["ready"]["address"].as_str().context("the sink did not report its address")?;
        let span = millis(LEAD + args.span());
        let rate = args.source.map(|rate| format!("{}bit/s", rate.as_bps()));
        let mut words = vec!["tcp-source", "--to", to, "--for", &span, "--bin", "1s", "--series"];
        words.extend(rate.iter().flat_map(|rate| ["--rate", rate.as_str()]));
        let source = Program::tool(lab, &names.m3, &words)?;
        Ok(Self { _sink: sink, source })
    }

    /// The throughput in each measured second, Mbit/s.
    fn end(self) -> anyhow::Result<Vec<f64>> {
        let report = self.source.report()?;
        let series =
            report["flows"][0]["series"].as_array().context("the source's report has no series")?;
        let mbps = |bytes: &serde_json::Value| bytes.as_f64().unwrap_or(0.0) * 8e-6;
        Ok(series.iter().skip(LEAD.as_secs() as usize).map(mbps).collect())
    }
}
