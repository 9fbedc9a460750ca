//! Measures the CPU time per byte of one TCP connection between two hosts that a veth pair joins.
//!
//! ```text
//! reader ── TUN ─ PROGRAM ═ near0─far0 ═ PROGRAM ─ TUN ── server of known bytes
//!  (here)                                              (the other namespace)
//! ```
//!
//! The cost is the CPU time of the two programs, in user and kernel mode, while bytes flow to the reader. Reader and
//! server are the same for each value of `--by`. With the direct connection there are no programs, and reader and
//! server are the two ends.

use super::{
    super::{
        listeners,
        pattern::{CHUNK, Pattern},
        process::cpu_seconds,
        report::Report,
        server,
    },
    testbed::{TunnelKind, TunnelTestbed},
};
use anyhow::{Context as _, ensure};
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};
use thalweg_units::parse_duration;

/// The longest wait for a byte.
const PATIENCE: Duration = Duration::from_secs(20);

/// Arguments of `thalweg-bench load carrier cost`: to be run in a network namespace of one's own (`unshare --net`).
#[derive(clap::Args)]
pub struct Args {
    /// The transport
    #[arg(long, value_enum)]
    by: TunnelKind,
    /// Time at the start in which nothing is sent and the programs' CPU time is counted
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    rest: Duration,
    /// Time of the transfer that is not measured
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_duration)]
    warmup: Duration,
    /// Measured time
    #[arg(long = "for", value_name = "TIME", default_value = "3s", value_parser = parse_duration)]
    span: Duration,
}

/// The counts up to a moment.
struct TunnelCounts {
    at: Instant,
    bytes: u64,
    /// CPU time in seconds of the near program, of the far program, of all processes of this measurement, and of the
    /// machine.
    spent: [f64; 4],
}

/// Measures and prints the report.
///
/// # Errors
/// When a program does not start or a byte is wrong.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let testbed = TunnelTestbed::new(args.by)?;
    let resting = reading(&testbed, 0)?;
    thread::sleep(args.rest);
    let rested = reading(&testbed, 0)?;
    let mut flow = TunnelFlow::begin(&testbed)?;
    flow.read_for(args.warmup)?;
    let first = reading(&testbed, flow.position)?;
    flow.read_for(args.span)?;
    let last = reading(&testbed, flow.position)?;
    let mut report = report(&first, &last);
    let idle = |at: usize| rested.spent[at] - resting.spent[at];
    let share = (idle(0) + idle(1)) / (rested.at - resting.at).as_secs_f64();
    report.add("idle", "cores", share);
    report.print().context("cannot print the report")
}

fn reading(testbed: &TunnelTestbed, bytes: u64) -> anyhow::Result<TunnelCounts> {
    let [near, far] = [cpu_seconds(testbed.near())?, cpu_seconds(testbed.far())?];
    let all = testbed.all().into_iter().map(cpu_seconds).sum::<anyhow::Result<f64>>()?;
    let spent = [near, far, all, listeners::machine_cpu_time()?.machine];
    Ok(TunnelCounts { at: Instant::now(), bytes, spent })
}

fn report(first: &TunnelCounts, last: &TunnelCounts) -> Report {
    let gbit = (last.bytes - first.bytes) as f64 * 8e-9;
    let spent = |at: usize| (last.spent[at] - first.spent[at]) / gbit;
    let mut report = Report::default();
    report.add("cpu", "s/Gbit", spent(0) + spent(1));
    for (name, at) in [("cpu_near", 0), ("cpu_far", 1), ("cpu_with_ends", 2), ("cpu_machine", 3)] {
        report.add(name, "s/Gbit", spent(at));
    }
    report.add("rate", "Gbit/s", gbit / (last.at - first.at).as_secs_f64());
    report
}

struct TunnelFlow {
    tcp: TcpStream,
    pattern: Pattern,
    buffer: Vec<u8>,
    position: u64,
}

impl TunnelFlow {
    fn begin(testbed: &TunnelTestbed) -> anyhow::Result<Self> {
        let mut tcp = testbed.connect(PATIENCE)?;
        tcp.set_read_timeout(Some(PATIENCE))?;
        tcp.write_all(&[server::DOWNLOAD])?;
        Ok(Self { tcp, pattern: Pattern::new(), buffer: vec![0; CHUNK], position: 0 })
    }

    fn read_for(&mut self, span: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + span;
        while Instant::now() < end {
            let count = self.tcp.read(&mut self.buffer).context("no byte arrives")?;
            ensure!(count > 0, "the stream ended after {} bytes", self.position);
            self.pattern.check(self.position, &self.buffer[..count])?;
            self.position += count as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_per_gbit() {
        let now = Instant::now();
        let first = TunnelCounts { at: now, bytes: 0, spent: [1.0, 2.0, 4.0, 5.0] };
        let at = now + Duration::from_secs(4);
        let last = TunnelCounts { at, bytes: 250_000_000, spent: [1.5, 3.0, 6.0, 7.5] };
        let report = report(&first, &last);
        let value = |name| report.value(name).and_then(serde_json::Value::as_f64).unwrap();
        assert!((value("cpu") - 0.75).abs() < 1e-9 && (value("rate") - 0.5).abs() < 1e-9);
        assert!((value("cpu_with_ends") - 1.0).abs() < 1e-9);
    }
}
