//! Measures the capacity between all pairs of hosts.

use super::{DATA, MeasurementOrder, MeasurementResult, ORDERS};
use crate::tool::{
    collection::{NetworkArgs, resolve},
    control::Control,
    net::{self, TcpOptions},
    output,
};
use anyhow::Context;
use parking_lot::Mutex;
use serde_json::json;
use std::{
    collections::BTreeSet,
    fmt::Write as _,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};
use thalweg_sim::{
    collection::{Topology, bistros},
    random,
};
use thalweg_units::ByteSize;

/// How much longer than the limit of a measurement to wait for a bistro's result.
const GRACE: Duration = Duration::from_secs(30);

/// Arguments of `collection capacity`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    scene: NetworkArgs,
    /// Bytes of each transfer
    #[arg(long, value_name = "SIZE")]
    bytes: ByteSize,
    /// Number of transfers of a pair, one after the other
    #[arg(long, default_value_t = 10)]
    times: u32,
    /// Time limit for a pair; of an incomplete transfer, the bytes that arrived by then count
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = net::parse_span)]
    longest: Duration,
    /// Largest random error of the written capacities, drawn uniformly: 0.7 is ±70 %
    #[arg(long, default_value_t = 0.0)]
    wrong_by: f64,
    /// Writes `from,to,bps` lines with a header
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// With --wrong-by: read measured capacities from this file instead of measuring
    #[arg(long, value_name = "FILE")]
    measured: Option<PathBuf>,
}

/// An ordered pair of hosts, and the links between them.
#[derive(Clone, Debug)]
struct Pair {
    from: String,
    to: String,
    links: BTreeSet<u32>,
}

/// Measures or reads the capacities and writes them, with errors if asked to.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let rates = match &args.measured {
        Some(file) => read_rates(file)?,
        None => measure(args)?,
    };
    let mut random = random::stream(args.scene.seed, "wrong", 0);
    let mut text = "from,to,bps\n".to_owned();
    for (from, to, bps) in &rates {
        let factor = 1.0 + args.wrong_by * (2.0 * random::unit(&mut random) - 1.0);
        // Writing to a string cannot fail.
        _ = writeln!(text, "{from},{to},{:.0}", bps * factor);
    }
    std::fs::write(&args.out, text)
        .with_context(|| format!("cannot write {}", args.out.display()))?;
    output::print_line(&json!({ "pairs": rates.len() }))
}

type Rates = Vec<(String, String, f64)>;

fn read_rates(file: &std::path::Path) -> anyhow::Result<Rates> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let line = |line: &str| -> Option<(String, String, f64)> {
        let mut fields = line.split(',');
        let (from, to) = (fields.next()?.to_owned(), fields.next()?.to_owned());
        Some((from, to, fields.next()?.trim().parse().ok()?))
    };
    Ok(text.lines().filter_map(line).collect())
}

/// Measures all pairs, several at a time if they share no link, so that no measurement is "traffic corresponding to
/// other bistro pairs" for another one.
fn measure(args: &Args) -> anyhow::Result<Rates> {
    let pairs = list_pairs(args.scene.seed);
    let state = Mutex::new(State { waiting: pairs, busy: BTreeSet::new(), done: Vec::new() });
    thread::scope(|scope| -> anyhow::Result<()> {
        let workers: Vec<_> =
            (0..AT_ONCE).map(|_| scope.spawn(|| measure_waiting(&state, args))).collect();
        let join = |worker: thread::ScopedJoinHandle<'_, anyhow::Result<()>>| {
            worker.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a measurement thread panicked")))
        };
        workers.into_iter().try_for_each(join)
    })?;
    let mut rates = state.into_inner().done;
    rates.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    Ok(rates)
}

/// The most simultaneous measurements: eight hosts form at most eight ordered pairs that share no link.
const AT_ONCE: usize = 8;
/// How often a worker looks for a pair whose links are unused.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

struct State {
    waiting: Vec<Pair>,
    busy: BTreeSet<u32>,
    done: Rates,
}

fn measure_waiting(state: &Mutex<State>, args: &Args) -> anyhow::Result<()> {
    let lock = || state.lock();
    loop {
        let next = {
            let mut state = lock();
            if state.waiting.is_empty() {
                return Ok(());
            }
            state.take_free_pair()
        };
        let Some(pair) = next else {
            thread::sleep(POLL_INTERVAL);
            continue;
        };
        let rate = order_measurement(&pair, args);
        let mut state = lock();
        state.busy.retain(|link| !pair.links.contains(link));
        match rate {
            Ok(rate) => state.done.push((pair.from, pair.to, rate)),
            Err(e) => {
                state.waiting.clear();
                return Err(e.context(format!("cannot measure from {} to {}", pair.from, pair.to)));
            }
        }
    }
}

impl State {
    /// Takes the first pair that shares no link with the pairs being measured.
    fn take_free_pair(&mut self) -> Option<Pair> {
        let free = |pair: &Pair| pair.links.is_disjoint(&self.busy);
        let at = self.waiting.iter().position(free)?;
        let pair = self.waiting.remove(at);
        self.busy.extend(&pair.links);
        Some(pair)
    }
}

/// Every ordered pair of hosts except those from the destination, which sends nothing.
fn list_pairs(seed: u64) -> Vec<Pair> {
    let net = Topology::transit_stub(seed);
    let nodes = bistros(&net, seed);
    let last = nodes.len() - 1;
    let name = |at: usize| if at == last { "d".to_owned() } else { format!("s{}", at + 1) };
    let all = (0..last).flat_map(|from| (0..=last).map(move |to| (from, to)));
    let pair = |(from, to): (usize, usize)| Pair {
        from: name(from),
        to: name(to),
        links: net.route(nodes[from], nodes[to]).unwrap_or_default().into_iter().collect(),
    };
    all.filter(|(from, to)| from != to).map(pair).collect()
}

/// Asks a host to measure a pair. Returns the rate, bit/s.
fn order_measurement(pair: &Pair, args: &Args) -> anyhow::Result<f64> {
    let to = resolve(&pair.to, DATA)?;
    let at = resolve(&pair.from, ORDERS)?;
    let begun = Instant::now();
    let stream = net::connect_tcp(at, &TcpOptions::default())?;
    let mut control = Control::new(stream, args.longest + GRACE)?;
    let longest = args.longest.as_secs_f64();
    control.send(&MeasurementOrder {
        to,
        bytes: args.bytes.as_bytes(),
        times: args.times,
        longest,
    })?;
    let MeasurementResult { bytes, seconds } = control.receive()?;
    anyhow::ensure!(
        seconds > 0.0 && begun.elapsed() > Duration::ZERO,
        "the measurement took no time"
    );
    Ok(bytes as f64 * 8.0 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_that_are_measured_at_once_share_no_link() {
        let mut state = State { waiting: list_pairs(4), busy: BTreeSet::new(), done: Vec::new() };
        assert_eq!(state.waiting.len(), 49);
        let mut taken: Vec<Pair> = Vec::new();
        while let Some(pair) = state.take_free_pair() {
            assert!(taken.iter().all(|other| other.links.is_disjoint(&pair.links)));
            taken.push(pair);
        }
        assert!(taken.len() >= 2, "{}", taken.len());
    }

    #[test]
    fn wrong_capacities_differ_from_measured_ones_within_the_bound() {
        let dir = tempfile::tempdir().unwrap();
        let (right, wrong) = (dir.path().join("right.csv"), dir.path().join("wrong.csv"));
        let table: String = (1..=7).map(|s| format!("s{s},d,1000000\n")).collect();
        std::fs::write(&right, format!("from,to,bps\n{table}")).unwrap();
        let args = Args {
            scene: NetworkArgs { seed: 1, pace: 1.0 },
            bytes: ByteSize::from_bytes(1),
            times: 1,
            longest: Duration::from_secs(1),
            wrong_by: 0.7,
            out: wrong.clone(),
            measured: Some(right),
        };
        run(&args).unwrap();
        let rates = read_rates(&wrong).unwrap();
        assert_eq!(rates.len(), 7);
        assert!(rates.iter().all(|r| (300_000.0..=1_700_000.0).contains(&r.2)));
        assert!(rates.iter().any(|r| (r.2 - 1e6).abs() > 2e5));
    }
}
