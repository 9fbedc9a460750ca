//! Queries the oracle with the client's key.

use super::LIST;
use std::{io, time::Duration};
use thalweg_base::clock::WallClock;
use thalweg_mesh::{Oracle, OracleClient, OracleError, State, StateError};
use thalweg_net::DialOptions;
use thalweg_wire::mesh::measure::{CandidatesReply, PathsReply};
use thiserror::Error;
use tokio::time::timeout;

/// Why the oracle could not be queried.
#[derive(Debug, Error)]
pub enum OracleQueryError {
    /// This host is not in a mesh, or its state cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// The key cannot be used.
    #[error("the client's key cannot be used: {0}")]
    Key(#[from] io::Error),
    /// The oracle is unreachable, refuses, or is an older version.
    #[error(transparent)]
    Oracle(#[from] OracleError),
}

/// Asks the oracle for the relays that it recommends to this host's client, over a connection with these options.
///
/// # Errors
/// [`OracleQueryError`], at the latest after `patience`.
pub async fn ask_candidates(
    state: &State,
    dial: DialOptions,
    patience: Duration,
) -> Result<CandidatesReply, OracleQueryError> {
    let client = client(state, dial)?;
    let asked = timeout(patience, client.candidates(None, LIST)).await;
    Ok(asked.map_err(|_| OracleError::Silent(patience))??)
}

/// Asks the oracle for everything that it knows of paths.
///
/// # Errors
/// [`OracleQueryError`], at the latest after `patience`.
pub async fn ask_paths(state: &State, patience: Duration) -> Result<PathsReply, OracleQueryError> {
    let client = client(state, DialOptions::default())?;
    let asked = timeout(patience, client.paths()).await;
    Ok(asked.map_err(|_| OracleError::Silent(patience))??)
}

fn client(state: &State, dial: DialOptions) -> Result<OracleClient, OracleQueryError> {
    let mesh = state.mesh()?;
    let mut oracles = mesh.oracles;
    if state.oracle_dir().exists() {
        // The oracle is this host itself, and its daemon answers; the list has only the others.
        let roster = state.membership()?.current();
        oracles = roster.map(|roster| Oracle::of(&roster, None)).unwrap_or(oracles);
    }
    Ok(OracleClient::with_dial_options(&state.client_key()?, oracles, WallClock::default(), dial)?)
}
