//! What all threads of a landing know.

use super::{
    Failed, Progress,
    plan::{Plan, Target},
    tree::Tree,
    trouble::Trouble,
};
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
};
use thalweg_base::job::Job;
use thalweg_files::land::LandError;
use thalweg_part::Batch;

/// How far a target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum State {
    Waiting = 0,
    /// All of it is written: it waits for the sync and its name.
    Written = 1,
    /// It is here.
    Shown = 2,
    /// It will not be: the system here refuses.
    Failed = 3,
    /// It will not be: its source says so. What came before that is still written.
    GivenUp = 4,
}

/// By source.
#[derive(Debug, Default)]
pub(super) struct Counts {
    bytes: AtomicU64,
    files: AtomicU64,
    of_bytes: u64,
    of_files: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) plan: Plan,
    pub(super) tree: Tree,
    pub(super) tag: u32,
    pub(super) job: Job,
    pub(super) checkpoint: Batch,
    states: Vec<AtomicU8>,
    counts: BTreeMap<u32, Counts>,
    stopped: OnceLock<LandError>,
    /// Nobody waits for the end: what is not written is not wanted.
    abandoned: AtomicBool,
    /// Nothing more is taken.
    ending: AtomicBool,
    refused: Mutex<BTreeMap<u32, String>>,
    /// Bytes of unfinished files that are journaled.
    kept: AtomicU64,
}

impl Shared {
    pub(super) fn new(
        plan: Plan,
        tree: Tree,
        job: Job,
        checkpoint: Batch,
        counts: BTreeMap<u32, Counts>,
    ) -> Self {
        let states = plan.targets.iter().map(|_| AtomicU8::new(State::Waiting as u8)).collect();
        let tag = tag(&tree);
        Self {
            plan,
            tree,
            tag,
            job,
            checkpoint,
            states,
            counts,
            stopped: OnceLock::new(),
            abandoned: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            refused: Mutex::default(),
            kept: AtomicU64::new(0),
        }
    }

    pub(super) fn target(&self, number: u32) -> Option<&Target> {
        self.plan.targets.get(number as usize)
    }

    pub(super) fn state(&self, number: u32) -> State {
        match self.states.get(number as usize).map(|s| s.load(Ordering::Acquire)) {
            Some(0) => State::Waiting,
            Some(1) => State::Written,
            Some(2) => State::Shown,
            Some(4) => State::GivenUp,
            _ => State::Failed,
        }
    }

    /// False if it was in another state.
    pub(super) fn turn(&self, number: u32, from: State, to: State) -> bool {
        let (from, to) = (from as u8, to as u8);
        self.states.get(number as usize).is_some_and(|state| {
            state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
        })
    }

    /// Takes note that a target will not be here, once.
    pub(super) fn refuse(&self, number: u32, why: String) {
        self.put_away(number, State::Failed, why);
    }

    /// The same, said by its source.
    pub(super) fn give_up(&self, number: u32, why: String) {
        self.put_away(number, State::GivenUp, why);
    }

    fn put_away(&self, number: u32, to: State, why: String) {
        let turned = [State::Waiting, State::Written].iter().any(|s| self.turn(number, *s, to));
        if turned {
            lock(&self.refused).insert(number, why);
        }
    }

    /// Takes note of what ends everything, the first time.
    pub(super) fn stop(&self, error: LandError) {
        _ = self.stopped.set(error);
    }

    pub(super) fn stopped(&self) -> Option<&LandError> {
        self.stopped.get()
    }

    /// Takes note of trouble with a target.
    pub(super) fn note(&self, number: u32, trouble: Trouble) {
        match trouble {
            Trouble::One(why) => self.refuse(number, why),
            Trouble::All(error) => self.stop(error),
        }
    }

    pub(super) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    pub(super) fn end(&self) {
        self.ending.store(true, Ordering::Release);
    }

    pub(super) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    pub(super) fn keeps(&self, bytes: u64) {
        self.kept.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn kept(&self) -> u64 {
        self.kept.load(Ordering::Relaxed)
    }

    /// Bytes of a target are written.
    pub(super) fn wrote(&self, number: u32, bytes: u64) {
        if let Some(counts) = self.target(number).and_then(|t| self.counts.get(&t.source)) {
            counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// A target has its name.
    pub(super) fn shown(&self, number: u32) {
        if !self.turn(number, State::Written, State::Shown) {
            return;
        }
        let file = self.target(number).filter(|target| target.is_file());
        if let Some(counts) = file.and_then(|t| self.counts.get(&t.source)) {
            counts.files.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn progress(&self) -> BTreeMap<u32, Progress> {
        let of = |counts: &Counts| Progress {
            bytes: counts.bytes.load(Ordering::Relaxed),
            of_bytes: counts.of_bytes,
            files: counts.files.load(Ordering::Relaxed),
            of_files: counts.of_files,
        };
        self.counts.iter().map(|(source, counts)| (*source, of(counts))).collect()
    }

    /// What is said of a target that failed.
    pub(super) fn why(&self, number: u32) -> LandError {
        let why = lock(&self.refused).get(&number).cloned();
        let why = why.unwrap_or_else(|| "it is no file of this collection".into());
        LandError::File { file: self.path(number), why }
    }

    /// All that was refused so far.
    pub(super) fn refused(&self) -> Vec<Failed> {
        let refused = lock(&self.refused);
        let of = |(number, why): (&u32, &String)| {
            let source = self.target(*number).map_or(0, |t| t.source);
            Failed { source, path: self.path(*number), why: why.clone() }
        };
        refused.iter().map(of).collect()
    }

    fn path(&self, number: u32) -> PathBuf {
        self.target(number).map_or_else(PathBuf::new, |target| self.plan.path(target))
    }
}

/// What tells landings in nested directories apart.
pub(super) fn tag(tree: &Tree) -> u32 {
    let Ok(found) = rustix::fs::fstat(tree.first()) else { return 0 };
    let mut hasher = blake3::Hasher::new();
    hasher.update(&found.st_dev.to_be_bytes()).update(&found.st_ino.to_be_bytes());
    let hash = hasher.finalize();
    hash.as_bytes().iter().take(4).fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

impl Counts {
    /// Takes note of a target that is to come.
    pub(super) fn expect(&mut self, bytes: u64) {
        self.of_bytes += bytes;
        self.of_files += 1;
    }
}

/// A thread that panicked in here left something whole: each change is one insertion.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
