//! The sending end of a striped stream: what is where, and what must go again.
//!
//! A stream is cut at assignment into chunks, each named by its offset (the paper's chunkId, in
//! bytes, so that chunks may differ in size). A chunk is forgotten once the far end has it. When a
//! link dies, what it alone carried goes again; when the stream stands still for one chunk, or has
//! nothing new to send, that chunk may go on an idle link as well.

use crate::stripe::{Link, LinkId};
use std::{collections::BTreeMap, ops::Range};
use thalweg_units::Time;
use thiserror::Error;

/// A piece of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chunk {
    /// Where it begins in the stream, bytes.
    pub offset: u64,
    /// Its bytes.
    pub length: u32,
}

impl Chunk {
    /// Where it ends.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length.into())
    }
}

/// How a stream is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderSettings {
    /// Bytes of a chunk.
    pub chunk: u32,
    /// Of so many bytes that arrived one may be sent a second time; 0: none.
    pub bytes_per_spare: u64,
    /// Bytes that may be sent a second time in any case.
    pub first_spare: u64,
}

impl Default for SenderSettings {
    /// 16 KiB, about a burst that the kernel sends as one; 1 in 50 and 128 KiB.
    fn default() -> Self {
        Self { chunk: 16 << 10, bytes_per_spare: 50, first_spare: 128 << 10 }
    }
}

/// A chunk that a link was rid of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freed {
    /// Who carried it.
    pub link: LinkId,
    /// Its bytes.
    pub bytes: u32,
    /// When it was given to that link.
    pub sent: Time,
    /// Whether this link alone carried it, ever, so that the time it took is this link's.
    pub is_plain: bool,
}

/// The far end says what cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("bytes up to {said} were acknowledged, and {sent} were sent")]
pub struct Unsent {
    /// What it says.
    pub said: u64,
    /// What is true.
    pub sent: u64,
}

#[derive(Clone, Copy, Debug)]
struct Carrier {
    link: LinkId,
    sent: Time,
    /// When it was expected to arrive.
    due: Time,
}

#[derive(Clone, Debug)]
struct Flight {
    length: u32,
    /// Links that carry it now: one, or two. None: it is to go again.
    carriers: Vec<Carrier>,
    /// Whether it was given to links more than once.
    again: bool,
}

/// What a stream has sent, and what of it arrived.
#[derive(Clone, Debug)]
pub struct Sender {
    settings: SenderSettings,
    /// Bytes that the application gave.
    written: u64,
    /// Bytes that were ever given to a link.
    assigned: u64,
    /// Up to where the far end takes bytes.
    limit: u64,
    /// All before it arrived.
    arrived: u64,
    flights: BTreeMap<u64, Flight>,
    /// Chunks that no link carries.
    homeless: BTreeMap<u64, u32>,
    acknowledged: u64,
    spare: u64,
}

impl Sender {
    /// For a far end that takes `window` bytes at first.
    pub fn new(settings: SenderSettings, window: u64) -> Self {
        Self {
            settings: SenderSettings { chunk: settings.chunk.max(1), ..settings },
            written: 0,
            assigned: 0,
            limit: window,
            arrived: 0,
            flights: BTreeMap::new(),
            homeless: BTreeMap::new(),
            acknowledged: 0,
            spare: 0,
        }
    }

    /// The application gave so many more bytes.
    pub fn wrote(&mut self, bytes: u64) {
        self.written = self.written.saturating_add(bytes);
    }

    /// The far end takes bytes up to here; it never takes that back.
    pub fn may_send_to(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    /// All bytes that the application gave.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Bytes that wait for a link.
    pub fn backlog(&self) -> u64 {
        let homeless: u64 = self.homeless.values().map(|length| u64::from(*length)).sum();
        self.written - self.assigned + homeless
    }

    /// Bytes that the far end takes beyond what was sent.
    pub fn window(&self) -> u64 {
        self.limit.saturating_sub(self.assigned)
    }

    /// All before this offset arrived: nobody asks for it again.
    pub fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Whether all that was written arrived.
    pub fn is_settled(&self) -> bool {
        self.arrived == self.written
    }

    /// Bytes that were sent a second time while a link still carried them.
    pub fn spare(&self) -> u64 {
        self.spare
    }

    /// The next chunk to be given to a link: the first that lost its link, else new bytes.
    pub fn next(&self) -> Option<Chunk> {
        if let Some((offset, length)) = self.homeless.first_key_value() {
            return Some(Chunk { offset: *offset, length: *length });
        }
        let most = (self.written - self.assigned).min(self.window());
        let length = most.min(self.settings.chunk.into()) as u32;
        (length > 0).then_some(Chunk { offset: self.assigned, length })
    }

    /// A chunk from [`Self::next`] or [`Self::second`] was given to a link.
    pub fn assigned(&mut self, chunk: Chunk, link: &Link, now: Time) {
        let due = now + secs(link.completion(chunk.length.into()) + link.one_way());
        let carrier = Carrier { link: link.id, sent: now, due };
        if chunk.offset >= self.assigned {
            self.assigned = chunk.end();
            let flight = Flight { length: chunk.length, carriers: vec![carrier], again: false };
            self.flights.insert(chunk.offset, flight);
            return;
        }
        self.homeless.remove(&chunk.offset);
        if let Some(flight) = self.flights.get_mut(&chunk.offset) {
            if !flight.carriers.is_empty() {
                self.spare += u64::from(flight.length);
            }
            flight.again = true;
            flight.carriers.push(carrier);
        }
    }

    /// The far end has all before `arrived`, and these ranges. What links were rid of.
    ///
    /// # Errors
    /// [`Unsent`]: it cannot have them.
    pub fn acknowledged(
        &mut self,
        arrived: u64,
        ranges: &[Range<u64>],
    ) -> Result<Vec<Freed>, Unsent> {
        let said = ranges.iter().map(|range| range.end).fold(arrived, u64::max);
        if said > self.assigned {
            return Err(Unsent { said, sent: self.assigned });
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

    fn settle(&mut self, offset: u64, freed: &mut Vec<Freed>) {
        let Some(flight) = self.flights.remove(&offset) else { return };
        self.homeless.remove(&offset);
        self.acknowledged += u64::from(flight.length);
        let is_plain = !flight.again;
        let of = |carrier: &Carrier| Freed {
            link: carrier.link,
            bytes: flight.length,
            sent: carrier.sent,
            is_plain,
        };
        freed.extend(flight.carriers.iter().map(of));
    }

    /// A link is gone, or silent: what it alone carried goes again. How many bytes that is.
    pub fn lost(&mut self, link: LinkId) -> u64 {
        let mut bytes = 0;
        for (offset, flight) in &mut self.flights {
            let before = flight.carriers.len();
            flight.carriers.retain(|carrier| carrier.link != link);
            if flight.carriers.is_empty() && before > 0 {
                self.homeless.insert(*offset, flight.length);
                bytes += u64::from(flight.length);
            }
        }
        bytes
    }

    /// A chunk that an idle link should carry besides the one that does: where the stream stands
    /// still for it (head) or nothing new is left (tail), and this link brings it sooner.
    pub fn second(&self, idle: &Link, now: Time) -> Option<Chunk> {
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

/// Whether the only one that carries it brings it later than this link would.
fn is_late(flight: &Flight, idle: &Link, now: Time) -> bool {
    let [carrier] = flight.carriers.as_slice() else { return false };
    if carrier.link == idle.id {
        return false;
    }
    // One that is overdue is expected to be late by as much again.
    let left = match carrier.due > now {
        true => carrier.due.since(now),
        false => now.since(carrier.due),
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

    /// Four chunks of 10 bytes, in turn on links 1 and 2.
    fn four(settings: SenderSettings) -> Sender {
        let mut sender = Sender::new(SenderSettings { chunk: 10, ..settings }, 40);
        sender.wrote(100);
        for id in [1, 2, 1, 2] {
            let chunk = sender.next().unwrap();
            sender.assigned(chunk, &link(id, 8.0, if id == 1 { 10 } else { 200 }), at(0));
        }
        sender
    }

    #[test]
    fn the_window_bounds_what_is_sent() {
        let mut sender = four(SenderSettings::default());
        assert_eq!((sender.next(), sender.window(), sender.backlog()), (None, 0, 60));
        sender.may_send_to(45);
        assert_eq!(sender.next(), Some(Chunk { offset: 40, length: 5 }));
        sender.may_send_to(20);
        assert_eq!(sender.window(), 5);
    }

    #[test]
    fn what_a_dead_link_alone_carried_goes_again_and_nothing_else() {
        let mut sender = four(SenderSettings::default());
        let freed = sender.acknowledged(10, &[30..40]).unwrap();
        assert_eq!(freed.iter().map(|freed| freed.link.0).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(sender.lost(LinkId(2)), 10);
        assert_eq!(sender.next(), Some(Chunk { offset: 10, length: 10 }));
        sender.assigned(Chunk { offset: 10, length: 10 }, &link(1, 8.0, 10), at(5));
        assert_eq!((sender.next(), sender.spare()), (None, 0));
        let freed = sender.acknowledged(40, &[]).unwrap();
        assert!(freed.iter().any(|freed| !freed.is_plain && freed.link == LinkId(1)));
        assert_eq!((sender.arrived(), sender.is_settled()), (40, false));
    }

    #[test]
    fn the_head_goes_on_the_idle_link_when_the_window_is_full() {
        let mut sender = four(SenderSettings::default());
        sender.acknowledged(10, &[20..30]).unwrap();
        let idle = link(1, 8.0, 10);
        // The slow link's chunk is due after 200 ms; this one brings it in 10.
        assert_eq!(sender.second(&idle, at(20)), Some(Chunk { offset: 10, length: 10 }));
        assert_eq!(sender.second(&idle, at(195)), None);
        assert_eq!(sender.second(&link(2, 8.0, 200), at(20)), None);
        let metered = Link { may_duplicate: false, ..idle };
        assert_eq!(sender.second(&metered, at(20)), None);
        sender.assigned(Chunk { offset: 10, length: 10 }, &idle, at(20));
        assert_eq!(sender.spare(), 10);
        // Not a third time; the next one is the other chunk of the slow link.
        assert_eq!(sender.second(&idle, at(21)), Some(Chunk { offset: 30, length: 10 }));
        // With one of its links gone the other still carries it.
        assert_eq!(sender.lost(LinkId(2)), 10);
    }

    #[test]
    fn second_copies_are_bounded() {
        let none = SenderSettings { bytes_per_spare: 0, ..SenderSettings::default() };
        assert_eq!(four(none).second(&link(1, 8.0, 10), at(20)), None);
        let few = SenderSettings { first_spare: 10, ..SenderSettings::default() };
        let mut sender = four(few);
        let chunk = sender.second(&link(1, 8.0, 10), at(20)).unwrap();
        sender.assigned(chunk, &link(1, 8.0, 10), at(20));
        assert_eq!(sender.second(&link(1, 8.0, 10), at(20)), None);
    }

    #[test]
    fn an_impossible_word_is_an_error() {
        let mut sender = four(SenderSettings::default());
        assert_eq!(sender.acknowledged(0, &[30..41]), Err(Unsent { said: 41, sent: 40 }));
        assert_eq!(sender.acknowledged(u64::MAX, &[]), Err(Unsent { said: u64::MAX, sent: 40 }));
        // Half a chunk is none, and an inverted range nothing.
        #[expect(clippy::reversed_empty_ranges, reason = "what a hostile peer may say")]
        let freed = sender.acknowledged(5, &[15..18, 30..20]);
        assert_eq!(freed, Ok(vec![]));
    }
}
