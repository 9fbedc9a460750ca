//! Adds paths to the selection.

use super::{
    Ranged,
    sources::{Agreement, agreement},
};
use crate::{
    AttemptError, PathError,
    discovery::{Verdict, contradicts, difference},
    paths::Source,
    resource::{Answer, Resource},
};
use std::time::Duration;
use thalweg_base::job::Event;
use thalweg_plan::selection::Failure;
use thalweg_units::{PathId, Time};

/// If the first answer is to hold all bytes, the shortest time before other paths are asked too: two losses of its last
/// packet, at Linux's shortest retransmission timeout of 200 ms.
const PATIENCE: Duration = Duration::from_millis(500);

impl Ranged<'_, '_> {
    /// Enters the verdicts of the discovery: failures first, so that a single remaining path is known as such; then the
    /// path that pinned the object; then the other paths that answered or are connected.
    pub(super) fn apply_verdicts(&mut self, verdicts: Vec<Verdict>) {
        self.pass_priors();
        let (alone, direct) =
            (self.nothing_proves_versions(), self.paths.direct(self.sources.primary));
        let mut answers = Vec::new();
        for (path, verdict) in (0u32..).map(PathId).zip(verdicts) {
            match verdict {
                Verdict::Failed(error) => self.fail_quietly(path, error),
                Verdict::Pending if Some(path) == direct => {
                    self.direct_owes_word = true;
                    if alone {
                        self.selection.failed(path, Failure::Refused, Time::ZERO);
                    }
                }
                _ if alone && path != self.by => self.fail(path, PathError::NoValidator),
                Verdict::Pending => {}
                Verdict::Ranged(other) => answers.push((path, Answer::Ranged(other))),
                Verdict::Whole(whole, _) => answers.push((path, Answer::Whole(whole))),
            }
        }
        answers.sort_by_key(|(path, _)| *path != self.by);
        answers.into_iter().for_each(|(path, answer)| self.join(path, answer));
        self.join_connected();
    }

    /// Passes the expectations from earlier transfers to the selection. If the first answer holds all bytes, there is
    /// nothing to decide.
    fn pass_priors(&mut self) {
        if self.head_is_all {
            return;
        }
        for (path, prior) in self.paths.all().zip(&self.run.request.priors) {
            if let Some(prior) = prior {
                self.selection.expect(path, *prior);
            }
        }
    }

    /// Processes the first answer of a path after the discovery.
    pub(super) fn handle_answer(
        &mut self,
        path: PathId,
        answer: Answer,
    ) -> Result<(), AttemptError> {
        if Some(path) == self.paths.direct(self.sources.primary) {
            self.direct_owes_word = false;
            let verdict = match answer.clone() {
                Answer::Ranged(resource) => Verdict::Ranged(resource),
                Answer::Whole(whole) => Verdict::Whole(whole, None),
                Answer::Redirect(_) => return Ok(()),
            };
            if contradicts(&verdict, self.sources.pinned()) {
                self.report_disagreement(&verdict);
                return Err(AttemptError::TrustDirect);
            }
        }
        self.join(path, answer);
        Ok(())
    }

    /// Reports that the path that pinned the object disagrees with the direct path.
    fn report_disagreement(&mut self, direct: &Verdict) {
        let pinned = self.sources.pinned();
        let how = match direct {
            Verdict::Ranged(right) => difference(right, pinned),
            _ => None,
        };
        let how = how.unwrap_or_else(|| "the direct path leads to a different one".to_owned());
        self.fail(self.by, PathError::Disagrees(how));
    }

    fn join(&mut self, path: PathId, answer: Answer) {
        let Answer::Ranged(other) = answer else { return self.fail(path, PathError::NotPartial) };
        let source = self.paths.source(path);
        match self.sources.known(source) {
            None => self.handle_mirror(path, source, other),
            Some(known) => match difference(known, &other) {
                None => self.take_part(path),
                Some(difference) => self.fail(path, PathError::Disagrees(difference)),
            },
        }
    }

    /// Processes a mirror's first answer, which decides about all its paths.
    fn handle_mirror(&mut self, path: PathId, source: Source, other: Resource) {
        let digest = !self.run.request.digests.is_empty();
        let how = agreement(self.sources.pinned(), &other, digest);
        let says = match &how {
            Agreement::Mix => "its bytes are used, too".to_owned(),
            Agreement::Spare => {
                "used only if the first source fails; with a digest, both would be used".to_owned()
            }
            Agreement::Other(why) => format!("not used: {why}"),
        };
        let mirror = self.paths.url(source).to_string();
        self.run.sink.event(&Event::Mirror { mirror, says });
        match how {
            Agreement::Mix => {
                self.sources.enter(source, other, true);
                self.take_part(path);
                self.join_connected();
            }
            Agreement::Spare => {
                self.sources.enter(source, other, false);
                // The mirror's paths count as failed until they are needed.
                self.each_of(source, |s, p| s.selection.failed(p, Failure::Refused, s.now()));
            }
            Agreement::Other(why) => {
                self.each_of(source, |s, p| s.fail(p, PathError::Mirror(why.clone())));
            }
        }
    }

    fn each_of(&mut self, source: Source, mut act: impl FnMut(&mut Self, PathId)) {
        let of: Vec<_> = self.paths.all().filter(|p| self.paths.source(*p) == source).collect();
        of.into_iter().for_each(|path| act(self, path));
    }

    /// Adds connected paths whose source is in use. They request their share at once; their first answer shows whether
    /// their server agrees.
    pub(super) fn join_connected(&mut self) {
        let first_works = !self.failures.contains_key(&self.by);
        if self.nothing_proves_versions() || (self.head_is_all && first_works) {
            return;
        }
        for path in self.paths.all() {
            let used = self.sources.used(self.paths.source(path)).is_some();
            if used && !self.waiting.holds(path) && self.paths.ready(path).is_some() {
                self.selection.joined(path, self.now());
            }
        }
    }

    /// If the first answer is to hold all bytes and is late, lets the other paths help: after three times its set-up
    /// time, but at least [`PATIENCE`].
    pub(super) fn add_helpers(&mut self) {
        let setup = self.setups.get(self.by.0 as usize).copied().flatten().unwrap_or_default();
        if self.head_is_all && self.epoch.elapsed() >= PATIENCE.max(3 * setup) {
            self.head_is_all = false;
            self.join_connected();
        }
    }

    /// Adds a path whose own answer confirmed the object.
    fn take_part(&mut self, path: PathId) {
        self.refusals.trust(path);
        if self.sources.used(self.paths.source(path)).is_some() && !self.waiting.holds(path) {
            self.selection.joined(path, self.now());
        }
    }

    /// Continues with a mirror that was kept in reserve, because no path works any more. Returns whether there is one.
    pub(super) fn fall_back(&mut self) -> bool {
        let Some(source) = self.sources.promote() else { return false };
        let now = self.now();
        let missing = self.present.missing(self.sources.pinned().length);
        let config = self.run.request.selection;
        self.selection = super::begin(config, &self.paths, &missing, now);
        for path in self.paths.all() {
            let lost =
                matches!(self.failures.get(&path), Some(e) if e.failure() == Failure::Refused);
            if self.paths.source(path) != source || lost {
                self.selection.failed(path, Failure::Refused, now);
            }
        }
        self.each_of(source, |s, p| s.selection.joined(p, now));
        let mirror = self.paths.url(source).to_string();
        let says = "the first source failed; this mirror is used from here on".to_owned();
        self.run.sink.event(&Event::Mirror { mirror, says });
        true
    }
}
