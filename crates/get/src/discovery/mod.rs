//! Finds out what the object is: evaluates the first answers, and decides which of them to believe.
//!
//! The first path asks, and its answer pins the object; the others connect meanwhile. One
//! that stands ready and is kept waiting asks for itself ([`Discovery::urge`]). The first
//! answer that offers ranges pins the object; the others join if they agree. The direct
//! path's word counts more than a relay's: a relay that answers first and is contradicted by
//! the direct path later costs one restart.
//!
//! Of several URLs (mirrors) the first usable one pins the object: the download's own, unless
//! all its paths fail, or a digest will judge and a mirror answers while it is silent.

mod verdict;

pub(super) use verdict::{Verdict, contradicts, difference};

use super::{
    Halt, PathError,
    paths::{Paths, Source},
    resource::{Answer, Resource, Whole},
    worker::{Body, HEAD, Report},
};
use std::time::Duration;
use thalweg_base::job::{Event, EventSink};
use thalweg_units::PathId;
use tokio::time::{Instant, sleep_until};

/// After the direct path has offered the whole file, how long to wait for a
/// path that offers ranges: at least this, at most twice the time the direct
/// answer took. Servers that ignore ranges do so on every path. As long, at least, waits a
/// mirror's answer for the download's own URL.
const GRACE: Duration = Duration::from_millis(500);

/// How long a connected path waits for the first path's answer: at least this, or one and a
/// half times the time it took to connect, whichever is longer. Connecting through a relay
/// takes at least two round trips of that path, the first answer two of the direct path.
const READY_GRACE: Duration = Duration::from_millis(300);

/// Whose answer pins the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Whoever answers first.
    First,
    /// The direct path, unless it fails.
    Direct,
}

/// How the object can be had.
pub(super) enum Found {
    /// By ranges, as this path said.
    Ranged(PathId, Resource),
    /// Whole, from this path.
    Whole(PathId, Whole, Body),
}

impl Found {
    /// Forgets what only the server itself may say: a relay can write into answers that no
    /// TLS protects.
    pub(super) fn doubt(&mut self, paths: &Paths) {
        let (by, url, said) = match self {
            Self::Ranged(by, resource) => (*by, &resource.url, &mut resource.said),
            Self::Whole(by, whole, _) => (*by, &whole.url, &mut whole.said),
        };
        if !paths.is_direct(by) && !url.is_https() {
            said.digest = None;
        }
    }
}

/// The verdicts on all paths, indexed by path, and the order in which they came.
pub(super) struct Discovery {
    pub(super) verdicts: Vec<Verdict>,
    /// How long each path took to its first answer, dialling included.
    pub(super) setups: Vec<Option<Duration>>,
    order: Vec<PathId>,
    trust: Trust,
    /// A digest will judge, whoever delivers.
    verifiable: bool,
    started: Instant,
    first_answer: Option<Duration>,
    deadline: Option<Instant>,
    /// From then on a mirror may pin the object.
    mirrors_from: Option<Instant>,
}

impl Discovery {
    pub(super) fn new(paths: &Paths, trust: Trust, verifiable: bool) -> Self {
        Self {
            verdicts: paths.all().map(|_| Verdict::Pending).collect(),
            setups: paths.all().map(|_| None).collect(),
            order: Vec::new(),
            trust,
            verifiable,
            started: Instant::now(),
            first_answer: None,
            deadline: None,
            mirrors_from: None,
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
            let urge = self.urge(paths);
            let due = [self.deadline, self.mirrors_from, urge].into_iter().flatten();
            let due = due.filter(|t| *t > Instant::now()).min();
            let (message, current) = tokio::select! {
                message = paths.next() => message,
                () = at(due) => continue,
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
        let direct = paths.direct(self.primary(paths));
        direct.is_some_and(|d| matches!(self.verdict(d), Verdict::Pending))
    }

    /// Whether `resource` may cost the user what is kept: the direct path, a
    /// second path or a digest confirms it, or `by` is the only path there is.
    pub(super) fn is_confirmed(&self, by: PathId, resource: &Resource, paths: &Paths) -> bool {
        let same = |v: &&Verdict| matches!(v, Verdict::Ranged(r) if r == resource);
        let twice = self.verdicts.iter().filter(same).count() > 1;
        paths.is_direct(by) || self.verdicts.len() == 1 || self.verifiable || twice
    }

    fn verdict(&self, path: PathId) -> &Verdict {
        self.verdicts.get(path.0 as usize).unwrap_or(&Verdict::Pending)
    }

    /// The source that pins the object: the first of which a path may still answer well.
    fn primary(&self, paths: &Paths) -> Source {
        let failed = |s: &Source| {
            let mut of = paths.all().filter(|p| paths.source(*p) == *s);
            of.all(|p| matches!(self.verdict(p), Verdict::Failed(_)))
        };
        (0..paths.sources()).find(|s| !failed(s)).unwrap_or(0)
    }

    /// Has connected paths ask for themselves: at once if the source's first path does not
    /// bring the object, else after a grace. Returns when the next grace ends.
    fn urge(&self, paths: &mut Paths) -> Option<Instant> {
        let mut next = None::<Instant>;
        for path in paths.all() {
            let Some((since, took)) = paths.ready(path) else { continue };
            let mut same = paths.all().filter(|p| paths.source(*p) == paths.source(path));
            let hopeless =
                same.all(|p| !paths.is_asking(p) && !matches!(self.verdict(p), Verdict::Ranged(_)));
            let due = since + READY_GRACE.max(took * 3 / 2);
            if hopeless || due <= Instant::now() || self.deadline.is_some() {
                paths.probe(path);
            } else {
                next = Some(next.map_or(due, |n| n.min(due)));
            }
        }
        next
    }

    fn hear(&mut self, path: PathId, report: Report, paths: &Paths, sink: &dyn EventSink) {
        if matches!(report, Report::Answered(..)) {
            self.first_answer.get_or_insert(self.started.elapsed());
        }
        let verdict = match report {
            Report::Answered(answer, body) => match *answer {
                Answer::Ranged(resource) => self.ranged(path, resource, paths),
                Answer::Whole(whole) => self.whole(path, whole, body, paths),
                // The worker follows them.
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
            // Nothing was ordered yet.
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

    fn whole(&mut self, path: PathId, whole: Whole, body: Option<Body>, paths: &Paths) -> Verdict {
        if paths.is_direct(path) {
            // A small one is here before another path could say anything.
            let small = whole.length.is_some_and(|n| n <= HEAD);
            let grace = GRACE.max(2 * self.started.elapsed());
            let grace = if small { Duration::ZERO } else { grace };
            self.deadline = Some(Instant::now() + grace);
        }
        Verdict::Whole(whole, body)
    }

    /// What is found, if that can be said already.
    fn decide(&mut self, paths: &Paths) -> Option<Result<Found, Halt>> {
        let pending = |v: &Verdict| matches!(v, Verdict::Pending);
        let primary = self.primary(paths);
        let direct = paths.direct(primary).map(|d| self.verdict(d));
        if self.trust == Trust::Direct && direct.is_some_and(pending) {
            return None;
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
            return Some(Ok(Found::Ranged(path, resource.clone())));
        }
        let patient = self.deadline.is_none_or(|t| Instant::now() < t);
        if patient && self.verdicts.iter().any(pending) {
            return None;
        }
        Some(self.settle_for_whole(paths))
    }

    /// No ranges anywhere: one that is confirmed and has all interfaces to bring it, since no other
    /// path can help it; else the direct path's answer, or one that is confirmed.
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
        order.sort_by_key(|p| (paths.source(*p), !paths.is_bonded(*p), !paths.is_direct(*p)));
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
