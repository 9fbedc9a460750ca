//! Downloads an object in ranges over several paths, as the selection decides.
//!
//! [`Ranged`] is one running download. `join` adds paths, `reports` processes their reports, `failures` handles
//! failures, `actions` carries out the selection's actions, `observations` records what was observed of the paths.

mod actions;
mod failures;
mod join;
mod observations;
mod priced_paths;
mod reports;
mod sources;

use super::{
    AttemptError, GetError, PathError, Stop,
    discovery::Discovery,
    meter::{INTERVAL, Meter},
    output::ObjectIdentity,
    paths::Paths,
    resource::Resource,
    run::{Mode, Run},
    store::Store,
    whole_object::plain_patience,
    worker::HEAD,
};
use failures::Refusals;
use priced_paths::HeldBackPaths;
use reports::Brake;
use sources::Sources;
use std::{collections::BTreeMap, ops::Range, sync::Arc, time::Duration};
use thalweg_part::{Part, PartError, Ranges};
use thalweg_plan::selection::{Config, Phase, Selection};
use thalweg_units::{PathId, Time};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

/// The factor of [`Config::small`] for a server that closes each connection: after sampling, the rest begins in slow
/// start again. Four paths took 1.15 times the time of the direct one for 2 MB, and 0.78 times for 4 MB.
const NEW_CONNECTIONS: u64 = 2;

/// The only path may be silent for this many times [`Config::stall`]; its task repeats the request after the first.
const ALONE: u32 = 3;

/// The download of one object in ranges.
pub(super) struct Ranged<'a, 'r> {
    run: &'a mut Run<'r>,
    paths: Paths,
    /// The path that pinned the object.
    by: PathId,
    sources: Sources,
    /// The ranges that were received.
    present: Ranges,
    selection: Selection,
    writer: Store,
    meter: Meter,
    failures: BTreeMap<PathId, PathError>,
    refusals: Refusals,
    /// The time until each path's first answer.
    setups: Vec<Option<Duration>>,
    /// Whether the first answer holds all missing bytes: other paths are asked only if it fails or is late.
    head_is_all: bool,
    /// Whether the direct path has not answered yet. If a relay pinned the object, the direct path must confirm it.
    direct_owes_word: bool,
    brake: Brake,
    waiting: HeldBackPaths,
    /// The time of the last byte.
    complete: Option<Instant>,
    /// The end of sampling, and the bytes fetched until then.
    turns: Option<(Time, u64)>,
    /// The path chosen last, the time of the choice, and the bytes it had delivered until then.
    chosen: Option<(PathId, Time, u64)>,
    epoch: Instant,
}

/// Fetches `resource`, which the path `by` has pinned, and publishes it.
pub(super) async fn download(
    run: &mut Run<'_>,
    paths: Paths,
    by: PathId,
    resource: Resource,
    discovery: Discovery,
    stop: &mut Stop,
) -> Result<(), AttemptError> {
    let length = resource.length;
    run.expect_length(length)?;
    let is_unproven = nothing_proves(&resource, run) && !comes_in_one_answer(&paths, by, length);
    if is_unproven && run.digests(&resource.metadata).is_empty() {
        return Err(AttemptError::Plain(PathError::NoValidator.to_string()));
    }
    let key = run.key(&resource);
    let target = run.target(&resource.metadata, &resource.url)?;
    if run.is_there(target.as_ref(), &key).await? {
        return Ok(());
    }
    let part = run.open_part(target, key).await?;
    run.started(&part, resource.url.to_string(), &resource.metadata, Some(length));
    let pinned = Arc::new(resource);
    let mut ranged = Ranged::new(run, paths, by, Arc::clone(&pinned), part, &discovery)?;
    ranged.apply_verdicts(discovery.verdicts);
    let done = ranged.drive(stop).await;
    ranged.record_observations();
    let Ranged { run, paths, writer, direct_owes_word, .. } = ranged;
    if let Err(halt) = done {
        drop(paths);
        // A write error takes precedence over any other error.
        let part = run.finish(writer).await?;
        run.close(part).await?;
        return Err(halt);
    }
    paths.release();
    // If the object is still in doubt, nobody knows whose bytes are right, so nothing is repaired.
    let mends = (!direct_owes_word).then_some(&pinned);
    match run.finish_and_publish(writer, length, mends, stop).await {
        // Answers of several versions may have been mixed. One answer has one version.
        Err(AttemptError::Failed(error))
            if (run.mode == Mode::ByHash || is_unproven) && error.is_wrong_hash() =>
        {
            Err(AttemptError::Plain(error.to_string()))
        }
        // The digest shows that the file is wrong, but a relay pinned the object, so the direct path decides what it
        // is.
        Err(AttemptError::Failed(GetError::Part(PartError::Digest { .. }))) if direct_owes_word => {
            Err(AttemptError::TrustDirect)
        }
        // Some servers send the digest of the part in a 206; the digest of the whole file in a 200 decides.
        Err(AttemptError::Failed(error))
            if run.request.digests.is_empty() && error.is_wrong_hash() =>
        {
            Err(AttemptError::Plain(error.to_string()))
        }
        published => published,
    }
}

impl<'a, 'r> Ranged<'a, 'r> {
    fn new(
        run: &'a mut Run<'r>,
        paths: Paths,
        by: PathId,
        resource: Arc<Resource>,
        part: Part,
        discovery: &Discovery,
    ) -> Result<Self, AttemptError> {
        let missing = part.missing();
        let head_is_all = by == PathId(0) && within(&missing, HEAD);
        let mut config = config(run.request.selection, head_is_all, discovery.first_answer());
        if paths.sources() == 1 {
            config.alone = ALONE;
        }
        if paths.len() == 1 && !paths.offers_ranges() {
            // Giving up this answer may mean starting again.
            config.alone = stalls(plain_patience(run.request), config.stall).max(ALONE);
        }
        if paths.are_closed_each() {
            config.small = config.small.saturating_mul(NEW_CONNECTIONS);
        }
        let selection = begin(config, &paths, &missing, Time::ZERO);
        let meter =
            Meter::new(&run.request.paths, part.resumed() + run.adopted, Some(resource.length));
        let mut present = Ranges::default();
        gaps(&missing, resource.length).into_iter().for_each(|r| present.insert(r));
        let of =
            ObjectIdentity { length: Some(resource.length), validator: resource.validator.clone() };
        let writer = run.store(part, run.names(), of)?;
        Ok(Self {
            sources: Sources::new(paths.source(by), paths.sources(), resource),
            refusals: Refusals::default(),
            setups: discovery.setups.clone(),
            brake: Brake::default(),
            failures: BTreeMap::new(),
            direct_owes_word: false,
            waiting: HeldBackPaths::new(run.request),
            complete: None,
            turns: None,
            chosen: None,
            epoch: Instant::now(),
            run,
            paths,
            by,
            present,
            selection,
            writer,
            meter,
            head_is_all,
        })
    }

    fn now(&self) -> Time {
        Time::ZERO + self.epoch.elapsed()
    }

    /// Runs until every byte is received, or no path works any more.
    async fn drive(&mut self, stop: &mut Stop) -> Result<(), AttemptError> {
        let mut ticks = interval_at(Instant::now() + INTERVAL, INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.execute_actions();
            self.paths.note_alone(self.paths.sources() == 1 && self.selection.has_one_path());
            match self.selection.phase() {
                Phase::Done if self.nothing_to_wait_for() => return Ok(()),
                Phase::Failed if self.start_costly_paths() => continue,
                Phase::Failed if self.fall_back() => continue,
                Phase::Failed => return Err(self.give_up()),
                _ => {}
            }
            let braked = self.brake.pause_end();
            let deadline = braked.unwrap_or_else(|| self.deadline());
            tokio::select! {
                (message, current) = self.paths.next(), if braked.is_none() => {
                    self.handle_report(message, current).await?;
                }
                () = sleep_until(deadline) => match self.brake.release() {
                    Some(waited) => {
                        self.meter.waits.limit += waited;
                        self.selection.paused(waited);
                    }
                    None => self.selection.tick(self.now()),
                },
                _ = ticks.tick() => {
                    self.add_helpers();
                    self.start_due_paths();
                    self.meter.tell(self.run.sink, &self.run.request.budget);
                    self.writer.tick().await;
                }
                () = stop.requested() => return Err(AttemptError::Failed(GetError::Interrupted)),
            }
        }
    }

    /// When to act if no report arrives.
    fn deadline(&self) -> Instant {
        let selection = self.selection.deadline().map(|t| self.epoch + t.since(Time::ZERO));
        let word = self.complete.map(|t| t + self.wait_for_word());
        let a_day = self.epoch + Duration::from_secs(86_400);
        selection.into_iter().chain(word).min().unwrap_or(a_day)
    }

    /// Whether the complete file can be published. If a relay pinned the object, the direct path confirms it first,
    /// unless that path fails or takes too long.
    fn nothing_to_wait_for(&mut self) -> bool {
        let complete = *self.complete.get_or_insert_with(Instant::now);
        !self.direct_owes_word || complete.elapsed() >= self.wait_for_word()
    }

    /// How long the complete file waits for the direct path's answer. That path fails by itself within its patience. A
    /// digest proves more than its answer, so with a digest the stall time is enough.
    fn wait_for_word(&self) -> Duration {
        let request = self.run.request;
        if request.digests.is_empty() { request.patience } else { request.selection.stall }
    }

    /// Whether nothing proves that bytes belong to the same version of the object.
    fn nothing_proves_versions(&self) -> bool {
        nothing_proves(self.sources.pinned(), self.run)
    }
}

/// Whether nothing proves that bytes belong to the same version of `resource`.
fn nothing_proves(resource: &Resource, run: &Run<'_>) -> bool {
    resource.validator.is_none() && run.request.digests.is_empty()
}

/// Whether the first answer contains the whole object, so that nothing can be mixed.
fn comes_in_one_answer(paths: &Paths, by: PathId, length: u64) -> bool {
    length == 0 || (by == PathId(0) && length <= HEAD && !paths.is_clamped())
}

/// Creates a selection among these paths. Each interface of this host counts as a separate link.
fn begin(config: Config, paths: &Paths, missing: &[Range<u64>], now: Time) -> Selection {
    let mut selection = Selection::new(config, paths.len(), missing, now);
    for path in paths.all().filter(|path| paths.is_direct(*path)) {
        selection.leaves_by(path, paths.interface(path));
    }
    selection
}

/// The selection's parameters for this download.
fn config(mut config: Config, head_is_all: bool, first_answer: Duration) -> Config {
    // A server that takes long for one byte may do so again.
    config.stall = config.stall.max(3 * first_answer);
    if head_is_all {
        config.small = u64::MAX;
    }
    config
}

/// How many times `stall` makes at least `patience`.
fn stalls(patience: Duration, stall: Duration) -> u32 {
    let times = patience.as_millis().div_ceil(stall.as_millis().max(1));
    u32::try_from(times).unwrap_or(u32::MAX)
}

/// Whether `missing` is a single range of at most `n` bytes, which a first answer can hold.
fn within(missing: &[Range<u64>], n: u64) -> bool {
    matches!(missing, [r] if r.end - r.start <= n)
}

/// The gaps between the `missing` ranges (ascending) of `length` bytes.
fn gaps(missing: &[Range<u64>], length: u64) -> Vec<Range<u64>> {
    let starts = std::iter::once(0).chain(missing.iter().map(|r| r.end));
    let ends = missing.iter().map(|r| r.start).chain([length]);
    starts.zip(ends).map(|(a, b)| a..b).filter(|r| r.start < r.end).collect()
}
