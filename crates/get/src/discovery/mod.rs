//! Determines the object: evaluates the first answers and decides which of them to believe.
//!
//! The first path sends a request, and its answer pins the object; the other paths connect meanwhile. A connected path
//! that has waited too long sends a request of its own ([`Discovery::urge`]). The first answer that offers ranges pins
//! the object; the other paths join if they agree. The direct path's answer outweighs a relay's: if a relay answers
//! first and the direct path later contradicts it, this costs one restart.
//!
//! With several URLs (mirrors), the first usable one pins the object. That is the download's own URL, unless all its
//! paths fail, or a digest is known and a mirror answers while the own URL is silent.

mod verdict;

pub(super) use verdict::{Verdict, contradicts, difference};

use super::{
    AttemptError, PathError,
    paths::{Paths, Source},
    resource::{Answer, Resource, WholeObject},
    worker::{Body, HEAD, Report},
};
use std::time::Duration;
use thalweg_base::job::{Event, EventSink};
use thalweg_units::PathId;
use tokio::time::{Instant, sleep_until};

/// After the direct path has offered the whole file, how long to wait for a bonded path, which delivers over all
/// interfaces: this long, or twice the time until the direct answer, whichever is longer. Other paths are not waited
/// for: servers that ignore ranges do so on every path, and little arrives of a body that is not read. The download's
/// own URL has at least this much time to answer before a mirror's answer counts.
const GRACE: Duration = Duration::from_millis(500);

/// How long a connected path waits for the first path's answer: at least this, or one and a half times its connection
/// time, whichever is longer. Connecting through a relay takes at least two round trips of that path, and the first
/// answer two round trips of the direct path.
const READY_GRACE: Duration = Duration::from_millis(300);

/// The same when only whole objects are requested: each such request may cost as much data as a window holds.
const PLAIN_GRACE: Duration = Duration::from_secs(2);

/// Which answer pins the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// The first answer.
    First,
    /// The direct path's answer, unless that path fails.
    Direct,
}

/// How the object can be fetched.
pub(super) enum DiscoveredObject {
    /// In ranges, as this path's answer says.
    Ranged(PathId, Resource),
    /// As a whole, from this path.
    Whole(PathId, WholeObject, Body),
}

impl DiscoveredObject {
    /// Discards the server's digest if a relay could have written it: on a relayed path without TLS.
    pub(super) fn doubt(&mut self, paths: &Paths) {
        let (by, url, metadata) = match self {
            Self::Ranged(by, resource) => (*by, &resource.url, &mut resource.metadata),
            Self::Whole(by, whole, _) => (*by, &whole.url, &mut whole.metadata),
        };
        if !paths.is_direct(by) && !url.is_https() {
            metadata.digest = None;
        }
    }
}

/// The verdicts on all paths, indexed by path, and the order in which the paths answered.
pub(super) struct Discovery {
    pub(super) verdicts: Vec<Verdict>,
    /// The time until each path's first answer, dialling included.
    pub(super) setups: Vec<Option<Duration>>,
    order: Vec<PathId>,
    trust: Trust,
    /// Whether a digest verifies the object, whichever path delivers it.
    verifiable: bool,
    /// Whether only whole objects are requested. The first one that can be believed is then taken.
    plain: bool,
    started: Instant,
    first_answer: Option<Duration>,
    deadline: Option<Instant>,
    /// When a mirror may start to pin the object.
    mirrors_from: Option<Instant>,
}

impl Discovery {
    pub(super) fn new(paths: &Paths, trust: Trust, verifiable: bool, plain: bool) -> Self {
        Self {
            verdicts: paths.all().map(|_| Verdict::Pending).collect(),
            setups: paths.all().map(|_| None).collect(),
            order: Vec::new(),
            trust,
            verifiable,
            plain,
            started: Instant::now(),
            first_answer: None,
            deadline: None,
            mirrors_from: None,
        }
    }

    /// Processes reports until the object is known. Cancel-safe between reports.
    ///
    /// # Errors
    /// The failures of all paths.
    pub(super) async fn run(
        &mut self,
        paths: &mut Paths,
        sink: &dyn EventSink,
    ) -> Result<DiscoveredObject, AttemptError> {
        loop {
            if let Some(found) = self.decide(paths) {
                return found;
            }
            let urge = self.urge(paths);
            let due = [self.deadline, self.mirrors_from, urge].into_iter().flatten();
            let due = due.filter(|t| *t > Instant::now()).min();
            let (message, current) = tokio::select! {
                message = paths.next() => message,
                () = at(due) => continue,
            };
            if current {
                self.handle_report(message.path, message.report, paths, sink);
            }
        }
    }

    /// The time until the first answer; zero if there is none.
    pub(super) fn first_answer(&self) -> Duration {
        self.first_answer.unwrap_or_default()
    }

    /// Accepts only the direct path's answer from now on, unless that path fails.
    pub(super) fn insist(&mut self) {
        self.trust = Trust::Direct;
    }

    /// Whether the direct path's verdict is still pending.
    pub(super) fn awaits_direct(&self, paths: &Paths) -> bool {
        let direct = paths.direct(self.primary(paths));
        direct.is_some_and(|d| matches!(self.verdict(d), Verdict::Pending))
    }

    /// Whether `resource` is certain enough to discard kept bytes for it: the direct path, a second path or a digest
    /// confirms it, or `by` is the only path.
    pub(super) fn is_confirmed(&self, by: PathId, resource: &Resource, paths: &Paths) -> bool {
        let same = |v: &&Verdict| matches!(v, Verdict::Ranged(r) if r == resource);
        let twice = self.verdicts.iter().filter(same).count() > 1;
        paths.is_direct(by) || self.verdicts.len() == 1 || self.verifiable || twice
    }

    fn verdict(&self, path: PathId) -> &Verdict {
        self.verdicts.get(path.0 as usize).unwrap_or(&Verdict::Pending)
    }

    /// The source that pins the object: the first one that has a path that has not failed.
    fn primary(&self, paths: &Paths) -> Source {
        let failed = |s: &Source| {
            let mut of = paths.all().filter(|p| paths.source(*p) == *s);
            of.all(|p| matches!(self.verdict(p), Verdict::Failed(_)))
        };
        (0..paths.sources()).find(|s| !failed(s)).unwrap_or(0)
    }

    /// Makes connected paths send their own request: at once if no path of their source is asking or offers ranges,
    /// otherwise after a grace period. Returns when the next grace period ends.
    fn urge(&self, paths: &mut Paths) -> Option<Instant> {
        let mut next = None::<Instant>;
        for path in paths.all() {
            let Some((since, took)) = paths.ready(path) else { continue };
            let mut same = paths.all().filter(|p| paths.source(*p) == paths.source(path));
            let hopeless =
                same.all(|p| !paths.is_asking(p) && !matches!(self.verdict(p), Verdict::Ranged(_)));
            let grace = if self.plain { PLAIN_GRACE } else { READY_GRACE };
            let due = since + grace.max(took * 3 / 2);
            if hopeless || due <= Instant::now() || self.deadline.is_some() {
                paths.probe(path);
            } else {
                next = Some(next.map_or(due, |n| n.min(due)));
            }
        }
        next
    }

    fn handle_report(&mut self, path: PathId, report: Report, paths: &Paths, sink: &dyn EventSink) {
        if matches!(report, Report::Answered(..)) {
            self.first_answer.get_or_insert(self.started.elapsed());
        }
        let verdict = match report {
            Report::Answered(answer, body) => match *answer {
                Answer::Ranged(resource) => self.ranged(path, resource, paths),
                Answer::Whole(whole) => self.whole(path, whole, body, paths),
                // The worker follows redirects.
                Answer::Redirect(_) => return,
            },
            Report::Failed(error) => {
                let (path, why) = (paths.name(path).to_owned(), error.to_string());
                sink.event(&Event::PathFailed { path, why });
                Verdict::Failed(error)
            }
            Report::Setup(took) => {
                if let Some(setup) = self.setups.get_mut(path.0 as usize) {
                    *setup = Some(took);
                }
                return;
            }
            Report::Waiting(status, wait) => {
                return sink.event(&Event::Busy {
                    path: paths.name(path).to_owned(),
                    why: format!("the server answered {status}"),
                    seconds: wait.as_secs_f64(),
                });
            }
            // Nothing has been ordered yet.
            Report::Connected(_)
            | Report::Sent
            | Report::Moved(_)
            | Report::Data(..)
            | Report::Held(_)
            | Report::Unused(_)
            | Report::Verified(..) => return,
        };
        if let Some(known) = self.verdicts.get_mut(path.0 as usize) {
            *known = verdict;
        }
        self.order.push(path);
    }

    fn ranged(&mut self, path: PathId, resource: Resource, paths: &Paths) -> Verdict {
        if self.verifiable && paths.source(path) != 0 {
            self.mirrors_from.get_or_insert(Instant::now() + GRACE);
        }
        Verdict::Ranged(resource)
    }

    fn whole(
        &mut self,
        path: PathId,
        whole: WholeObject,
        body: Option<Body>,
        paths: &Paths,
    ) -> Verdict {
        if paths.is_direct(path) && !self.plain {
            // A small object arrives before another path could answer.
            let small = whole.length.is_some_and(|n| n <= HEAD);
            let bonded = paths.all().any(|p| paths.is_bonded(p));
            let grace = GRACE.max(2 * self.started.elapsed());
            let grace = if small || !bonded { Duration::ZERO } else { grace };
            self.deadline = Some(Instant::now() + grace);
        }
        Verdict::Whole(whole, body)
    }

    /// The result of the discovery, if it is already certain.
    fn decide(&mut self, paths: &Paths) -> Option<Result<DiscoveredObject, AttemptError>> {
        let pending = |v: &Verdict| matches!(v, Verdict::Pending);
        let primary = self.primary(paths);
        let direct = paths.direct(primary).map(|d| self.verdict(d));
        if self.trust == Trust::Direct && direct.is_some_and(pending) {
            return None;
        }
        if self.plain {
            let is_over = !self.verdicts.iter().any(pending);
            return match self.take_whole(paths) {
                Some(found) => Some(Ok(found)),
                None => is_over.then(|| Err(self.no_path(paths))),
            };
        }
        let any = self.mirrors_from.is_some_and(|t| t <= Instant::now());
        let offers = |path: &&PathId| match self.verdict(**path) {
            Verdict::Ranged(r) if paths.source(**path) == primary => {
                !direct.is_some_and(|d| contradicts(d, r))
            }
            Verdict::Ranged(_) => any,
            _ => false,
        };
        if let Some(&path) = self.order.iter().find(offers)
            && let Verdict::Ranged(resource) = self.verdict(path)
        {
            return Some(Ok(DiscoveredObject::Ranged(path, resource.clone())));
        }
        let patient = self.deadline.is_none_or(|t| Instant::now() < t);
        if patient && self.verdicts.iter().any(pending) {
            return None;
        }
        Some(self.settle_for_whole(paths))
    }

    /// Takes a whole object, because no path offers ranges.
    ///
    /// # Errors
    /// Why there is no usable object.
    fn settle_for_whole(&mut self, paths: &Paths) -> Result<DiscoveredObject, AttemptError> {
        self.take_whole(paths).ok_or_else(|| self.no_path(paths))
    }

    /// Takes a whole object that can be believed. A bonded path comes first, because it uses all interfaces and no
    /// other path can help; then the direct path; then the path that answered first.
    fn take_whole(&mut self, paths: &Paths) -> Option<DiscoveredObject> {
        let usable = |path: &PathId| match self.verdict(*path) {
            Verdict::Whole(whole, Some(_)) => self.is_believed(*path, whole, paths),
            _ => false,
        };
        let mut order = self.order.clone();
        order.sort_by_key(|p| (paths.source(*p), !paths.is_bonded(*p), !paths.is_direct(*p)));
        let path = order.into_iter().find(usable)?;
        match self.verdicts.get_mut(path.0 as usize)? {
            Verdict::Whole(whole, body) => {
                Some(DiscoveredObject::Whole(path, whole.clone(), body.take()?))
            }
            _ => None,
        }
    }

    /// Whether a whole object on this path is what its server has: the path is direct, TLS or a digest protects the
    /// object, it is the only path, or another path confirms the object. If only the end of the connection marks the
    /// object's end, the last two do not suffice: a broken connection of the relay would look like the end.
    fn is_believed(&self, path: PathId, whole: &WholeObject, paths: &Paths) -> bool {
        if paths.is_direct(path) || whole.url.is_https() || self.verifiable {
            return true;
        }
        let same = |v: &&Verdict| matches!(v, Verdict::Whole(w, _) if w == whole);
        let known = whole.length.is_some() || whole.validator.is_some();
        let twice = known && self.verdicts.iter().filter(same).count() > 1;
        !whole.is_open_ended && (self.verdicts.len() == 1 || twice)
    }

    /// The error when all paths failed.
    fn no_path(&mut self, paths: &Paths) -> AttemptError {
        let verdicts = std::mem::take(&mut self.verdicts);
        let failure = |v| match v {
            Verdict::Failed(error) => error,
            Verdict::Whole(WholeObject { is_open_ended: true, .. }, _) => PathError::NoEnd,
            _ => PathError::Unconfirmed,
        };
        let name = |i: u32| paths.name(PathId(i)).to_owned();
        AttemptError::paths((0u32..).zip(verdicts).map(|(i, v)| (name(i), failure(v))).collect())
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
