//! Updates a job's record while the cast runs.

use super::{CastEnd, CastRecord, JobError, Lock, ending, failed};
use crate::{
    average_bps,
    source::event::{Event, EventSink, Outcome, ReceiverState},
};
use parking_lot::{Condvar, Mutex};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    thread::{self, JoinHandle},
};
use thalweg_wire::mesh::Name;

/// An event sink that records a cast's events in its job, and passes them on.
pub struct JobRecorder {
    shared: Arc<RecorderShared>,
    writing: Mutex<Option<JoinHandle<()>>>,
}

struct RecorderShared {
    to: Arc<dyn EventSink>,
    stem: PathBuf,
    state: Mutex<State>,
    changed: Condvar,
    _lock: Lock,
}

struct State {
    record: CastRecord,
    is_changed: bool,
    progress: Option<Value>,
    is_over: bool,
    /// Writing has failed before; that is reported once.
    is_failed: bool,
}

impl JobRecorder {
    /// Creates a job in this directory, or continues it. Events are passed on to `to`.
    ///
    /// # Errors
    /// [`JobError`].
    pub fn open(
        directory: &Path,
        mut record: CastRecord,
        to: Arc<dyn EventSink>,
    ) -> Result<Self, JobError> {
        let stem = record.stem(directory);
        fs::create_dir_all(directory).map_err(|e| failed(&stem, e))?;
        let lock = Lock::take(&stem)?;
        if let Some(earlier) = CastRecord::read(&stem).map_err(|e| failed(&stem, e))? {
            record.resume(earlier);
        }
        record.write(&stem).map_err(|e| failed(&stem, e))?;
        let state =
            State { record, is_changed: false, progress: None, is_over: false, is_failed: false };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let shared = Arc::new(RecorderShared { to, stem, state, changed, _lock: lock });
        let working = Arc::clone(&shared);
        let named = thread::Builder::new().name("cast-job".to_owned());
        let writing = named.spawn(move || working.write());
        let writing = writing.map_err(|e| failed(&shared.stem, e))?;
        Ok(Self { shared, writing: Mutex::new(Some(writing)) })
    }

    /// Waits until everything is written. Blocks.
    pub fn finish(&self) {
        self.shared.state.lock().is_over = true;
        self.shared.changed.notify_one();
        let writing = self.writing.lock().take();
        // The thread does not panic; if it did, the record keeps its last content.
        _ = writing.map(JoinHandle::join);
    }
}

impl Drop for JobRecorder {
    fn drop(&mut self) {
        self.finish();
    }
}

impl EventSink for JobRecorder {
    fn event(&self, event: &Event) {
        self.shared.to.event(event);
        let mut state = self.shared.state.lock();
        state.note(event);
        drop(state);
        self.shared.changed.notify_one();
    }
}

impl RecorderShared {
    /// The writing thread: runs until the cast is over and everything is written.
    fn write(&self) {
        let mut state = self.state.lock();
        loop {
            let record = std::mem::take(&mut state.is_changed).then(|| state.record.clone());
            let progress = state.progress.take();
            if record.is_none() && progress.is_none() {
                if state.is_over {
                    return;
                }
                self.changed.wait(&mut state);
                continue;
            }
            drop(state);
            let failed = self.write_these(record.as_ref(), progress.as_ref());
            state = self.state.lock();
            if let Err(why) = failed
                && !std::mem::replace(&mut state.is_failed, true)
            {
                drop(state);
                let text = format!("cannot save the progress of the cast any more: {why}");
                self.to.event(&Event::Note { text });
                state = self.state.lock();
            }
        }
    }

    fn write_these(
        &self,
        record: Option<&CastRecord>,
        progress: Option<&Value>,
    ) -> Result<(), JobError> {
        if let Some(record) = record {
            record.write(&self.stem).map_err(|e| failed(&self.stem, e))?;
        }
        let Some(progress) = progress else { return Ok(()) };
        // Not synced: needed only while this process lives.
        let (file, new) = (ending(&self.stem, "progress"), ending(&self.stem, "progress-new"));
        let written = fs::write(&new, progress.to_string()).and_then(|()| fs::rename(&new, &file));
        written.map_err(|source| JobError::Io { path: file, source })
    }
}

impl State {
    fn note(&mut self, event: &Event) {
        match event {
            Event::Accepted { receiver, held_bytes } => self.change(receiver, |known| {
                known.held_bytes = *held_bytes;
                (known.why, known.is_refused) = (None, false);
            }),
            Event::Unreached { receiver, why } | Event::Refused { receiver, why, .. } => {
                let is_refused = matches!(event, Event::Refused { .. });
                self.change(receiver, |known| {
                    (known.why, known.is_refused) = (Some(why.clone()), is_refused);
                });
            }
            Event::Received { receiver, seconds, received_bytes, duplicate_bytes, .. } => {
                let all = self.record.total_bytes;
                let rate = average_bps(received_bytes.saturating_sub(*duplicate_bytes), *seconds);
                self.change(receiver, |known| {
                    (known.is_complete, known.held_bytes) = (true, all);
                    (known.why, known.is_refused) = (None, false);
                    // A restarted receiver does not know its rate any more.
                    known.rate_bps = rate.or(known.rate_bps);
                });
            }
            Event::Progress { receivers, .. } => {
                for receiver in receivers.iter().filter(|r| r.state != ReceiverState::Waiting) {
                    // Written with the next change.
                    if let Some(known) = self.record.receivers.get_mut(&receiver.name) {
                        known.held_bytes = known.held_bytes.max(receiver.held_bytes);
                    }
                }
                self.progress = serde_json::to_value(event).ok();
            }
            Event::Broken { why } => {
                self.record.why = Some(why.clone());
                self.is_changed = true;
            }
            Event::Ended(totals) => {
                self.record.end = Some(match totals.outcome {
                    Outcome::Complete => CastEnd::Complete,
                    Outcome::Partial => CastEnd::Partial,
                    Outcome::Failed => CastEnd::Failed,
                    Outcome::Interrupted => CastEnd::Interrupted,
                });
                self.is_changed = true;
            }
            _ => {}
        }
    }

    fn change(&mut self, receiver: &Name, change: impl FnOnce(&mut super::Receiver)) {
        if let Some(known) = self.record.receivers.get_mut(receiver) {
            let before = known.clone();
            change(known);
            self.is_changed |= *known != before;
        }
    }
}
