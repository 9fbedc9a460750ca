//! The proxy's history of paths: used by connections, and exchanged with its files by a thread that may block.
//!
//! An exchange waits for other processes and for the disk. Connections ask for paths meanwhile, so the data to save is
//! copied first, and no lock is held.

use crate::commands::history_file;
use parking_lot::Mutex;
use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use thalweg_paths::{detours::Detours, history::History};
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::{MissedTickBehavior, interval},
};

/// The interval of exchanges: what was learnt waits this long to be saved, and what `get` learnt to be used. Nothing is
/// written if nothing was learnt.
const EXCHANGE_INTERVAL: Duration = Duration::from_secs(5);

/// The history and the list of relays, with the history's file if it is stored.
pub struct Memory {
    history: Option<(Arc<Mutex<History>>, PathBuf)>,
    detours: Arc<Mutex<Detours>>,
    /// The stamps of the files when they were last read.
    read: FileVersions,
    /// Whether the last exchange failed: a failure is reported once.
    fails: bool,
    /// The exchange in progress; it continues if its caller is cancelled.
    exchange_task: Option<JoinHandle<ExchangeResult>>,
}

/// Identifies a version of a file: inode, length, modification time in seconds and nanoseconds.
type FileVersion = (u64, u64, i64, i64);

/// The stamps of the history and the list; `None` if there is no file.
#[derive(Clone, Copy, Default)]
struct FileVersions {
    history: Option<FileVersion>,
    detours: Option<FileVersion>,
}

/// The result of an exchange: the content of the files, if it is new.
struct ExchangeResult {
    history: Option<History>,
    detours: Option<Detours>,
    read: FileVersions,
    done: io::Result<()>,
    /// A fault of a file.
    problem: Option<String>,
}

impl Memory {
    /// Creates the memory of this history, if one is stored, and this list.
    pub fn new(
        history: Option<(Arc<Mutex<History>>, PathBuf)>,
        detours: Arc<Mutex<Detours>>,
    ) -> Self {
        Self { history, detours, read: FileVersions::default(), fails: false, exchange_task: None }
    }

    /// The list of relays that the chooser uses.
    pub fn shared_detours(&self) -> Arc<Mutex<Detours>> {
        Arc::clone(&self.detours)
    }

    /// Exchanges repeatedly; never ends.
    pub async fn keep(&mut self, note: &dyn Fn(String)) {
        let mut ticks = interval(EXCHANGE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.exchange(note).await;
        }
    }

    /// Saves what was learnt, and reads what other processes wrote. The data is only a hint, so a failure is only
    /// noted.
    ///
    /// Cancel-safe: the next call waits for the exchange that this one started.
    pub async fn exchange(&mut self, note: &dyn Fn(String)) {
        self.finish(note).await;
        let Some((history, file)) = &self.history else { return };
        let (file, read) = (file.clone(), self.read);
        let (history, detours) = (history.lock().unsaved(), self.detours.lock().unsaved());
        self.exchange_task = Some(spawn_blocking(move || exchange(&file, read, history, detours)));
        self.finish(note).await;
    }

    /// Waits for the exchange in progress, and takes its results.
    async fn finish(&mut self, note: &dyn Fn(String)) {
        let Some(exchange_task) = &mut self.exchange_task else { return };
        let exchanged = exchange_task.await;
        self.exchange_task = None;
        // The exchange is an error only if it panicked.
        let Ok(exchanged) = exchanged else { return };
        if let (Some((history, _)), Some(theirs)) = (&self.history, exchanged.history) {
            history.lock().take_back(theirs);
        }
        if let Some(theirs) = exchanged.detours {
            self.detours.lock().take_back(theirs);
        }
        self.read = exchanged.read;
        if let Some(problem) = exchanged.problem {
            note(problem);
        }
        let failed = exchanged.done.err();
        if let Some(e) = failed.as_ref().filter(|_| !self.fails) {
            note(format!(
                "cannot save the history of paths: {e} (choose a file with --history FILE, \
                 or `--history none`)"
            ));
        }
        self.fails = failed.is_some();
    }
}

fn exchange(
    file: &Path,
    before: FileVersions,
    mut history: Option<History>,
    mut detours: Option<Detours>,
) -> ExchangeResult {
    let beside = Detours::beside(file);
    // Taken first: what is written after this is read by the next exchange.
    let read = FileVersions { history: file_version(file), detours: file_version(&beside) };
    let is_new = |then: Option<FileVersion>, now: Option<FileVersion>| now.is_some() && now != then;
    let done = if history.is_some() || detours.is_some() {
        history_file::create_parent(file)
            .and_then(|()| history.as_mut().map_or(Ok(()), History::save))
            .and_then(|()| detours.as_mut().map_or(Ok(()), Detours::save))
    } else {
        Ok(())
    };
    // Saving has read the files already. A file that cannot be read is ignored.
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
    ExchangeResult { history, detours, read, done, problem }
}

fn file_version(file: &Path) -> Option<FileVersion> {
    let found = fs::metadata(file).ok()?;
    Some((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use thalweg_paths::history::{Bound, PathObservation};
    use thalweg_units::Rate;

    const SITE: &str = "http://www.example.org:80";

    fn learn(history: &Mutex<History>, path: &str) {
        let observed = PathObservation {
            path: path.to_owned(),
            rate: Rate::from_mbps(10.0),
            setup: Duration::from_millis(100),
            bound: Bound::Exact,
        };
        // `try_lock` never waits: a held lock would delay connections.
        history.try_lock().unwrap().learn(SITE, &[observed], history_file::now());
    }

    #[tokio::test]
    async fn a_save_that_waits_blocks_no_connection_and_loses_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("history.json");
        let history = Arc::new(Mutex::new(History::open(&file)));
        let detours = Arc::new(Mutex::new(Detours::unkept()));
        let mut memory = Memory::new(Some((Arc::clone(&history), file.clone())), detours);
        learn(&history, "fra");
        // Another process locks the file for longer than the exchange waits.
        let other = File::create(dir.path().join("history.json.lock")).unwrap();
        other.lock().unwrap();
        let notes = Mutex::new(Vec::new());
        let note = |text| notes.lock().push(text);
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
        assert!(notes.lock()[0].contains("cannot save"), "{notes:?}");
        drop(other);
        memory.exchange(&note).await;
        let kept = History::open(&file);
        for path in ["fra", "nyc"] {
            assert!(kept.prior(SITE, path, history_file::now()).is_some(), "{path}");
        }
        assert_eq!(notes.lock().len(), 1, "{notes:?}");
    }

    #[tokio::test]
    async fn data_of_another_process_is_used_and_own_data_stays() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("history.json");
        let history = Arc::new(Mutex::new(History::open(&file)));
        let list = Arc::new(Mutex::new(Detours::open(&Detours::beside(&file))));
        let mut memory = Memory::new(Some((Arc::clone(&history), file.clone())), list);
        let notes = Mutex::new(Vec::new());
        let note = |text| notes.lock().push(text);
        let knows = |path| history.lock().prior(SITE, path, history_file::now()).is_some();
        memory.exchange(&note).await;
        assert!(!file.exists(), "nothing was learnt, and something was written");
        for (theirs, ours) in [("fra", "nyc"), ("sin", "lon")] {
            let other = Mutex::new(History::open(&file));
            learn(&other, theirs);
            other.lock().save().unwrap();
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
        assert!(notes.lock().is_empty(), "{notes:?}");
    }
}
