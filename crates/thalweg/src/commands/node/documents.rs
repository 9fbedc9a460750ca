//! What the daemon's API shows of paths and interfaces: the documents of the commands.

use crate::commands::{host::StateDir, interfaces, paths};
use futures_util::future::BoxFuture;
use serde_json::Value;
use thalweg_mesh::State;
use thalweg_node::{config::Config, daemon::Documents};
use thalweg_uplinks::interfaces::Settings;
use thalweg_wire::mesh::ApiError;
use tokio::task::spawn_blocking;

/// Makes the documents as the commands do, on a thread where files may be read.
#[derive(Debug)]
pub struct ProgramDocuments {
    state: State,
    state_dir: StateDir,
    interfaces: Settings,
}

impl ProgramDocuments {
    /// Makes the documents of this state directory.
    pub fn new(state: &State, state_dir: &StateDir, config: &Config) -> Self {
        let interfaces = config.interfaces.settings();
        Self { state: state.clone(), state_dir: state_dir.clone(), interfaces }
    }
}

impl Documents for ProgramDocuments {
    fn paths(&self) -> BoxFuture<'_, Result<Value, ApiError>> {
        let (state, state_dir) = (self.state.clone(), self.state_dir.clone());
        in_background("no_paths", move || paths::document(&state, &state_dir))
    }

    fn interfaces(&self) -> BoxFuture<'_, Result<Value, ApiError>> {
        let (settings, state_dir) = (self.interfaces.clone(), self.state_dir.clone());
        in_background("no_interfaces", move || interfaces::document(&settings, &state_dir))
    }
}

/// Runs the work; an error gets this code.
fn in_background(
    code: &'static str,
    work: impl FnOnce() -> anyhow::Result<Value> + Send + 'static,
) -> BoxFuture<'static, Result<Value, ApiError>> {
    Box::pin(async move {
        let made = spawn_blocking(work).await.map_err(anyhow::Error::from).and_then(|made| made);
        made.map_err(|e| ApiError { code: code.to_owned(), message: format!("{e:#}") })
    })
}
