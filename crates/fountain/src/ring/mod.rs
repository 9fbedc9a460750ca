//! The buffer of a relay that keeps nothing else (ROMA §IV).
//!
//! Forward when feasible: what came lies in one circular buffer that all children share,
//! each reading at its own pace. A child that is too slow misses what was overwritten
//! and goes on at the oldest symbol kept; nobody ever waits for it. What a socket took only
//! in part is finished from an overflow of one symbol (§IV-B), so that symbols stay whole.

mod child;

use crate::{
    geometry::{Geometry, SymbolId},
    have::HaveSet,
};
use child::{Child, Entry};
use std::collections::{BTreeMap, VecDeque};
use thiserror::Error;

/// Bytes of a ring by default (ROMA §IV-C).
pub const RING_BYTES: usize = 1_000_000;

/// A child of a ring, as the shell numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChildId(pub u64);

/// A frame that a ring cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RingError {
    /// No symbol fits.
    #[error("a ring of {bytes} bytes holds no frame of {frame}")]
    TooSmall {
        /// Bytes it may take.
        bytes: usize,
        /// Bytes of a frame.
        frame: usize,
    },
    /// The frame is longer than those the ring was made for, or empty.
    #[error("a frame of {got} bytes in a ring made for up to {frame}")]
    Frame {
        /// Bytes given.
        got: usize,
        /// Bytes of the longest frame.
        frame: usize,
    },
}

/// What became of a child so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChildStatus {
    /// Symbols that its socket took, the one in the overflow included.
    pub sent_symbols: u64,
    /// Bytes that its socket took.
    pub sent_bytes: u64,
    /// Symbols it wanted that were overwritten before its socket took them.
    pub missed_symbols: u64,
    /// Symbols it wants that lie in the ring.
    pub waiting_symbols: u64,
    /// Blocks it said are done.
    pub done_blocks: u64,
}

/// A circular buffer of symbols, and the children that read it.
///
/// Memory: at most the bytes given, one frame of overflow a child, and a bit a block a child.
#[derive(Clone, Debug)]
pub struct Ring {
    blocks: u64,
    frame_bytes: usize,
    slots: Vec<u8>,
    entries: VecDeque<Entry>,
    /// The sequence number of the next frame; those kept are the ones just below.
    head: u64,
    children: BTreeMap<ChildId, Child>,
}

impl Ring {
    /// A ring of at most `bytes`, for frames of `header_bytes` and a symbol.
    ///
    /// # Errors
    /// [`RingError::TooSmall`].
    pub fn new(geometry: &Geometry, bytes: usize, header_bytes: usize) -> Result<Self, RingError> {
        let frame = header_bytes.saturating_add(geometry.symbol_bytes() as usize);
        let count = bytes / frame;
        if count == 0 {
            return Err(RingError::TooSmall { bytes, frame });
        }
        Ok(Self {
            blocks: u64::from(geometry.blocks()),
            frame_bytes: frame,
            slots: vec![0; count * frame],
            entries: VecDeque::with_capacity(count),
            head: 0,
            children: BTreeMap::new(),
        })
    }

    /// Frames it can hold.
    pub fn capacity(&self) -> usize {
        self.slots.len() / self.frame_bytes
    }

    /// A child joins, and reads from the oldest frame on. One that is here already begins anew.
    pub fn join(&mut self, id: ChildId) {
        let done = HaveSet::over(self.blocks, 512);
        let child = Child::new(self.oldest(), done, self.frame_bytes);
        self.children.insert(id, child);
    }

    /// A child is gone; what became of it.
    pub fn leave(&mut self, id: ChildId) -> Option<ChildStatus> {
        let status = self.status(id);
        self.children.remove(&id);
        status
    }

    /// The children, in order.
    pub fn children(&self) -> impl Iterator<Item = ChildId> {
        self.children.keys().copied()
    }

    /// A frame came: it overwrites the oldest if the ring is full. How many children
    /// thereby missed a symbol. Never waits.
    ///
    /// # Errors
    /// [`RingError::Frame`].
    pub fn push(&mut self, id: SymbolId, frame: &[u8]) -> Result<usize, RingError> {
        if frame.is_empty() || frame.len() > self.frame_bytes {
            return Err(RingError::Frame { got: frame.len(), frame: self.frame_bytes });
        }
        let missed = if self.entries.len() == self.capacity() { self.evict() } else { 0 };
        let at = self.slot(self.head);
        self.slots[at..at + frame.len()].copy_from_slice(frame);
        self.entries.push_back(Entry { block: id.block, length: frame.len() });
        self.head += 1;
        self.settle_all();
        Ok(missed)
    }

    /// Drops the oldest frame. Children that wanted it miss it.
    fn evict(&mut self) -> usize {
        let oldest = self.oldest();
        self.entries.pop_front();
        let late = self.children.values_mut().filter(|child| child.next == oldest);
        late.map(Child::miss).count()
    }

    /// The bytes that this child's socket should take now, in order: the rest of a symbol
    /// begun, then whole frames of blocks it is not done with. For one or several writes;
    /// [`Self::took`] says how many bytes were taken.
    pub fn pending(&self, id: ChildId) -> impl Iterator<Item = &[u8]> {
        let child = self.children.get(&id);
        let rest = child.map(Child::rest).filter(|rest| !rest.is_empty());
        let frames = child.into_iter().flat_map(|child| {
            let wanted = (child.next..self.head).filter(|seq| self.wanted(child, *seq));
            wanted.filter_map(|seq| self.frame(seq))
        });
        rest.into_iter().chain(frames)
    }

    /// The child's socket took the first `n` bytes of what was pending. If it stopped within
    /// a frame, the rest is kept in the child's overflow, whatever happens to the ring.
    pub fn took(&mut self, id: ChildId, n: usize) {
        let Some(mut child) = self.children.remove(&id) else { return };
        let mut left = child.take_rest(n);
        while left > 0 {
            self.settle(&mut child);
            let Some(frame) = self.frame(child.next) else { break };
            left -= child.take_frame(frame, left);
        }
        self.settle(&mut child);
        self.children.insert(id, child);
    }

    /// A child is done with a block: it gets no more of it, but for the rest of a symbol begun.
    /// Whether every child is now.
    pub fn done(&mut self, id: ChildId, block: u32) -> bool {
        if let Some(mut child) = self.children.remove(&id) {
            child.done.insert(u64::from(block));
            self.settle(&mut child);
            self.children.insert(id, child);
        }
        self.done_by_all(block)
    }

    /// Whether every child is done with a block; true without children.
    pub fn done_by_all(&self, block: u32) -> bool {
        self.children.values().all(|child| child.done.contains(u64::from(block)))
    }

    /// Whether a child that has taken everything wants symbols of this block. This is
    /// when the source fills the ring: at the pace of the fastest child that a symbol is of
    /// use to (§IV-C).
    pub fn feasible(&self, block: u32) -> bool {
        let block = u64::from(block);
        self.children.values().any(|child| self.drained(child) && !child.done.contains(block))
    }

    /// Whether any child has taken everything.
    pub fn any_drained(&self) -> bool {
        self.children.values().any(|child| self.drained(child))
    }

    fn drained(&self, child: &Child) -> bool {
        child.next == self.head && child.rest().is_empty()
    }

    /// What became of a child so far.
    pub fn status(&self, id: ChildId) -> Option<ChildStatus> {
        let child = self.children.get(&id)?;
        let waiting = (child.next..self.head).filter(|seq| self.wanted(child, *seq));
        Some(ChildStatus {
            waiting_symbols: waiting.count() as u64,
            done_blocks: child.done.count(),
            ..child.counts
        })
    }

    fn oldest(&self) -> u64 {
        self.head - self.entries.len() as u64
    }

    fn entry(&self, seq: u64) -> Option<&Entry> {
        // Fits: an index in the ring.
        self.entries.get(seq.checked_sub(self.oldest())? as usize)
    }

    fn slot(&self, seq: u64) -> usize {
        (seq % self.capacity() as u64) as usize * self.frame_bytes
    }

    fn frame(&self, seq: u64) -> Option<&[u8]> {
        let at = self.slot(seq);
        self.slots.get(at..at + self.entry(seq)?.length)
    }

    fn wanted(&self, child: &Child, seq: u64) -> bool {
        self.entry(seq).is_some_and(|entry| !child.done.contains(u64::from(entry.block)))
    }

    /// Moves a child's cursor on to the next frame that it wants, so that a frame
    /// overwritten at a cursor is one that was missed.
    fn settle(&self, child: &mut Child) {
        while child.next < self.head && !self.wanted(child, child.next) {
            child.next += 1;
        }
    }

    fn settle_all(&mut self) {
        let mut children = std::mem::take(&mut self.children);
        children.values_mut().for_each(|child| self.settle(child));
        self.children = children;
    }
}
