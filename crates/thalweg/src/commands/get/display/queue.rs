//! The queue of notes to show, in the order in which they happened.

use super::{Note, json::JsonFormatter};
use crate::commands::jobs::report_event;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::{collections::VecDeque, time::Duration};

/// The most notes in the queue. There are a few per path, and one per failure: the queue fills only if nobody reads it.
/// Then the oldest are dropped.
const LENGTH: usize = 4096;

/// The pause of the reader after it has shown all notes: many small downloads would otherwise wake it for each step,
/// and no eye is faster.
const PAUSE: Duration = Duration::from_millis(20);

/// A bounded queue. Of each download's progress it keeps only the latest.
#[derive(Default)]
pub struct Queue {
    waiting: Mutex<QueueState>,
    changed: Condvar,
    /// Signals that the queue is closed.
    over: Condvar,
    /// For this host's node, which lists transfers of terminals.
    formatter: Mutex<JsonFormatter>,
}

#[derive(Default)]
struct QueueState {
    notes: VecDeque<Note>,
    lost: u64,
    closed: bool,
    /// Whether the reader waits for a note.
    awaited: bool,
}

impl Queue {
    /// Adds a note; it replaces a waiting progress report of the same download.
    pub fn push(&self, note: Note) {
        let mut waiting = self.waiting.lock();
        if let Some(item) = note.progress_of() {
            waiting.notes.retain(|n| n.progress_of() != Some(item));
        }
        if waiting.notes.len() >= LENGTH {
            waiting.notes.pop_front();
            waiting.lost += 1;
        }
        waiting.notes.push_back(note);
        if std::mem::take(&mut waiting.awaited) {
            drop(waiting);
            self.changed.notify_one();
        }
    }

    /// Waits for the next note; `None` after the last one.
    pub fn next(&self) -> Option<Note> {
        let mut waiting = self.lock_after_pause();
        self.changed.wait_while(&mut waiting, QueueState::is_waiting);
        let note = waiting.notes.pop_front();
        drop(waiting);
        note.inspect(|note| self.report(note))
    }

    /// As [`next`](Self::next), for at most `time`: `Err` if no note arrived.
    pub fn next_within(&self, time: Duration) -> Result<Option<Note>, ()> {
        let mut waiting = self.lock_after_pause();
        let timeout = self.changed.wait_while_for(&mut waiting, QueueState::is_waiting, time);
        let note = waiting.notes.pop_front();
        drop(waiting);
        match note {
            None if timeout.timed_out() => Err(()),
            note => Ok(note.inspect(|note| self.report(note))),
        }
    }

    fn report(&self, note: &Note) {
        report_event(|| self.formatter.lock().format_note(note.clone()));
    }

    /// Closes the queue: no more notes follow.
    pub fn close(&self) {
        self.waiting.lock().closed = true;
        self.changed.notify_one();
        self.over.notify_one();
    }

    /// The number of dropped notes.
    pub fn lost(&self) -> u64 {
        self.waiting.lock().lost
    }

    /// Locks the queue, after a pause if it is empty.
    fn lock_after_pause(&self) -> MutexGuard<'_, QueueState> {
        let mut waiting = self.waiting.lock();
        if waiting.notes.is_empty() {
            self.over.wait_while_for(&mut waiting, |w| !w.closed, PAUSE);
        }
        waiting
    }
}

impl QueueState {
    /// Whether the queue is empty and open. If so, the next note or the end wakes the reader.
    fn is_waiting(&mut self) -> bool {
        self.awaited = self.notes.is_empty() && !self.closed;
        self.awaited
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_base::job::Event;

    #[test]
    fn a_full_queue_drops_the_oldest_notes_and_keeps_the_last() {
        let note = |item, event| Note::Event { item, event };
        let progress = |done_bytes| Event::Progress {
            done_bytes,
            total_bytes: None,
            rate_bps: 0,
            paths: Vec::new(),
        };
        let queue = Queue::default();
        (0..5_000).for_each(|n| queue.push(note((n % 2) as usize, progress(n))));
        assert_eq!(queue.waiting.lock().notes.len(), 2, "the latest of each download");
        assert_eq!(queue.lost(), 0);
        (0..6_000).for_each(|bytes| queue.push(note(0, Event::Resumed { bytes })));
        queue.close();
        let shown: Vec<_> = std::iter::from_fn(|| queue.next()).collect();
        assert_eq!((shown.len(), queue.lost()), (LENGTH, 6_002 - LENGTH as u64));
        assert_eq!(shown.last(), Some(&note(0, Event::Resumed { bytes: 5_999 })));
        assert_eq!(queue.next_within(Duration::ZERO), Ok(None));
    }
}
