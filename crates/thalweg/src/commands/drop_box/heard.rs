//! What `gather` says of files that did not come.

use crate::commands::gather::Display;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use thalweg_dropbox::collect::{Settled, Source};
use thalweg_gather::{Event, EventSink};

/// Passes events on to the screen, and keeps the reasons of failures.
#[derive(Debug)]
pub struct Heard {
    display: Arc<Display>,
    reasons: Mutex<Reasons>,
}

#[derive(Debug, Default)]
struct Reasons {
    /// By the file's own name.
    files: BTreeMap<String, String>,
    /// By the source's.
    sources: BTreeMap<String, String>,
    /// Of all.
    all: Option<String>,
}

impl Heard {
    /// Nothing yet.
    pub fn new(display: Arc<Display>) -> Self {
        Self { display, reasons: Mutex::default() }
    }

    fn reasons(&self) -> MutexGuard<'_, Reasons> {
        self.reasons.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why nothing more came at all.
    pub fn ended(&self, why: String) {
        self.reasons().all = Some(why);
    }

    /// Says of each that did not come why, as far as it was heard.
    pub fn explain(&self, settled: &mut [Settled], due: &[Source]) {
        let reasons = self.reasons();
        let arrivals = due.iter().flat_map(|source| &source.arrivals);
        for arrival in arrivals {
            let node = arrival.receipt.value().node.as_str();
            let why = reasons.files.get(&arrival.id().text());
            let why = why.or_else(|| reasons.sources.get(node)).or(reasons.all.as_ref());
            let number = arrival.stamp.value().number;
            let own = settled.iter_mut().find(|one| one.number == number);
            if let (Some(why), Some(Settled { outcome: Err(said), .. })) = (why, own) {
                *said = format!("{said}: {why}");
            }
        }
    }
}

impl EventSink for Heard {
    fn event(&self, event: Event) {
        match &event {
            Event::FileFailed { file, why, .. } => {
                let name = file.rsplit('/').next().unwrap_or_default();
                self.reasons().files.insert(name.to_owned(), why.clone());
            }
            Event::SourceFailed { source, why, .. } => {
                self.reasons().sources.insert(source.to_string(), why.clone());
            }
            _ => {}
        }
        self.display.event(event);
    }
}
