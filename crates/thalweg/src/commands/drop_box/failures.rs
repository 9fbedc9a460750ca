//! Remembers why `gather` could not fetch files.

use crate::commands::gather::GatherDisplay;
use parking_lot::{Mutex, MutexGuard};
use std::{collections::BTreeMap, sync::Arc};
use thalweg_dropbox::collect::{Source, SubmissionResult};
use thalweg_gather::{Event, EventSink};

/// Passes events on to the display, and keeps the reasons of failures.
#[derive(Debug)]
pub struct FailureRecorder {
    display: Arc<GatherDisplay>,
    reasons: Mutex<FailureReasons>,
}

#[derive(Debug, Default)]
struct FailureReasons {
    files: BTreeMap<String, String>,
    sources: BTreeMap<String, String>,
    /// The reason why the whole gathering failed.
    all: Option<String>,
}

impl FailureRecorder {
    /// Creates it without reasons.
    pub fn new(display: Arc<GatherDisplay>) -> Self {
        Self { display, reasons: Mutex::default() }
    }

    fn reasons(&self) -> MutexGuard<'_, FailureReasons> {
        self.reasons.lock()
    }

    /// Records why the gathering ended.
    pub fn record_end(&self, why: String) {
        self.reasons().all = Some(why);
    }

    /// Adds the reason to each submission that was not received, if it is known.
    pub fn explain(&self, settled: &mut [SubmissionResult], due: &[Source]) {
        let reasons = self.reasons();
        let arrivals = due.iter().flat_map(|source| &source.arrivals);
        for arrival in arrivals {
            let node = arrival.receipt.value().node.as_str();
            let why = reasons.files.get(&arrival.id().text());
            let why = why.or_else(|| reasons.sources.get(node)).or(reasons.all.as_ref());
            let number = arrival.stamp.value().number;
            let own = settled.iter_mut().find(|one| one.number == number);
            if let (Some(why), Some(SubmissionResult { outcome: Err(text), .. })) = (why, own) {
                *text = format!("{text}: {why}");
            }
        }
    }
}

impl EventSink for FailureRecorder {
    fn event(&self, event: Event) {
        match &event {
            Event::FileFailed { file, why, .. } => {
                let name = file.rsplit('/').next().unwrap_or_default();
                self.reasons().files.insert(name.to_owned(), why.clone());
            }
            Event::SourceFailed { source, why, .. } => {
                self.reasons().sources.insert(source.to_string(), why.clone());
            }
            // Files that are not named have the reason of their source.
            Event::MoreFailed { source: Some(source), why, .. } => {
                self.reasons().sources.entry(source.to_string()).or_insert_with(|| why.clone());
            }
            _ => {}
        }
        self.display.event(event);
    }
}
