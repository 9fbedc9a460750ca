//! Measures progress at the destination, and reports it a few times a second.

use super::{
    super::{
        Event, EventSink, Method, Progress, SourceProgress, SourceTotals, facts::TransferFacts,
        landing::Landing,
    },
    PreparedCollection,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use thalweg_plan::collection::Direct;
use thalweg_units::ByteSize;
use thalweg_wire::mesh::Name;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::task::AbortOnDropHandle;

/// The interval of reports.
const EVERY: Duration = Duration::from_millis(250);

/// A source that sends nothing for this long is reported, and its remaining time counts as unknown.
const STALLED: Duration = Duration::from_secs(5);

/// The time constant of the recent rate, seconds.
const MEMORY: f64 = 3.0;

/// Received bytes by source, and when the last one arrived.
#[derive(Debug)]
pub(super) struct SourceCounters {
    began: Instant,
    sources: Vec<SourceCounter>,
}

#[derive(Debug, Default)]
struct SourceCounter {
    bytes: AtomicU64,
    /// When the last byte arrived, µs since the start.
    last: AtomicU64,
    /// When a first byte was counted, in the same unit; zero: none was.
    first: AtomicU64,
    /// Bytes that arrived again.
    again: AtomicU64,
}

impl SourceCounters {
    fn new(sources: usize, began: Instant) -> Self {
        let sources = std::iter::repeat_with(SourceCounter::default).take(sources).collect();
        Self { began, sources }
    }

    /// Counts new bytes of a source.
    pub(super) fn add_received(&self, source: u32, bytes: u64) {
        let Some(count) = self.sources.get(source as usize) else { return };
        count.bytes.fetch_add(bytes, Relaxed);
        let micros = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        count.last.fetch_max(micros, Relaxed);
        // Only the first one finds a zero.
        _ = count.first.compare_exchange(0, micros.max(1), Relaxed, Relaxed);
    }

    /// When the first byte of any source arrived, since the start.
    pub(super) fn first_byte(&self) -> Option<Duration> {
        let all = self.sources.iter().map(|count| count.first.load(Relaxed));
        all.filter(|first| *first > 0).min().map(Duration::from_micros)
    }

    /// When the last byte of any source arrived, since the start.
    pub(super) fn last_byte(&self) -> Option<Duration> {
        let all = self.sources.iter().map(|count| count.last.load(Relaxed));
        all.filter(|last| *last > 0).max().map(Duration::from_micros)
    }

    /// Counts duplicate bytes of a source.
    pub(super) fn add_duplicates(&self, source: u32, bytes: u64) {
        let count = self.sources.get(source as usize);
        count.into_iter().for_each(|count| _ = count.again.fetch_add(bytes, Relaxed));
    }

    /// The duplicate bytes from all sources.
    pub(super) fn duplicates(&self) -> u64 {
        self.sources.iter().map(|count| count.again.load(Relaxed)).sum()
    }

    fn bytes(&self, source: usize) -> u64 {
        self.sources.get(source).map_or(0, |count| count.bytes.load(Relaxed))
    }
}

/// The counters, and a task that reports them.
pub(super) struct ProgressReporter {
    counts: Arc<SourceCounters>,
    names: Vec<Name>,
    reporter: Reporter,
    task: AbortOnDropHandle<()>,
}

impl ProgressReporter {
    pub(super) fn start(
        ready: &PreparedCollection,
        events: Arc<dyn EventSink>,
        facts: Arc<TransferFacts>,
        began: Instant,
    ) -> Self {
        let names = ready.overlay.names[..ready.overlay.sources].to_vec();
        let counts = Arc::new(SourceCounters::new(names.len(), began));
        let planned = ready.plan.forecast.makespan_seconds;
        let (landing, rates) = (ready.landing.clone(), vec![None; names.len()]);
        let reporter = Reporter {
            counts: counts.clone(),
            names: names.clone().into(),
            landing,
            events,
            planned,
            before: vec![0; names.len()],
            // Other methods let sources wait for their turn.
            at_once: matches!(ready.method, Method::Fluid | Method::Direct(Direct::AllAtOnce)),
            heard: vec![SourceActivity { at: began, is_told: false }; names.len()],
            rates,
            at: began,
        };
        let mut ticking = reporter.clone();
        let task = tokio::spawn(async move {
            let mut ticks = interval(EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                facts.look();
                ticking.report(Instant::now());
            }
        });
        Self { counts, names, reporter, task: AbortOnDropHandle::new(task) }
    }

    pub(super) fn counts(&self) -> Arc<SourceCounters> {
        self.counts.clone()
    }

    /// Reports the final state, and returns the totals of each source.
    pub(super) async fn finish(mut self) -> Vec<SourceTotals> {
        self.task.abort();
        _ = (&mut self.task).await;
        self.reporter.at = self.counts.began;
        self.reporter.report(Instant::now());
        let totals = self.names.into_iter().zip(&self.counts.sources);
        let total = |(source, count): (Name, &SourceCounter)| SourceTotals {
            source,
            bytes: count.bytes.load(Relaxed),
            seconds: count.last.load(Relaxed) as f64 / 1e6,
        };
        totals.map(total).collect()
    }
}

#[derive(Clone)]
struct Reporter {
    counts: Arc<SourceCounters>,
    names: Arc<[Name]>,
    landing: Landing,
    events: Arc<dyn EventSink>,
    planned: Option<f64>,
    /// Bytes received at the last report.
    before: Vec<u64>,
    /// Recent rates, bytes/s.
    rates: Vec<Option<f64>>,
    at: Instant,
    /// Whether all sources are asked from the beginning.
    at_once: bool,
    heard: Vec<SourceActivity>,
}

/// When a source last sent something.
#[derive(Clone, Copy)]
struct SourceActivity {
    at: Instant,
    is_told: bool,
}

impl Reporter {
    /// Records the received and remaining bytes of a source. Returns whether it has stalled.
    fn hear(&mut self, index: usize, now: Instant, came: u64, left: u64) -> bool {
        let begun = self.at_once || self.counts.bytes(index) > 0;
        let Some(heard) = self.heard.get_mut(index) else { return false };
        if came > 0 || left == 0 || !begun {
            *heard = SourceActivity { at: now, is_told: false };
            return false;
        }
        let silent = now.saturating_duration_since(heard.at);
        if silent < STALLED {
            return false;
        }
        if !std::mem::replace(&mut heard.is_told, true) {
            let (name, left) = (&self.names[index], ByteSize::from_bytes(left));
            let text = format!(
                "{name} has sent nothing for {} s; {left} are still missing",
                silent.as_secs()
            );
            self.events.event(Event::Note { text });
        }
        true
    }

    fn report(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64().max(1e-3);
        self.at = now;
        let landed = self.landing.progress();
        let mut sum = Progress::default();
        let names = self.names.clone();
        for (index, source) in names.iter().enumerate() {
            let bytes = self.counts.bytes(index);
            let came = bytes - self.before[index];
            self.before[index] = bytes;
            let rate = came as f64 / passed;
            let weight = (passed / MEMORY).min(1.0);
            let late = self.rates[index].map_or(rate, |late| late + weight * (rate - late));
            self.rates[index] = (bytes > 0).then_some(late);
            let landed = landed.get(index).copied().unwrap_or_default();
            let left = landed.of_bytes.saturating_sub(landed.bytes);
            let stalled = self.hear(index, now, came, left);
            let left_seconds = match (left, self.rates[index]) {
                (0, _) => Some(0.0),
                _ if stalled => None,
                (_, Some(late)) if late > 1.0 => Some(left as f64 / late),
                _ => None,
            };
            sum.done_bytes += landed.bytes;
            sum.total_bytes += landed.of_bytes;
            sum.done_files += landed.files;
            sum.total_files += landed.of_files;
            sum.rate_bps += (rate * 8.0) as u64;
            sum.sources.push(SourceProgress {
                source: source.clone(),
                done_bytes: landed.bytes,
                total_bytes: landed.of_bytes,
                rate_bps: (rate * 8.0) as u64,
                left_seconds,
            });
        }
        let lefts: Option<Vec<f64>> = sum.sources.iter().map(|s| s.left_seconds).collect();
        sum.left_seconds = lefts.map(|lefts| lefts.into_iter().fold(0.0, f64::max));
        sum.seconds = now.saturating_duration_since(self.counts.began).as_secs_f64();
        let planned = self.planned.filter(|_| sum.done_bytes < sum.total_bytes);
        sum.plan_left_seconds = planned.map(|planned| planned - sum.seconds);
        self.events.event(Event::Progress(sum));
    }
}
