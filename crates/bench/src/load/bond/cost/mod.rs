//! Measures the CPU time per byte of a stream between two hosts that two links join.
//!
//! ```text
//! reader → PROGRAM ═ near0─far0 ═ PROGRAM → server of known bytes
//!  (here)           ═ near1─far1 ═           (the other namespace)
//! ```
//!
//! For each value of `--by` both programs are of the same kind: each copies between loopback and the connection or bond
//! between the hosts. The cost is the CPU time of the two programs, in user and kernel mode, while bytes flow to the
//! reader. The links are as fast as the machine allows. On a veth pair the sender also does the work of the receiving
//! kernel.

mod testbed;

use super::{
    super::{
        listeners,
        pattern::{CHUNK, Pattern},
        process::cpu_seconds,
        report::Report,
        server,
    },
    counters,
};
use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::TcpStream,
    time::{Duration, Instant},
};
use testbed::BondTestbed;
use thalweg_units::parse_duration;

/// The longest wait for a byte.
const PATIENCE: Duration = Duration::from_secs(20);

/// A link that carried less than this share of the bytes did not carry the stream together with the other link.
const LEAST_SHARE: f64 = 0.05;

/// Arguments of `thalweg-bench load bond cost`: to be run in a network namespace of one's own (`unshare --net`).
#[derive(clap::Args)]
pub struct Args {
    /// The transport
    #[arg(long, value_enum)]
    by: CostTransport,
    /// Time at the start that is not measured
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_duration)]
    warmup: Duration,
    /// Measured time
    #[arg(long = "for", value_name = "TIME", default_value = "3s", value_parser = parse_duration)]
    span: Duration,
    /// Further arguments of both ends of a bond
    #[arg(last = true)]
    further: Vec<String>,
}

/// The connection between the two programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CostTransport {
    /// A TCP connection over one link without the two programs: server and reader are the ends
    Direct,
    /// A TCP connection over one link
    Tcp,
    /// A bonded stream over both links
    Bond,
    /// The program `agg-tunnel`
    Aggligator,
}

/// The counts up to a moment.
struct CostCounts {
    at: Instant,
    bytes: u64,
    /// CPU time in seconds of the near program, of the far program, of all processes of this measurement, and of the
    /// machine.
    spent: [f64; 4],
    interfaces: BTreeMap<String, u64>,
}

/// Measures and prints the report.
///
/// # Errors
/// When a program does not start, a byte is wrong, or one of two links carried nothing.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let testbed = BondTestbed::new(args.by, &args.further)?;
    let mut flow = CostFlow::begin(&testbed)?;
    flow.read_for(args.warmup)?;
    let first = flow.reading(&testbed)?;
    flow.read_for(args.span)?;
    let last = flow.reading(&testbed)?;
    report(args.by, &first, &last)?.print().context("cannot print the report")
}

struct CostFlow {
    tcp: TcpStream,
    pattern: Pattern,
    buffer: Vec<u8>,
    position: u64,
}

impl CostFlow {
    fn begin(testbed: &BondTestbed) -> anyhow::Result<Self> {
        let mut tcp = testbed.connect(PATIENCE)?;
        tcp.set_read_timeout(Some(PATIENCE))?;
        tcp.write_all(&[server::DOWNLOAD])?;
        let mut flow = Self { tcp, pattern: Pattern::new(), buffer: vec![0; CHUNK], position: 0 };
        // Waits for the first byte; meanwhile links are set up.
        flow.read()?;
        Ok(flow)
    }

    fn read(&mut self) -> anyhow::Result<()> {
        let count = self.tcp.read(&mut self.buffer).context("no byte arrives")?;
        ensure!(count > 0, "the stream ended after {} bytes", self.position);
        self.pattern.check(self.position, &self.buffer[..count])?;
        self.position += count as u64;
        Ok(())
    }

    fn read_for(&mut self, span: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + span;
        while Instant::now() < end {
            self.read()?;
        }
        Ok(())
    }

    fn reading(&self, testbed: &BondTestbed) -> anyhow::Result<CostCounts> {
        let [near, far] = [cpu_seconds(testbed.near())?, cpu_seconds(testbed.far())?];
        let all = testbed.all().into_iter().map(cpu_seconds).sum::<anyhow::Result<f64>>()?;
        let (spent, interfaces) =
            ([near, far, all, listeners::machine_cpu_time()?.machine], counters::received_bytes()?);
        Ok(CostCounts { at: Instant::now(), bytes: self.position, spent, interfaces })
    }
}

fn report(by: CostTransport, first: &CostCounts, last: &CostCounts) -> anyhow::Result<Report> {
    let gbit = (last.bytes - first.bytes) as f64 * 8e-9;
    let spent = |at: usize| (last.spent[at] - first.spent[at]) / gbit;
    let mut report = Report::default();
    report.add("cpu", "s/Gbit", spent(0) + spent(1));
    for (name, at) in [("cpu_near", 0), ("cpu_far", 1), ("cpu_with_ends", 2), ("cpu_machine", 3)] {
        report.add(name, "s/Gbit", spent(at));
    }
    report.add("rate", "Gbit/s", gbit / (last.at - first.at).as_secs_f64());
    let came = last.interfaces.iter().map(|(name, bytes)| bytes - first.interfaces[name]);
    let came: Vec<f64> = came.map(|bytes| bytes as f64).collect();
    let least = came.iter().copied().fold(f64::INFINITY, f64::min) / came.iter().sum::<f64>();
    report.add("least_share", "ratio", least);
    let is_one = matches!(by, CostTransport::Direct | CostTransport::Tcp);
    ensure!(
        is_one || least >= LEAST_SHARE,
        "one of the links carried only a share of {least:.3} of the bytes"
    );
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at: Instant, bytes: u64, spent: f64, came: [u64; 2]) -> CostCounts {
        let names = ["near0", "near1"].map(str::to_owned);
        let interfaces = names.into_iter().zip(came).collect();
        CostCounts { at, bytes, spent: [spent, 2.0 * spent, 4.0 * spent, 5.0 * spent], interfaces }
    }

    #[test]
    fn cpu_time_is_per_gbit_and_an_unused_link_is_an_error() {
        let now = Instant::now();
        let first = reading(now, 0, 1.0, [0, 0]);
        let two_gbit = 250_000_000;
        let last = reading(now + Duration::from_secs(4), two_gbit, 1.5, [200, 60]);
        let result = report(CostTransport::Bond, &first, &last).unwrap();
        let value = |name| result.value(name).and_then(serde_json::Value::as_f64).unwrap();
        assert!((value("cpu") - 0.75).abs() < 1e-9 && (value("rate") - 0.5).abs() < 1e-9);
        let alone = reading(now + Duration::from_secs(4), two_gbit, 1.5, [200, 2]);
        assert!(report(CostTransport::Bond, &first, &alone).is_err());
        assert!(report(CostTransport::Tcp, &first, &alone).is_ok());
    }
}
