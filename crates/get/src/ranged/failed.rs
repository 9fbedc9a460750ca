//! What goes wrong on a path, and what that means for the others.

use super::Ranged;
use crate::{Halt, PathError, retry_after::is_bearable, worker::pause};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use thalweg_base::job::Event;
use thalweg_plan::selection::Failure;
use thalweg_units::PathId;

/// How often in a row a path may be put off, without a byte in between.
const MAX_BUSY: u32 = 5;

/// How long a path is left alone whose server answers 403 while it serves another path: some
/// allow one connection at a time, and answer the others so.
const ONE_AT_A_TIME: Duration = Duration::from_secs(5);

/// What the servers said about being asked.
#[derive(Default)]
pub(super) struct Refusals {
    /// Paths whose server has shown that it means the same object.
    trusted: BTreeSet<PathId>,
    /// How often in a row each path was put off, and for how long in all.
    busy: BTreeMap<PathId, (u32, Duration)>,
    /// Paths that were forbidden while others worked.
    forbidden: BTreeSet<PathId>,
}

impl Refusals {
    /// The path's server agrees about the object, or brings its bytes.
    pub(super) fn trust(&mut self, path: PathId) {
        self.trusted.insert(path);
        self.busy.remove(&path);
    }

    /// Counts one more time in a row; for how long that is, unless it is too often or too long.
    fn put_off(&mut self, path: PathId, wait: Option<Duration>) -> Option<Duration> {
        let (times, waited) = self.busy.entry(path).or_default();
        *times += 1;
        let wait = wait.unwrap_or_else(|| pause(*times - 1));
        let wait = Some(wait).filter(|w| *times <= MAX_BUSY && is_bearable(*waited, *w))?;
        *waited += wait;
        Some(wait)
    }
}

impl Ranged<'_, '_> {
    pub(super) fn fail(&mut self, path: PathId, error: PathError) {
        if let Some(wait) = self.may_wait(path, &error) {
            return self.put_off(path, error, wait);
        }
        let error = self.as_seen(path, error);
        let (name, why) = (self.paths.name(path).to_owned(), error.to_string());
        self.run.sink.event(&Event::PathFailed { path: name, why });
        self.fail_quietly(path, error);
    }

    pub(super) fn fail_quietly(&mut self, path: PathId, error: PathError) {
        self.stop(path);
        self.run.note_altered(self.paths.name(path), &error);
        let mut failure = error.failure();
        if error.is_contradiction() && self.refusals.trusted.contains(&path) {
            // It has been right before: nothing of this answer is used, and it may try again,
            // as often as one whose connection breaks.
            failure = Failure::Broken;
        }
        if self.nothing_proves_versions() {
            // The rest might be another version's: nothing could tell.
            failure = Failure::Refused;
        }
        self.failures.insert(path, error);
        self.selection.failed(path, failure, self.now());
        if path == self.by {
            self.join_connected();
        }
    }

    pub(super) fn stop(&mut self, path: PathId) {
        self.paths.stop(path);
        self.meter.lost(path);
    }

    /// A path that never agreed and speaks of another version has not seen a change: it leads
    /// to another file.
    fn as_seen(&self, path: PathId, error: PathError) -> PathError {
        match error {
            PathError::Changed(why) if !self.refusals.trusted.contains(&path) => {
                PathError::Disagrees(why)
            }
            error => error,
        }
    }

    /// For how long the path is left alone, if that is all that its error means.
    fn may_wait(&mut self, path: PathId, error: &PathError) -> Option<Duration> {
        if self.nothing_proves_versions() {
            return None;
        }
        match error {
            PathError::Busy { wait, .. } => self.refusals.put_off(path, *wait),
            PathError::Status(status) if status.as_u16() == 403 => {
                let others = self.refusals.trusted.iter().any(|p| self.works_beside(path, *p));
                let first = others && self.refusals.forbidden.insert(path);
                first.then_some(ONE_AT_A_TIME)
            }
            _ => None,
        }
    }

    fn works_beside(&self, path: PathId, other: PathId) -> bool {
        other != path && !self.failures.contains_key(&other) && self.meter.useful_of(other) > 0
    }

    fn put_off(&mut self, path: PathId, error: PathError, wait: Duration) {
        self.stop(path);
        let now = self.now();
        self.selection.busy(path, now + wait, now);
        self.tell_busy(path, error.to_string(), wait);
        self.failures.insert(path, error);
    }

    pub(super) fn tell_busy(&self, path: PathId, why: String, wait: Duration) {
        let (path, seconds) = (self.paths.name(path).to_owned(), wait.as_secs_f64());
        self.run.sink.event(&Event::Busy { path, why, seconds });
    }

    /// All paths are dead: because the object changed, or for the reasons they gave.
    pub(super) fn give_up(&mut self) -> Halt {
        let failures = std::mem::take(&mut self.failures);
        let changed = failures.values().find(|e| matches!(e, PathError::Changed(_)));
        if let Some(error) = changed {
            return Halt::Changed(error.to_string());
        }
        let alone = self.nothing_proves_versions();
        let broke = |e: &PathError| e.failure() != Failure::Refused;
        if let Some(error) = failures.values().find(|e| alone && broke(e)) {
            return Halt::Changed(format!(
                "{error}, and nothing proves the rest to be of the same file"
            ));
        }
        let name = |path| self.paths.name(path).to_owned();
        Halt::paths(failures.into_iter().map(|(path, e)| (name(path), e)).collect())
    }
}
