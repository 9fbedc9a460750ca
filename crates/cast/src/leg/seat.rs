//! Which symbols the source has announced to each child: `fountain`'s rule behind a lock.

use std::{
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use thalweg_fountain::{Geometry, Reveal, SeatId};
use tokio::sync::watch;

/// A child that asks for nothing for so long, and four round trips, has what it was told of.
const IDLE: Duration = Duration::from_secs(2);

/// The children who have other parents, too.
#[derive(Debug)]
pub struct Audience {
    reveal: Mutex<Reveal>,
    is_over: watch::Sender<bool>,
}

impl Audience {
    /// Nobody has been told of anything.
    pub fn new(geometry: &Geometry) -> Arc<Self> {
        let reveal = Mutex::new(Reveal::new(geometry));
        Arc::new(Self { reveal, is_over: watch::Sender::new(false) })
    }

    /// One more child.
    pub fn seat(self: &Arc<Self>, round_trip: Duration) -> Seat {
        let id = self.lock().join();
        Seat { audience: Arc::clone(self), id, patience: IDLE + 4 * round_trip }
    }

    /// Those who wait hear of it once all may be told to all.
    fn note(&self, reveal: &Reveal) {
        if reveal.is_over() {
            self.is_over.send_if_modified(|over| !std::mem::replace(over, true));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Reveal> {
        // A panic in between would be the rule's; it has none.
        self.reveal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A child's place; what it was told of and did not ask for goes to others when this is dropped.
#[derive(Debug)]
pub struct Seat {
    audience: Arc<Audience>,
    id: SeatId,
    patience: Duration,
}

impl Seat {
    /// What is to be told now; none: everything that is there.
    pub fn tell(&self) -> Option<Vec<Range<u64>>> {
        let mut reveal = self.audience.lock();
        if reveal.is_over() {
            return None;
        }
        let told = reveal.tell(self.id);
        self.audience.note(&reveal);
        Some(told)
    }

    /// The child asked for these.
    pub fn asked(&self, runs: &[(u64, u64)]) {
        let mut reveal = self.audience.lock();
        runs.iter().for_each(|(from, to)| reveal.asked(self.id, *from..*to));
    }

    /// The child holds these from before.
    pub fn holds(&self, runs: &[(u64, u64)]) {
        let mut reveal = self.audience.lock();
        runs.iter().for_each(|(from, to)| reveal.holds(self.id, *from..*to));
        self.audience.note(&reveal);
    }

    /// So long the child may ask for nothing before it is [`Self::idle`].
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// The child asks for nothing: what it was told of is taken to be there.
    pub fn idle(&self) {
        self.audience.lock().idle(self.id);
    }

    /// Changes when all may be told to all.
    pub fn over(&self) -> watch::Receiver<bool> {
        self.audience.is_over.subscribe()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.audience.lock().leave(self.id);
    }
}
