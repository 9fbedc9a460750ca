//! What the proxy learnt of paths: used by its connections, saved by a thread that may wait.
//!
//! A save waits for other processes and for the disk. Meanwhile connections ask for paths, so
//! what is saved is taken apart first, and no lock is held.

use crate::commands::remembered;
use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use thalweg_node::{detours::Detours, history::History};
use tokio::task::{JoinHandle, spawn_blocking};

/// The history and the list of relays, with the history's file if it is kept.
pub struct Memory {
    history: Option<(Arc<Mutex<History>>, PathBuf)>,
    detours: Arc<Mutex<Detours>>,
    /// A save under way; it outlives whoever began it.
    saving: Option<JoinHandle<Saved>>,
}

/// What was to be saved, and what came of it.
struct Saved {
    history: Option<History>,
    detours: Option<Detours>,
    done: io::Result<()>,
}

impl Memory {
    /// Of this history, if one is kept, and this list.
    pub fn new(
        history: Option<(Arc<Mutex<History>>, PathBuf)>,
        detours: Arc<Mutex<Detours>>,
    ) -> Self {
        Self { history, detours, saving: None }
    }

    /// The list of relays.
    pub fn detours(&self) -> MutexGuard<'_, Detours> {
        lock(&self.detours)
    }

    /// Keeps what was learnt; it is only a hint, so that it cannot be kept fails nothing.
    ///
    /// Cancel-safe: the next call waits for what this one began.
    pub async fn save(&mut self, note: &dyn Fn(String)) {
        self.finish(note).await;
        let Some((history, file)) = &self.history else { return };
        let (history, detours) = (lock(history).unsaved(), self.detours().unsaved());
        if history.is_some() || detours.is_some() {
            let file = file.clone();
            self.saving = Some(spawn_blocking(move || write(&file, history, detours)));
            self.finish(note).await;
        }
    }

    /// Waits for the save under way, and takes back what it had.
    async fn finish(&mut self, note: &dyn Fn(String)) {
        let Some(saving) = &mut self.saving else { return };
        let saved = saving.await;
        self.saving = None;
        // It fails only if it panicked.
        let Ok(saved) = saved else { return };
        if let (Some((history, _)), Some(theirs)) = (&self.history, saved.history) {
            lock(history).take_back(theirs);
        }
        if let Some(theirs) = saved.detours {
            self.detours().take_back(theirs);
        }
        if let Err(e) = saved.done {
            note(format!(
                "what was learnt of the paths is not kept: {e} (--history FILE, or none)"
            ));
        }
    }
}

fn write(file: &Path, mut history: Option<History>, mut detours: Option<Detours>) -> Saved {
    let done = remembered::make_place(file)
        .and_then(|()| history.as_mut().map_or(Ok(()), History::save))
        .and_then(|()| detours.as_mut().map_or(Ok(()), Detours::save));
    Saved { history, detours, done }
}

/// Each holds whole values: a panic elsewhere leaves them sound.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs::File, time::Duration};
    use thalweg_node::history::{Bound, Observed};
    use thalweg_units::Rate;

    const SITE: &str = "http://www.example.org:80";

    fn learn(history: &Mutex<History>, path: &str) {
        let observed = Observed {
            path: path.to_owned(),
            rate: Rate::from_mbps(10.0),
            setup: Duration::from_millis(100),
            bound: Bound::Exact,
        };
        // Never waits: whoever held it would hold up connections.
        history.try_lock().unwrap().learn(SITE, &[observed], remembered::now());
    }

    #[tokio::test]
    async fn a_save_that_waits_holds_up_nobody_and_loses_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("history.json");
        let history = Arc::new(Mutex::new(History::open(&file)));
        let detours = Arc::new(Mutex::new(Detours::unkept()));
        let mut memory = Memory::new(Some((Arc::clone(&history), file.clone())), detours);
        learn(&history, "fra");
        // Another process is at the file for longer than anybody waits.
        let other = File::create(dir.path().join("history.json.lock")).unwrap();
        other.lock().unwrap();
        let said = Mutex::new(Vec::new());
        let note = |text| said.lock().unwrap().push(text);
        {
            let mut saving = std::pin::pin!(memory.save(&note));
            tokio::select! {
                biased;
                () = &mut saving => panic!("it did not wait"),
                () = std::future::ready(()) => {}
            }
            learn(&history, "nyc");
            saving.await;
        }
        assert!(said.lock().unwrap()[0].contains("is not kept"), "{said:?}");
        drop(other);
        memory.save(&note).await;
        let kept = History::open(&file);
        for path in ["fra", "nyc"] {
            assert!(kept.prior(SITE, path, remembered::now()).is_some(), "{path}");
        }
        assert_eq!(said.lock().unwrap().len(), 1, "{said:?}");
    }
}
