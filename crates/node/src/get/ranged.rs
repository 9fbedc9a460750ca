//! An object that comes in ranges over several paths: carries out a selection.

use super::{
    GetError, Halt, PathError, Run, Stop,
    discovery::{Discovery, Verdict, contradicts, difference},
    meter::{INTERVAL, Meter},
    paths::Paths,
    resource::{Answer, Resource},
    worker::{Message, Report},
};
use crate::{
    job::Event,
    part::{Part, PartError, Writer},
};
use bytes::Bytes;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use thalweg_plan::selection::{Action, Failure, Phase, Reason, Selection};
use thalweg_units::{ByteSize, PathId, Rate, Time};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

/// A wait for the disk shorter than this does not move the paths' clocks.
const NO_PAUSE: Duration = Duration::from_millis(5);

/// One object on its way in ranges.
pub(super) struct Ranged<'a, 'r> {
    run: &'a mut Run<'r>,
    paths: Paths,
    resource: Arc<Resource>,
    selection: Selection,
    writer: Writer,
    meter: Meter,
    failures: BTreeMap<PathId, PathError>,
    /// A relay pinned the object, and the direct path has not answered yet.
    direct_owes_word: bool,
    /// When the last byte came.
    complete: Option<Instant>,
    /// When sampling gave way to completion, and the bytes fetched until then.
    turns: Option<(Time, u64)>,
    epoch: Instant,
}

/// Fetches `resource`, which `by` has pinned, and publishes it.
pub(super) async fn download(
    run: &mut Run<'_>,
    paths: Paths,
    by: PathId,
    resource: Resource,
    discovery: Discovery,
    stop: &mut Stop,
) -> Result<(), Halt> {
    let key = run.key(&resource);
    let part = run.open_part(key).await?;
    run.started(&part, resource.url.to_string(), Some(resource.length));
    let mut ranged = Ranged::new(run, paths, resource, part, discovery.first_answer())?;
    ranged.settle(by, discovery.verdicts);
    let done = ranged.drive(stop).await;
    ranged.close_phases();
    let Ranged { run, paths, resource, writer, mut meter, direct_owes_word, .. } = ranged;
    (0..paths.len()).for_each(|i| meter.lost(PathId(i)));
    meter.charge(&run.request.budget);
    drop(paths);
    run.fetched += meter.fetched;
    let part = run.finish(writer).await?;
    match done {
        Ok(()) => match run.publish(part, resource.length).await {
            // A digest tells that it was the relay who lied, not what the file is.
            Err(Halt::Failed(GetError::Part(PartError::Digest { .. }))) if direct_owes_word => {
                Err(Halt::TrustDirect)
            }
            published => published,
        },
        Err(halt) => {
            run.close(part).await?;
            Err(halt)
        }
    }
}

impl<'a, 'r> Ranged<'a, 'r> {
    fn new(
        run: &'a mut Run<'r>,
        paths: Paths,
        resource: Resource,
        part: Part,
        first_answer: Duration,
    ) -> Result<Self, Halt> {
        let mut config = run.request.selection;
        // A server that thinks long about one byte may do so about others.
        config.stall = config.stall.max(3 * first_answer);
        let selection = Selection::new(config, paths.len(), &part.missing(), Time::ZERO);
        let meter = Meter::new(&run.request.paths, part.resumed(), Some(resource.length));
        let writer =
            Writer::spawn(part, run.names()).map_err(|e| Halt::Failed(GetError::System(e)))?;
        let (failures, resource) = (BTreeMap::new(), Arc::new(resource));
        Ok(Self {
            run,
            paths,
            resource,
            selection,
            writer,
            meter,
            failures,
            direct_owes_word: false,
            complete: None,
            turns: None,
            epoch: Instant::now(),
        })
    }

    fn now(&self) -> Time {
        Time::ZERO + self.epoch.elapsed()
    }

    /// Notes the rates of the two phases. The time from the part's opening on
    /// counts, as the wall clock has it; a failover counts as completion.
    fn close_phases(&mut self) {
        let end = match self.complete {
            Some(t) => Time::ZERO + t.duration_since(self.epoch),
            None => self.now(),
        };
        let (turn, sampled) = self.turns.unwrap_or((end, self.meter.fetched));
        let rate = |n, took: Duration| {
            (!took.is_zero() && n > 0).then(|| Rate::over(ByteSize::from_bytes(n), took))
        };
        self.run.phases.sampling = rate(sampled, turn.since(Time::ZERO));
        self.run.phases.completion = rate(self.meter.fetched - sampled, end.since(turn));
    }

    /// Enters what discovery learnt: failures first, so that a path that is left alone knows it.
    fn settle(&mut self, by: PathId, verdicts: Vec<Verdict>) {
        let alone = self.nothing_proves_versions();
        let mut joining = Vec::new();
        for (path, verdict) in (0u32..).map(PathId).zip(verdicts) {
            match verdict {
                Verdict::Failed(error) => self.fail_quietly(path, error),
                Verdict::Pending if self.paths.is_direct(path) => {
                    self.direct_owes_word = true;
                    if alone {
                        self.selection.failed(path, Failure::Refused, Time::ZERO);
                    }
                }
                _ if alone && path != by => self.fail(path, PathError::NoValidator),
                Verdict::Pending => {}
                Verdict::Ranged(other) => joining.push((path, Answer::Ranged(other))),
                Verdict::Whole(whole, _) => joining.push((path, Answer::Whole(whole))),
            }
        }
        joining.sort_by_key(|(path, _)| *path != by);
        joining.into_iter().for_each(|(path, answer)| self.join(path, answer));
    }

    /// Runs until every byte is written, or nothing works any more.
    async fn drive(&mut self, stop: &mut Stop) -> Result<(), Halt> {
        let mut ticks = interval_at(Instant::now() + INTERVAL, INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.obey();
            match self.selection.phase() {
                Phase::Done if self.nothing_to_wait_for() => return Ok(()),
                Phase::Failed => return Err(self.give_up()),
                _ => {}
            }
            let deadline = self.deadline();
            tokio::select! {
                (message, current) = self.paths.next() => self.hear(message, current).await?,
                () = sleep_until(deadline) => self.selection.tick(self.now()),
                _ = ticks.tick() => {
                    self.meter.tell(self.run.sink, &self.run.request.budget);
                    self.writer.tick();
                }
                () = stop.requested() => return Err(Halt::Failed(GetError::Interrupted)),
            }
        }
    }

    /// When something is due though nothing is heard.
    fn deadline(&self) -> Instant {
        let selection = self.selection.deadline().map(|t| self.epoch + t.since(Time::ZERO));
        let word = self.complete.map(|t| t + self.wait_for_word());
        let a_day = self.epoch + Duration::from_secs(86_400);
        selection.into_iter().chain(word).min().unwrap_or(a_day)
    }

    /// All bytes are there. What a relay said of the object is confirmed by the
    /// direct path before anything is published, or that path fails.
    fn nothing_to_wait_for(&mut self) -> bool {
        let complete = *self.complete.get_or_insert_with(Instant::now);
        !self.direct_owes_word || complete.elapsed() >= self.wait_for_word()
    }

    /// How long the complete file waits for the direct path's word. That path
    /// fails by itself within its patience; a digest says more than its word, so
    /// then the time that counts as a stall is enough.
    fn wait_for_word(&self) -> Duration {
        let request = self.run.request;
        if request.digests.is_empty() { request.patience } else { request.selection.stall }
    }

    /// Nothing would tell bytes of two versions of the object apart.
    fn nothing_proves_versions(&self) -> bool {
        self.resource.validator.is_none() && self.run.request.digests.is_empty()
    }

    async fn hear(&mut self, message: Message, current: bool) -> Result<(), Halt> {
        let Message { path, report, .. } = message;
        match report {
            Report::Data(_, data) if !current => self.meter.useless(path, data.len() as u64),
            Report::Held(n) if !current => self.meter.useless(path, n),
            _ if !current => {}
            Report::Sent => self.selection.sent(path, self.now()),
            Report::Data(at, data) => {
                self.meter.useful(path, data.len() as u64);
                return self.take(path, at, data).await;
            }
            Report::Held(n) => {
                self.meter.held(path, n);
                // A sign of life, and nothing that the path owes less.
                self.selection.received(path, 0, self.now());
            }
            Report::Verified(at, data) => {
                self.meter.verified(path, data.len() as u64);
                return self.take(path, at, data).await;
            }
            Report::Failed(error) => {
                if self.paths.is_direct(path) {
                    self.direct_owes_word = false;
                }
                self.fail(path, error);
            }
            Report::Answered(answer, _) => return self.answered(path, answer),
        }
        Ok(())
    }

    /// Writes bytes where they belong; a slow disk is blamed on no path.
    async fn take(&mut self, path: PathId, at: u64, data: Bytes) -> Result<(), Halt> {
        let (n, before) = (data.len() as u64, Instant::now());
        if self.writer.write(path, at, data).await.is_err() {
            // Its own error is told by `finish`.
            return Err(Halt::Failed(GetError::System(std::io::Error::other(
                "the writer stopped",
            ))));
        }
        let waited = before.elapsed();
        if waited > NO_PAUSE {
            self.selection.paused(waited);
        }
        let now = self.now();
        self.selection.received(path, n, now);
        Ok(())
    }

    /// A path's late first answer.
    fn answered(&mut self, path: PathId, answer: Answer) -> Result<(), Halt> {
        if self.paths.is_direct(path) {
            self.direct_owes_word = false;
            let verdict = match answer.clone() {
                Answer::Ranged(resource) => Verdict::Ranged(resource),
                Answer::Whole(whole) => Verdict::Whole(whole, None),
                Answer::Redirect(_) => return Ok(()),
            };
            if contradicts(&verdict, &self.resource) {
                return Err(Halt::TrustDirect);
            }
        }
        self.join(path, answer);
        Ok(())
    }

    fn join(&mut self, path: PathId, answer: Answer) {
        let error = match answer {
            Answer::Ranged(other) => match difference(&self.resource, &other) {
                None => return self.selection.joined(path, self.now()),
                Some(difference) => PathError::Disagrees(difference),
            },
            _ => PathError::NotPartial,
        };
        self.fail(path, error);
    }

    fn fail(&mut self, path: PathId, error: PathError) {
        let (name, why) = (self.paths.name(path).to_owned(), error.to_string());
        self.run.sink.event(&Event::PathFailed { path: name, why });
        self.fail_quietly(path, error);
    }

    fn fail_quietly(&mut self, path: PathId, error: PathError) {
        self.stop(path);
        let mut failure = error.failure();
        if self.nothing_proves_versions() {
            // The rest might be another version's: nothing could tell.
            failure = Failure::Refused;
        }
        self.failures.insert(path, error);
        self.selection.failed(path, failure, self.now());
    }

    fn stop(&mut self, path: PathId) {
        self.paths.stop(path);
        self.meter.lost(path);
    }

    /// Does what the selection says.
    fn obey(&mut self) {
        while let Some(action) = self.selection.next_action() {
            match action {
                Action::Fetch { path, ranges, .. } => {
                    self.paths.fetch(path, &ranges, &self.resource);
                }
                Action::Stop { path, stalled } => {
                    self.stop(path);
                    if stalled {
                        self.note_stall(path);
                    }
                }
                Action::Chosen { path, reason } => self.chosen(path, reason),
            }
        }
    }

    fn note_stall(&mut self, path: PathId) {
        let error = PathError::Silent(self.run.request.selection.stall);
        let (name, why) = (self.paths.name(path).to_owned(), error.to_string());
        self.run.sink.event(&Event::PathFailed { path: name, why });
        self.failures.insert(path, error);
    }

    fn chosen(&mut self, path: PathId, reason: Reason) {
        let now = self.now();
        self.turns.get_or_insert((now, self.meter.fetched));
        self.run.phases.completion_path = Some(self.paths.name(path).to_owned());
        let rates: Vec<(String, Rate)> = (0..self.paths.len())
            .filter_map(|i| {
                let rate = self.selection.rate(PathId(i), now).filter(|r| *r > Rate::ZERO)?;
                Some((self.paths.name(PathId(i)).to_owned(), rate))
            })
            .collect();
        let sampled = matches!(reason, Reason::Fastest | Reason::DirectNotBeaten);
        if sampled {
            for (path, rate) in &rates {
                let rate_bps = rate.as_bps();
                self.run.sink.event(&Event::PathSampled { path: path.clone(), rate_bps });
            }
            if self.paths.is_direct(PathId::DIRECT) {
                self.run.direct_estimate = self.selection.rate(PathId::DIRECT, now);
            }
        }
        let path = self.paths.name(path).to_owned();
        let reason = explain(reason, &path, &rates);
        self.run.sink.event(&Event::Chosen { path, reason });
    }

    /// All paths are dead: because the object changed, or for the reasons they gave.
    fn give_up(&mut self) -> Halt {
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

/// Whether no path has a higher rate; paths that failed in sampling count, too.
fn is_fastest(path: &str, rates: &[(String, Rate)]) -> bool {
    let own = rates.iter().find(|(name, _)| name == path).map_or(Rate::ZERO, |(_, rate)| *rate);
    rates.iter().all(|(_, rate)| *rate <= own)
}

/// The reason in words, with the rates that led to it.
fn explain(reason: Reason, chosen: &str, rates: &[(String, Rate)]) -> String {
    let list = || {
        let mut rates = rates.to_vec();
        rates.sort_by_key(|(_, rate)| std::cmp::Reverse(*rate));
        rates.iter().map(|(n, r)| format!("{n} {r}")).collect::<Vec<_>>().join(", ")
    };
    match reason {
        Reason::DirectNotBeaten if !is_fastest(chosen, rates) => {
            format!("faster detours failed before: {}", list())
        }
        Reason::Fastest if !is_fastest(chosen, rates) => {
            format!("the fastest that did not fail before, of {}", list())
        }
        Reason::Fastest => format!("the fastest of {}", list()),
        Reason::DirectNotBeaten => format!("no detour is faster: {}", list()),
        Reason::Small => "a small file: the first path to answer".to_owned(),
        Reason::OnlyPath => "the only path".to_owned(),
        Reason::Failover => "the next best after a failure".to_owned(),
    }
}
