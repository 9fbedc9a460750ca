//! The ring buffer of a relay without a store (ROMA §IV).
//!
//! Forward when feasible: what came lies in one circular buffer that all children share,
//! each reading at its own pace. A child that is too slow misses what was overwritten
//! and goes on at the oldest symbol kept; nobody ever waits for it. What a socket took only
//! in part is finished from an overflow of one symbol (§IV-B), so that symbols stay whole.
//! The page that proves a symbol goes to each child before the first symbol of it.

mod child;
mod held;
mod offer;

use crate::{
    geometry::{Geometry, SymbolId},
    have::HaveSet,
};
use child::{Child, Entry};
use held::Held;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};
use thiserror::Error;

/// Bytes of a ring by default (ROMA §IV-C). When it is full, the oldest symbol is overwritten; a
/// child that had not taken it misses it.
pub const RING_BYTES: usize = 1_000_000;

/// Bytes of pages that a child is taken to remember.
const KNOWN_BYTES: usize = 2 << 20;

/// Bytes that are not copied: a frame is in the ring and in overflows at the same time.
pub type Shared = Arc<Vec<u8>>;

/// How many pages a child of a ring has to remember, the last that it was sent: at most 2 MiB
/// or eight pages of digests, whichever is more.
pub fn pages_known(geometry: &Geometry) -> usize {
    (KNOWN_BYTES / (32 * geometry.block_symbols() as usize).max(1)).clamp(8, 128)
}

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
    /// Bytes of these symbols, without what lies before them in a frame.
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
/// Memory: at most the bytes given, one frame (or page) of overflow a child, and a bit a block a
/// child; beside it the pages of the blocks in the ring, which children share.
#[derive(Clone, Debug)]
pub struct Ring {
    geometry: Geometry,
    header_bytes: usize,
    frame_bytes: usize,
    capacity: usize,
    pages_known: usize,
    entries: VecDeque<Entry>,
    /// The sequence number of the next frame; those kept are the ones just below.
    head: u64,
    children: BTreeMap<ChildId, Child>,
    held: Held,
}

impl Ring {
    /// A ring of at most `bytes`, for frames of `header_bytes` and a symbol.
    ///
    /// # Errors
    /// [`RingError::TooSmall`].
    pub fn new(geometry: &Geometry, bytes: usize, header_bytes: usize) -> Result<Self, RingError> {
        let frame = header_bytes.saturating_add(geometry.symbol_bytes() as usize);
        let capacity = bytes / frame;
        if capacity == 0 {
            return Err(RingError::TooSmall { bytes, frame });
        }
        Ok(Self {
            geometry: *geometry,
            header_bytes,
            frame_bytes: frame,
            capacity,
            pages_known: pages_known(geometry),
            entries: VecDeque::new(),
            head: 0,
            children: BTreeMap::new(),
            held: Held::default(),
        })
    }

    /// Frames it can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// A child joins, and reads from the oldest frame on. One that is here already begins anew, behind what
    /// its socket has begun.
    pub fn join(&mut self, id: ChildId) {
        let done = HaveSet::over(u64::from(self.geometry.blocks()), 512);
        let mut child = Child::new(self.oldest(), done);
        if let Some(before) = self.children.remove(&id) {
            child.go_on_from(before);
        }
        self.children.insert(id, child);
    }

    /// A child is gone; what became of it.
    pub fn leave(&mut self, id: ChildId) -> Option<ChildStatus> {
        let status = self.status(id);
        let child = self.children.remove(&id);
        self.held.ends(child.map_or(0, |child| child.begun_bytes()));
        status
    }

    /// The children, in order.
    pub fn children(&self) -> impl Iterator<Item = ChildId> {
        self.children.keys().copied()
    }

    /// A frame came, with the page that proves it (none if that is empty): it overwrites the
    /// oldest if the ring is full. How many symbols children thereby missed, and of which block the last.
    /// Never waits.
    ///
    /// # Errors
    /// [`RingError::Frame`].
    pub fn push(
        &mut self,
        id: SymbolId,
        frame: Shared,
        page: &Shared,
    ) -> Result<(usize, u32), RingError> {
        if frame.is_empty() || frame.len() > self.frame_bytes {
            return Err(RingError::Frame { got: frame.len(), frame: self.frame_bytes });
        }
        let missed = self.make_room(id.block);
        let is_source = self.geometry.is_source(id);
        self.held.comes(frame.len(), self.lying_bytes());
        self.entries.push_back(Entry { id, is_source, frame, page: Shared::clone(page) });
        self.head += 1;
        self.settle_all();
        Ok(missed)
    }

    /// Drops the oldest frames until one more fits: one of a full ring, more if sockets let go of fewer
    /// than were overwritten. As [`Self::push`] says; block `of` if nothing was missed.
    fn make_room(&mut self, of: u32) -> (usize, u32) {
        let mut missed = (0, of);
        while !self.entries.is_empty() && self.entries.len() + self.ghosts() >= self.capacity {
            let (children, block) = self.evict();
            if children > 0 {
                missed = (missed.0 + children, block);
            }
            // The next one may go as well: it is missed by those alone who want it.
            self.settle_all();
        }
        missed
    }

    /// Drops the oldest frame. Children that wanted it miss it.
    fn evict(&mut self) -> (usize, u32) {
        let oldest = self.oldest();
        let Some(Entry { id, is_source, frame, .. }) = self.entries.pop_front() else {
            return (0, 0);
        };
        self.held.goes(frame.len());
        let late = self.children.values_mut().filter(|child| child.next == oldest);
        (late.map(|child| child.miss(id, is_source)).count(), id.block)
    }

    /// What a child's socket begins now: a message, a page or a frame.
    fn begin_next(&self, child: &mut Child) {
        self.settle(child);
        if let Some(message) = child.next_message() {
            return child.begin(message);
        }
        let Some(entry) = self.entry(child.next) else { return };
        let key = entry.page_key();
        if entry.page.is_empty() || child.knows(key) {
            child.send(entry, self.header_bytes);
        } else {
            child.learn(key, self.pages_known);
            child.begin(Shared::clone(&entry.page));
        }
    }

    /// Sends a child a message behind all frames that are in the ring now.
    pub fn say(&mut self, id: ChildId, message: Shared) {
        let head = self.head;
        if let Some(child) = self.children.get_mut(&id) {
            child.say(head, message);
        }
    }

    /// A child is asked what it lacks of a block, behind the frames that are here. Until it answers it gets
    /// no further source symbols of it: those that follow are what its siblings lack, and it may have them.
    pub fn ask(&mut self, id: ChildId, block: u32, message: Shared) {
        let head = self.head;
        if let Some(child) = self.children.get_mut(&id) {
            child.ask(head, block, message);
        }
    }

    /// Messages that wait for a child's socket.
    pub fn messages(&self, id: ChildId) -> usize {
        self.children.get(&id).map_or(0, Child::messages)
    }

    /// A child is done with a block: it gets no more of it, but for the rest of a symbol begun.
    /// Whether every child is now.
    pub fn done(&mut self, id: ChildId, block: u32) -> bool {
        if let Some(mut child) = self.children.remove(&id) {
            child.finish(block);
            self.settle(&mut child);
            self.children.insert(id, child);
        }
        self.done_by_all(block)
    }

    /// A child lacks these source symbols of a block, and no others (`is_more`: beside those that it
    /// said before): it gets no others from now on, and of repair symbols as many as it needs, so
    /// that what is sent for the sake of a sibling costs it nothing.
    pub fn lacks(
        &mut self,
        id: ChildId,
        block: u32,
        need: u32,
        esis: impl Iterator<Item = u32>,
        is_more: bool,
    ) {
        if let Some(mut child) = self.children.remove(&id) {
            child.lack(block, need, esis, is_more);
            self.settle(&mut child);
            self.children.insert(id, child);
        }
    }

    /// Whether a child is done with a block; one that is not here is.
    pub fn is_done(&self, id: ChildId, block: u32) -> bool {
        self.children.get(&id).is_none_or(|child| child.done.contains(u64::from(block)))
    }

    /// Whether every child is done with a block; true without children.
    pub fn done_by_all(&self, block: u32) -> bool {
        self.children.values().all(|child| child.done.contains(u64::from(block)))
    }

    /// Whether a child that has at most `ahead` frames before it wants symbols of this block. This
    /// is when the source fills the ring: at the pace of the fastest child that a symbol is of
    /// use to (§IV-C).
    pub fn feasible(&self, block: u32, ahead: usize) -> bool {
        let block = u64::from(block);
        let mut children = self.children.values();
        children.any(|child| self.backlog(child) <= ahead && !child.done.contains(block))
    }

    /// The fewest frames that a child has before it; `None` without children.
    pub fn least_backlog(&self) -> Option<usize> {
        self.children.values().map(|child| self.backlog(child)).min()
    }

    /// Frames that a child has before it, the one that is begun included.
    fn backlog(&self, child: &Child) -> usize {
        (self.head - child.next) as usize + usize::from(child.rest().is_some())
    }

    /// What became of a child so far.
    pub fn status(&self, id: ChildId) -> Option<ChildStatus> {
        let child = self.children.get(&id)?;
        let is_wanted = |seq: &u64| self.entry(*seq).is_some_and(|entry| wants(child, *seq, entry));
        Some(ChildStatus {
            waiting_symbols: (child.next..self.head).filter(is_wanted).count() as u64,
            done_blocks: child.done.count(),
            ..child.counts
        })
    }

    /// Bytes of the symbols that a child's socket took or has begun.
    pub fn sent_bytes(&self, id: ChildId) -> u64 {
        self.children.get(&id).map_or(0, |child| child.counts.sent_bytes)
    }

    /// The most bytes that it held at once: frames in the ring, and beside them what children's
    /// sockets have begun, each counted whole though it may lie in the ring too.
    pub fn peak_bytes(&self) -> usize {
        self.held.peak()
    }

    fn oldest(&self) -> u64 {
        self.head - self.entries.len() as u64
    }

    fn entry(&self, seq: u64) -> Option<&Entry> {
        // Fits: an index in the ring.
        self.entries.get(seq.checked_sub(self.oldest())? as usize)
    }

    /// Moves a child's cursor on to the next frame that it wants, so that a frame
    /// overwritten at a cursor is one that was missed.
    fn settle(&self, child: &mut Child) {
        while self.entry(child.next).is_some_and(|entry| !wants(child, child.next, entry)) {
            child.next += 1;
        }
    }

    fn settle_all(&mut self) {
        let mut children = std::mem::take(&mut self.children);
        children.values_mut().for_each(|child| self.settle(child));
        self.children = children;
    }
}

/// Whether a child wants the frame at this place.
fn wants(child: &Child, seq: u64, entry: &Entry) -> bool {
    let block = entry.id.block;
    let is_wanted = match entry.is_source {
        true => child.lacks(entry.id) && !child.is_to_answer(block, seq),
        false => child.needs(block),
    };
    is_wanted && !child.done.contains(u64::from(block))
}
