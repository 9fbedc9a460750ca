//! Measures new connections: each sends one byte, receives it back, and is closed.

use super::{
    listeners::{self, ListenerProcesses},
    report::Report,
    server,
    server_dialer::{ServerArgs, ServerDialer},
};
use anyhow::{Context as _, ensure};
use std::{sync::Arc, time::Duration};
use thalweg_units::parse_duration;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    task::JoinSet,
    time::Instant,
};

/// Arguments of `thalweg-bench load connect`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    way: ServerArgs,
    /// Number of concurrent connections
    #[arg(long, default_value_t = 32)]
    at_once: usize,
    /// Time at the start that is not measured
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_duration)]
    warmup: Duration,
    /// Measured time
    #[arg(long = "for", value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    span: Duration,
}

/// Measures and prints the report.
///
/// # Errors
/// When a connection fails.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let relay = args.way.watch.map(ListenerProcesses::find).transpose()?;
    let spent =
        || relay.as_ref().map_or_else(listeners::machine_cpu_time, ListenerProcesses::cpu_time);
    let dialer = Arc::new(args.way.dialer()?);
    rounds(&dialer, args.at_once, args.warmup).await?;
    let (started, first) = (Instant::now(), spent()?);
    let times = rounds(&dialer, args.at_once, args.span).await?;
    let (elapsed, last) = (started.elapsed().as_secs_f64(), spent()?);
    let (mut report, n) = (Report::default(), times.len() as f64);
    report.add("connections", "1/s", n / elapsed);
    report.add("connection_machine", "CPU us", (last.machine - first.machine) * 1e6 / n);
    if relay.is_some() {
        report.add("connection_cpu", "CPU us", (last.relay - first.relay) * 1e6 / n);
    }
    report.add_times("connection_busy", times);
    report.print().context("cannot print the report")
}

/// Makes connections for `time`, `at_once` at a time; returns the time of each until its answer.
async fn rounds(
    dialer: &Arc<ServerDialer>,
    at_once: usize,
    time: Duration,
) -> anyhow::Result<Vec<Duration>> {
    let until = Instant::now() + time;
    let mut lanes = JoinSet::new();
    for _ in 0..at_once {
        let dialer = Arc::clone(dialer);
        lanes.spawn(async move {
            let mut times = Vec::new();
            while Instant::now() < until {
                times.push(once(&dialer, b"x").await?);
            }
            anyhow::Ok(times)
        });
    }
    let mut all = Vec::new();
    while let Some(lane) = lanes.join_next().await {
        all.extend(lane.context("a connection's task panicked")??);
    }
    ensure!(!all.is_empty(), "no connection was made");
    Ok(all)
}

/// Connects, sends `request` (at most [`server::ECHO_BLOCK`]), reads the echo, and closes in order.
///
/// Returns the time until the answer; closing is not included.
///
/// # Errors
/// When the connection fails or the answer differs.
pub async fn once(dialer: &ServerDialer, request: &[u8]) -> anyhow::Result<Duration> {
    let started = Instant::now();
    let mut connection = dialer.connect().await?;
    let message = [&[server::ECHO], request].concat();
    connection.write_all(&message).await?;
    connection.flush().await?;
    let mut answer = vec![0; request.len()];
    connection.read_exact(&mut answer).await?;
    let took = started.elapsed();
    ensure!(answer == request, "WRONG BYTES in an answer");
    connection.shutdown().await?;
    // Some relays end the connection with a reset, which is fine because the answer has arrived.
    let _end = connection.read(&mut answer).await;
    Ok(took)
}
