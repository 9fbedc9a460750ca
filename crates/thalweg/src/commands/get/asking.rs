//! The oracle's candidates, asked for beside a download and kept for the next ones.

use crate::commands::{here, remembered};
use std::{
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    thread,
    time::Duration,
};
use thalweg_mesh::State;
use thalweg_net::DialOptions;
use thalweg_paths::detours::{Detours, ask_candidates};

/// How long the oracle may take while the download runs.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long it may take beyond a download's end: else the list of a host that fetches small
/// files alone would never be a new one.
const LINGER: Duration = Duration::from_secs(2);

/// A question to the oracle; it ends with the process at the latest.
pub struct Asking(Option<Asked>);

struct Asked {
    file: PathBuf,
    done: Receiver<()>,
    /// Nobody waits for an oracle that was asked in vain just before.
    is_away: bool,
}

impl Asking {
    /// Nothing is asked.
    pub fn none() -> Self {
        Self(None)
    }

    /// Asks if the kept list is old, on a thread of its own. The download does not wait
    /// for it: what comes too late for this one serves the next.
    pub fn start(state: anyhow::Result<State>, file: Option<&Path>) -> Self {
        let (Some(state), Some(file)) = (state.ok().filter(State::has_mesh), file) else {
            return Self(None);
        };
        let (file, now) = (Detours::beside(file), remembered::now());
        let detours = Detours::open(&file);
        if !detours.is_stale(now) {
            return Self(None);
        }
        let (tell, done) = sync_channel(1);
        let own = file.clone();
        let ask = move || {
            // An oracle that does not rank yet has answered, too.
            _ = here::block_on(async move { ask(&state, &own).await });
            _ = tell.send(());
        };
        let started = thread::Builder::new().name("candidates".to_owned()).spawn(ask);
        let is_away = detours.is_away(now);
        Self(started.ok().map(|_| Asked { file, done, is_away }))
    }

    /// After a download: waits for the answer, two seconds at most, and at most once a minute
    /// for an oracle that is away.
    pub fn finish(self) {
        let Some(Asked { file, done, is_away: false }) = self.0 else { return };
        if done.recv_timeout(LINGER) == Err(RecvTimeoutError::Timeout) {
            let mut detours = Detours::open(&file);
            detours.note_unanswered(remembered::now());
            // It is only remembered so that the next download ends sooner.
            _ = detours.save();
        }
    }
}

async fn ask(state: &State, file: &Path) -> anyhow::Result<()> {
    let reply = ask_candidates(state, DialOptions::default(), PATIENCE).await?;
    let me = state.mesh()?.name;
    let mut detours = Detours::open(file);
    detours.follow(reply, Some(&me), remembered::now());
    Ok(detours.save()?)
}
