//! The oracle's candidates, asked for beside a download and kept for the next ones.

use crate::commands::{here, remembered};
use std::{path::Path, thread, time::Duration};
use thalweg_node::{
    detours::{Detours, ask_candidates},
    mesh::State,
};

/// How long the oracle may take while the download runs.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks if the kept list is old, on a thread of its own that ends with the process at the
/// latest. Nobody waits for it: what comes too late for this download serves the next one.
pub fn start(state: anyhow::Result<State>, file: Option<&Path>) {
    let (Some(state), Some(file)) = (state.ok().filter(State::has_mesh), file) else { return };
    let file = Detours::beside(file);
    if !Detours::open(&file).is_stale(remembered::now()) {
        return;
    }
    // An oracle that is away, or that does not rank yet, hinders nothing.
    let ask = move || _ = here::block_on(async move { ask(&state, &file).await });
    _ = thread::Builder::new().name("candidates".to_owned()).spawn(ask);
}

async fn ask(state: &State, file: &Path) -> anyhow::Result<()> {
    let reply = ask_candidates(state, PATIENCE).await?;
    let me = state.mesh()?.name;
    let mut detours = Detours::open(file);
    detours.follow(reply, Some(&me), remembered::now());
    Ok(detours.save()?)
}
