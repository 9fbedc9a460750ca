//! Collects the facts from which the bound of a download is found ([`thalweg_paths::verdict`]).
//!
//! Most are in its events: [`FactCollector`] passes them on and remembers. The kernel's counters of its connections are
//! read four times a second, with the progress events.

use super::run::Run;
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_base::{
    clock::thread_time,
    job::{Event, EventSink, PathRate},
};
use thalweg_paths::{
    transfer_counters::{WatchedConnections, WatchedInterfaces, Way},
    verdict::{Facts, PathFacts},
};
use thalweg_units::{PathId, Rate};

/// The times in which a download took no bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waits {
    /// The disk was behind.
    pub disk: Duration,
    /// The rate limit was reached.
    pub limit: Duration,
}

impl Waits {
    /// Adds the times of another attempt.
    pub fn add(&mut self, more: Self) {
        self.disk += more.disk;
        self.limit += more.limit;
    }
}

/// Passes the events of one download on, and remembers facts.
pub(super) struct FactCollector<'a> {
    sink: &'a dyn EventSink,
    tcp: Arc<Connections>,
    seen: Mutex<Seen>,
}

struct Seen {
    began: Instant,
    /// The processor time of this thread, and at which time it was.
    cpu: Option<Duration>,
    /// When the first content arrived.
    started: Option<Instant>,
    /// The rates of paths in sampling.
    sampled: BTreeMap<String, Rate>,
    /// The bytes of the file that paths delivered.
    bytes: BTreeMap<String, u64>,
    /// The bytes of paths when the first path was chosen.
    sampled_bytes: Option<BTreeMap<String, u64>>,
    /// The path that was chosen last.
    chosen: Option<String>,
    /// The servers' last request to wait ends then.
    asked_until: Option<Instant>,
    /// The time in which nothing came because of such requests.
    server_wait: Duration,
    /// The time of the last progress event.
    looked: Instant,
    /// The interfaces since the first progress event, and the bytes that were there then.
    interfaces: Option<(WatchedInterfaces, u64)>,
}

impl<'a> FactCollector<'a> {
    pub fn new(sink: &'a dyn EventSink) -> Self {
        let now = Instant::now();
        let seen = Seen {
            began: now,
            cpu: thread_time(),
            started: None,
            sampled: BTreeMap::new(),
            bytes: BTreeMap::new(),
            sampled_bytes: None,
            chosen: None,
            asked_until: None,
            server_wait: Duration::ZERO,
            looked: now,
            interfaces: None,
        };
        Self { sink, tcp: Arc::default(), seen: Mutex::new(seen) }
    }

    /// The connections whose counters are read.
    pub fn connections(&self) -> Arc<Connections> {
        Arc::clone(&self.tcp)
    }

    /// The facts of the finished download.
    pub fn facts(&self, run: &Run<'_>) -> Facts {
        let (seen, now) = (self.seen.lock(), Instant::now());
        let request = run.request;
        let length = run.published.as_ref().map_or(0, |(_, length)| *length);
        let path = |(id, candidate): (u32, &thalweg_paths::candidates::Candidate)| {
            let name = &candidate.name;
            let observed = run.observed.iter().find(|observed| observed.path == *name);
            let is_chosen = seen.chosen.as_ref() == Some(name);
            let alone = request.paths.len() == 1;
            PathFacts {
                name: name.clone(),
                is_relayed: !candidate.route.is_direct(),
                bytes: if alone { run.fetched } else { seen.bytes.get(name).copied().unwrap_or(0) },
                sampled: seen.sampled_rate(name, run.phases.sampling),
                sampled_bytes: seen.sampled_bytes(name),
                rest: run.phases.completion.filter(|_| is_chosen),
                first_byte: observed.map(|observed| observed.setup),
                tcp: self.tcp.received(&PathId(id)),
                ..PathFacts::default()
            }
        };
        // With a digest, the file is read and hashed in this time.
        let publication = match run.last_byte.filter(|_| request.digests.is_empty()) {
            Some(last) => now.saturating_duration_since(last.into()),
            None => Duration::ZERO,
        };
        Facts {
            took: now.saturating_duration_since(seen.began),
            set_up: seen.started.map_or(Duration::ZERO, |at| at - seen.began),
            fetched: run.fetched,
            paths: (0..).zip(&request.paths).map(path).collect(),
            sampling: run.phases.sampling,
            rest: run.phases.completion,
            interface: seen
                .interfaces
                .as_ref()
                .and_then(|(interfaces, done)| interfaces.facts(length.saturating_sub(*done))),
            fastest: None,
            disk_wait: run.waits.disk + publication,
            limit_wait: run.waits.limit,
            server_wait: seen.server_wait,
            limit: request.limit.as_ref().map(|limit| limit.rate()),
            cpu: seen.cpu.and_then(|before| thread_time()?.checked_sub(before)),
        }
    }
}

impl EventSink for FactCollector<'_> {
    fn event(&self, event: &Event) {
        self.seen.lock().note(event, Instant::now());
        if matches!(event, Event::Progress { .. }) {
            self.tcp.look();
        }
        self.sink.event(event);
    }
}

impl Seen {
    /// The bytes of a path until the first path was chosen.
    fn sampled_bytes(&self, path: &str) -> u64 {
        let sampled = self.sampled_bytes.as_ref();
        sampled.and_then(|sampled| sampled.get(path)).copied().unwrap_or(0)
    }

    /// The part of a path in the rate of sampling. A path that was stopped early has no rate of its own, and those of
    /// the others are of different times.
    fn sampled_rate(&self, path: &str, sampling: Option<Rate>) -> Option<Rate> {
        let all: u64 = self.sampled_bytes.iter().flat_map(BTreeMap::values).sum();
        match sampling.filter(|_| all > 0) {
            Some(rate) => {
                let share = self.sampled_bytes(path) as f64 / all as f64;
                Some(Rate::from_bps((rate.as_bps() as f64 * share) as u64))
            }
            None => self.sampled.get(path).copied(),
        }
    }

    fn note(&mut self, event: &Event, now: Instant) {
        match event {
            Event::Started { .. } => {
                self.started.get_or_insert(now);
                self.looked = now;
                // Another path answered before the wait was over.
                let rest = self.asked_until.map(|until| until.saturating_duration_since(now));
                self.server_wait = self.server_wait.saturating_sub(rest.unwrap_or_default());
            }
            Event::Busy { seconds, .. } => {
                let until = now + Duration::try_from_secs_f64(*seconds).unwrap_or_default();
                let before = self.asked_until.map_or(now, |asked| asked.max(now));
                if self.started.is_none() {
                    self.server_wait += until.saturating_duration_since(before);
                }
                self.asked_until = Some(until.max(before));
            }
            Event::Progress { done_bytes, rate_bps, paths, .. } => {
                self.note_progress((*done_bytes, *rate_bps), paths, now);
            }
            Event::PathSampled { path, rate_bps } => {
                self.sampled.insert(path.clone(), Rate::from_bps(*rate_bps));
            }
            Event::PathTotal { path, bytes, .. } => _ = self.bytes.insert(path.clone(), *bytes),
            Event::Chosen { path, .. } => {
                self.chosen = Some(path.clone());
                self.sampled_bytes.get_or_insert_with(|| self.bytes.clone());
            }
            _ => {}
        }
    }

    fn note_progress(&mut self, (done, rate): (u64, u64), paths: &[PathRate], now: Instant) {
        if rate == 0
            && let Some(until) = self.asked_until
        {
            self.server_wait += until.min(now).saturating_duration_since(self.looked);
        }
        self.looked = now;
        for path in paths {
            self.bytes.insert(path.path.clone(), path.bytes);
        }
        // Shorter downloads need not look at interfaces.
        let (interfaces, _) =
            self.interfaces.get_or_insert_with(|| (WatchedInterfaces::begin(Way::Down), done));
        interfaces.look();
    }
}

/// The connections of a download by path.
pub(super) type Connections = WatchedConnections<PathId>;

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(done_bytes: u64, rate_bps: u64) -> Event {
        let path = PathRate { path: "direct".into(), rate_bps, bytes: done_bytes };
        Event::Progress { done_bytes, total_bytes: None, rate_bps, paths: vec![path] }
    }

    fn started() -> Event {
        let job = thalweg_base::job::JobId::from([0; 16]);
        let (url, target, paths) = Default::default();
        Event::Started { job, url, target, total_bytes: None, paths }
    }

    fn busy(seconds: f64) -> Event {
        Event::Busy { path: "direct".into(), why: "503".into(), seconds }
    }

    /// The waits for the server after events at these times, ms.
    fn server_wait(events: &[(u64, Event)]) -> u128 {
        let collector = FactCollector::new(&());
        let mut seen = collector.seen.lock();
        let began = seen.began;
        for (at, event) in events {
            seen.note(event, began + Duration::from_millis(*at));
        }
        seen.server_wait.as_millis()
    }

    #[test]
    fn only_waits_in_which_nothing_comes_count() {
        // Before the first answer: as long as asked, or until another path answers.
        assert_eq!(server_wait(&[(0, busy(2.0)), (2000, started())]), 2000);
        assert_eq!(server_wait(&[(0, busy(2.0)), (500, busy(2.0)), (2500, started())]), 2500);
        assert_eq!(server_wait(&[(0, busy(2.0)), (300, started())]), 300);
        // After it: while nothing comes, at most until the wait is over.
        let begin = [(0, started()), (100, busy(1.0))];
        let with = |more: &[(u64, Event)]| server_wait(&[&begin[..], more].concat());
        assert_eq!(with(&[(250, progress(1, 8)), (500, progress(1, 0))]), 250);
        assert_eq!(with(&[(250, progress(1, 8)), (500, progress(2, 8))]), 0);
        assert_eq!(with(&[(250, progress(1, 8)), (5000, progress(1, 0))]), 850);
        assert_eq!(server_wait(&[(0, started()), (250, progress(0, 0))]), 0);
    }
}
