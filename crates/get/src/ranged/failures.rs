//! Failures of paths, and what follows from them.

use super::Ranged;
use crate::{AttemptError, PathError, retry_after::is_bearable, worker::pause};
use hyper::StatusCode;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use thalweg_base::job::Event;
use thalweg_plan::selection::Failure;
use thalweg_units::PathId;

/// How often in a row a path may be told to wait, without a byte in between.
const MAX_BUSY: u32 = 5;

/// The bound without `Retry-After`, if the server either answers 5xx or has sent less than [`WORTH_KEEPING`]: a plain
/// `GET` may succeed at once.
const MAX_TROUBLE: u32 = 2;

/// If at least this many bytes were received in ranges, they are not discarded for a temporary error: the next call
/// continues with them.
const WORTH_KEEPING: u64 = 64 << 20;

/// How long a path pauses if its server answers 403 while it serves another path: some servers allow one connection at
/// a time, and answer the others with 403.
const ONE_AT_A_TIME: Duration = Duration::from_secs(5);

/// How the servers answered requests: the paths they have confirmed, refused, or told to wait.
#[derive(Default)]
pub(super) struct Refusals {
    /// Paths whose server has confirmed the object.
    trusted: BTreeSet<PathId>,
    /// How often in a row each path was told to wait, and for how long in all.
    busy: BTreeMap<PathId, (u32, Duration)>,
    /// Paths that got a 403 while others worked.
    forbidden: BTreeSet<PathId>,
}

impl Refusals {
    /// Records that the path's server confirms the object or delivers its bytes.
    pub(super) fn trust(&mut self, path: PathId) {
        self.trusted.insert(path);
        self.busy.remove(&path);
    }

    /// Counts another request to wait. Returns how long to wait, or `None` if that is too often or too long.
    fn put_off(
        &mut self,
        path: PathId,
        status: StatusCode,
        wait: Option<Duration>,
        is_worth_keeping: bool,
    ) -> Option<Duration> {
        let (times, waited) = self.busy.entry(path).or_default();
        *times += 1;
        let gives_up_early = wait.is_none() && (status.is_server_error() || !is_worth_keeping);
        let most = if gives_up_early { MAX_TROUBLE } else { MAX_BUSY };
        let wait = wait.unwrap_or_else(|| pause(*times - 1));
        let wait = Some(wait).filter(|w| *times <= most && is_bearable(*waited, *w))?;
        *waited += wait;
        Some(wait)
    }
}

impl Ranged<'_, '_> {
    pub(super) fn fail(&mut self, path: PathId, error: PathError) {
        if let Some(wait) = self.may_wait(path, &error) {
            return self.put_off(path, error, wait);
        }
        let error = self.interpret_error(path, error);
        let (name, why) = (self.paths.name(path).to_owned(), error.to_string());
        self.run.sink.event(&Event::PathFailed { path: name, why });
        self.fail_quietly(path, error);
    }

    pub(super) fn fail_quietly(&mut self, path: PathId, error: PathError) {
        self.stop(path);
        self.run.note_altered(self.paths.name(path), &error);
        let mut failure = error.failure();
        if error.is_contradiction() && self.refusals.trusted.contains(&path) {
            // The path was right before. Nothing of this answer is used, and the path may be tried again, as often as
            // one whose connection breaks.
            failure = Failure::Broken;
        }
        if self.nothing_proves_versions() {
            // The rest may be of another version, and nothing would show it.
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

    /// If a path that never confirmed the object reports a change, it leads to another file.
    fn interpret_error(&self, path: PathId, error: PathError) -> PathError {
        match error {
            PathError::Changed(why) | PathError::Resized(why)
                if !self.refusals.trusted.contains(&path) =>
            {
                PathError::Disagrees(why)
            }
            error => error,
        }
    }

    /// How long to pause the path, if its error means no more than that.
    fn may_wait(&mut self, path: PathId, error: &PathError) -> Option<Duration> {
        if self.nothing_proves_versions() {
            return None;
        }
        match error {
            // A server that never served a segment may refuse ranges as such, so waiting would be useless.
            PathError::Busy { status, wait } if !self.may_be_busy(path, *status, *wait) => None,
            PathError::Busy { status, wait } => {
                let is_worth_keeping = self.is_worth_keeping();
                self.refusals.put_off(path, *status, *wait, is_worth_keeping)
            }
            PathError::Status(status) if status.as_u16() == 403 => {
                let others = self.refusals.trusted.iter().any(|p| self.works_beside(path, *p));
                let first = others && self.refusals.forbidden.insert(path);
                first.then_some(ONE_AT_A_TIME)
            }
            _ => None,
        }
    }

    /// Whether waiting may help: the status is 429, or the server has served ranges, or it sends `Retry-After` for the
    /// first time.
    fn may_be_busy(&self, path: PathId, status: StatusCode, wait: Option<Duration>) -> bool {
        let first = !self.refusals.busy.contains_key(&path);
        status == StatusCode::TOO_MANY_REQUESTS
            || self.paths.served_segment()
            || (wait.is_some() && first)
    }

    /// Whether too many bytes were received in ranges to fetch them again with a plain `GET`.
    fn is_worth_keeping(&self) -> bool {
        let has_ranges = self.paths.served_segment() || self.paths.offers_ranges();
        has_ranges && self.meter.done() >= WORTH_KEEPING
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

    /// The error when all paths are dead: the object changed, or the paths' own errors.
    pub(super) fn give_up(&mut self) -> AttemptError {
        let failures = std::mem::take(&mut self.failures);
        let find = |is: fn(&PathError) -> bool| failures.values().find(|e| is(e));
        if let Some(error) = find(|e| matches!(e, PathError::Resized(_))) {
            return AttemptError::Changed(error.to_string(), false);
        }
        if let Some(error) = find(|e| matches!(e, PathError::Changed(_))) {
            return AttemptError::Changed(error.to_string(), true);
        }
        let alone = self.nothing_proves_versions();
        let broke = |e: &PathError| e.failure() != Failure::Refused;
        if let Some(error) = failures.values().find(|e| alone && broke(e)) {
            return AttemptError::Plain(format!(
                "{error}, and nothing proves that the rest belongs to the same file"
            ));
        }
        let is_worth_keeping = self.is_worth_keeping();
        // If bodies repeatedly break off without progress, ranges may be the cause.
        let hopeless = |e: &&PathError| match e {
            PathError::Http(_) | PathError::Early(_) => !is_worth_keeping,
            e => e.may_be_the_range() && !(is_worth_keeping && e.may_pass()),
        };
        if let Some(error) = failures.values().find(hopeless) {
            self.run.advice.server.ranges_failed();
            return AttemptError::Plain(error.to_string());
        }
        let name = |path| self.paths.name(path).to_owned();
        AttemptError::paths(failures.into_iter().map(|(path, e)| (name(path), e)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_depend_on_retry_after_and_on_the_bytes_received() {
        let zero = Some(Duration::ZERO);
        let rows = [
            // With `Retry-After`, or after 429 with many received bytes, five waits are allowed, otherwise two.
            (429, None, false, 2),
            (503, None, false, 2),
            (429, None, true, 5),
            (503, None, true, 2),
            (429, zero, false, 5),
            (503, zero, true, 5),
        ];
        for (status, wait, is_worth_keeping, times) in rows {
            let status = StatusCode::from_u16(status).expect("a status");
            let mut refusals = Refusals::default();
            let waits =
                std::iter::from_fn(|| refusals.put_off(PathId(0), status, wait, is_worth_keeping));
            assert_eq!(waits.take(10).count(), times, "{status} {wait:?} {is_worth_keeping}");
        }
    }
}
