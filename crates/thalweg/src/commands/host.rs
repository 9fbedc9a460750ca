//! This host's state directory, settings, daemon and oracle, for all commands.

use super::embedded_oracle::EmbeddedOracle;
use anyhow::Context as _;
use futures_util::future::BoxFuture;
use std::{
    future::Future,
    path::{Path, PathBuf},
};
use thalweg_base::clock::WallClock;
use thalweg_console::note;
pub use thalweg_jobs::quoted;
use thalweg_mesh::{Membership, OracleClient, State, StateLock, service::Control};
use thalweg_node::{
    config::{Config, config_file, state_directory},
    daemon::{LocalClient, LocalError},
};
use thalweg_wire::{
    Signer as _,
    mesh::{
        AddressesReply, AddressesRequest, ApiError, RevokeReply, RevokeRequest, StatusReply,
        TokenReply, TokenRequest,
    },
};

/// Where this host keeps its part.
#[derive(clap::Args, Clone, Debug)]
pub struct StateDir {
    /// The directory of keys, roster and daemon socket
    /// [default: $THALWEG_STATE, $XDG_STATE_HOME/thalweg or ~/.local/state/thalweg]
    #[arg(long, value_name = "DIR", hide_default_value = true)]
    state: Option<PathBuf>,
}

impl From<Option<PathBuf>> for StateDir {
    fn from(state: Option<PathBuf>) -> Self {
        Self { state }
    }
}

impl StateDir {
    /// The directory's path; it need not exist.
    ///
    /// # Errors
    /// If there is no home directory.
    pub fn directory(&self) -> anyhow::Result<PathBuf> {
        Ok(state_directory(self.state.as_deref())?)
    }

    /// This place, or `other` if none is given.
    #[must_use]
    pub fn or(self, other: &Self) -> Self {
        Self { state: self.state.or_else(|| other.state.clone()) }
    }

    /// The argument with which another command uses the same directory: ` --state DIR`, quoted for a shell, or nothing.
    pub fn argument(&self) -> String {
        let Some(dir) = &self.state else { return String::new() };
        format!(" --state {}", quoted(&dir.display().to_string()))
    }

    /// Opens the directory, which must exist.
    ///
    /// # Errors
    /// If it does not exist, or other users may enter it.
    pub fn open(&self) -> anyhow::Result<State> {
        Ok(State::open(&self.directory()?)?)
    }
}

/// The daemon of this state directory, if one runs.
///
/// # Errors
/// If one runs but does not answer.
pub async fn daemon(state: &State) -> anyhow::Result<Option<LocalClient>> {
    match LocalClient::find(&state.socket()).await {
        Ok(client) => Ok(Some(client)),
        Err(LocalError::NoDaemon(_)) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// The control interface of the mesh: the daemon here; or the oracle of this directory if no daemon runs; or a remote
/// oracle, asked with the command line's own key.
///
/// # Errors
/// If the state cannot be read. A remote oracle that cannot be reached fails only when it is asked.
pub async fn control(state: &State) -> anyhow::Result<Box<dyn Control>> {
    let mesh = state.mesh()?;
    if let Some(daemon) = daemon(state).await? {
        return Ok(Box::new(daemon));
    }
    if state.oracle_dir().exists() {
        let lock = state.lock()?;
        let settings = settings(None)?;
        let node = state.node_key()?.id();
        let oracle = EmbeddedOracle::open(state, node, &settings.oracle, None).await?;
        let membership = state.membership()?;
        return Ok(Box::new(OfflineOracle { oracle, membership, _lock: lock }));
    }
    Ok(Box::new(OracleClient::new(&state.client_key()?, mesh.oracles, WallClock::default())?))
}

/// The oracle of this directory while its daemon does not run.
#[derive(Debug)]
struct OfflineOracle {
    oracle: EmbeddedOracle,
    membership: Membership,
    _lock: StateLock,
}

impl OfflineOracle {
    /// Stores the published roster for this host as well, because no daemon fetches it.
    fn keep(&self) {
        if let Err(error) = self.membership.offer(&self.oracle.signed()) {
            note!("thalweg: this host's own copy of the roster was not updated: {error}");
        }
    }
}

impl Control for OfflineOracle {
    fn token(&self, request: TokenRequest) -> BoxFuture<'_, Result<TokenReply, ApiError>> {
        Box::pin(async move {
            let reply = self.oracle.token(request).await?;
            self.keep();
            Ok(reply)
        })
    }

    fn revoke(&self, request: RevokeRequest) -> BoxFuture<'_, Result<RevokeReply, ApiError>> {
        Box::pin(async move {
            let reply = self.oracle.revoke(request).await?;
            self.keep();
            Ok(reply)
        })
    }

    fn set_addresses(
        &self,
        request: AddressesRequest,
    ) -> BoxFuture<'_, Result<AddressesReply, ApiError>> {
        Box::pin(async move {
            let reply = self.oracle.set_addresses(request).await?;
            self.keep();
            Ok(reply)
        })
    }

    fn status(&self) -> BoxFuture<'_, Result<StatusReply, ApiError>> {
        self.oracle.status()
    }
}

/// Reads the given settings file, which must exist, or the user's own, which may be missing.
///
/// # Errors
/// All mistakes in the file.
pub fn settings(given: Option<&Path>) -> anyhow::Result<Config> {
    Ok(match (given, config_file(None)) {
        (Some(file), _) => Config::load(file)?,
        (None, Some(file)) => Config::load_or_default(&file)?,
        (None, None) => Config::default(),
    })
}

/// Runs a command's work on this thread.
///
/// # Errors
/// That of the work, or if there is no runtime.
pub fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().context("cannot start the runtime")?;
    let done = runtime.block_on(work);
    // A name lookup may hang for half a minute; its answer is not waited for.
    runtime.shutdown_background();
    done
}

/// An oracle's refusal, with the oracle's message.
pub fn api_error(error: ApiError) -> anyhow::Error {
    anyhow::anyhow!("{}", error.message)
}
