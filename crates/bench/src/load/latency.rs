//! Times small requests over the relay, alternating with direct ones.

use super::{
    connect::once,
    idle::exchange,
    report::Report,
    server,
    server_dialer::{Connection, ServerArgs, ServerDialer},
};
use anyhow::Context as _;
use std::time::Duration;
use thalweg_units::parse_duration;
use tokio::{io::AsyncWriteExt as _, time::Instant};

/// The number of requests on each connection that are not measured.
const WARMUP: usize = 50;

/// Arguments of `thalweg-bench load latency`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    way: ServerArgs,
    /// Bytes of a request and of its answer
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=16384))]
    bytes: u16,
    /// Duration: the first half over established connections, the second with one connection per request
    #[arg(long = "for", value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    span: Duration,
}

/// Times of requests over the relay, and of the direct requests between them.
#[derive(Default)]
struct RequestTimes {
    relayed: Vec<Duration>,
    direct: Vec<Duration>,
}

/// Measures and prints the report.
///
/// # Errors
/// When a connection fails.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let (relayed, direct) = (args.way.dialer()?, args.way.direct_dialer());
    let request = vec![0x5a; usize::from(args.bytes)];
    let mut report = Report::default();
    let pairs = established(&relayed, &direct, &request, args.span / 2).await?;
    pairs.report(&mut report, "request");
    let pairs = fresh(&relayed, &direct, &request, args.span / 2).await?;
    pairs.report(&mut report, "connect_request");
    report.print().context("cannot print the report")
}

impl RequestTimes {
    fn report(self, report: &mut Report, name: &str) {
        report.add_times(name, self.relayed.clone());
        report.add_excess(&format!("{name}_added"), self.relayed, self.direct);
    }
}

async fn established(
    relayed: &ServerDialer,
    direct: &ServerDialer,
    request: &[u8],
    time: Duration,
) -> anyhow::Result<RequestTimes> {
    let (mut relayed, mut direct) = (open(relayed).await?, open(direct).await?);
    for _ in 0..WARMUP {
        exchange(&mut relayed, request).await?;
        exchange(&mut direct, request).await?;
    }
    let (mut pairs, until) = (RequestTimes::default(), Instant::now() + time);
    while Instant::now() < until {
        pairs.relayed.push(timed(&mut relayed, request).await?);
        pairs.direct.push(timed(&mut direct, request).await?);
    }
    Ok(pairs)
}

async fn fresh(
    relayed: &ServerDialer,
    direct: &ServerDialer,
    request: &[u8],
    time: Duration,
) -> anyhow::Result<RequestTimes> {
    let (mut pairs, until) = (RequestTimes::default(), Instant::now() + time);
    while Instant::now() < until {
        pairs.relayed.push(once(relayed, request).await?);
        pairs.direct.push(once(direct, request).await?);
    }
    Ok(pairs)
}

async fn open(dialer: &ServerDialer) -> anyhow::Result<Connection> {
    let mut connection = dialer.connect().await?;
    connection.write_all(&[server::ECHO]).await?;
    Ok(connection)
}

async fn timed(connection: &mut Connection, request: &[u8]) -> anyhow::Result<Duration> {
    let started = Instant::now();
    exchange(connection, request).await?;
    Ok(started.elapsed())
}
