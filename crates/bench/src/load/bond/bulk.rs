//! Measures the rate at which the application receives one stream.

use super::{
    super::{
        pattern::{CHUNK, Pattern},
        report::Report,
        server,
        server_dialer::Connection,
    },
    counters,
    mix::DATA,
    near::{NearTransport, TransportArgs},
};
use anyhow::{Context as _, ensure};
use std::{collections::BTreeMap, time::Duration};
use thalweg_units::parse_duration;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::{Instant, timeout_at},
};

/// Arguments of `thalweg-bench load bond bulk`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    near: TransportArgs,
    /// Time at the start that is not measured
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    warmup: Duration,
    /// Measured time
    #[arg(long = "for", value_name = "TIME", default_value = "4s", value_parser = parse_duration)]
    span: Duration,
}

/// The counts up to a moment.
struct BondCounts {
    at: Instant,
    bytes: u64,
    interfaces: BTreeMap<String, u64>,
}

/// A stream that is being read.
struct BondFlow {
    connection: Connection,
    pattern: Pattern,
    buffer: Vec<u8>,
    position: u64,
}

/// Measures and prints the report.
///
/// # Errors
/// When the stream breaks or carries a wrong byte.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let near = args.near.open().await?;
    let mut connection = near.connect().await?;
    connection.write_all(&[server::DOWNLOAD]).await?;
    connection.flush().await?;
    let buffer = vec![0; CHUNK];
    let mut flow = BondFlow { connection, pattern: Pattern::new(), buffer, position: 0 };
    let began = Instant::now();
    flow.read_until(began + args.warmup).await?;
    let first = flow.reading()?;
    flow.read_until(began + args.warmup + args.span).await?;
    let last = flow.reading()?;
    near.check()?;
    near.print_links();
    report(&near, &first, &last).print().context("cannot print the report")
}

impl BondFlow {
    async fn read_until(&mut self, end: Instant) -> anyhow::Result<()> {
        while let Ok(read) = timeout_at(end, self.connection.read(&mut self.buffer)).await {
            let count = read?;
            ensure!(count > 0, "the stream ended after {} bytes", self.position);
            self.pattern.check_whole(self.position, &self.buffer[..count])?;
            self.position += count as u64;
        }
        Ok(())
    }

    fn reading(&self) -> anyhow::Result<BondCounts> {
        let interfaces = counters::received_bytes()?;
        Ok(BondCounts { at: Instant::now(), bytes: self.position, interfaces })
    }
}

fn report(near: &NearTransport, first: &BondCounts, last: &BondCounts) -> Report {
    let span = (last.at - first.at).as_secs_f64();
    let mbps = |bytes: u64| bytes as f64 * 8e-6 / span;
    let mut report = Report::default();
    report.add("rate", "Mbit/s", mbps(last.bytes - first.bytes));
    let mut wires = 0;
    for (name, bytes) in &last.interfaces {
        let before = first.interfaces.get(name).copied().unwrap_or_default();
        wires += bytes - before;
        report.add(format!("wire_{name}"), "Mbit/s", mbps(bytes - before));
    }
    // Above 1: bytes that had crossed the links before the window. Below 1: second copies, and bytes that wait for
    // missing ones.
    let came = (last.bytes - first.bytes) as f64;
    report.add("of_wires", "ratio", came / (wires as f64 * DATA).max(1.0));
    if let NearTransport::Bond { took, .. } = near {
        report.add("links_after", "ms", took.as_secs_f64() * 1e3);
    }
    report
}
