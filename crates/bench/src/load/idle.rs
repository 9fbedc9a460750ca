//! Measures the memory that a relay holds for each idle connection.

use super::{
    listeners::ListenerProcesses,
    report::Report,
    server::{self, ECHO_BLOCK},
    server_dialer::{Connection, ServerArgs, ServerDialer},
};
use anyhow::{Context as _, ensure};
use std::{sync::Arc, time::Duration};
use thalweg_units::parse_duration;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    task::JoinSet,
};

/// Arguments of `thalweg-bench load idle`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    way: ServerArgs,
    /// Number of connections
    #[arg(long, default_value_t = 8000)]
    connections: usize,
    /// Number of connections that are opened at the same time
    #[arg(long, default_value_t = 32)]
    at_once: usize,
    /// Blocks of 16 kB that each connection carries in both directions before it is idle
    #[arg(long, default_value_t = 4)]
    blocks: usize,
    /// Time for which the connections are idle before the measurement
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    rest: Duration,
}

/// Measures and prints the report.
///
/// # Errors
/// When a connection fails or is dead at the end.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let port = args
        .way
        .watch
        .context("--watch is required: it selects the process whose memory is measured")?;
    let relay = ListenerProcesses::find(port)?;
    let dialer = Arc::new(args.way.dialer()?);
    let before = relay.anonymous_bytes()?;
    let mut resting = open_all(args, &dialer).await?;
    tokio::time::sleep(args.rest).await;
    let after = relay.anonymous_bytes()?;
    for connection in &mut resting {
        exchange(connection, b".").await.context("an idle connection broke")?;
    }
    let mut report = Report::default();
    let each = after.saturating_sub(before) as f64 / args.connections as f64;
    report.add("idle_memory", "kB", each / 1e3);
    report.add("idle_connections", "1", resting.len() as f64);
    report.print().context("cannot print the report")
}

async fn open_all(args: &Args, dialer: &Arc<ServerDialer>) -> anyhow::Result<Vec<Connection>> {
    let mut opening = JoinSet::new();
    let mut opened = Vec::with_capacity(args.connections);
    for _ in 0..args.connections {
        if opening.len() >= args.at_once
            && let Some(done) = opening.join_next().await
        {
            opened.push(done.context("a task panicked")??);
        }
        opening.spawn(open(Arc::clone(dialer), args.blocks));
    }
    while let Some(done) = opening.join_next().await {
        opened.push(done.context("a task panicked")??);
    }
    Ok(opened)
}

/// Opens a connection and echoes some blocks, so that the relay has allocated buffers.
async fn open(dialer: Arc<ServerDialer>, blocks: usize) -> anyhow::Result<Connection> {
    let mut connection = dialer.connect().await?;
    connection.write_all(&[server::ECHO]).await?;
    let block = vec![0x5a; ECHO_BLOCK];
    for _ in 0..blocks {
        exchange(&mut connection, &block).await?;
    }
    Ok(connection)
}

/// Sends `block`, at most [`ECHO_BLOCK`] bytes, and reads it back.
///
/// # Errors
/// When the connection fails or other bytes come back.
pub async fn exchange(connection: &mut Connection, block: &[u8]) -> anyhow::Result<()> {
    connection.write_all(block).await?;
    connection.flush().await?;
    let mut answer = vec![0; block.len()];
    connection.read_exact(&mut answer).await?;
    ensure!(answer == block, "WRONG BYTES in an answer");
    Ok(())
}
