//! Fetches a newer roster on a host without a daemon: each command that needs it asks the oracle once.

use super::host;
use std::{
    fs::File,
    time::{Duration, SystemTime},
};
use thalweg_base::clock::WallClock;
use thalweg_mesh::{Membership, Oracle, OracleClient, OracleError, State};
use thalweg_net::DialOptions;
use tokio::time::timeout;

/// How long a command waits for the roster that it prints.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Whether the error says that this host is no longer a member.
pub fn is_refusal(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(OracleError::NotAdmitted))
}

/// Asks the oracle for a newer roster, over a connection with the options `dial`, and stores it in `membership`'s file.
///
/// On the oracle's own host nothing is asked: what it publishes is stored at once.
///
/// # Errors
/// The oracle's refusal or silence, or a fault of the state directory. The stored roster stays.
pub async fn renew(
    state: &State,
    membership: &Membership,
    dial: DialOptions,
    patience: Duration,
) -> anyhow::Result<()> {
    if state.oracle_dir().exists() {
        return Ok(());
    }
    let client = client(state, dial)?;
    let after = membership.current().map(|roster| roster.rank());
    let asked = timeout(patience, client.roster(after, Duration::ZERO)).await;
    match asked.map_err(|_| OracleError::Silent(patience))?? {
        Some(signed) => keep(state, membership, &signed),
        None => touch(state),
    }
}

fn client(state: &State, dial: DialOptions) -> anyhow::Result<OracleClient> {
    let oracles = state.mesh()?.oracles;
    Ok(OracleClient::with_dial_options(&state.client_key()?, oracles, WallClock::default(), dial)?)
}

/// Stores the roster, and the addresses of its oracles.
fn keep(state: &State, membership: &Membership, signed: &[u8]) -> anyhow::Result<()> {
    membership.offer(signed)?;
    let mut mesh = state.mesh()?;
    let roster = membership.current();
    let oracles = roster.map(|r| Oracle::of(&r, Some(&mesh.name))).unwrap_or_default();
    if !oracles.is_empty() && oracles != mesh.oracles {
        mesh.oracles = oracles;
        state.set_mesh(&mesh)?;
    }
    Ok(())
}

/// The file's time says when the oracle was last asked.
fn touch(state: &State) -> anyhow::Result<()> {
    match File::open(state.roster_file()) {
        Ok(file) => Ok(file.set_modified(SystemTime::now())?),
        Err(e) => Err(e.into()),
    }
}

/// How long ago the stored roster was known to be the newest; `None` if that is unknown.
pub fn age(state: &State) -> Option<Duration> {
    let modified = state.roster_file().metadata().ok()?.modified().ok()?;
    modified.elapsed().ok()
}

/// As [`renew`], unless a daemon does it.
///
/// # Errors
/// As [`renew`].
pub async fn renew_without_daemon(
    state: &State,
    dial: DialOptions,
    patience: Duration,
) -> anyhow::Result<()> {
    match host::daemon(state).await? {
        Some(_) => Ok(()),
        None => renew(state, &state.membership()?, dial, patience).await,
    }
}
