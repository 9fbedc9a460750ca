//! Downloads through every relay of the mesh until each download is cut, and measures when its last byte arrived.

use super::{
    mesh,
    pattern::{CHUNK, Pattern},
    report::Report,
    server,
};
use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use serde_json::json;
use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};
use thalweg_net::{Dialer, Route, Stream};
use thalweg_units::parse_duration;
use thalweg_wire::Destination;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};

/// The longest wait for the roster to have all relays and for the first byte.
const PATIENCE: Duration = Duration::from_secs(20);

/// The interval between two reads of the roster.
const LOOK: Duration = Duration::from_millis(100);

/// The time from the first bytes until the event `flowing`, in which slow starts share the queue.
const SETTLE: Duration = Duration::from_secs(2);

/// Arguments of `thalweg-bench load cut`.
#[derive(clap::Args)]
pub struct Args {
    /// The server
    #[arg(long, value_name = "HOST:PORT")]
    to: Destination,
    /// The state directory whose client key is used, and whose roster names the relays
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// Encryption of the legs
    #[arg(long, value_enum, default_value = "sealed")]
    leg: LegKind,
    /// Number of relays in the roster to wait for
    #[arg(long, default_value_t = 1)]
    relays: usize,
    /// A file that at the end contains the time of the revocation, in seconds since 1970
    #[arg(long, value_name = "FILE")]
    since: PathBuf,
    /// Time after which connections that are still open are an error
    #[arg(long = "for", value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    span: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LegKind {
    /// TLS throughout
    Sealed,
    /// Clear bytes after the handshake
    Open,
}

/// How a download through one relay ended.
struct CutDownload {
    relay: String,
    last_byte: SystemTime,
    end: SystemTime,
    bytes: u64,
}

/// Downloads through all relays, prints `{"event":"flowing"}` when bytes arrive through each, and reports when the last
/// byte arrived through each.
///
/// # Errors
/// When a relay refuses us at first or does not cut us in the end.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let (dialer, routes) = known_routes(args).await?;
    let pattern = Arc::new(Pattern::new());
    let begun = begin_all(dialer, routes, &args.to, &pattern).await?;
    let mut flows = JoinSet::new();
    for flow in begun {
        flows.spawn(until_cut(flow, Arc::clone(&pattern)));
    }
    sleep(SETTLE).await;
    writeln!(io::stdout().lock(), "{}", json!({ "event": "flowing" }))?;
    let cuts = collect(flows, args.span).await?;
    report(&cuts, read_time(&args.since)?)?.print().context("cannot print the report")
}

/// Reads the routes once the roster has all relays; a daemon on this host keeps the roster current.
async fn known_routes(args: &Args) -> anyhow::Result<(Dialer, Vec<(String, Route)>)> {
    let until = Instant::now() + PATIENCE;
    loop {
        let (dialer, routes) = mesh::routes(&args.state, args.leg == LegKind::Open)?;
        if routes.len() >= args.relays {
            return Ok((dialer, routes));
        }
        ensure!(Instant::now() < until, "the roster lists only {} relays", routes.len());
        sleep(LOOK).await;
    }
}

/// A download that has begun.
struct RelayDownload {
    relay: String,
    stream: Stream,
    position: u64,
}

/// Begins a download through each relay, all at the same time.
async fn begin_all(
    dialer: Dialer,
    routes: Vec<(String, Route)>,
    to: &Destination,
    pattern: &Arc<Pattern>,
) -> anyhow::Result<Vec<RelayDownload>> {
    let mut beginning = JoinSet::new();
    for (relay, route) in routes {
        let (dialer, to, pattern) = (dialer.clone(), to.clone(), Arc::clone(pattern));
        beginning.spawn(async move {
            let begun = begin(&dialer, &route, &to, &pattern).await;
            let (stream, position) =
                begun.with_context(|| format!("cannot download through {relay}"))?;
            anyhow::Ok(RelayDownload { relay, stream, position })
        });
    }
    let mut flows = Vec::new();
    while let Some(flow) = beginning.join_next().await {
        flows.push(flow.context("a task panicked")??);
    }
    Ok(flows)
}

/// Connects and waits for the first bytes.
async fn begin(
    dialer: &Dialer,
    route: &Route,
    to: &Destination,
    pattern: &Pattern,
) -> anyhow::Result<(Stream, u64)> {
    let mut stream = dialer.dial(route, to).await?;
    stream.write_all(&[server::DOWNLOAD]).await?;
    stream.flush().await?;
    let mut buffer = vec![0; CHUNK];
    let n = timeout(PATIENCE, stream.read(&mut buffer)).await.context("no byte arrived")??;
    ensure!(n > 0, "the connection ended immediately");
    pattern.check(0, &buffer[..n])?;
    Ok((stream, n as u64))
}

/// Reads until the connection ends in any way.
async fn until_cut(flow: RelayDownload, pattern: Arc<Pattern>) -> anyhow::Result<CutDownload> {
    let RelayDownload { relay, mut stream, position: mut bytes } = flow;
    let mut buffer = vec![0; CHUNK];
    let mut last_byte = SystemTime::now();
    while let Ok(n @ 1..) = stream.read(&mut buffer).await {
        last_byte = SystemTime::now();
        pattern.check(bytes, &buffer[..n])?;
        bytes += n as u64;
    }
    Ok(CutDownload { relay, last_byte, end: SystemTime::now(), bytes })
}

async fn collect(
    mut flows: JoinSet<anyhow::Result<CutDownload>>,
    span: Duration,
) -> anyhow::Result<Vec<CutDownload>> {
    let until = Instant::now() + span;
    let mut cuts = Vec::new();
    loop {
        tokio::select! {
            ended = flows.join_next() => match ended {
                Some(cut) => cuts.push(cut.context("a flow's task panicked")??),
                None => return Ok(cuts),
            },
            () = sleep_until(until) => {
                anyhow::bail!("{} connections were not cut within {span:?}", flows.len())
            }
        }
    }
}

fn read_time(file: &Path) -> anyhow::Result<SystemTime> {
    let read = || format!("cannot read a time from {}", file.display());
    let text = fs::read_to_string(file).with_context(read)?;
    let seconds: f64 = text.trim().parse().with_context(read)?;
    Ok(SystemTime::UNIX_EPOCH + Duration::try_from_secs_f64(seconds).with_context(read)?)
}

/// Reports `cut_RELAY` in seconds. A download that ended before the revocation was cut by something else.
fn report(cuts: &[CutDownload], since: SystemTime) -> anyhow::Result<Report> {
    let (mut report, mut all) = (Report::default(), Vec::new());
    for CutDownload { relay, last_byte, end, bytes } in cuts {
        ensure!(*end >= since, "the download through {relay} ended before the revocation");
        // Zero if no byte arrived after the revocation.
        let after = last_byte.duration_since(since).unwrap_or_default();
        report.add(format!("cut_{relay}"), "s", after.as_secs_f64());
        all.push(after.as_secs_f64());
        report.add(format!("bytes_{relay}"), "MB", *bytes as f64 / 1e6);
    }
    report.add("cut_first", "s", all.iter().copied().fold(f64::INFINITY, f64::min));
    report.add("cut_last", "s", all.iter().copied().fold(f64::NEG_INFINITY, f64::max));
    report.add("relays", "1", cuts.len() as f64);
    Ok(report)
}
