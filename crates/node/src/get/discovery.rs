//! What the object is: the first answers of all paths, and which of them to believe.
//!
//! The first path that offers ranges pins the object; the others join later if
//! they agree. The direct path's word counts more than a relay's: a relay that
//! answers first and is contradicted by the direct path later costs one restart.

use super::{
    Halt, PathError,
    paths::Paths,
    resource::{Answer, Resource, Whole},
    worker::{Body, Report},
};
use crate::job::{Event, EventSink};
use std::time::Duration;
use thalweg_units::PathId;
use tokio::time::{Instant, sleep_until};

/// After the direct path has offered the whole file, how long to wait for a
/// path that offers ranges: at least this, at most twice the time the direct
/// answer took. Servers that ignore ranges do so on every path.
const GRACE: Duration = Duration::from_millis(500);

/// Whose answer pins the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Whoever answers first.
    First,
    /// The direct path, unless it fails.
    Direct,
}

/// What is known of a path.
pub(super) enum Verdict {
    Pending,
    Ranged(Resource),
    Whole(Whole, Option<Body>),
    Failed(PathError),
}

/// How the object can be had.
pub(super) enum Found {
    /// By ranges, as this path said.
    Ranged(PathId, Resource),
    /// Whole, from this path.
    Whole(PathId, Whole, Body),
}

/// The verdicts on all paths, indexed by path, and the order in which they came.
pub(super) struct Discovery {
    pub(super) verdicts: Vec<Verdict>,
    order: Vec<PathId>,
    trust: Trust,
    /// A digest will judge, whoever delivers.
    verifiable: bool,
    started: Instant,
    first_answer: Option<Duration>,
    deadline: Option<Instant>,
}

impl Discovery {
    pub(super) fn new(paths: &Paths, trust: Trust, verifiable: bool) -> Self {
        let verdicts = (0..paths.len()).map(|_| Verdict::Pending).collect();
        let started = Instant::now();
        Self {
            verdicts,
            order: Vec::new(),
            trust,
            verifiable,
            started,
            first_answer: None,
            deadline: None,
        }
    }

    /// Listens until the object is known. Cancel-safe between reports.
    ///
    /// # Errors
    /// All paths with their failures.
    pub(super) async fn run(
        &mut self,
        paths: &mut Paths,
        sink: &dyn EventSink,
    ) -> Result<Found, Halt> {
        loop {
            if let Some(found) = self.decide(paths) {
                return found;
            }
            let grace = self.deadline;
            let (message, current) = tokio::select! {
                message = paths.next() => message,
                () = at(grace) => continue,
            };
            if current {
                self.hear(message.path, message.report, paths, sink);
            }
        }
    }

    /// How long the first answer took; zero if there is none.
    pub(super) fn first_answer(&self) -> Duration {
        self.first_answer.unwrap_or_default()
    }

    /// From now on only the direct path's word counts, unless it fails.
    pub(super) fn insist(&mut self) {
        self.trust = Trust::Direct;
    }

    /// Whether the direct path has not been heard yet.
    pub(super) fn awaits_direct(&self, paths: &Paths) -> bool {
        paths.is_direct(PathId::DIRECT) && matches!(self.verdicts[0], Verdict::Pending)
    }

    /// Whether `resource` may cost the user what is kept: the direct path, a
    /// second path or a digest confirms it, or `by` is the only path there is.
    pub(super) fn is_confirmed(&self, by: PathId, resource: &Resource, paths: &Paths) -> bool {
        let same = |v: &&Verdict| matches!(v, Verdict::Ranged(r) if r == resource);
        let twice = self.verdicts.iter().filter(same).count() > 1;
        paths.is_direct(by) || self.verdicts.len() == 1 || self.verifiable || twice
    }

    fn hear(&mut self, path: PathId, report: Report, paths: &Paths, sink: &dyn EventSink) {
        if matches!(report, Report::Answered(..)) {
            self.first_answer.get_or_insert(self.started.elapsed());
        }
        let verdict = match report {
            Report::Answered(Answer::Ranged(resource), _) => Verdict::Ranged(resource),
            Report::Answered(Answer::Whole(whole), body) => {
                if paths.is_direct(path) {
                    let grace = GRACE.max(2 * self.started.elapsed());
                    self.deadline = Some(Instant::now() + grace);
                }
                Verdict::Whole(whole, body)
            }
            Report::Failed(error) => {
                let (path, why) = (paths.name(path).to_owned(), error.to_string());
                sink.event(&Event::PathFailed { path, why });
                Verdict::Failed(error)
            }
            // Nothing was ordered yet, and redirects are followed by the worker.
            Report::Answered(Answer::Redirect(_), _)
            | Report::Sent
            | Report::Data(..)
            | Report::Held(_)
            | Report::Verified(..) => return,
        };
        self.verdicts[path.0 as usize] = verdict;
        self.order.push(path);
    }

    /// What is found, if that can be said already.
    fn decide(&mut self, paths: &Paths) -> Option<Result<Found, Halt>> {
        let pending = |v: &Verdict| matches!(v, Verdict::Pending);
        let direct = paths.is_direct(PathId::DIRECT).then(|| &self.verdicts[0]);
        if self.trust == Trust::Direct && direct.is_some_and(pending) {
            return None;
        }
        let offers = |path: &&PathId| match &self.verdicts[path.0 as usize] {
            Verdict::Ranged(r) => !direct.is_some_and(|d| contradicts(d, r)),
            _ => false,
        };
        if let Some(&path) = self.order.iter().find(offers)
            && let Verdict::Ranged(resource) = &self.verdicts[path.0 as usize]
        {
            return Some(Ok(Found::Ranged(path, resource.clone())));
        }
        let patient = self.deadline.is_none_or(|t| Instant::now() < t);
        if patient && self.verdicts.iter().any(pending) {
            return None;
        }
        Some(self.settle_for_whole(paths))
    }

    /// No ranges anywhere: the direct path's answer, or one that is confirmed.
    fn settle_for_whole(&mut self, paths: &Paths) -> Result<Found, Halt> {
        let confirmed = |path: PathId, whole: &Whole| {
            let same = |v: &&Verdict| matches!(v, Verdict::Whole(w, _) if w == whole);
            let known = whole.length.is_some() || whole.validator.is_some();
            let twice = known && self.verdicts.iter().filter(same).count() > 1;
            paths.is_direct(path) || self.verdicts.len() == 1 || self.verifiable || twice
        };
        let usable = |path: &PathId| match &self.verdicts[path.0 as usize] {
            Verdict::Whole(whole, Some(_)) => confirmed(*path, whole),
            _ => false,
        };
        let mut order = self.order.clone();
        order.sort_by_key(|p| !paths.is_direct(*p));
        if let Some(path) = order.into_iter().find(usable)
            && let Verdict::Whole(whole, body) = &mut self.verdicts[path.0 as usize]
            && let Some(body) = body.take()
        {
            return Ok(Found::Whole(path, whole.clone(), body));
        }
        let verdicts = std::mem::take(&mut self.verdicts);
        let failure = |v| match v {
            Verdict::Failed(error) => error,
            _ => PathError::Unconfirmed,
        };
        let name = |i: u32| paths.name(PathId(i)).to_owned();
        Err(Halt::paths((0u32..).zip(verdicts).map(|(i, v)| (name(i), failure(v))).collect()))
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Whether the direct path's verdict says that `resource` is another object.
pub(super) fn contradicts(direct: &Verdict, resource: &Resource) -> bool {
    match direct {
        Verdict::Ranged(r) => r != resource,
        Verdict::Whole(w, _) => {
            let same = w.url == resource.url && w.validator == resource.validator;
            !same || w.length.is_some_and(|n| n != resource.length)
        }
        Verdict::Pending | Verdict::Failed(_) => false,
    }
}

/// In which way `other` is another object than `pinned`; `None` if it is the same.
pub(super) fn difference(pinned: &Resource, other: &Resource) -> Option<String> {
    if pinned.url != other.url {
        return Some(format!("it redirects to {}", other.url));
    }
    if pinned.length != other.length {
        return Some(format!("its length is {}, not {} bytes", other.length, pinned.length));
    }
    (pinned.validator != other.validator).then(|| {
        let text = |r: &Resource| r.validator.as_ref().map_or("none".into(), |v| v.to_string());
        format!("its version is {}, not {}", text(other), text(pinned))
    })
}
