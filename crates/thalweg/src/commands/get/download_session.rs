//! Runs all downloads of a command: their order, their retries and their results.

use super::{
    args::Effort,
    bound::KnownRates,
    display::{Display, Note},
    exit::{self, Code},
    request_builder::RequestBuilder,
    sources::{Item, Wanted},
};
use crate::commands::history_file::now;
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    sync::{Arc, atomic::AtomicBool, atomic::Ordering},
    time::Duration,
};
use thalweg_base::job::Event;
use thalweg_get::{
    GetError, GetFailed, ManyOptions, ManySink, Outcome, Request, Stop, Target, many,
};
use thalweg_paths::{
    detours::{Detours, GainObservations},
    history::History,
};
use tokio::sync::watch;

/// The wait before the first retry; it doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The longest wait between two tries.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A try that delivers at least this many bytes counts as progress.
const PROGRESS: u64 = 64 << 10;

/// Earlier rates are evidence for downloads of at most this many origins, so that long lists need little memory.
const MOST_ORIGINS: usize = 1000;

/// What the downloads of a command share.
pub struct DownloadSession<'a> {
    pub maker: &'a RequestBuilder<'a>,
    /// The limits of the command.
    pub effort: &'a Effort,
    pub display: &'a Display,
    /// The known rates of paths.
    pub history: Option<&'a Mutex<History>>,
    /// The known gains of relays.
    pub detours: Option<&'a Mutex<Detours>>,
    /// Whether to show which relays are tried.
    pub verbose: bool,
    /// Set to true to stop all downloads.
    pub stop_request: watch::Sender<bool>,
    /// The same signal for the downloads.
    pub stop: Stop,
    /// Whether they are stopped because `--max-time` is over.
    pub late: &'a AtomicBool,
    /// Whether they run one at a time, because they write to one stream.
    pub in_turn: bool,
}

/// The state of the downloads, by item number.
#[derive(Default)]
struct Ledger {
    /// The items of this round, in the order in which they were started.
    started: Vec<usize>,
    /// The items without a result. A failed item stays here until its round ends.
    open: BTreeMap<usize, Wanted>,
    /// The server of each open item, and what is learnt about relays from it.
    lessons: BTreeMap<usize, (String, GainObservations)>,
    /// The URL of each open item, as it was requested last.
    urls: BTreeMap<usize, String>,
    /// What was known of each origin before its first download.
    known: BTreeMap<String, Arc<KnownRates>>,
    /// Bytes received of each open item.
    came: BTreeMap<usize, u64>,
    /// The items that go to standard output, a pipe or a device.
    streams: BTreeSet<usize>,
    /// The streamed items that have started and may have written bytes.
    written: BTreeSet<usize>,
    /// The exit codes of failed items.
    codes: BTreeMap<usize, Code>,
}

impl DownloadSession<'_> {
    /// Downloads all items. Returns the exit code of the first item in the list that failed.
    pub async fn run(&self, items: Vec<Item>) -> Option<Code> {
        let ledger = Mutex::new(Ledger::default());
        let mut queue = items.into_iter().enumerate();
        loop {
            let turns = Turns { calls: self, ledger: &ledger, queue: &mut queue, stopped: false };
            let failed = self.round(turns, &ledger).await;
            let mut failed = self.elsewhere(failed, &ledger, false).await;
            let (mut attempt, mut most) = (1, BTreeMap::new());
            has_progress(&mut most, &failed);
            while attempt <= self.effort.retry && self.wait(&failed, attempt).await {
                failed = self.again(failed, &ledger).await;
                failed = self.elsewhere(failed, &ledger, false).await;
                attempt = if has_progress(&mut most, &failed) { 1 } else { attempt + 1 };
            }
            failed = self.elsewhere(failed, &ledger, true).await;
            failed.into_iter().for_each(|failure| self.count(&ledger, failure));
            let failed = !lock(&ledger).codes.is_empty();
            if queue.len() == 0 || self.stopping() || (failed && self.effort.fail_early) {
                break;
            }
        }
        let codes = &lock(&ledger).codes;
        let interrupted = codes.values().find(|code| **code == Code::Interrupted);
        interrupted.or_else(|| codes.values().next()).copied()
    }

    fn stopping(&self) -> bool {
        *self.stop_request.borrow()
    }

    /// Runs the downloads of `turns` once. Returns those that failed.
    async fn round<I>(&self, turns: I, ledger: &Mutex<Ledger>) -> Vec<Failure>
    where
        I: IntoIterator<Item = Result<Request, (String, GetFailed)>>,
    {
        lock(ledger).started.clear();
        let parallel = if self.in_turn { 1 } else { self.effort.parallel };
        let how = ManyOptions {
            parallel: NonZeroUsize::new(parallel).unwrap_or(NonZeroUsize::MIN),
            fail_early: self.effort.fail_early,
            history: self.history,
        };
        let sink = Listener { ledger, calls: self };
        let tally = many(turns, &how, &sink, self.stop.clone()).await;
        let mut ledger = lock(ledger);
        let mut failed = Vec::new();
        for (url, failure) in tally.failed {
            let is = |(_, wanted): &(&usize, &Wanted)| wanted.url.to_string() == url;
            let Some(item) = ledger.open.iter().find(is).map(|(item, _)| *item) else { continue };
            let Some(wanted) = ledger.open.remove(&item) else { continue };
            let came = ledger.came.remove(&item).unwrap_or(0);
            let is_written = ledger.written.remove(&item);
            failed.push(Failure { item, wanted, came, is_written, failure });
        }
        failed
    }

    /// Tries the failed downloads from their other sources until none is left. Unless `is_last`, a download is left to
    /// a later retry if that retry can continue with the bytes kept.
    async fn elsewhere(
        &self,
        mut failed: Vec<Failure>,
        ledger: &Mutex<Ledger>,
        is_last: bool,
    ) -> Vec<Failure> {
        loop {
            let (mut next, mut rest) = (Vec::new(), Vec::new());
            for failure in failed {
                let goes_on = !is_last && failure.is_resumable();
                match failure.elsewhere().filter(|_| !goes_on && !self.stopping()) {
                    Some(wanted) => {
                        let (why, url) = (exit::why(&failure.failure), &wanted.url);
                        let event = Event::Restarted { why: format!("{why}; now from {url}") };
                        self.display.tell(Note::Event { item: failure.item, event });
                        next.push((failure.item, wanted));
                    }
                    None => rest.push(failure),
                }
            }
            if next.is_empty() {
                return rest;
            }
            let turns = next
                .into_iter()
                .filter_map(|(item, wanted)| Some(Ok(self.request(item, &wanted, ledger, true)?)));
            failed = self.round(turns, ledger).await;
            failed.append(&mut rest);
        }
    }

    /// Retries the failed downloads that may succeed now.
    async fn again(&self, failed: Vec<Failure>, ledger: &Mutex<Ledger>) -> Vec<Failure> {
        let (again, rest): (Vec<_>, Vec<_>) = failed.into_iter().partition(Failure::is_transient);
        self.maker.look_again(again.iter().any(|failure| exit::is_cut_off(&failure.failure.error)));
        let turns = again.into_iter().filter_map(|Failure { item, wanted, .. }| {
            let request = self.request(item, &wanted.anew(), ledger, true)?;
            Some(Ok(request))
        });
        let mut failed = self.round(turns, ledger).await;
        failed.extend(rest);
        failed
    }

    /// Waits before the next try. Returns false if there is none.
    async fn wait(&self, failed: &[Failure], attempt: u32) -> bool {
        if self.stopping() || !failed.iter().any(Failure::is_transient) {
            return false;
        }
        let own = FIRST_WAIT.saturating_mul(1 << (attempt - 1).min(16)).min(LONGEST_WAIT);
        // A server's `Retry-After` is honoured up to MAX_WAIT; a longer one is no transient failure.
        let passing = failed.iter().filter(|f| f.is_transient());
        let asked = passing.filter_map(|f| exit::asked_to_wait(&f.failure.error)).max();
        let wait = asked.map_or(own, |asked| asked.max(own));
        for failure in failed.iter().filter(|f| f.is_transient()) {
            self.display.tell(Note::Again {
                item: failure.item,
                url: failure.wanted.url.to_string(),
                why: exit::why(&failure.failure),
                wait,
                attempt,
                of: self.effort.retry,
            });
        }
        let mut stop = self.stop_request.subscribe();
        tokio::select! {
            () = tokio::time::sleep(wait) => true,
            _ = stop.wait_for(|stop| *stop) => true,
        }
    }

    /// Makes the request for an item when its turn comes. A mistake in the item is reported and counted as a failure.
    fn request(
        &self,
        item: usize,
        wanted: &Wanted,
        ledger: &Mutex<Ledger>,
        again: bool,
    ) -> Option<Request> {
        if again && let super::args::Output::File(file) = &wanted.output {
            self.maker.release(file);
        }
        match self.maker.request(wanted) {
            Ok(request) => {
                // A retry goes to the same file.
                let mut wanted = wanted.clone();
                if let Target::File(file) = &request.target {
                    wanted.output = super::args::Output::File(file.clone());
                }
                let mut ledger = lock(ledger);
                if matches!(request.target, Target::Output(_)) {
                    ledger.streams.insert(item);
                }
                ledger.started.push(item);
                self.display.tell(Note::Begun { item, url: wanted.url.to_string() });
                if let Some(choice) = self.maker.choice() {
                    self.display.tell(Note::Relays { item, choice, aloud: self.verbose });
                }
                let origin = wanted.url.origin();
                ledger.urls.insert(item, wanted.url.to_string());
                if !ledger.known.contains_key(&origin) && ledger.known.len() < MOST_ORIGINS {
                    let known = self.known_rates(&origin);
                    ledger.known.insert(origin.clone(), Arc::new(known));
                }
                ledger.lessons.insert(item, (origin, GainObservations::default()));
                ledger.open.insert(item, wanted);
                Some(request)
            }
            Err((why, code)) => {
                self.refuse(item, wanted.url.to_string(), why, code, ledger);
                None
            }
        }
    }

    /// What is known of an origin before its first download.
    fn known_rates(&self, origin: &str) -> KnownRates {
        let known = |history: &Mutex<History>| KnownRates::of(&history.lock(), origin, now());
        self.history.map(known).unwrap_or_default()
    }

    /// Reports and counts an item for which no request can be made.
    fn refuse(&self, item: usize, url: String, why: String, code: Code, ledger: &Mutex<Ledger>) {
        lock(ledger).codes.insert(item, code);
        self.display.tell(Note::Failed { item, url, why, code, kept: 0, hints: Vec::new() });
    }

    /// Reports and counts a final failure.
    fn count(&self, ledger: &Mutex<Ledger>, failure: Failure) {
        let is_cut_short = failure.is_cut_short();
        let Failure { item, wanted, came, failure, .. } = failure;
        let late = self.late.load(Ordering::SeqCst);
        let interrupted = matches!(failure.error, GetError::Interrupted);
        let (code, why) = match interrupted && late {
            true => (Code::Late, "not finished within --max-time".to_owned()),
            false => (Code::of_error(&failure.error), exit::why(&failure)),
        };
        let mut open = lock(ledger);
        open.lessons.remove(&item);
        open.urls.remove(&item);
        open.codes.insert(item, code);
        drop(open);
        let mut hints = exit::hints(&failure, came, self.maker.logs_in(&wanted));
        if is_cut_short {
            hints.push(exit::CUT_SHORT.to_owned());
        }
        self.display.tell(Note::Failed {
            item,
            url: wanted.url.to_string(),
            why,
            code,
            kept: failure.kept.as_bytes(),
            hints,
        });
    }
}

/// Yields the requests one by one, as `many` asks for them.
struct Turns<'a, 'c, Q> {
    calls: &'a DownloadSession<'c>,
    ledger: &'a Mutex<Ledger>,
    queue: &'a mut Q,
    stopped: bool,
}

impl<Q: Iterator<Item = (usize, Item)>> Iterator for Turns<'_, '_, Q> {
    type Item = Result<Request, (String, GetFailed)>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.stopped {
            let (number, item) = self.queue.next()?;
            let made = match item.wanted() {
                Ok(wanted) => self.calls.request(number, &wanted, self.ledger, false),
                Err((why, code)) => {
                    self.calls.refuse(number, item.text, why, code, self.ledger);
                    None
                }
            };
            match made {
                Some(request) => return Some(Ok(request)),
                None => self.stopped = self.calls.effort.fail_early,
            }
        }
        None
    }
}

/// A failed try of a download.
struct Failure {
    item: usize,
    wanted: Wanted,
    /// Bytes that arrived.
    came: u64,
    /// Whether bytes may have been written to a pipe or a device, which another try would write again.
    is_written: bool,
    failure: GetFailed,
}

impl Failure {
    /// Whether a retry continues with the bytes that are kept.
    fn is_resumable(&self) -> bool {
        self.is_transient() && self.failure.kept.as_bytes() > 0
    }

    /// The same item from its other sources, if there are any.
    fn elsewhere(&self) -> Option<Wanted> {
        self.wanted.elsewhere(&self.failure.error).filter(|_| !self.is_written)
    }

    /// Whether another source or try might have succeeded if nothing had been written to the output.
    fn is_cut_short(&self) -> bool {
        let error = &self.failure.error;
        self.is_written && (self.wanted.elsewhere(error).is_some() || exit::is_transient(error))
    }

    fn is_transient(&self) -> bool {
        exit::is_transient(&self.failure.error) && !self.is_written
    }
}

/// Whether a failed try brought enough of an item to restart the count of tries. `most` holds the most bytes kept of
/// each item so far, so that the tries end.
fn has_progress(most: &mut BTreeMap<usize, u64>, failed: &[Failure]) -> bool {
    let mut progress = false;
    for failure in failed.iter().filter(|failure| failure.is_transient()) {
        let (kept, most) = (failure.failure.kept.as_bytes(), most.entry(failure.item).or_default());
        progress |= kept >= most.saturating_add(PROGRESS);
        *most = kept.max(*most);
    }
    progress
}

/// Passes events on with the item's number. Failures are reported when they are final.
struct Listener<'a, 'c> {
    ledger: &'a Mutex<Ledger>,
    calls: &'a DownloadSession<'c>,
}

impl ManySink for Listener<'_, '_> {
    fn event(&self, download: usize, event: &Event) {
        let mut ledger = lock(self.ledger);
        let Some(&item) = ledger.started.get(download) else { return };
        if let Some((_, lesson)) = ledger.lessons.get_mut(&item) {
            lesson.event(event);
        }
        match event {
            Event::Failed { .. } => return,
            Event::Finished { .. } => {
                ledger.open.remove(&item);
                ledger.came.remove(&item);
            }
            // With a hash, nothing is written until the whole file has arrived and matches.
            Event::Started { .. }
                if ledger.streams.contains(&item)
                    && !ledger.open.get(&item).is_some_and(Wanted::is_provable) =>
            {
                ledger.written.insert(item);
            }
            Event::Progress { done_bytes, .. } => _ = ledger.came.insert(item, *done_bytes),
            _ => {}
        }
        drop(ledger);
        self.calls.display.tell(Note::Event { item, event: event.clone() });
    }

    fn done(&self, download: usize, outcome: &Outcome) {
        let mut ledger = lock(self.ledger);
        let item = ledger.started.get(download).copied();
        let lesson = item.and_then(|item| ledger.lessons.remove(&item));
        let url = item.and_then(|item| ledger.urls.remove(&item)).unwrap_or_default();
        let Some((item, (origin, lesson))) = item.zip(lesson) else { return };
        let known = ledger.known.get(&origin).cloned().unwrap_or_default();
        drop(ledger);
        let quota = |path: &str| self.calls.maker.rate_quota(path);
        let (verdict, aloud) = (known.verdict(&outcome.facts, quota), self.calls.verbose);
        self.calls.display.tell(Note::Verdict { item, url, verdict, aloud });
        let Some(detours) = self.calls.detours else { return };
        let before = self.calls.maker.rate(&origin, "direct");
        let gains = lesson.gains(&outcome.observed, before);
        detours.lock().learn(gains);
    }
}

fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock()
}
