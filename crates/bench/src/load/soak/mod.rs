//! Minutes of connections through a relay that stall, half-close and break: measures the resources that the relay holds
//! afterwards.
//!
//! Both ends are in this process and execute the same [`script`], drawn from the seed and the connection's number. Each
//! of a fixed number of *lanes* has one connection at a time.
//!
//! - [`script`]: the course of one connection; [`end`]: executes one end's part;
//! - [`tally`]: the results of all connections; [`samples`]: the relay's resources over time.

mod end;
mod samples;
mod script;
mod tally;

use super::{listeners::ListenerProcesses, mesh, pattern::Pattern, report::Report};
use anyhow::{Context as _, ensure};
use end::{ScriptError, SoakConnection};
use samples::Samples;
use script::ConnectionScript;
use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tally::SoakTally;
use thalweg_net::{DialOptions, Dialer, Route};
use thalweg_units::parse_duration;
use thalweg_wire::Destination;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

/// The longest script takes a third of this; a connection that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(90);

/// The time that a relay has to release the last connections. Its own deadlines are longer, and the end of a connection
/// must not wait for them.
const REST: Duration = Duration::from_secs(10);

/// Arguments of `thalweg-bench load soak`.
#[derive(clap::Args)]
pub struct Args {
    /// Listening address of the far end, which runs in this process
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Address of the relay whose processes are observed
    #[arg(long, value_name = "ADDR:PORT")]
    relay: Destination,
    /// The state directory with the client key and a roster that contains the relay
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// Number of concurrent connections
    #[arg(long, default_value_t = 200)]
    connections: u64,
    /// Time at the start in which memory is not evaluated
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    warmup: Duration,
    /// Time in which memory is evaluated
    #[arg(long = "for", value_name = "TIME", default_value = "10min", value_parser = parse_duration)]
    span: Duration,
    /// Seed of the connections' scripts
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// State shared by both ends.
struct SoakContext {
    seed: u64,
    pattern: Pattern,
    tally: SoakTally,
}

/// Runs all connections and prints the report.
///
/// # Errors
/// When a byte is wrong or the relay ends.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let listener = TcpListener::bind(args.listen).await.context("listening")?;
    let to = listener.local_addr()?.into();
    let relay = ListenerProcesses::find(args.relay.port)?;
    let (pattern, tally) = (Pattern::new(), SoakTally::default());
    let scene = Arc::new(SoakContext { seed: args.seed, pattern, tally });
    let mut samples = Samples::begin(&relay)?;
    let far = tokio::spawn(far_end(listener, Arc::clone(&scene)));
    let until = Instant::now() + args.warmup + args.span;
    let mut lanes = near_end(args, to, &scene, until)?;
    samples.take(&relay, args.warmup, args.span).await?;
    while let Some(lane) = lanes.join_next().await {
        lane.context("a connection's task panicked")?;
    }
    samples.settle(&relay, REST).await?;
    far.abort();
    let mut report = Report::default();
    let connections = scene.tally.report(&mut report)?;
    samples.report(&mut report, connections);
    report.print().context("cannot print the report")
}

/// Starts the clients, one per lane.
fn near_end(
    args: &Args,
    to: Destination,
    scene: &Arc<SoakContext>,
    until: Instant,
) -> anyhow::Result<JoinSet<()>> {
    let way = |open| {
        let options = DialOptions { deadline: PATIENCE, ..DialOptions::default() };
        mesh::route(&args.state, args.relay.clone(), open, options)
    };
    let ways: Arc<[(Dialer, Route); 2]> = Arc::new([way(false)?, way(true)?]);
    let numbers = Arc::new(AtomicU64::new(0));
    let mut lanes = JoinSet::new();
    ensure!(args.connections > 0, "--connections must be above 0");
    for lane in 0..args.connections {
        let (ways, numbers) = (Arc::clone(&ways), Arc::clone(&numbers));
        let (scene, to) = (Arc::clone(scene), to.clone());
        lanes.spawn(async move {
            // The starts are spread, because starting all at once would test the queue of handshakes.
            sleep(Duration::from_millis(5 * lane)).await;
            while Instant::now() < until {
                let number = numbers.fetch_add(1, Ordering::Relaxed);
                client(number, &ways, &to, &scene).await;
            }
        });
    }
    Ok(lanes)
}

/// Runs one connection, from dialling to its end.
async fn client(number: u64, ways: &[(Dialer, Route); 2], to: &Destination, scene: &SoakContext) {
    let script = ConnectionScript::new(scene.seed, number);
    let (dialer, route) = &ways[usize::from(script.open)];
    let playing = async {
        let mut stream =
            dialer.dial(route, to).await.map_err(|e| ScriptError::Dial(e.to_string()))?;
        stream.write_all(&number.to_be_bytes()).await?;
        stream.flush().await?;
        // An open leg is a plain TCP connection, and only such a connection can be reset.
        match stream.into_tcp() {
            Ok(tcp) => {
                end::play(SoakConnection::Clear(tcp), &script, script.near(), &scene.pattern).await
            }
            Err(stream) => {
                end::play(SoakConnection::Sealed(stream), &script, script.near(), &scene.pattern)
                    .await
            }
        }
    };
    let done = timeout(PATIENCE, playing).await.unwrap_or(Err(ScriptError::Hung));
    scene.tally.record_near(&script, done);
}

/// Accepts connections until it is aborted.
async fn far_end(listener: TcpListener, scene: Arc<SoakContext>) {
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(server(stream, Arc::clone(&scene)));
        }
    }
}

async fn server(mut stream: TcpStream, scene: Arc<SoakContext>) {
    // A connection without a number belongs to no script; the client's error is in the tally.
    let Ok(number) = stream.read_u64().await else { return };
    let script = ConnectionScript::new(scene.seed, number);
    let playing = end::play(SoakConnection::Clear(stream), &script, script.far(), &scene.pattern);
    let done = timeout(PATIENCE, playing).await.unwrap_or(Err(ScriptError::Hung));
    scene.tally.record_far(&script, done);
}
