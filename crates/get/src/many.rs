//! Several downloads in one call.
//!
//! They run in one task, a limited number at a time, and share idle connections, the rate limit, the publisher, the
//! history, and what this call has learned about each origin.

use super::{
    Advice, GetError, GetFailed, Outcome, Request, Stop, Target, advised,
    call_memory::{CorruptPaths, DIRECT, Origins, SmallFileTimes},
    cookies::Cookies,
    digest_login::DigestLogins,
    server::Servers,
    targets::Targets,
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use parking_lot::{Mutex, MutexGuard};
use std::{num::NonZeroUsize, sync::Arc, time::SystemTime};
use thalweg_base::job::{Event, EventSink};
use thalweg_paths::history::History;
use thalweg_units::{ByteSize, WallTime};

/// Settings for several downloads.
pub struct ManyOptions<'a> {
    /// The most downloads at the same time.
    pub parallel: NonZeroUsize,
    /// Starts no further download after a failure. Running ones continue.
    pub fail_early: bool,
    /// Learns from each download and advises the next ones. The caller saves it.
    pub history: Option<&'a Mutex<History>>,
}

/// Receives the events of several downloads. Must not block.
pub trait ManySink: Send + Sync {
    /// Receives an event of request number `download`, from 0.
    fn event(&self, download: usize, event: &Event);

    /// Receives the outcome of request number `download`. It is not stored elsewhere, so that a long list needs no
    /// memory.
    fn done(&self, download: usize, outcome: &Outcome) {
        _ = (download, outcome);
    }
}

/// The event sink of one download.
struct DownloadSink<'a>(usize, &'a dyn ManySink);

impl EventSink for DownloadSink<'_> {
    fn event(&self, event: &Event) {
        self.1.event(self.0, event);
    }
}

/// The results of several downloads.
#[derive(Debug, Default)]
pub struct Tally {
    /// The number of downloads that succeeded.
    pub done: u64,
    /// The sum of their lengths.
    pub bytes: ByteSize,
    /// The downloads that failed, with their URLs, in the order of the requests.
    pub failed: Vec<(String, GetFailed)>,
}

/// Runs all `requests`, `how.parallel` at a time, in order.
///
/// Requests are taken from the iterator when they start, so that a long list needs only some twenty bytes of memory for
/// each. An `Err` stands for a line of a list that yields no request, and counts as failed. Requests with
/// [`Target::Output`] wait for each other, so that the streams follow each other. Two requests must not have the same
/// target file: the later one is refused.
///
/// On `stop`, no further download starts, and running ones keep the bytes received so far.
pub async fn many<I>(requests: I, how: &ManyOptions<'_>, sink: &dyn ManySink, stop: Stop) -> Tally
where
    I: IntoIterator<Item = Result<Request, (String, GetFailed)>>,
{
    let mut call = Call::new(how, sink);
    let mut queue = requests.into_iter().enumerate().fuse();
    let mut running = FuturesUnordered::new();
    loop {
        while running.len() < how.parallel.get() && call.may_start(&stop, running.is_empty()) {
            let next = call.waiting.take().or_else(|| queue.next());
            let Some((number, request)) = next else { break };
            if let Some(ready) = call.admit(number, request, running.is_empty()) {
                running.push(run(ready, sink, stop.clone()));
            }
        }
        match running.next().await {
            Some(ended) => call.note(ended),
            None => return call.tally(),
        }
    }
}

type NextRequest = (usize, Result<Request, (String, GetFailed)>);

/// A download that may start.
struct ReadyDownload {
    number: usize,
    request: Request,
    advice: Advice,
}

/// A download that has ended.
struct EndedDownload {
    number: usize,
    url: String,
    origins: Origins,
    result: Result<Outcome, GetFailed>,
}

async fn run(ready: ReadyDownload, sink: &dyn ManySink, stop: Stop) -> EndedDownload {
    let ReadyDownload { number, request, advice } = ready;
    let url = request.url.to_string();
    let origins = Origins::new(request.url.origin(), &request.paths);
    let result = advised(request, advice, &DownloadSink(number, sink), stop).await;
    EndedDownload { number, url, origins, result }
}

/// The state of the whole call.
struct Call<'a> {
    how: &'a ManyOptions<'a>,
    sink: &'a dyn ManySink,
    targets: Targets,
    pace: SmallFileTimes,
    corrupt: CorruptPaths,
    servers: Servers,
    cookies: Arc<Cookies>,
    logins: Arc<DigestLogins>,
    /// A request for the output, which another download still uses.
    waiting: Option<NextRequest>,
    done: u64,
    bytes: ByteSize,
    failed: Vec<(usize, String, GetFailed)>,
}

impl<'a> Call<'a> {
    fn new(how: &'a ManyOptions<'a>, sink: &'a dyn ManySink) -> Self {
        Self {
            how,
            sink,
            targets: Targets::default(),
            pace: SmallFileTimes::default(),
            corrupt: CorruptPaths::default(),
            servers: Servers::default(),
            cookies: Arc::default(),
            logins: Arc::default(),
            waiting: None,
            done: 0,
            bytes: ByteSize::ZERO,
            failed: Vec::new(),
        }
    }

    fn may_start(&self, stop: &Stop, idle: bool) -> bool {
        let ended = stop.is_requested() || (self.how.fail_early && !self.failed.is_empty());
        !ended && (self.waiting.is_none() || idle)
    }

    /// Prepares a request to start; `None` if it is refused or has to wait.
    fn admit(
        &mut self,
        number: usize,
        request: Result<Request, (String, GetFailed)>,
        idle: bool,
    ) -> Option<ReadyDownload> {
        let mut request = match request {
            Ok(request) => request,
            Err((url, failed)) => {
                self.failed.push((number, url, failed));
                return None;
            }
        };
        if matches!(request.target, Target::Output(_)) && !idle {
            self.waiting = Some((number, Ok(request)));
            return None;
        }
        if let Err(first) = self.targets.claim(number, &request.target) {
            self.refuse(number, &request, first);
            return None;
        }
        let origins = Origins::new(request.url.origin(), &request.paths);
        self.corrupt.leave_out(&origins, &mut request.paths, &mut request.priors);
        let head_start = self.pace.head_start(origins.own());
        let (server, cookies) = (self.servers.traits_of(origins.own()), Arc::clone(&self.cookies));
        let logins = Arc::clone(&self.logins);
        let advice = Advice { head_start, server, cookies, logins };
        Some(ReadyDownload { number, request, advice })
    }

    fn refuse(&mut self, number: usize, request: &Request, first: usize) {
        let error = GetError::SameTarget {
            target: request.file(),
            first: first + 1,
            second: number + 1,
            url: request.url.to_string(),
        };
        let why = error.to_string();
        self.sink.event(number, &Event::Failed { why, kept_bytes: 0 });
        let failed = GetFailed { error, kept: ByteSize::ZERO, corrupt: Box::default() };
        self.failed.push((number, request.url.to_string(), failed));
    }

    fn note(&mut self, ended: EndedDownload) {
        let EndedDownload { number, url, origins, result } = ended;
        match result {
            Ok(outcome) => {
                self.learn(&origins, &outcome);
                self.note_altered_paths(&outcome.corrupt, &origins);
                self.done += 1;
                self.bytes += outcome.length;
                self.sink.done(number, &outcome);
            }
            Err(failed) => {
                self.note_altered_paths(&failed.corrupt, &origins);
                self.failed.push((number, url, failed));
            }
        }
    }

    fn learn(&mut self, origins: &Origins, outcome: &Outcome) {
        self.pace.learn(origins.own(), outcome);
        if let Some(mut history) = self.history() {
            history.learn(origins.own(), &outcome.observed, wall_time());
        }
    }

    /// Excludes relays that altered bytes from now on, whether or not the download was repaired.
    fn note_altered_paths(&mut self, corrupt: &[(String, String)], origins: &Origins) {
        self.corrupt.learn(corrupt, origins);
        let Some(mut history) = self.history() else { return };
        for (path, why) in corrupt {
            let blame = CorruptPaths::blamed_relay(path, origins);
            if blame.relay != DIRECT {
                history.quarantine(blame.relay, blame.origin, why, wall_time());
            }
        }
    }

    /// Each change of a history is a single step, so it is valid even if another holder panicked.
    fn history(&self) -> Option<MutexGuard<'_, History>> {
        Some(self.how.history?.lock())
    }

    fn tally(self) -> Tally {
        let mut failed = self.failed;
        failed.sort_by_key(|(number, ..)| *number);
        let failed = failed.into_iter().map(|(_, url, failed)| (url, failed)).collect();
        Tally { done: self.done, bytes: self.bytes, failed }
    }
}

/// The current wall-clock time of this host.
pub(super) fn wall_time() -> WallTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    WallTime::from_unix_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NoSink;

    impl ManySink for NoSink {
        fn event(&self, _: usize, _: &Event) {}
    }

    #[test]
    fn a_failed_download_still_records_who_altered_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let history = Mutex::new(History::open(&dir.path().join("history.json")));
        let how =
            ManyOptions { parallel: NonZeroUsize::MIN, fail_early: false, history: Some(&history) };
        let mut call = Call::new(&how, &NoSink);
        let blame = |path: &str| (path.to_owned(), "why".to_owned());
        let failed = GetFailed {
            error: GetError::Interrupted,
            kept: ByteSize::ZERO,
            corrupt: Box::new([blame("fra%eth1"), blame("direct")]),
        };
        let origins = Origins::new("https://a.example:443".to_owned(), &[]);
        call.note(EndedDownload { number: 0, url: "x".to_owned(), origins, result: Err(failed) });
        let history = history.lock();
        let out = |relay, origin| history.is_quarantined(relay, Some(origin), wall_time());
        assert!(out("fra", "https://a.example:443") && !out("fra", "https://b.test:443"));
        assert!(!out("direct", "https://a.example:443"), "it is no relay");
        drop(history);
        assert_eq!(call.tally().failed.len(), 1);
    }
}
