//! `thalweg-bench load unseen`: runs a transfer in a lab of the kind `matrix` and compares its time with the physical
//! bound of that network.
//!
//! The bound is the least time in which the bytes could arrive by any routes through the hosts of the lab, with all links
//! full from the first moment: a maximum flow. A transfer to several hosts has the bound of the host with the longest
//! one, because intermediate hosts can pass on what they receive (Edmonds 1972).

use super::report::Report;
use anyhow::{Context as _, bail, ensure};
use std::{
    collections::BTreeMap,
    env,
    fs::File,
    io::{BufReader, Read},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};
use thalweg_lab::{client::Lab, emu::LinkTruth, topology::generate::GRID};
use thalweg_sim::collection::shortest;
use thalweg_units::ByteSize;

/// Bytes on a link per byte of data: TCP over IPv4 with timestamps carries at most 1448 bytes in 1500.
const ON_THE_LINK: f64 = 1500.0 / 1448.0;

/// Bytes compared at once.
const BLOCK: usize = 64 * 1024;

/// Arguments of `thalweg-bench load unseen`.
#[derive(clap::Args)]
pub struct Args {
    /// The lab's socket
    #[arg(long, value_name = "SOCKET")]
    lab: PathBuf,
    /// A host that sends
    #[arg(long, value_name = "HOST", required = true)]
    from: Vec<String>,
    /// A host that receives; several: each receives everything
    #[arg(long, value_name = "HOST", required = true)]
    to: Vec<String>,
    /// The bytes that each host sends
    #[arg(long, value_name = "SIZE")]
    size: ByteSize,
    /// Two files that must be equal at the end
    #[arg(long, value_name = "SENT=RECEIVED")]
    same: Vec<String>,
    /// The command that transfers
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Runs the transfer and prints the report.
///
/// # Errors
/// When it fails, or a file differs.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let network = Network::new(&Lab::attach(&args.lab)?.stats(false)?.links)?;
    let bound = network.least_time(&args.from, &args.to, args.size.as_bytes())?;
    let call = transfer(&args.command)?;
    for pair in &args.same {
        let (sent, received) =
            pair.split_once('=').with_context(|| format!("{pair} is not SENT=RECEIVED"))?;
        require_equal(Path::new(sent), Path::new(received))?;
    }
    let bytes = args.size.as_bytes() as f64 * args.from.len() as f64;
    let mut report = Report::default();
    report.add("call", "s", call);
    report.add("bound", "s", bound);
    report.add("over_bound", "ratio", call / bound);
    report.add("of_bound", "ratio", bound / call);
    report.add("rate", "Mbit/s", bytes * 8e-6 / call);
    report.add_text("matrix", matrix());
    Ok(report.print()?)
}

/// The origin of the network's rates.
fn matrix() -> String {
    let grid = env::var(GRID).ok().filter(|file| !file.is_empty());
    let name = grid.as_deref().map(Path::new).and_then(Path::file_name);
    name.map_or_else(|| "model".into(), |name| name.to_string_lossy().into_owned())
}

/// Runs the command to its end; returns its seconds.
fn transfer(command: &[String]) -> anyhow::Result<f64> {
    let (program, rest) = command.split_first().context("no command is given")?;
    let begun = Instant::now();
    let status = Command::new(program)
        .args(rest)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .with_context(|| format!("cannot run {program}"))?;
    let seconds = begun.elapsed().as_secs_f64();
    if !status.success() {
        bail!("{program} failed ({status})");
    }
    Ok(seconds)
}

/// Fails unless both files have the same bytes.
fn require_equal(sent: &Path, received: &Path) -> anyhow::Result<()> {
    let open = |file: &Path| {
        File::open(file)
            .map(BufReader::new)
            .with_context(|| format!("cannot open {}", file.display()))
    };
    let (mut one, mut other) = (open(sent)?, open(received)?);
    let (mut a, mut b) = (vec![0; BLOCK], vec![0; BLOCK]);
    loop {
        let (n, m) = (fill(&mut one, &mut a)?, fill(&mut other, &mut b)?);
        ensure!(a[..n] == b[..m], "{} differs from {}", received.display(), sent.display());
        if n == 0 {
            return Ok(());
        }
    }
}

/// Reads until `buffer` is full or the file ends; returns the bytes read.
fn fill(file: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..])? {
            0 => break,
            n => filled += n,
        }
    }
    Ok(filled)
}

/// The links of a lab of the kind `matrix`, as a graph in which each host has a node of its own, one behind its upstream
/// link, and one before its downstream link: so that what a host passes on takes its access link twice.
struct Network {
    nodes: BTreeMap<String, usize>,
    /// Ends and bytes per second.
    links: Vec<((usize, usize), f64)>,
}

impl Network {
    fn new(truths: &[LinkTruth]) -> anyhow::Result<Self> {
        let mut network = Self { nodes: BTreeMap::new(), links: Vec::new() };
        for truth in truths {
            let (link, half) = truth.name.rsplit_once('.').unwrap_or((&truth.name, ""));
            let forward = half == "fwd";
            let ends = if let Some(host) = link.strip_suffix(".access") {
                let (inside, up, down) =
                    (host.into(), format!("{host} up"), format!("{host} down"));
                if forward { (inside, up) } else { (down, inside) }
            } else {
                let (a, b) = link
                    .split_once('_')
                    .with_context(|| format!("{}: not a link of a matrix", truth.name))?;
                let (from, to) = if forward { (a, b) } else { (b, a) };
                (format!("{from} up"), format!("{to} down"))
            };
            let rate = truth.rate.with_context(|| format!("{} has no rate", truth.name))?;
            let ends = (network.node(ends.0), network.node(ends.1));
            network.links.push((ends, rate.as_bps() as f64 / 8.0));
        }
        Ok(network)
    }

    fn node(&mut self, name: String) -> usize {
        let next = self.nodes.len();
        *self.nodes.entry(name).or_insert(next)
    }

    /// The least time, s, in which each of `to` can have `bytes` of each of `from`.
    fn least_time(&self, from: &[String], to: &[String], bytes: u64) -> anyhow::Result<f64> {
        let node = |host: &String| {
            self.nodes.get(host).copied().with_context(|| format!("the lab has no host {host}"))
        };
        let sources: Vec<usize> = from.iter().map(node).collect::<anyhow::Result<_>>()?;
        let amounts = vec![bytes as f64 * ON_THE_LINK; sources.len()];
        let ends: Vec<_> = self.links.iter().map(|(ends, _)| *ends).collect();
        let mut longest = 0.0_f64;
        for host in to {
            let hosts: Vec<usize> = sources.iter().copied().chain([node(host)?]).collect();
            let carried =
                |seconds: f64| self.links.iter().map(|(_, rate)| rate * seconds).collect();
            longest = longest.max(shortest(&ends, &hosts, &amounts, carried, 1.0));
        }
        ensure!(longest.is_finite(), "the lab has no route between these hosts");
        Ok(longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_units::Rate;

    fn truth(name: &str, mbps: u64) -> LinkTruth {
        LinkTruth {
            name: name.into(),
            rate: Some(Rate::from_bps(mbps * 1_000_000)),
            ..LinkTruth::default()
        }
    }

    /// Three hosts: a has 10 Mbit/s to b, and 8 Mbit/s each way by c; all have 100 Mbit/s of access but `narrow`.
    fn network(narrow: u64) -> Network {
        let both = |name: &str, mbps| {
            [truth(&format!("{name}.fwd"), mbps), truth(&format!("{name}.rev"), mbps)]
        };
        let links = [
            both("a.access", 100),
            both("b.access", 100),
            both("c.access", narrow),
            both("a_b", 10),
            both("a_c", 8),
            both("b_c", 8),
        ];
        Network::new(&links.concat()).unwrap()
    }

    fn seconds(network: &Network, from: &[&str], to: &[&str]) -> f64 {
        let names = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        // A second of 10 Mbit/s.
        let bytes = (1_250_000.0 / ON_THE_LINK) as u64;
        network.least_time(&names(from), &names(to), bytes).unwrap()
    }

    #[test]
    fn the_bound_uses_all_routes_and_takes_the_access_of_hosts_between_twice() {
        assert!((seconds(&network(100), &["a"], &["b"]) - 10.0 / 18.0).abs() < 1e-3);
        assert!((seconds(&network(2), &["a"], &["b"]) - 10.0 / 12.0).abs() < 1e-3);
    }

    #[test]
    fn several_sources_add_up_and_of_several_receivers_the_slowest_counts() {
        // Both at once reach b over 18 Mbit/s.
        assert!((seconds(&network(100), &["a", "c"], &["b"]) - 20.0 / 18.0).abs() < 1e-3);
        assert!((seconds(&network(2), &["a"], &["b", "c"]) - 5.0).abs() < 1e-2);
    }

    #[test]
    fn other_links_and_hosts_are_refused() {
        assert!(Network::new(&[truth("core.fwd", 1)]).is_err());
        let error = network(1).least_time(&["x".into()], &["b".into()], 1).unwrap_err();
        assert_eq!(error.to_string(), "the lab has no host x");
    }

    #[test]
    fn files_that_differ_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = directory.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let sent = file("sent", &[1; BLOCK + 1]);
        assert!(require_equal(&sent, &file("same", &[1; BLOCK + 1])).is_ok());
        assert!(require_equal(&sent, &file("short", &[1; BLOCK])).is_err());
        let mut wrong = vec![1; BLOCK + 1];
        wrong[BLOCK] = 2;
        assert!(require_equal(&sent, &file("wrong", &wrong)).is_err());
    }
}
