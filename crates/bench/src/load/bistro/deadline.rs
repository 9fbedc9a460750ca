//! Step 1 under load: many clients commit in the last seconds before a deadline.

use super::{
    super::{report::Report, strangers::test_mesh::TestMesh},
    client::Client,
};
use anyhow::{Context as _, ensure};
use rand_core::{Rng, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use thalweg_dropbox::{BoxFiles, NodeAddress, Target, View};
use thalweg_mesh::State;
use thalweg_units::{WallTime, parse_duration};
use thalweg_wire::{
    Signer as _,
    bistro::{Refusal, show_date},
};
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, sleep_until},
};

/// Concurrent handshakes and commitments: below the node's limit for one address. A client that waits for a permit
/// waits from its own start time on, so the wait counts.
const AT_ONCE: usize = 256;

/// The last client begins at least this long before the deadline: a connection and a handshake that begin later end
/// after the deadline and are rightly refused as late.
const LAST: Duration = Duration::from_millis(50);

/// The time allowed for founding the mesh and making the clients' keys, for 10,000 clients.
const PREPARATION: Duration = Duration::from_secs(8);

/// Arguments of `thalweg-bench load bistro deadline`.
#[derive(clap::Args)]
pub struct Args {
    /// Number of clients
    #[arg(long, default_value_t = 10_000)]
    clients: usize,
    /// Time before the deadline within which the clients commit
    #[arg(long, default_value = "10 s", value_parser = parse_duration)]
    window: Duration,
    /// Number of further clients that commit one after the other before that time, as fast as possible
    #[arg(long, default_value_t = 5_000)]
    burst: usize,
    /// Seed of the clients' times
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The result of one client.
enum ClientEnd {
    Signed(Duration),
    Late,
    Failed(String),
}

/// The results of all clients.
#[derive(Default)]
struct ClientTally {
    times: Vec<Duration>,
    late: usize,
    failed: usize,
    why: Option<String>,
}

/// Runs the clients and prints the report.
///
/// # Errors
/// When the node does not start.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(args.seed);
    let test_mesh = TestMesh::new()?;
    let begin = SystemTime::now() + PREPARATION + burst_time(args);
    let deadline = begin + args.window;
    let irs = test_mesh.create_mesh("irs", &settings(deadline)?)?;
    let daemon = irs.start()?;
    let state = State::open(irs.state())?;
    let port = NodeAddress { key: state.node_key()?.id(), addresses: vec![irs.address().into()] };
    let target = Arc::new(Target { drop_box: "taxes".parse()?, port });

    let mut report = Report::default();
    let burst = clients(args.burst, args.clients, &mut random)?;
    let since = Instant::now();
    let tally = gather(burst.into_iter().map(|client| (since, client)), &target).await;
    report.add("burst_per_s", "1/s", tally.times.len() as f64 / since.elapsed().as_secs_f64());
    report.add("burst_failed", "1", (tally.failed + tally.late) as f64);
    let before = tally.times.len();

    let all = clients(args.clients, 0, &mut random)?;
    let left = begin.duration_since(SystemTime::now());
    let since =
        Instant::now() + left.context("the preparation took too long; use fewer --clients")?;
    let window = args.window.saturating_sub(LAST);
    let mut at = || window.mul_f64(random.next_u32() as f64 / f64::from(u32::MAX));
    let times: Vec<Instant> = all.iter().map(|_| since + at()).collect();
    let tally = gather(times.into_iter().zip(all), &target).await;
    let took = since.elapsed().as_secs_f64();
    let signed = tally.times.len();
    report.add("clients", "1", args.clients as f64);
    report.add("signed", "1", signed as f64);
    report.add("unsigned", "1", (args.clients - signed) as f64);
    report.add("late", "1", tally.late as f64);
    report.add("failed", "1", tally.failed as f64);
    report.add("commits_per_s", "1/s", signed as f64 / took.min(args.window.as_secs_f64()));
    report.add_times("to_signature", tally.times);
    if let Some(why) = tally.why {
        thalweg_console::note!("thalweg-bench: one of {} failures: {why}", tally.failed);
    }
    // This kills the node as `kill -9` does; every signed commitment must be in the book.
    drop(daemon);
    let files = BoxFiles::new(irs.state(), &target.drop_box, None);
    let kept = View::read(&files)?.stamps.len();
    report.add("lost", "1", (signed + before).saturating_sub(kept) as f64);
    ensure!(signed > 0, "no client received a signature");
    report.print().context("cannot print the report")
}

fn burst_time(args: &Args) -> Duration {
    // 500 commitments per second, on a slow machine.
    Duration::from_millis(2 * args.burst as u64)
}

fn settings(deadline: SystemTime) -> anyhow::Result<String> {
    let nanos = u64::try_from(deadline.duration_since(UNIX_EPOCH)?.as_nanos())?;
    let until = show_date(WallTime::from_unix_nanos(nanos));
    // All clients have one address here, which they do not in production, so the rate is raised.
    Ok(format!(
        "[[drop_box]]\nname = \"taxes\"\nuntil = \"{until}\"\nopen = true\nmax_rate = 1000000\n"
    ))
}

fn clients(
    count: usize,
    first: usize,
    random: &mut Xoshiro256PlusPlus,
) -> anyhow::Result<Vec<Client>> {
    (first..first + count).map(|number| Client::new(number, 100, random)).collect()
}

/// Starts each client at its time, as soon as a permit is free. A client's time counts from its start time on.
async fn gather(
    clients: impl Iterator<Item = (Instant, Client)>,
    target: &Arc<Target>,
) -> ClientTally {
    let permits = Arc::new(Semaphore::new(AT_ONCE));
    let mut running = JoinSet::new();
    for (at, client) in clients {
        let (permits, target) = (permits.clone(), target.clone());
        running.spawn(async move {
            sleep_until(at).await;
            let _permit = permits.acquire().await;
            match client.commit(&target).await {
                Ok(Ok(_)) => ClientEnd::Signed(at.elapsed()),
                Ok(Err(Refusal::Late { .. })) => ClientEnd::Late,
                Ok(Err(refusal)) => ClientEnd::Failed(refusal.to_string()),
                Err(e) => ClientEnd::Failed(format!("{e:#}")),
            }
        });
    }
    let mut tally = ClientTally::default();
    while let Some(ended) = running.join_next().await {
        match ended.unwrap_or_else(|e| ClientEnd::Failed(e.to_string())) {
            ClientEnd::Signed(took) => tally.times.push(took),
            ClientEnd::Late => tally.late += 1,
            ClientEnd::Failed(why) => {
                tally.failed += 1;
                tally.why = Some(why);
            }
        }
    }
    tally
}
