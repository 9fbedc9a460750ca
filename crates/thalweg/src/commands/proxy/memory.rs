//! What the proxy learnt of paths: used by its connections, exchanged with the files by a thread
//! that may wait.
//!
//! An exchange waits for other processes and for the disk. Meanwhile connections ask for paths,
//! so what is saved is taken apart first, and no lock is held.

use crate::commands::remembered;
use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use thalweg_paths::{detours::Detours, history::History};
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::{MissedTickBehavior, interval},
};

/// How often the files are looked at: so long what was learnt waits to be saved, and what `get`
/// learnt to be used. Nothing is written if nothing was learnt.
const EXCHANGE: Duration = Duration::from_secs(5);

/// The history and the list of relays, with the history's file if it is kept.
pub struct Memory {
    history: Option<(Arc<Mutex<History>>, PathBuf)>,
    detours: Arc<Mutex<Detours>>,
    /// The files as they were when they were read last.
    read: Stamps,
    /// Whether the last exchange failed: that is told once.
    fails: bool,
    /// An exchange under way; it outlives whoever began it.
    under_way: Option<JoinHandle<Exchanged>>,
}

/// By what a file that was replaced is known: inode, length, time in seconds and nanoseconds.
type Stamp = (u64, u64, i64, i64);

/// Those of the history and of the list; `None` where there is no file.
#[derive(Clone, Copy, Default)]
struct Stamps {
    history: Option<Stamp>,
    detours: Option<Stamp>,
}

/// What came of it: what the files hold by now, unless that was known.
struct Exchanged {
    history: Option<History>,
    detours: Option<Detours>,
    read: Stamps,
    done: io::Result<()>,
    /// What is wrong with a file.
    problem: Option<String>,
}

impl Memory {
    /// Of this history, if one is kept, and this list.
    pub fn new(
        history: Option<(Arc<Mutex<History>>, PathBuf)>,
        detours: Arc<Mutex<Detours>>,
    ) -> Self {
        Self { history, detours, read: Stamps::default(), fails: false, under_way: None }
    }

    /// The list of relays, as the chooser has it.
    pub fn shared_detours(&self) -> Arc<Mutex<Detours>> {
        Arc::clone(&self.detours)
    }

    /// Exchanges again and again; never ends.
    pub async fn keep(&mut self, note: &dyn Fn(String)) {
        let mut ticks = interval(EXCHANGE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.exchange(note).await;
        }
    }

    /// Saves what was learnt, and reads what other processes wrote. It is only a hint, so that it
    /// cannot be kept fails nothing.
    ///
    /// Cancel-safe: the next call waits for what this one began.
    pub async fn exchange(&mut self, note: &dyn Fn(String)) {
        self.finish(note).await;
        let Some((history, file)) = &self.history else { return };
        let (file, read) = (file.clone(), self.read);
        let (history, detours) = (lock(history).unsaved(), lock(&self.detours).unsaved());
        self.under_way = Some(spawn_blocking(move || exchange(&file, read, history, detours)));
        self.finish(note).await;
    }

    /// Waits for the exchange under way, and takes over what it brought.
    async fn finish(&mut self, note: &dyn Fn(String)) {
        let Some(under_way) = &mut self.under_way else { return };
        let exchanged = under_way.await;
        self.under_way = None;
        // It fails only if it panicked.
        let Ok(exchanged) = exchanged else { return };
        if let (Some((history, _)), Some(theirs)) = (&self.history, exchanged.history) {
            lock(history).take_back(theirs);
        }
        if let Some(theirs) = exchanged.detours {
            lock(&self.detours).take_back(theirs);
        }
        self.read = exchanged.read;
        if let Some(problem) = exchanged.problem {
            note(problem);
        }
        let failed = exchanged.done.err();
        if let Some(e) = failed.as_ref().filter(|_| !self.fails) {
            note(format!(
                "what was learnt of the paths is not kept: {e} (--history FILE, or none)"
            ));
        }
        self.fails = failed.is_some();
    }
}

fn exchange(
    file: &Path,
    before: Stamps,
    mut history: Option<History>,
    mut detours: Option<Detours>,
) -> Exchanged {
    let beside = Detours::beside(file);
    // First: what is written from here on is read the next time.
    let read = Stamps { history: stamp(file), detours: stamp(&beside) };
    let is_new = |then: Option<Stamp>, now: Option<Stamp>| now.is_some() && now != then;
    let done = if history.is_some() || detours.is_some() {
        remembered::make_place(file)
            .and_then(|()| history.as_mut().map_or(Ok(()), History::save))
            .and_then(|()| detours.as_mut().map_or(Ok(()), Detours::save))
    } else {
        Ok(())
    };
    // Saving has read them already. One that cannot be read teaches nothing.
    let mut problem = None;
    if history.is_none() && is_new(before.history, read.history) {
        let found = History::open(file);
        problem = found.problem().map(str::to_owned);
        history = problem.is_none().then_some(found);
    }
    if detours.is_none() && is_new(before.detours, read.detours) {
        let found = Detours::open(&beside);
        let theirs = found.problem().map(str::to_owned);
        detours = theirs.is_none().then_some(found);
        problem = problem.or(theirs);
    }
    Exchanged { history, detours, read, done, problem }
}

fn stamp(file: &Path) -> Option<Stamp> {
    let found = fs::metadata(file).ok()?;
    Some((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}

/// Each holds whole values: a panic elsewhere leaves them sound.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use thalweg_paths::history::{Bound, Observed};
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
            let mut saving = std::pin::pin!(memory.exchange(&note));
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
        memory.exchange(&note).await;
        let kept = History::open(&file);
        for path in ["fra", "nyc"] {
            assert!(kept.prior(SITE, path, remembered::now()).is_some(), "{path}");
        }
        assert_eq!(said.lock().unwrap().len(), 1, "{said:?}");
    }

    #[tokio::test]
    async fn what_another_process_learnt_is_used_and_what_was_learnt_here_stays() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("history.json");
        let history = Arc::new(Mutex::new(History::open(&file)));
        let list = Arc::new(Mutex::new(Detours::open(&Detours::beside(&file))));
        let mut memory = Memory::new(Some((Arc::clone(&history), file.clone())), list);
        let said = Mutex::new(Vec::new());
        let note = |text| said.lock().unwrap().push(text);
        let knows = |path| history.lock().unwrap().prior(SITE, path, remembered::now()).is_some();
        memory.exchange(&note).await;
        assert!(!file.exists(), "nothing was learnt, and something was written");
        for (theirs, ours) in [("fra", "nyc"), ("sin", "lon")] {
            let other = Mutex::new(History::open(&file));
            learn(&other, theirs);
            other.lock().unwrap().save().unwrap();
            assert!(!knows(theirs), "{theirs}");
            memory.exchange(&note).await;
            assert!(knows(theirs), "{theirs}");
            learn(&history, ours);
            memory.exchange(&note).await;
        }
        assert!(["fra", "nyc", "sin", "lon"].into_iter().all(knows));
        std::fs::remove_file(&file).unwrap();
        memory.exchange(&note).await;
        assert!(knows("fra"), "a file that is gone teaches nothing");
        assert!(said.lock().unwrap().is_empty(), "{said:?}");
    }
}
