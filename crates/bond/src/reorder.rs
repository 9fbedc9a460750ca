//! The receiving end of a striped stream: chunks arrive in any order, and their bytes leave in stream order.
//!
//! The received data reordering module of DBAS §II-E, one per stream, so that a hole in one stream does not stop
//! another.

use bytes::{Buf as _, Bytes};
use std::{collections::BTreeMap, ops::Range};
use thiserror::Error;

/// Adjacent pieces are joined up to this length, so that an application that writes little at a time does not cost an
/// entry for each write.
const JOINED: usize = 1 << 10;

/// The number of pieces that a stream may have in any case.
const PIECES: u64 = 1024;

/// One more piece is allowed for each of this many bytes of capacity: then entries take no more than three times those
/// bytes, and whole chunks of the smallest TLS record fit with a hole between any two. A stream with more pieces is an
/// error, which ends the bond.
const BYTES_A_PIECE: u64 = 48;

/// A chunk that violates the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ChunkError {
    /// The chunk reaches beyond what the sender was allowed to send.
    #[error("received bytes up to {end}, but the limit is {limit}")]
    Window {
        /// The end of the chunk.
        end: u64,
        /// The limit that the sender was given.
        limit: u64,
    },
    /// The chunk reaches beyond the stream's end, or the end differs from the one announced before.
    #[error("received bytes up to {end}, but the stream ends at {last}")]
    End {
        /// The end of the chunk.
        end: u64,
        /// The end of the stream.
        last: u64,
    },
    /// There are too many pieces: their entries would take far more memory than the bytes.
    #[error("the received bytes of the stream are in more than {0} pieces")]
    Pieces(u64),
}

/// What has arrived, for the sender.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acks {
    /// All bytes before this offset have arrived.
    pub arrived: u64,
    /// Ranges beyond it that have arrived as well, in order; the first ones if there are too many.
    pub ranges: Vec<Range<u64>>,
    /// The offset up to which the sender may send.
    pub limit: u64,
}

/// Puts one stream in order.
///
/// Memory: the bytes beyond a hole and those that the application has not taken, at most `capacity`, or twice that if
/// chunks overlap; and an entry of some 100 bytes per piece, of which there are at most 1024 plus one per 48 bytes of
/// `capacity`.
#[derive(Clone, Debug)]
pub struct Reorder {
    capacity: u64,
    /// All bytes before this offset were taken by the application.
    taken: u64,
    /// All bytes before this offset have arrived.
    arrived: u64,
    /// Pieces by offset, from `taken` on. They do not overlap.
    held: BTreeMap<u64, Bytes>,
    end: Option<u64>,
    duplicates: u64,
}

impl Reorder {
    /// Creates the buffer of a stream, which holds up to `capacity` bytes.
    pub fn new(capacity: u64) -> Self {
        let held = BTreeMap::new();
        Self { capacity, taken: 0, arrived: 0, held, end: None, duplicates: 0 }
    }

    /// The offset up to which the sender may send.
    pub fn limit(&self) -> u64 {
        self.taken.saturating_add(self.capacity)
    }

    /// Raises the capacity. It never falls, because the sender may know the previous one.
    pub fn widen(&mut self, capacity: u64) {
        self.capacity = self.capacity.max(capacity);
    }

    /// Takes a chunk. Returns how many of its bytes were missing.
    ///
    /// # Errors
    /// [`ChunkError`]; nothing of the chunk is kept.
    pub fn accept(&mut self, offset: u64, mut bytes: Bytes) -> Result<u64, ChunkError> {
        let (length, limit) = (bytes.len() as u64, self.limit());
        let end = offset.saturating_add(length);
        if end > limit || offset.checked_add(length).is_none() {
            return Err(ChunkError::Window { end, limit });
        }
        if let Some(last) = self.end.filter(|last| end > *last) {
            return Err(ChunkError::End { end, last });
        }
        let pieces = PIECES + self.capacity / BYTES_A_PIECE;
        if self.held.len() as u64 >= pieces {
            return Err(ChunkError::Pieces(pieces));
        }
        let known = self.arrived.saturating_sub(offset).min(length);
        bytes.advance(known as usize);
        let fresh = self.fill(offset + known, bytes, length as usize);
        self.duplicates += length - fresh;
        if let Some((at, held)) = self.held.range(..=self.arrived).next_back() {
            self.arrived = self.arrived.max(at + held.len() as u64);
        }
        while let Some(held) = self.held.get(&self.arrived).filter(|held| !held.is_empty()) {
            self.arrived += held.len() as u64;
        }
        Ok(fresh)
    }

    /// Inserts bytes of a chunk of `whole` bytes where they are missing. Returns how many those were.
    fn fill(&mut self, mut offset: u64, mut bytes: Bytes, whole: usize) -> u64 {
        let mut fresh = 0;
        if let Some((before, held)) = self.held.range(..=offset).next_back() {
            let covered = (before + held.len() as u64).saturating_sub(offset);
            let covered = covered.min(bytes.len() as u64);
            bytes.advance(covered as usize);
            offset += covered;
        }
        while !bytes.is_empty() {
            let next = self.held.range(offset..).next().map(|(at, held)| (*at, held.len()));
            let gap = next.map_or(u64::MAX, |(at, _)| at - offset).min(bytes.len() as u64);
            if gap > 0 {
                self.hold(offset, bytes.split_to(gap as usize), whole);
                fresh += gap;
            }
            let skip = next.map_or(0, |(_, length)| length).min(bytes.len());
            bytes.advance(skip);
            offset += gap + skip as u64;
        }
        fresh
    }

    /// Keeps a piece of a chunk of `whole` bytes. A small piece is copied, so that it does not keep the chunk's memory.
    fn hold(&mut self, offset: u64, piece: Bytes, whole: usize) {
        if let Some((at, before)) = self.held.range_mut(..offset).next_back()
            && at + before.len() as u64 == offset
            && before.len() + piece.len() <= JOINED
        {
            *before = [&before[..], &piece[..]].concat().into();
            return;
        }
        let is_little = piece.len() * 2 < whole;
        self.held.insert(offset, if is_little { Bytes::copy_from_slice(&piece) } else { piece });
    }

    /// Records the end of the stream, which the sender announced.
    ///
    /// # Errors
    /// [`ChunkError::End`]: it announced another end before, or sent more.
    pub fn ends_at(&mut self, last: u64) -> Result<(), ChunkError> {
        let held = self.held.last_key_value().map_or(0, |(at, held)| at + held.len() as u64);
        let end = held.max(self.arrived);
        if end > last || self.end.is_some_and(|said| said != last) {
            return Err(ChunkError::End { end, last: self.end.unwrap_or(last) });
        }
        self.end = Some(last);
        Ok(())
    }

    /// The next bytes in order, if they have arrived.
    pub fn pop(&mut self) -> Option<Bytes> {
        let entry = self.held.first_entry().filter(|entry| *entry.key() == self.taken)?;
        let bytes = entry.remove();
        self.taken += bytes.len() as u64;
        Some(bytes)
    }

    /// Whether the application has taken the whole stream.
    pub fn is_done(&self) -> bool {
        self.end == Some(self.taken)
    }

    /// Whether the whole stream has arrived, up to its announced end.
    pub fn is_complete(&self) -> bool {
        self.end == Some(self.arrived)
    }

    /// The maximum number of bytes held.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The number of bytes that arrived more than once.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// The acknowledgement for the sender, with at most `most` ranges.
    pub fn acks(&self, most: usize) -> Acks {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (at, bytes) in self.held.range(self.arrived..) {
            let end = at + bytes.len() as u64;
            let count = ranges.len();
            match ranges.last_mut() {
                Some(last) if last.end == *at => last.end = end,
                _ if count == most => break,
                _ => ranges.push(*at..end),
            }
        }
        Acks { arrived: self.arrived, ranges, limit: self.limit() }
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "one range is what is meant")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(range: Range<u64>) -> Bytes {
        range.map(|at| at as u8).collect::<Vec<u8>>().into()
    }

    #[test]
    fn bytes_leave_in_order() {
        let mut reorder = Reorder::new(100);
        assert_eq!(reorder.accept(10, text(10..20)), Ok(10));
        assert_eq!(reorder.pop(), None);
        let acks = Acks { arrived: 0, ranges: vec![10..20], limit: 100 };
        assert_eq!(reorder.acks(8), acks);
        assert_eq!(reorder.accept(0, text(0..10)), Ok(10));
        assert_eq!(reorder.acks(8).arrived, 20);
        assert_eq!((reorder.pop(), reorder.pop()), (Some(text(0..10)), Some(text(10..20))));
        assert_eq!(reorder.limit(), 120);
        assert_eq!(reorder.accept(0, text(0..10)), Ok(0));
        assert_eq!(reorder.duplicates(), 10);
    }

    #[test]
    fn chunks_beyond_the_limit_or_the_end_are_refused() {
        let mut reorder = Reorder::new(20);
        assert_eq!(
            reorder.accept(15, text(15..21)),
            Err(ChunkError::Window { end: 21, limit: 20 })
        );
        let far = reorder.accept(u64::MAX - 1, text(0..4));
        assert_eq!(far, Err(ChunkError::Window { end: u64::MAX, limit: 20 }));
        assert_eq!(reorder.ends_at(10), Ok(()));
        assert_eq!(reorder.accept(5, text(5..11)), Err(ChunkError::End { end: 11, last: 10 }));
        assert!(reorder.ends_at(9).is_err() && reorder.ends_at(11).is_err());
        assert_eq!(reorder.accept(0, text(0..10)), Ok(10));
        assert!(!reorder.is_done());
        assert!(reorder.pop().is_some() && reorder.is_done());
    }

    #[test]
    fn a_window_only_grows() {
        let mut reorder = Reorder::new(20);
        reorder.widen(30);
        reorder.widen(10);
        assert_eq!((reorder.limit(), reorder.accept(20, text(20..30))), (30, Ok(10)));
    }

    #[test]
    fn single_bytes_are_joined_into_few_pieces() {
        let mut reorder = Reorder::new(100_000);
        (0..50_000).for_each(|at| assert_eq!(reorder.accept(at, text(at..at + 1)), Ok(1)));
        assert!(reorder.held.len() <= 50, "{}", reorder.held.len());
        assert_eq!(reorder.acks(8), Acks { arrived: 50_000, ranges: vec![], limit: 100_000 });
        let mut out = Vec::new();
        while let Some(bytes) = reorder.pop() {
            out.extend(bytes);
        }
        assert_eq!(out, &text(0..50_000)[..]);
    }

    #[test]
    fn a_stream_in_crumbs_is_refused() {
        let mut reorder = Reorder::new(256 << 10);
        let most = PIECES + (256 << 10) / BYTES_A_PIECE;
        let refused = (0..).find_map(|n| reorder.accept(2 * n + 1, text(0..1)).err());
        assert_eq!((refused, reorder.held.len() as u64), (Some(ChunkError::Pieces(most)), most));
        // Records of 48 bytes are accepted even if the first half of each is missing.
        let mut reorder = Reorder::new(256 << 10);
        let records =
            (0..).map(|n| (48 * n + 24, 48 * n + 48)).take_while(|(_, end)| *end <= 256 << 10);
        records.for_each(|(at, end)| assert_eq!(reorder.accept(at, text(at..end)), Ok(24)));
    }

    #[test]
    fn a_byte_of_a_chunk_does_not_keep_the_chunk() {
        let mut reorder = Reorder::new(1 << 20);
        reorder.accept(1000, text(1000..200_000)).unwrap();
        let chunk = text(999..200_000);
        let memory = chunk.as_ptr_range();
        assert_eq!(reorder.accept(999, chunk), Ok(1));
        assert!(!memory.contains(&reorder.held[&999].as_ptr()));
    }

    #[test]
    fn an_end_before_received_bytes_is_refused() {
        let mut reorder = Reorder::new(100);
        reorder.accept(30, text(30..40)).unwrap();
        assert_eq!(reorder.ends_at(35), Err(ChunkError::End { end: 40, last: 35 }));
    }

    proptest! {
        #[test]
        fn chunks_in_any_order_restore_the_stream(
            chunks in prop::collection::vec((0u64..300, 0u64..60), 1..80),
        ) {
            let mut reorder = Reorder::new(1000);
            let (mut out, mut fresh, mut total) = (Vec::new(), 0, 0);
            let mut model = [false; 400];
            for (offset, length) in chunks.iter().copied().chain([(0, 360)]) {
                total += length;
                fresh += reorder.accept(offset, text(offset..offset + length)).unwrap();
                model[offset as usize..(offset + length) as usize].fill(true);
                let arrived = model.iter().position(|here| !here).unwrap() as u64;
                prop_assert_eq!(reorder.acks(100).arrived, arrived);
                let said: u64 = reorder.acks(100).ranges.iter().map(|r| r.end - r.start).sum();
                let here = model.iter().filter(|here| **here).count() as u64;
                prop_assert_eq!(said + arrived, here);
                if offset % 3 == 0 {
                    while let Some(bytes) = reorder.pop() { out.extend(bytes); }
                }
            }
            while let Some(bytes) = reorder.pop() { out.extend(bytes); }
            prop_assert_eq!(&out[..], &text(0..360)[..]);
            prop_assert_eq!(fresh, 360);
            prop_assert_eq!(reorder.duplicates(), total - 360);
        }
    }
}
