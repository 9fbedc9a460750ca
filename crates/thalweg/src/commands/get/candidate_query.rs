//! Asks the oracle for candidates during a download, and stores them for later ones.

use crate::commands::{history_file, host};
use std::{
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
    thread,
    time::Duration,
};
use thalweg_mesh::State;
use thalweg_net::DialOptions;
use thalweg_paths::detours::{Detours, ask_candidates};

/// The timeout while the download runs.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The timeout after the download's end. Without it, a host that fetches only small files would never get a new list.
const LINGER: Duration = Duration::from_secs(2);

/// A request to the oracle; it ends with the process at the latest.
pub struct CandidateQuery(Option<PendingQuery>);

struct PendingQuery {
    file: PathBuf,
    done: Receiver<()>,
    /// Whether a recent request got no answer: then this one is not waited for.
    is_away: bool,
}

impl CandidateQuery {
    /// A query that is never sent.
    pub fn none() -> Self {
        Self(None)
    }

    /// Asks on a separate thread if the stored list is old. The download does not wait for the answer: one that comes
    /// too late for it serves the next download.
    pub fn start(state: anyhow::Result<State>, file: Option<&Path>) -> Self {
        let (Some(state), Some(file)) = (state.ok().filter(State::has_mesh), file) else {
            return Self(None);
        };
        let (file, now) = (Detours::beside(file), history_file::now());
        let detours = Detours::open(&file);
        if !detours.is_stale(now) {
            return Self(None);
        }
        let (tell, done) = sync_channel(1);
        let own = file.clone();
        let ask = move || {
            // An oracle that does not rank yet counts as an answer.
            _ = host::block_on(async move { ask(&state, &own).await });
            _ = tell.send(());
        };
        let started = thread::Builder::new().name("candidates".to_owned()).spawn(ask);
        let is_away = detours.is_away(now);
        Self(started.ok().map(|_| PendingQuery { file, done, is_away }))
    }

    /// Waits for the answer after a download: two seconds at most, and for an oracle that is away at most
    /// once a minute.
    pub fn finish(self) {
        let Some(PendingQuery { file, done, is_away: false }) = self.0 else { return };
        if done.recv_timeout(LINGER) == Err(RecvTimeoutError::Timeout) {
            let mut detours = Detours::open(&file);
            detours.note_unanswered(history_file::now());
            // If this is not saved, the next download only waits once more.
            _ = detours.save();
        }
    }
}

async fn ask(state: &State, file: &Path) -> anyhow::Result<()> {
    let reply = ask_candidates(state, DialOptions::default(), TIMEOUT).await?;
    let me = state.mesh()?.name;
    let mut detours = Detours::open(file);
    detours.follow(reply, Some(&me), history_file::now());
    Ok(detours.save()?)
}
