//! What the daemon's API shows of paths and interfaces, and changes of the latter: as the commands do it.

use crate::commands::{host::StateDir, interfaces, paths};
use futures_util::future::BoxFuture;
use serde_json::Value;
use thalweg_mesh::State;
use thalweg_node::{
    config::Config,
    daemon::{Documents, PathDocument},
};
use thalweg_uplinks::interfaces::{Change, Settings};
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
    fn paths(&self) -> BoxFuture<'_, Result<PathDocument, ApiError>> {
        let (state, state_dir) = (self.state.clone(), self.state_dir.clone());
        in_background("no_paths", move || paths::document(&state, &state_dir))
    }

    fn interfaces(&self) -> BoxFuture<'_, Result<Value, ApiError>> {
        let (settings, state_dir) = (self.interfaces.clone(), self.state_dir.clone());
        in_background("no_interfaces", move || interfaces::document(&settings, &state_dir))
    }

    fn change_interfaces(&self, changes: Vec<Change>) -> BoxFuture<'_, Result<Value, ApiError>> {
        let (settings, state_dir) = (self.interfaces.clone(), self.state_dir.clone());
        Box::pin(async move {
            for change in changes {
                let (settings, state_dir) = (settings.clone(), state_dir.clone());
                let asked = move || {
                    interfaces::change_processes(&settings, &state_dir, &change).map(Value::Array)
                };
                check_changed(&in_background("no_interfaces", asked).await?)?;
            }
            self.interfaces().await
        })
    }
}

/// Checks that there are processes, and that none of them refused a change.
fn check_changed(said: &Value) -> Result<(), ApiError> {
    let said = said.as_array().map(Vec::as_slice).unwrap_or_default();
    let error = |code: &str, message: String| ApiError { code: code.to_owned(), message };
    if said.is_empty() {
        let message = "no running thalweg process assigns connections to interfaces; permanent \
                       changes belong in [interfaces] of the settings";
        return Err(error("no_process", message.to_owned()));
    }
    match interfaces::refusal(said) {
        Some(why) => Err(error("not_changed", why)),
        None => Ok(()),
    }
}

/// Runs the work; an error gets this code.
fn in_background<T: Send + 'static>(
    code: &'static str,
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> BoxFuture<'static, Result<T, ApiError>> {
    Box::pin(async move {
        let made = spawn_blocking(work).await.map_err(anyhow::Error::from).and_then(|made| made);
        made.map_err(|e| ApiError { code: code.to_owned(), message: format!("{e:#}") })
    })
}
