//! Measures the rate of one connection or several.

use super::{
    listeners::{self, CpuTime, ListenerProcesses},
    pattern::{CHUNK, Pattern},
    report::Report,
    server,
    server_dialer::{Connection, ServerArgs},
};
use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use thalweg_units::parse_duration;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    task::JoinSet,
    time::Instant,
};

/// Arguments of `thalweg-bench load bulk`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    way: ServerArgs,
    /// Number of concurrent connections
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// Direction of the transfer
    #[arg(long, value_enum, default_value = "download")]
    direction: Direction,
    /// Time at the start that is not measured
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_duration)]
    warmup: Duration,
    /// Measured time
    #[arg(long = "for", value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    span: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Direction {
    /// From the server
    Download,
    /// To the server
    Upload,
}

/// The counts up to a moment.
struct BulkCounts {
    at: Instant,
    bytes: Vec<u64>,
    spent: CpuTime,
}

/// Measures and prints the report.
///
/// # Errors
/// When a connection fails or carries a wrong byte.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let relay = args.way.watch.map(ListenerProcesses::find).transpose()?;
    let counters: Arc<[AtomicU64]> = (0..args.connections).map(|_| AtomicU64::new(0)).collect();
    let mut flows = start(args, &counters).await?;
    pass(args.warmup, &mut flows).await?;
    let first = reading(relay.as_ref(), &counters)?;
    pass(args.span, &mut flows).await?;
    let last = reading(relay.as_ref(), &counters)?;
    flows.shutdown().await;
    report(args, &first, &last).print().context("cannot print the report")
}

/// Opens all connections and then starts their transfers together.
async fn start(
    args: &Args,
    counters: &Arc<[AtomicU64]>,
) -> anyhow::Result<JoinSet<anyhow::Result<()>>> {
    let dialer = args.way.dialer()?;
    let mut opened = Vec::with_capacity(args.connections);
    for _ in 0..args.connections {
        opened.push(dialer.connect().await?);
    }
    let pattern = Arc::new(Pattern::new());
    let mut flows = JoinSet::new();
    for (i, connection) in opened.into_iter().enumerate() {
        let (pattern, counters) = (Arc::clone(&pattern), Arc::clone(counters));
        let direction = args.direction;
        flows.spawn(async move {
            match direction {
                Direction::Download => receive(connection, &pattern, &counters[i]).await,
                Direction::Upload => send(connection, &pattern, &counters[i]).await,
            }
        });
    }
    Ok(flows)
}

async fn receive(mut c: Connection, pattern: &Pattern, count: &AtomicU64) -> anyhow::Result<()> {
    c.write_all(&[server::DOWNLOAD]).await?;
    c.flush().await?;
    let mut buffer = vec![0; CHUNK];
    let mut position = 0;
    loop {
        let n = c.read(&mut buffer).await?;
        ensure!(n > 0, "the server's data ended after {position} bytes");
        pattern.check(position, &buffer[..n])?;
        position += n as u64;
        count.store(position, Ordering::Relaxed);
    }
}

async fn send(mut c: Connection, pattern: &Pattern, count: &AtomicU64) -> anyhow::Result<()> {
    c.write_all(&[server::UPLOAD]).await?;
    let mut position = 0;
    loop {
        position += c.write(pattern.at(position)).await? as u64;
        count.store(position, Ordering::Relaxed);
    }
}

/// Waits for `time`; a flow that ends meanwhile is an error.
async fn pass(time: Duration, flows: &mut JoinSet<anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::select! {
        () = tokio::time::sleep(time) => Ok(()),
        Some(ended) = flows.join_next() => {
            ended.context("a flow's task panicked")?.context("a connection broke")?;
            anyhow::bail!("a connection ended")
        }
    }
}

fn reading(
    relay: Option<&ListenerProcesses>,
    counters: &[AtomicU64],
) -> anyhow::Result<BulkCounts> {
    let bytes = counters.iter().map(|c| c.load(Ordering::Relaxed)).collect();
    let at = Instant::now();
    Ok(BulkCounts {
        at,
        bytes,
        spent: relay.map_or_else(listeners::machine_cpu_time, ListenerProcesses::cpu_time)?,
    })
}

fn report(args: &Args, first: &BulkCounts, last: &BulkCounts) -> Report {
    let each: Vec<u64> = last.bytes.iter().zip(&first.bytes).map(|(b, a)| b - a).collect();
    let gbit = each.iter().sum::<u64>() as f64 * 8e-9;
    let spent = CpuTime {
        relay: last.spent.relay - first.spent.relay,
        machine: last.spent.machine - first.spent.machine,
        softirq: last.spent.softirq - first.spent.softirq,
    };
    let (mut report, name) = (Report::default(), name(args));
    report.add(name.clone(), "Gbit/s", gbit / (last.at - first.at).as_secs_f64());
    report.add(format!("{name}_machine"), "CPU s/Gbit", spent.machine / gbit);
    report.add(format!("{name}_softirq"), "CPU s/Gbit", spent.softirq / gbit);
    if args.way.watch.is_some() {
        report.add(format!("{name}_cpu"), "CPU s/Gbit", spent.relay / gbit);
        report.add(format!("{name}_per_cpu"), "Gbit/CPU s", gbit / spent.relay);
    }
    if each.len() > 1 {
        // Some relays let a few connections wait for seconds.
        let starved = each.iter().filter(|&&bytes| bytes == 0).count();
        report.add(format!("{name}_starved"), "connections", starved as f64);
    }
    report
}

/// The metric's name, such as `download_100`.
fn name(args: &Args) -> String {
    let direction = match args.direction {
        Direction::Download => "download",
        Direction::Upload => "upload",
    };
    format!("{direction}_{}", args.connections)
}
