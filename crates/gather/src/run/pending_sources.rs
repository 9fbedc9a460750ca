//! Tracks sources that have not listed everything, and how long they may take.

use parking_lot::Mutex;
use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};
use tokio::{task::AbortHandle, time::Instant};

/// The maximum time without new entries once another source has listed everything; after that the source is left out.
/// This is six times the time that the fluid method waits for bytes, because a walk through millions of names for a
/// pattern only reports that it is at work until the first one matches.
pub const LISTING_PATIENCE: Duration = Duration::from_secs(120);

/// The maximum total time of a listing in the same case, even if entries arrive slowly: the time that a walk without
/// matches may take (`remote/pending_request.rs`).
const LONGEST: Duration = Duration::from_secs(3600);

/// When a source last listed something; shared by its task and the waiting code.
#[derive(Debug)]
pub(super) struct ListingActivity {
    began: Instant,
    last: Mutex<Instant>,
}

impl ListingActivity {
    /// Creates the record of a source that is asked now.
    pub fn now() -> Arc<Self> {
        let began = Instant::now();
        Arc::new(Self { began, last: Mutex::new(began) })
    }

    /// Records that it has listed more.
    pub fn record(&self) {
        *self.last.lock() = Instant::now();
    }

    /// Why the source has exceeded its time, if so.
    fn delay(&self, patience: Duration) -> Option<ListingDelay> {
        let last = *self.last.lock();
        match (last.elapsed() > patience, self.began.elapsed() > LONGEST) {
            (true, _) => Some(ListingDelay::Silent(patience)),
            (_, true) => Some(ListingDelay::Slow),
            _ => None,
        }
    }
}

/// Why a source is no longer waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListingDelay {
    Silent(Duration),
    Slow,
}

impl fmt::Display for ListingDelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent(patience) => write!(f, "it has listed nothing new for {patience:?}")?,
            Self::Slow => write!(f, "its listing has taken more than {LONGEST:?}")?,
        }
        f.write_str(
            " while other sources have finished; collect from it alone, or request fewer paths",
        )
    }
}

/// The sources waited for.
#[derive(Debug, Default)]
pub(super) struct PendingSources(BTreeMap<u32, (Arc<ListingActivity>, AbortHandle)>);

impl PendingSources {
    /// Waits for a source; `task` is aborted if the source exceeds its time.
    pub fn begin(&mut self, source: u32, heard: Arc<ListingActivity>, task: AbortHandle) {
        self.0.insert(source, (heard, task));
    }

    /// Stops waiting for a source. Returns whether it was waited for.
    pub fn end(&mut self, source: u32) -> bool {
        self.0.remove(&source).is_some()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The sources that have not listed everything.
    pub fn sources(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.keys().copied()
    }

    /// Stops the tasks of sources that have exceeded their time, and returns these sources.
    pub fn give_up(&mut self, patience: Duration) -> Vec<(u32, ListingDelay)> {
        let late = self.0.iter().filter_map(|(at, (heard, _))| Some((*at, heard.delay(patience)?)));
        let late: Vec<_> = late.collect();
        for (source, _) in &late {
            let task = self.0.remove(source);
            task.iter().for_each(|(_, task)| task.abort());
        }
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn silent_and_endlessly_slow_sources_are_given_up() {
        let task = || tokio::spawn(std::future::pending::<()>()).abort_handle();
        let [silent, dripping, late] = [(); 3].map(|()| ListingActivity::now());
        let (patience, mut waiting) = (Duration::from_secs(100), PendingSources::default());
        waiting.begin(0, silent, task());
        waiting.begin(1, dripping.clone(), task());
        advance(patience).await;
        dripping.record();
        assert!(waiting.give_up(patience).is_empty(), "not yet");
        advance(Duration::from_secs(1)).await;
        assert_eq!(waiting.give_up(patience), [(0, ListingDelay::Silent(patience))]);
        assert!(!waiting.end(0) && waiting.sources().eq([1]));
        late.record();
        waiting.begin(2, late, task());
        assert!(waiting.end(2));
        for _ in 0..36 {
            advance(Duration::from_secs(99)).await;
            dripping.record();
        }
        assert_eq!(waiting.give_up(patience), [(1, ListingDelay::Slow)]);
        assert!(waiting.is_empty());
    }
}
