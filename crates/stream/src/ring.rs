//! The newest frames of a stream, shared by all its legs. Pure.

use crate::Entry;
use std::{collections::VecDeque, time::Duration};
use thalweg_media::FrameClass;
use thalweg_units::Time;

/// A ring of consecutive entries, bounded in bytes, count and age.
#[derive(Debug)]
pub struct Ring {
    entries: VecDeque<Entry>,
    bytes: usize,
    max_bytes: usize,
    /// The number of the oldest entry.
    first: u64,
}

impl Ring {
    /// Creates a ring of at most `max_bytes` bytes; one frame is kept in any case.
    pub fn new(max_bytes: usize) -> Self {
        Self { entries: VecDeque::new(), bytes: 0, max_bytes, first: 0 }
    }

    /// Clears the ring; the next entry has this number.
    pub fn restart(&mut self, first: u64) {
        (self.entries, self.bytes, self.first) = (VecDeque::new(), 0, first);
    }

    /// The number of the next entry.
    pub fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// The number of the oldest entry.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The bytes of all frames.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the next entry and removes entries older than `latency`. An entry with another number is refused: false.
    pub fn push(&mut self, entry: Entry, now: Time, latency: Duration) -> bool {
        if entry.sequence() != self.next() {
            return false;
        }
        if let Entry::Frame(frame) = &entry {
            self.bytes += frame.frame.bytes.len();
        }
        self.entries.push_back(entry);
        while self.entries.len() > 1 && self.exceeds_bounds(now, latency) {
            self.pop_oldest();
        }
        true
    }

    fn exceeds_bounds(&self, now: Time, latency: Duration) -> bool {
        let is_frame = |entry: &Entry| matches!(entry, Entry::Frame(_));
        let oldest = self.entries.iter().take(MAX_LEADING_LOST).find(|entry| is_frame(entry));
        let is_old = match oldest {
            Some(Entry::Frame(frame)) => frame.age(now) > latency,
            _ => self.entries.len() > MAX_LEADING_LOST,
        };
        is_old || self.bytes > self.max_bytes || self.entries.len() > MAX_ENTRIES
    }

    fn pop_oldest(&mut self) {
        if let Some(Entry::Frame(frame)) = self.entries.pop_front() {
            self.bytes -= frame.frame.bytes.len();
        }
        self.first += 1;
    }

    /// The entry with this number, if present.
    pub fn get(&self, sequence: u64) -> Option<&Entry> {
        let at = sequence.checked_sub(self.first)?;
        self.entries.get(usize::try_from(at).ok()?)
    }

    /// The number at which a new subscriber begins: the tables before the newest key frame, that frame, or the next
    /// entry.
    pub fn start(&self) -> u64 {
        let is = |entry: &Entry, class| matches!(entry, Entry::Frame(f) if f.frame.class == class);
        let Some(key) = self.entries.iter().rposition(|entry| is(entry, FrameClass::Key)) else {
            return self.next();
        };
        let before = self.entries.iter().take(key).rev();
        let tables = before.take_while(|entry| is(entry, FrameClass::Tables)).count();
        self.first + (key - tables) as u64
    }
}

/// The most entries: a minute of eight renditions at 60 frames a second, and audio.
const MAX_ENTRIES: usize = 32_768;

/// The most placeholders before the oldest frame.
const MAX_LEADING_LOST: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NumberedFrame;
    use bytes::Bytes;
    use std::sync::Arc;
    use thalweg_media::Frame;

    fn frame(sequence: u64, class: FrameClass, bytes: usize) -> Entry {
        let frame =
            Frame { track: 0, class, time: Duration::ZERO, bytes: Bytes::from(vec![0; bytes]) };
        let born = Time::from_nanos(sequence * 1_000_000_000);
        Entry::Frame(Arc::new(NumberedFrame { sequence, born, frame }))
    }

    #[test]
    fn it_is_bounded_in_bytes_and_in_time_and_has_no_gaps() {
        let mut ring = Ring::new(100);
        let hour = Duration::from_secs(3600);
        for sequence in 0..10 {
            let now = Time::from_nanos(sequence * 1_000_000_000);
            assert!(ring.push(frame(sequence, FrameClass::Reference, 30), now, hour));
        }
        assert_eq!((ring.first(), ring.next(), ring.bytes()), (7, 10, 90));
        assert!(!ring.push(frame(11, FrameClass::Key, 1), Time::ZERO, hour), "one is missing");
        let later = Time::from_nanos(10_500_000_000);
        assert!(ring.push(frame(10, FrameClass::Key, 500), later, Duration::from_secs(1)));
        assert_eq!((ring.first(), ring.bytes()), (10, 500), "one frame is held in any case");
        assert!(ring.get(9).is_none() && ring.get(10).is_some() && ring.get(11).is_none());
    }

    #[test]
    fn a_new_subscriber_begins_at_the_newest_key_frame_and_its_tables() {
        use FrameClass::{Key, Reference, Tables};
        let mut ring = Ring::new(1 << 20);
        assert_eq!(ring.start(), 0);
        let hour = Duration::from_secs(3600);
        for (sequence, class) in
            [Key, Reference, Tables, Tables, Key, Reference].into_iter().enumerate()
        {
            ring.push(frame(sequence as u64, class, 1), Time::ZERO, hour);
        }
        assert_eq!(ring.start(), 2);
    }
}
