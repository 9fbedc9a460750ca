//! The newest segments of an HLS output in memory, shared with the HTTP server.

use super::packager::{Packager, Status, Update};
use bytes::Bytes;
use parking_lot::Mutex;
use std::{collections::BTreeMap, sync::Arc};
use tokio::time::Instant;

/// The newest segments, playlists and figures; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Window(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    playlist: Option<String>,
    master: Option<String>,
    inits: BTreeMap<u64, Bytes>,
    segments: BTreeMap<u64, Bytes>,
    status: Status,
    /// When the status was set.
    at: Option<Instant>,
}

impl Window {
    /// Applies an update, with the packager's playlists and figures.
    pub fn apply(&self, update: Update, packager: &Packager) {
        let mut state = self.0.lock();
        state.inits.extend(update.inits.into_iter().map(|init| (init.number, init.bytes)));
        state.segments.extend(update.segments.into_iter().map(|one| (one.number, one.bytes)));
        for number in update.removed.segments {
            state.segments.remove(&number);
        }
        for number in update.removed.inits {
            state.inits.remove(&number);
        }
        (state.playlist, state.master) = (packager.playlist(), packager.master());
        state.status = packager.status().clone();
        state.at = Some(Instant::now());
    }

    /// The media playlist; `None` before the first segment.
    pub fn playlist(&self) -> Option<String> {
        self.0.lock().playlist.clone()
    }

    /// The multivariant playlist; `None` before the first segment.
    pub fn master(&self) -> Option<String> {
        self.0.lock().master.clone()
    }

    /// The init segment with this number, if it is still needed.
    pub fn init(&self, number: u64) -> Option<Bytes> {
        self.0.lock().inits.get(&number).cloned()
    }

    /// The media segment with this number, if it is still needed.
    pub fn segment(&self, number: u64) -> Option<Bytes> {
        self.0.lock().segments.get(&number).cloned()
    }

    /// The present figures.
    pub fn status(&self) -> Status {
        let state = self.0.lock();
        let idle = state.at.map(|at| at.elapsed()).unwrap_or_default();
        let idle_ms = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
        Status { idle_ms, ..state.status.clone() }
    }

    /// The bytes of all segments.
    pub fn bytes(&self) -> usize {
        let state = self.0.lock();
        state.segments.values().chain(state.inits.values()).map(Bytes::len).sum()
    }
}
