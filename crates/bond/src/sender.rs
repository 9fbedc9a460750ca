//! The sending end of a striped stream: which link carries which chunk, and what must be sent again.
//!
//! A stream is cut into chunks when they are assigned, and each chunk is named by its offset (the paper's chunkId, in
//! bytes, so that chunks may differ in size). A chunk is forgotten once the far end has it. If a link dies, the chunks
//! that only this link carried are sent again. If one chunk blocks the stream, or there is nothing new to send, an idle
//! link may carry that chunk as well.

use crate::stripe::{Link, LinkId};
use std::{collections::BTreeMap, ops::Range};
use thalweg_units::Time;
use thiserror::Error;

/// A piece of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chunk {
    /// Its offset in the stream, bytes.
    pub offset: u64,
    /// Its length, bytes.
    pub length: u32,
}

impl Chunk {
    /// The offset after its last byte.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length.into())
    }
}

/// Settings of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderSettings {
    /// The maximum size of a chunk, bytes.
    pub chunk: u32,
    /// One byte may be sent a second time for each of this many acknowledged bytes; 0: none at all.
    pub bytes_per_spare: u64,
    /// Bytes that may be sent a second time in any case, unless `bytes_per_spare` is 0.
    pub first_spare: u64,
}

impl Default for SenderSettings {
    /// 16 KiB, about one burst of the kernel; one byte in 50, and 128 KiB.
    fn default() -> Self {
        Self { chunk: 16 << 10, bytes_per_spare: 50, first_spare: 128 << 10 }
    }
}

/// A chunk that a link no longer carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReleasedChunk {
    /// The link that carried it.
    pub link: LinkId,
    pub bytes: u32,
    /// When it was assigned to that link.
    pub sent: Time,
    /// Whether only this link ever carried it, so that the time it took is this link's.
    pub is_plain: bool,
}

/// The far end acknowledged bytes that were never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("bytes up to {said} were acknowledged, but only bytes up to {sent} were sent")]
pub struct AckError {
    /// The offset that it acknowledged.
    pub said: u64,
    /// The offset up to which bytes were sent.
    pub sent: u64,
}

#[derive(Clone, Copy, Debug)]
struct ChunkAssignment {
    link: LinkId,
    sent: Time,
    /// When it was expected to arrive.
    due: Time,
}

#[derive(Clone, Debug)]
struct SentChunk {
    length: u32,
    /// Links that carry it now: one or two; empty: it has to be sent again.
    assignments: Vec<ChunkAssignment>,
    /// Whether it was assigned to a link more than once.
    again: bool,
}

/// What a stream has sent, and what has arrived.
#[derive(Clone, Debug)]
pub struct Sender {
    settings: SenderSettings,
    /// Bytes that the application has written.
    written: u64,
    /// Bytes that were ever assigned to a link.
    assigned: u64,
    /// The offset up to which the far end accepts bytes.
    limit: u64,
    /// All bytes before this offset have arrived.
    arrived: u64,
    flights: BTreeMap<u64, SentChunk>,
    /// Chunks that no link carries.
    unassigned: BTreeMap<u64, u32>,
    acknowledged: u64,
    spare: u64,
}

impl Sender {
    /// Creates a sender for a far end that accepts `window` bytes at first.
    pub fn new(settings: SenderSettings, window: u64) -> Self {
        Self {
            settings: SenderSettings { chunk: settings.chunk.max(1), ..settings },
            written: 0,
            assigned: 0,
            limit: window,
            arrived: 0,
            flights: BTreeMap::new(),
            unassigned: BTreeMap::new(),
            acknowledged: 0,
            spare: 0,
        }
    }

    /// The application has written this many more bytes.
    pub fn record_write(&mut self, bytes: u64) {
        self.written = self.written.saturating_add(bytes);
    }

    /// The far end accepts bytes up to this offset, which never falls.
    pub fn raise_limit(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    /// The number of bytes that the application has written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The number of bytes that wait for a link.
    pub fn backlog(&self) -> u64 {
        let unassigned: u64 = self.unassigned.values().map(|length| u64::from(*length)).sum();
        self.written - self.assigned + unassigned
    }

    /// The number of bytes that the far end accepts beyond those sent.
    pub fn window(&self) -> u64 {
        self.limit.saturating_sub(self.assigned)
    }

    /// All bytes before this offset have arrived, and are not needed again.
    pub fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Whether everything that was written has arrived.
    pub fn is_settled(&self) -> bool {
        self.arrived == self.written
    }

    /// The number of bytes that were sent a second time while another link still carried them.
    pub fn spare(&self) -> u64 {
        self.spare
    }

    /// The next chunk to assign: the first one that lost its link, otherwise new bytes.
    pub fn next(&self) -> Option<Chunk> {
        if let Some((offset, length)) = self.unassigned.first_key_value() {
            return Some(Chunk { offset: *offset, length: *length });
        }
        let most = (self.written - self.assigned).min(self.window());
        let length = most.min(self.settings.chunk.into()) as u32;
        (length > 0).then_some(Chunk { offset: self.assigned, length })
    }

    /// Records that a chunk from [`Self::next`] or [`Self::next_copy`] was assigned to a link.
    pub fn record_assignment(&mut self, chunk: Chunk, link: &Link, now: Time) {
        let due = now + secs(link.completion(chunk.length.into()) + link.one_way());
        let assignment = ChunkAssignment { link: link.id, sent: now, due };
        if chunk.offset >= self.assigned {
            self.assigned = chunk.end();
            let flight =
                SentChunk { length: chunk.length, assignments: vec![assignment], again: false };
            self.flights.insert(chunk.offset, flight);
            return;
        }
        self.unassigned.remove(&chunk.offset);
        if let Some(flight) = self.flights.get_mut(&chunk.offset) {
            if !flight.assignments.is_empty() {
                self.spare += u64::from(flight.length);
            }
            flight.again = true;
            flight.assignments.push(assignment);
        }
    }

    /// Takes an acknowledgement of all bytes before `arrived`, and of these ranges. Returns the chunks that links no
    /// longer carry.
    ///
    /// # Errors
    /// [`AckError`]: these bytes were never sent.
    pub fn acknowledge(
        &mut self,
        arrived: u64,
        ranges: &[Range<u64>],
    ) -> Result<Vec<ReleasedChunk>, AckError> {
        let said = ranges.iter().map(|range| range.end).fold(arrived, u64::max);
        if said > self.assigned {
            return Err(AckError { said, sent: self.assigned });
        }
        let mut freed = Vec::new();
        while let Some((offset, flight)) = self.flights.first_key_value() {
            if offset + u64::from(flight.length) > arrived {
                break;
            }
            self.settle(*offset, &mut freed);
        }
        for range in ranges.iter().filter(|range| range.start < range.end) {
            let within = self.flights.range(range.clone());
            let whole = within.filter(|(at, flight)| *at + u64::from(flight.length) <= range.end);
            let whole: Vec<u64> = whole.map(|(offset, _)| *offset).collect();
            whole.into_iter().for_each(|offset| self.settle(offset, &mut freed));
        }
        self.arrived = self.flights.keys().next().copied().unwrap_or(self.assigned);
        Ok(freed)
    }

    fn settle(&mut self, offset: u64, freed: &mut Vec<ReleasedChunk>) {
        let Some(flight) = self.flights.remove(&offset) else { return };
        self.unassigned.remove(&offset);
        self.acknowledged += u64::from(flight.length);
        let is_plain = !flight.again;
        let of = |assignment: &ChunkAssignment| ReleasedChunk {
            link: assignment.link,
            bytes: flight.length,
            sent: assignment.sent,
            is_plain,
        };
        freed.extend(flight.assignments.iter().map(of));
    }

    /// A link is gone or silent: the chunks that only this link carried are sent again. Returns their number of bytes.
    pub fn release_link(&mut self, link: LinkId) -> u64 {
        let mut bytes = 0;
        for (offset, flight) in &mut self.flights {
            let before = flight.assignments.len();
            flight.assignments.retain(|assignment| assignment.link != link);
            if flight.assignments.is_empty() && before > 0 {
                self.unassigned.insert(*offset, flight.length);
                bytes += u64::from(flight.length);
            }
        }
        bytes
    }

    /// A chunk that an idle link should carry in addition to its present link: the chunk blocks the stream (head) or
    /// nothing new is left to send (tail), and this link delivers it sooner.
    pub fn next_copy(&self, idle: &Link, now: Time) -> Option<Chunk> {
        if self.next().is_some() || !idle.may_duplicate || !idle.usable || !idle.writable {
            return None;
        }
        let allowed = match self.settings.bytes_per_spare {
            0 => 0,
            per => self.settings.first_spare + self.acknowledged / per,
        };
        let mut flights = self.flights.iter().take(64);
        let (offset, flight) = flights.find(|(_, flight)| is_late(flight, idle, now))?;
        let fits = self.spare + u64::from(flight.length) <= allowed;
        fits.then_some(Chunk { offset: *offset, length: flight.length })
    }
}

/// Whether the only link that carries the chunk delivers it later than the idle link would.
fn is_late(flight: &SentChunk, idle: &Link, now: Time) -> bool {
    let [assignment] = flight.assignments.as_slice() else { return false };
    if assignment.link == idle.id {
        return false;
    }
    // An overdue chunk is expected to be late by as much again.
    let left = match assignment.due > now {
        true => assignment.due.since(now),
        false => now.since(assignment.due),
    };
    secs(idle.completion(flight.length.into()) + idle.one_way()) < left
}

fn secs(seconds: f64) -> std::time::Duration {
    std::time::Duration::try_from_secs_f64(seconds).unwrap_or(std::time::Duration::from_secs(3600))
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "one range is what is meant")]
mod tests {
    use super::*;
    use std::time::Duration;
    use thalweg_units::Rate;

    fn link(id: u32, mbps: f64, rtt_ms: u64) -> Link {
        Link {
            id: LinkId(id),
            rate: Rate::from_mbps(mbps),
            rtt: Duration::from_millis(rtt_ms),
            unsent: 0,
            writable: true,
            usable: true,
            may_duplicate: true,
        }
    }

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    /// A sender with four chunks of 10 bytes, on links 1 and 2 in turn.
    fn four(settings: SenderSettings) -> Sender {
        let mut sender = Sender::new(SenderSettings { chunk: 10, ..settings }, 40);
        sender.record_write(100);
        for id in [1, 2, 1, 2] {
            let chunk = sender.next().unwrap();
            sender.record_assignment(chunk, &link(id, 8.0, if id == 1 { 10 } else { 200 }), at(0));
        }
        sender
    }

    #[test]
    fn the_window_bounds_what_is_sent() {
        let mut sender = four(SenderSettings::default());
        assert_eq!((sender.next(), sender.window(), sender.backlog()), (None, 0, 60));
        sender.raise_limit(45);
        assert_eq!(sender.next(), Some(Chunk { offset: 40, length: 5 }));
        sender.raise_limit(20);
        assert_eq!(sender.window(), 5);
    }

    #[test]
    fn only_chunks_that_a_dead_link_alone_carried_are_sent_again() {
        let mut sender = four(SenderSettings::default());
        let freed = sender.acknowledge(10, &[30..40]).unwrap();
        assert_eq!(freed.iter().map(|freed| freed.link.0).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(sender.release_link(LinkId(2)), 10);
        assert_eq!(sender.next(), Some(Chunk { offset: 10, length: 10 }));
        sender.record_assignment(Chunk { offset: 10, length: 10 }, &link(1, 8.0, 10), at(5));
        assert_eq!((sender.next(), sender.spare()), (None, 0));
        let freed = sender.acknowledge(40, &[]).unwrap();
        assert!(freed.iter().any(|freed| !freed.is_plain && freed.link == LinkId(1)));
        assert_eq!((sender.arrived(), sender.is_settled()), (40, false));
    }

    #[test]
    fn a_chunk_that_blocks_a_full_window_is_sent_on_the_idle_link_too() {
        let mut sender = four(SenderSettings::default());
        sender.acknowledge(10, &[20..30]).unwrap();
        let idle = link(1, 8.0, 10);
        // The slow link's chunk is due after 200 ms; this link delivers it in 10.
        assert_eq!(sender.next_copy(&idle, at(20)), Some(Chunk { offset: 10, length: 10 }));
        assert_eq!(sender.next_copy(&idle, at(195)), None);
        assert_eq!(sender.next_copy(&link(2, 8.0, 200), at(20)), None);
        let metered = Link { may_duplicate: false, ..idle };
        assert_eq!(sender.next_copy(&metered, at(20)), None);
        sender.record_assignment(Chunk { offset: 10, length: 10 }, &idle, at(20));
        assert_eq!(sender.spare(), 10);
        // Not a third time; the next one is the other chunk of the slow link.
        assert_eq!(sender.next_copy(&idle, at(21)), Some(Chunk { offset: 30, length: 10 }));
        // With one of its links gone the other still carries it.
        assert_eq!(sender.release_link(LinkId(2)), 10);
    }

    #[test]
    fn second_copies_are_bounded() {
        let none = SenderSettings { bytes_per_spare: 0, ..SenderSettings::default() };
        assert_eq!(four(none).next_copy(&link(1, 8.0, 10), at(20)), None);
        let few = SenderSettings { first_spare: 10, ..SenderSettings::default() };
        let mut sender = four(few);
        let chunk = sender.next_copy(&link(1, 8.0, 10), at(20)).unwrap();
        sender.record_assignment(chunk, &link(1, 8.0, 10), at(20));
        assert_eq!(sender.next_copy(&link(1, 8.0, 10), at(20)), None);
    }

    #[test]
    fn an_impossible_word_is_an_error() {
        let mut sender = four(SenderSettings::default());
        assert_eq!(sender.acknowledge(0, &[30..41]), Err(AckError { said: 41, sent: 40 }));
        assert_eq!(sender.acknowledge(u64::MAX, &[]), Err(AckError { said: u64::MAX, sent: 40 }));
        // A range of half a chunk, and an inverted range, acknowledge nothing.
        #[expect(clippy::reversed_empty_ranges, reason = "what a hostile peer may say")]
        let freed = sender.acknowledge(5, &[15..18, 30..20]);
        assert_eq!(freed, Ok(vec![]));
    }
}
