//! Connections of strangers to the port of a real mesh, and of members that ask for forbidden destinations.
//!
//! The mesh consists of processes of the product: founded, joined, revoked. This module only counts; the limits are in
//! the experiment `strangers`.
//!
//! - [`test_mesh`]: state directories and daemons; [`probe`]: connects to a port and counts the bytes that it sends;
//! - [`tokens`], [`rosters`], [`targets`]: tests of join tokens, of forged rosters, and of destinations.

mod fuzz;
pub(super) mod probe;
mod rosters;
mod targets;
pub(super) mod test_mesh;
mod tokens;

use super::report::Report;
use anyhow::{Context as _, ensure};
use probe::{Identity, PortResponse};
use std::time::Duration;
use test_mesh::TestMesh;
use tokio::time::{Instant, sleep};

/// The validity of a roster whose expiry is awaited.
const SHORT: &str = "6 s";

/// The longest wait for the expiry, on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// First bytes of clients that do not use TLS, or send a damaged record.
const WORDS: [(&str, &[u8]); 5] = [
    ("socks", b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50"),
    ("socks_terms", b"\x05\x01\x80\x00\x00\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50"),
    ("http", b"GET /v1/roster HTTP/1.1\r\nHost: node\r\n\r\n"),
    ("preamble", b"TW1\x00\x05\x01\x00"),
    ("garbage", b"\x16\x03\x01\x00\x04\x01\x00\x00\x00\xff\xff\xff\xff"),
];

/// Arguments of `thalweg-bench load strangers`.
#[derive(clap::Args)]
pub struct Args {
    /// Number of arbitrary targets, and of SOCKS messages
    #[arg(long, default_value_t = 1_000_000)]
    fuzz: u64,
    /// Seed of the arbitrary targets and messages
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of connections to a name whose address changes continuously
    #[arg(long, default_value_t = 500)]
    rebinding: usize,
}

/// Runs all tests and prints the report.
///
/// # Errors
/// When the mesh cannot be founded, or an arbitrary case passes that must not.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let mut report = Report::default();
    test_keys(&mut report).await?;
    test_expiry(&mut report).await?;
    rosters::run(&mut report).await?;
    targets::run(&mut report, args.rebinding).await?;
    let account = fuzz::RelayPolicy::new().and_then(|w| fuzz::targets(args.fuzz, args.seed, &w));
    add_account(&mut report, "targets", account)?;
    add_account(&mut report, "messages", fuzz::messages(args.fuzz, args.seed))?;
    report.print().context("cannot print the report")
}

fn add_account(
    report: &mut Report,
    what: &str,
    account: Result<fuzz::Account, String>,
) -> anyhow::Result<()> {
    let account = account.map_err(|e| anyhow::anyhow!("arbitrary {what} failed: {e}"))?;
    report.add(format!("fuzzed_{what}"), "1", account.cases as f64);
    report.add(format!("fuzzed_{what}_passed"), "1", account.passed as f64);
    Ok(())
}

/// Tests handshakes with keys of all kinds, and connections without a handshake.
async fn test_keys(report: &mut Report) -> anyhow::Result<()> {
    let test_mesh = TestMesh::new()?;
    let fra = test_mesh.create_mesh("fra", "")?;
    let daemon = fra.start()?;
    let lap = test_mesh.join(&fra, "lap", &[])?;
    let gone = test_mesh.join(&fra, "gone", &[])?;
    tokens::run(report, &test_mesh, &fra)?;
    fra.thalweg(&["mesh", "revoke", "gone", "--wait", "30s"])?;
    let member = lap.client_seed()?;
    let other = [7; 32];
    for (name, identity) in [
        ("no_key", Identity::NoKey),
        ("wrong_key", Identity::from_seed(&other)),
        ("revoked_key", Identity::from_seed(&gone.client_seed()?)),
        ("forged_signature", Identity::forged(&member, &other)),
    ] {
        add(report, name, &probe::handshake(fra.address(), &identity, b"thalweg/relay/1").await?);
        add(
            report,
            &format!("{name}_api"),
            &probe::handshake(fra.address(), &identity, b"thalweg/api/1").await?,
        );
    }
    for (name, words) in WORDS {
        add(report, name, &probe::send_plain(fra.address(), words).await?);
    }
    let odd = probe::handshake(fra.address(), &Identity::from_seed(&member), b"h2").await?;
    add(report, "other_protocol", &odd);
    // A control: a member is answered, so the counter works.
    let response =
        probe::handshake(fra.address(), &Identity::from_seed(&member), b"thalweg/relay/1").await?;
    report.add("member_answered", "B", response.extra_bytes() as f64);
    daemon.end()
}

/// Tests a member at a relay that cannot reach the oracle after the roster has expired.
async fn test_expiry(report: &mut Report) -> anyhow::Result<()> {
    let test_mesh = TestMesh::new()?;
    let settings = format!("[oracle]\nvalidity = \"{SHORT}\"\n");
    let fra = test_mesh.create_mesh("fra", &settings)?;
    let daemon = fra.start()?;
    let nyc = test_mesh.join(&fra, "nyc", &["--role", "relay"])?;
    let lap = test_mesh.join(&fra, "lap", &[])?;
    let nyc_daemon = nyc.start()?;
    drop(daemon);
    let identity = Identity::from_seed(&lap.client_seed()?);
    let until = Instant::now() + PATIENCE;
    let mut response = probe::handshake(nyc.address(), &identity, b"thalweg/relay/1").await?;
    while !response.has_alert() {
        ensure!(Instant::now() < until, "the roster did not expire within {PATIENCE:?}");
        sleep(Duration::from_millis(200)).await;
        response = probe::handshake(nyc.address(), &identity, b"thalweg/relay/1").await?;
    }
    add(report, "expired_roster", &response);
    // After a restart the relay reads the roster from its cache; the expired one must admit nobody either.
    drop(nyc_daemon);
    let _nyc_daemon = nyc.start()?;
    add(
        report,
        "expired_cache",
        &probe::handshake(nyc.address(), &identity, b"thalweg/relay/1").await?,
    );
    Ok(())
}

fn add(report: &mut Report, name: &str, response: &PortResponse) {
    report.add(format!("beyond_{name}"), "B", response.extra_bytes() as f64);
    report.add(format!("sent_{name}"), "B", response.sent as f64);
}
