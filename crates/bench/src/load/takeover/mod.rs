//! Measures takeovers of several oracles on one PostgreSQL, by repeatedly killing the elected one.
//!
//! The daemons are real ones on loopback with their default timing. Synthetic relays, each with its own key and
//! connection, only report that they have executed orders. One client continuously asks for candidates. The measured
//! costs of a kill are:
//!
//! - *scheduling*: the time from the kill to the first order of another oracle;
//! - *reads*: whether a client is ever without candidates, and its longest wait;
//! - *measurements* that were reported before the kill and that no oracle knows afterwards.
//!
//! - [`server`]: PostgreSQL; [`host`]: daemons; [`relays`]: synthetic relays; [`reader`]: the client.

mod host;
mod reader;
mod relays;
mod server;

use super::report::Report;
use anyhow::{Context as _, ensure};
use host::{Host, HostDaemon, TestDir};
use relays::Relays;
use std::{collections::BTreeSet, num::NonZeroUsize, time::Duration};
use thalweg_base::clock::WallClock;
use thalweg_mesh::{Oracle, OracleClient, State};
use tokio::time::Instant;

/// The number of oracles; two are left when one is killed.
const ORACLES: usize = 3;

/// How long one oracle must have scheduled before each kill.
const GOES_ON: Duration = Duration::from_secs(4);

/// The longest wait for a start or a takeover.
const PATIENCE: Duration = Duration::from_secs(60);

/// Arguments of `thalweg-bench load takeover`.
#[derive(clap::Args)]
pub struct Args {
    /// Number of times that the elected oracle is killed
    #[arg(long, default_value = "5")]
    kills: NonZeroUsize,
    /// Number of synthetic relays
    #[arg(long, default_value_t = 20)]
    relays: usize,
}

/// Founds the mesh, kills oracles, and prints the report.
///
/// # Errors
/// When PostgreSQL is not installed or the mesh does not start.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let test_dir = TestDir::new()?;
    let server = server::TestServer::start(test_dir.dir())?;
    let (hosts, mut daemons) = create_mesh(&test_dir, &server.url())?;
    let states =
        (0..args.relays).map(|n| test_dir.relay(&hosts[0], n)).collect::<Result<_, _>>()?;
    let oracles = oracles(&hosts)?;
    let relays = Relays::start(states, &oracles)?;
    let reader = reader::RankingClient::start(client(&hosts[0], &oracles)?);
    let (mut gaps, mut lost) = (vec![], 0);
    for kill in 1..=args.kills.get() {
        let term = relays
            .wait_for_steady_orders(GOES_ON, PATIENCE)
            .await
            .context("no oracle schedules measurements")?;
        let elected = find_elected(&hosts, term)?;
        let known = relays.measured();
        let (dead, began) =
            (daemons[elected].take().context("the elected oracle is not running")?, Instant::now());
        dead.kill()?;
        let gap = relays
            .wait_for_later_term(term, began, PATIENCE)
            .await
            .context("no other oracle took over")?;
        thalweg_console::note!(
            "kill {kill}: oracle {} was killed, another one took over after {gap:?}",
            elected + 1
        );
        gaps.push(gap.as_secs_f64());
        let left = hosts[(elected + 1) % ORACLES].oracle()?;
        lost += count_missing(&known, client(&hosts[0], &[left])?).await?;
        daemons[elected] = Some(hosts[elected].start()?);
    }
    let reads = reader.end().await?;
    let mut report = Report::default();
    gaps.sort_by(f64::total_cmp);
    report.add("kills", "1", gaps.len() as f64);
    report.add("takeover_median", "s", gaps[gaps.len() / 2]);
    report.add("takeover_worst", "s", gaps[gaps.len() - 1]);
    report.add("reads", "1", reads.answered as f64);
    report.add("reads_failed", "1", reads.failed as f64);
    report.add("read_worst", "s", reads.worst.as_secs_f64());
    report.add("measurements_told", "1", relays.measured().len() as f64);
    report.add("measurements_lost", "1", lost as f64);
    report.print().context("cannot print the report")
}

/// The first oracle, which founds the mesh, and two more that join it.
fn create_mesh(
    test_dir: &TestDir,
    url: &str,
) -> anyhow::Result<(Vec<Host>, Vec<Option<HostDaemon>>)> {
    let first = test_dir.oracle(url)?;
    first.thalweg(&["mesh", "init", "--name", "oracle-1", "--address", &first.address()])?;
    let mut daemons = vec![Some(first.start()?)];
    let mut hosts = vec![first];
    for n in 2..=ORACLES {
        let host = test_dir.oracle(url)?;
        let name = format!("oracle-{n}");
        let token =
            hosts[0].thalweg(&["mesh", "token", "--role", "oracle,relay", "--name", &name])?;
        host.thalweg(&["mesh", "join", &token, "--name", &name, "--address", &host.address()])?;
        host.take_key(&hosts[0])?;
        daemons.push(Some(host.start()?));
        hosts.push(host);
    }
    Ok((hosts, daemons))
}

fn oracles(hosts: &[Host]) -> anyhow::Result<Vec<Oracle>> {
    hosts.iter().map(Host::oracle).collect()
}

/// A client with the key of this host's command line.
fn client(host: &Host, oracles: &[Oracle]) -> anyhow::Result<OracleClient> {
    let key = State::open(host.state())?.client_key()?;
    Ok(OracleClient::new(&key, oracles.to_vec(), WallClock::default())?)
}

/// The index of the host that was elected for this term, according to its own log.
fn find_elected(hosts: &[Host], term: u64) -> anyhow::Result<usize> {
    let says = format!("elected to schedule, term {term}");
    let mut found = None;
    for (n, host) in hosts.iter().enumerate() {
        if host.log()?.contains(&says) {
            found = Some(n);
        }
    }
    found.with_context(|| format!("no oracle's log reports its election for term {term}"))
}

/// Counts the reported legs that an oracle does not know. It is asked just after a takeover: it has read by then what
/// the killed oracle had recorded, and nothing has been measured again yet.
async fn count_missing(measured: &[(String, String)], oracle: OracleClient) -> anyhow::Result<u64> {
    let paths = oracle.paths().await?;
    let name = |at: u32| paths.nodes.get(at as usize).map(ToString::to_string);
    let legs = paths.legs.iter().filter_map(|leg| Some((name(leg.from)?, name(leg.to)?)));
    let known: BTreeSet<_> = legs.collect();
    ensure!(!known.is_empty(), "a remaining oracle knows no measurements");
    Ok(measured.iter().filter(|leg| !known.contains(*leg)).count() as u64)
}
