//! State shared by all threads of a landing.

use super::{
    FailedItem, LandingProgress,
    plan::{Target, TreePlan},
    step_error::StepError,
    tree::Tree,
};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
};
use thalweg_base::job::Job;
use thalweg_files::land::LandError;
use thalweg_part::Batch;

/// The progress of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum TargetState {
    Waiting = 0,
    /// Completely written; waits for the sync and its name.
    Written = 1,
    /// In place under its name.
    Named = 2,
    /// Will be missing: this system refused it.
    Failed = 3,
    /// Will be missing: its source reported so. Pieces received before are still written.
    GivenUp = 4,
}

/// The counters of a source.
#[derive(Debug, Default)]
pub(super) struct Counts {
    bytes: AtomicU64,
    files: AtomicU64,
    of_bytes: u64,
    of_files: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct LandingState {
    pub(super) plan: TreePlan,
    pub(super) tree: Tree,
    pub(super) tag: u32,
    pub(super) job: Job,
    pub(super) checkpoint: Batch,
    states: Vec<AtomicU8>,
    counts: BTreeMap<u32, Counts>,
    stopped: OnceLock<LandError>,
    /// The landing was dropped: unwritten data is no longer wanted.
    abandoned: AtomicBool,
    /// No more pieces are accepted.
    ending: AtomicBool,
    refused: Mutex<BTreeMap<u32, String>>,
    /// Targets that are here but differ from the source, and how.
    blemishes: Mutex<BTreeMap<u32, String>>,
    /// Bytes of unfinished files that are journaled.
    kept: AtomicU64,
}

impl LandingState {
    pub(super) fn new(
        plan: TreePlan,
        tree: Tree,
        job: Job,
        checkpoint: Batch,
        counts: BTreeMap<u32, Counts>,
    ) -> Self {
        let states =
            plan.targets.iter().map(|_| AtomicU8::new(TargetState::Waiting as u8)).collect();
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
            blemishes: Mutex::default(),
            kept: AtomicU64::new(0),
        }
    }

    pub(super) fn target(&self, number: u32) -> Option<&Target> {
        self.plan.targets.get(number as usize)
    }

    pub(super) fn state(&self, number: u32) -> TargetState {
        match self.states.get(number as usize).map(|s| s.load(Ordering::Acquire)) {
            Some(0) => TargetState::Waiting,
            Some(1) => TargetState::Written,
            Some(2) => TargetState::Named,
            Some(4) => TargetState::GivenUp,
            _ => TargetState::Failed,
        }
    }

    /// Changes a target's state. Returns false if it was in another state than `from`.
    pub(super) fn change_state(&self, number: u32, from: TargetState, to: TargetState) -> bool {
        let (from, to) = (from as u8, to as u8);
        self.states.get(number as usize).is_some_and(|state| {
            state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
        })
    }

    /// Records, once, that this system refused a target.
    pub(super) fn refuse(&self, number: u32, why: String) {
        self.fail_target(number, TargetState::Failed, why);
    }

    /// Records, once, that the source cannot provide a target.
    pub(super) fn give_up(&self, number: u32, why: String) {
        self.fail_target(number, TargetState::GivenUp, why);
    }

    fn fail_target(&self, number: u32, to: TargetState, why: String) {
        let turned = [TargetState::Waiting, TargetState::Written]
            .iter()
            .any(|s| self.change_state(number, *s, to));
        if turned {
            self.refused.lock().insert(number, why);
        }
    }

    /// Records that a target has its content, but not all of its metadata.
    pub(super) fn record_blemish(&self, number: u32, why: String) {
        self.blemishes.lock().insert(number, why);
    }

    /// Records the error that ends the landing; only the first one counts.
    pub(super) fn stop(&self, error: LandError) {
        _ = self.stopped.set(error);
    }

    pub(super) fn stopped(&self) -> Option<&LandError> {
        self.stopped.get()
    }

    /// Records an error with a target.
    pub(super) fn record_error(&self, number: u32, error: StepError) {
        match error {
            StepError::One(why) => self.refuse(number, why),
            StepError::All(error) => self.stop(error),
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

    pub(super) fn add_kept(&self, bytes: u64) {
        self.kept.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn kept(&self) -> u64 {
        self.kept.load(Ordering::Relaxed)
    }

    /// Counts written bytes of a target.
    pub(super) fn record_written(&self, number: u32, bytes: u64) {
        if let Some(counts) = self.target(number).and_then(|t| self.counts.get(&t.source)) {
            counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Marks a target as in place.
    pub(super) fn record_named(&self, number: u32) {
        if !self.change_state(number, TargetState::Written, TargetState::Named) {
            return;
        }
        let file = self.target(number).filter(|target| target.is_file());
        if let Some(counts) = file.and_then(|t| self.counts.get(&t.source)) {
            counts.files.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn progress(&self) -> BTreeMap<u32, LandingProgress> {
        let of = |counts: &Counts| LandingProgress {
            bytes: counts.bytes.load(Ordering::Relaxed),
            of_bytes: counts.of_bytes,
            files: counts.files.load(Ordering::Relaxed),
            of_files: counts.of_files,
        };
        self.counts.iter().map(|(source, counts)| (*source, of(counts))).collect()
    }

    /// The error of a target that failed.
    pub(super) fn target_error(&self, number: u32) -> LandError {
        let why = self.refused.lock().get(&number).cloned();
        let why = why.unwrap_or_else(|| "it is not a file of this collection".into());
        LandError::File { file: self.path(number), why }
    }

    /// All targets refused or incomplete so far.
    pub(super) fn refused(&self) -> Vec<FailedItem> {
        let (refused, blemishes) = (self.refused.lock(), self.blemishes.lock());
        let of = |(number, why): (&u32, &String)| {
            let source = self.target(*number).map_or(0, |t| t.source);
            FailedItem { source, path: self.path(*number), why: why.clone() }
        };
        let blemished = blemishes.iter().filter(|(number, _)| !refused.contains_key(number));
        refused.iter().chain(blemished).map(of).collect()
    }

    fn path(&self, number: u32) -> PathBuf {
        self.target(number).map_or_else(PathBuf::new, |target| self.plan.path(target))
    }
}

/// A number that distinguishes the landings of nested directories.
pub(super) fn tag(tree: &Tree) -> u32 {
    let Ok(found) = rustix::fs::fstat(tree.first()) else { return 0 };
    let mut hasher = blake3::Hasher::new();
    hasher.update(&found.st_dev.to_be_bytes()).update(&found.st_ino.to_be_bytes());
    let hash = hasher.finalize();
    hash.as_bytes().iter().take(4).fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

impl Counts {
    /// Adds a target to the expected counts.
    pub(super) fn expect(&mut self, bytes: u64) {
        self.of_bytes += bytes;
        self.of_files += 1;
    }
}
