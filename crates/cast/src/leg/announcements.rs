//! Which symbols the source has announced to each child: `fountain::AnnouncementScheduler` behind a lock.

use parking_lot::Mutex;
use std::{ops::Range, sync::Arc, time::Duration};
use thalweg_fountain::{AnnouncementScheduler, ChildConnectionId, Geometry};
use tokio::sync::watch;

/// A child that requests nothing for this long plus four round trips is assumed to have what was announced to it.
const IDLE: Duration = Duration::from_secs(2);

/// The announcements to children that have other parents, too.
#[derive(Debug)]
pub struct Announcements {
    scheduler: Mutex<AnnouncementScheduler>,
    is_over: watch::Sender<bool>,
}

impl Announcements {
    /// Creates the state in which nothing has been announced.
    pub fn new(geometry: &Geometry) -> Arc<Self> {
        let scheduler = Mutex::new(AnnouncementScheduler::new(geometry));
        Arc::new(Self { scheduler, is_over: watch::Sender::new(false) })
    }

    /// Adds a child that is this round trip away.
    pub fn add_child(self: &Arc<Self>, round_trip: Duration) -> ChildAnnouncements {
        let id = self.scheduler.lock().join();
        ChildAnnouncements { shared: Arc::clone(self), id, patience: IDLE + 4 * round_trip }
    }

    /// Wakes the legs once everything may be announced to all children.
    fn note(&self, scheduler: &AnnouncementScheduler) {
        if scheduler.is_over() {
            self.is_over.send_if_modified(|over| !std::mem::replace(over, true));
        }
    }
}

/// What is announced to one child. When it is dropped, symbols that were announced and not requested are announced to
/// others.
#[derive(Debug)]
pub struct ChildAnnouncements {
    shared: Arc<Announcements>,
    id: ChildConnectionId,
    patience: Duration,
}

impl ChildAnnouncements {
    /// The symbols to announce now; `None`: everything may be announced.
    pub fn announce(&self) -> Option<Vec<Range<u64>>> {
        let mut scheduler = self.shared.scheduler.lock();
        if scheduler.is_over() {
            return None;
        }
        let announced = scheduler.announce(self.id);
        self.shared.note(&scheduler);
        Some(announced)
    }

    /// Records that the child requested these symbols.
    pub fn record_request(&self, runs: &[(u64, u64)]) {
        let mut scheduler = self.shared.scheduler.lock();
        runs.iter().for_each(|(from, to)| scheduler.record_request(self.id, *from..*to));
    }

    /// Records that the child already holds these symbols.
    pub fn record_held(&self, runs: &[(u64, u64)]) {
        let mut scheduler = self.shared.scheduler.lock();
        runs.iter().for_each(|(from, to)| scheduler.record_held(self.id, *from..*to));
        self.shared.note(&scheduler);
    }

    /// The time without requests after which [`Self::record_idle`] is called.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// Records that the child requests nothing: it is assumed to have what was announced to it.
    pub fn record_idle(&self) {
        self.shared.scheduler.lock().record_idle(self.id);
    }

    /// Changes when everything may be announced to all children.
    pub fn watch_end(&self) -> watch::Receiver<bool> {
        self.shared.is_over.subscribe()
    }
}

impl Drop for ChildAnnouncements {
    fn drop(&mut self) {
        self.shared.scheduler.lock().leave(self.id);
    }
}
