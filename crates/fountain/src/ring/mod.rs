//! The ring buffer of a relay without a store (ROMA §IV).
//!
//! Forward when feasible: arriving frames are kept in one circular buffer that all children share, and each child reads
//! at its own pace. A child that is too slow misses the frames that are overwritten and continues at the oldest frame;
//! nobody ever waits for it. A frame that a socket took in part is finished from an overflow of one frame (§IV-B), so
//! that symbols stay whole. The page that proves a symbol is sent to each child before the first symbol of that page.

mod child;
mod held_bytes;

use crate::{
    geometry::{Geometry, SymbolId},
    have::HaveSet,
};
use child::{Child, Entry};
use held_bytes::HeldBytes;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};
use thiserror::Error;

/// The default size of a ring in bytes (ROMA §IV-C). When it is full, the oldest symbol is overwritten, and children
/// that have not taken it miss it.
pub const RING_BYTES: usize = 1_000_000;

/// Bytes of pages that a child is assumed to remember.
const KNOWN_BYTES: usize = 2 << 20;

/// Shared bytes: a frame is in the ring and in overflows at the same time without copies.
pub type SharedBytes = Arc<Vec<u8>>;

/// The number of last sent pages that a child of a ring must remember: 2 MiB of pages, but between 8 and 128 pages.
pub fn pages_known(geometry: &Geometry) -> usize {
    (KNOWN_BYTES / (32 * geometry.block_symbols() as usize).max(1)).clamp(8, 128)
}

/// A child of a ring, as numbered by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChildId(pub u64);

/// A frame or ring of a wrong size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RingError {
    /// The ring is too small for a symbol.
    #[error("a ring of {bytes} bytes is too small for a frame of {frame} bytes")]
    TooSmall {
        /// The requested size of the ring.
        bytes: usize,
        /// The size of a frame.
        frame: usize,
    },
    /// The frame is empty, or longer than those the ring was made for.
    #[error("a frame of {got} bytes does not fit: the ring takes frames of 1 to {frame} bytes")]
    Frame {
        /// The length of the given frame.
        got: usize,
        /// The length of the longest allowed frame.
        frame: usize,
    },
}

/// Counters of a child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChildStatus {
    /// Symbols that its socket took, including the one in the overflow.
    pub sent_symbols: u64,
    /// Bytes of these symbols, without frame headers.
    pub sent_bytes: u64,
    /// Wanted symbols that were overwritten before its socket took them.
    pub missed_symbols: u64,
    /// Wanted symbols that are in the ring.
    pub waiting_symbols: u64,
    /// Blocks that it reported as done.
    pub done_blocks: u64,
}

/// A circular buffer of symbols, and the children that read it.
///
/// Memory: at most the given bytes, one frame (or page) of overflow per child, and a bit per block and child. Besides,
/// the pages of the blocks in the ring, which children share.
#[derive(Clone, Debug)]
pub struct Ring {
    geometry: Geometry,
    header_bytes: usize,
    frame_bytes: usize,
    capacity: usize,
    pages_known: usize,
    entries: VecDeque<Entry>,
    /// The sequence number of the next frame. The frames kept are those just below it.
    head: u64,
    children: BTreeMap<ChildId, Child>,
    held: HeldBytes,
}

impl Ring {
    /// Creates a ring of at most `bytes`, for frames of `header_bytes` and a symbol.
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
            held: HeldBytes::default(),
        })
    }

    /// The capacity in frames.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Adds a child, which reads from the oldest frame on. An existing child starts again, after the buffer that its
    /// socket has begun.
    pub fn join(&mut self, id: ChildId) {
        let done = HaveSet::with_block_size(u64::from(self.geometry.blocks()), 512);
        let mut child = Child::new(self.oldest(), done);
        if let Some(before) = self.children.remove(&id) {
            child.go_on_from(before);
        }
        self.children.insert(id, child);
    }

    /// Removes a child. Returns its final counters.
    pub fn leave(&mut self, id: ChildId) -> Option<ChildStatus> {
        let status = self.status(id);
        let child = self.children.remove(&id);
        self.held.end_buffer(child.map_or(0, |child| child.begun_bytes()));
        status
    }

    /// The children, in order.
    pub fn children(&self) -> impl Iterator<Item = ChildId> {
        self.children.keys().copied()
    }

    /// Adds a frame, with the page that proves it (empty: none). Overwrites the oldest frame if the ring is full.
    /// Returns how many symbols children missed thereby, and the block of the last one. Never waits.
    ///
    /// # Errors
    /// [`RingError::Frame`].
    pub fn push(
        &mut self,
        id: SymbolId,
        frame: SharedBytes,
        page: &SharedBytes,
    ) -> Result<(usize, u32), RingError> {
        if frame.is_empty() || frame.len() > self.frame_bytes {
            return Err(RingError::Frame { got: frame.len(), frame: self.frame_bytes });
        }
        let missed = self.make_room(id.block);
        let is_source = self.geometry.is_source(id);
        self.held.add_frame(frame.len(), self.overwritten_bytes());
        self.entries.push_back(Entry { id, is_source, frame, page: SharedBytes::clone(page) });
        self.head += 1;
        self.settle_all();
        Ok(missed)
    }

    /// Drops the oldest frames until one more fits: one if the ring is full, more if frames that were overwritten are
    /// still offered to sockets. Returns the same as [`Self::push`], with block `of` if nothing was missed.
    fn make_room(&mut self, of: u32) -> (usize, u32) {
        let mut missed = (0, of);
        while !self.entries.is_empty() && self.entries.len() + self.ghosts() >= self.capacity {
            let (children, block) = self.evict();
            if children > 0 {
                missed = (missed.0 + children, block);
            }
            // Children may skip the next frame before it is dropped, so that only those that want it miss it.
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
        self.held.remove_frame(frame.len());
        let late = self.children.values_mut().filter(|child| child.next == oldest);
        (late.map(|child| child.miss(id, is_source)).count(), id.block)
    }

    /// Begins the next buffer of a child's socket: a message, a page or a frame.
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
            child.begin(SharedBytes::clone(&entry.page));
        }
    }

    /// Sends a child a message behind all frames that are in the ring now.
    pub fn say(&mut self, id: ChildId, message: SharedBytes) {
        let head = self.head;
        if let Some(child) = self.children.get_mut(&id) {
            child.say(head, message);
        }
    }

    /// Asks a child which symbols of a block it lacks, behind the frames that are in the ring. Until it answers it gets
    /// no further source symbols of the block: the frames that follow are for its siblings, and it may have them.
    pub fn ask(&mut self, id: ChildId, block: u32, message: SharedBytes) {
        let head = self.head;
        if let Some(child) = self.children.get_mut(&id) {
            child.ask(head, block, message);
        }
    }

    /// The number of messages queued for a child.
    pub fn messages(&self, id: ChildId) -> usize {
        self.children.get(&id).map_or(0, Child::messages)
    }

    /// Records that a child is done with a block: it gets no more of it, except the rest of a begun symbol. Returns
    /// whether all children are done with the block.
    pub fn finish(&mut self, id: ChildId, block: u32) -> bool {
        if let Some(mut child) = self.children.remove(&id) {
            child.finish(block);
            self.settle(&mut child);
            self.children.insert(id, child);
        }
        self.done_by_all(block)
    }

    /// Records that a child lacks exactly these source symbols of a block (with `is_more`: also those that it reported
    /// before). From now on it gets no others, and only as many repair symbols as it needs, so that symbols sent for a
    /// sibling cost it nothing.
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

    /// Whether a child is done with a block; true for unknown children.
    pub fn is_done(&self, id: ChildId, block: u32) -> bool {
        self.children.get(&id).is_none_or(|child| child.done.contains(u64::from(block)))
    }

    /// Whether all children are done with a block; true without children.
    pub fn done_by_all(&self, block: u32) -> bool {
        self.children.values().all(|child| child.done.contains(u64::from(block)))
    }

    /// Whether a child with at most `ahead` frames before it wants symbols of this block. The source fills the ring
    /// under this condition: at the pace of the fastest child to which a symbol is of use (§IV-C).
    pub fn feasible(&self, block: u32, ahead: usize) -> bool {
        let block = u64::from(block);
        let mut children = self.children.values();
        children.any(|child| self.backlog(child) <= ahead && !child.done.contains(block))
    }

    /// The smallest backlog of a child in frames; `None` without children.
    pub fn least_backlog(&self) -> Option<usize> {
        self.children.values().map(|child| self.backlog(child)).min()
    }

    /// The number of frames before a child, including a begun one.
    fn backlog(&self, child: &Child) -> usize {
        (self.head - child.next) as usize + usize::from(child.rest().is_some())
    }

    /// The counters of a child.
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

    /// The peak number of bytes held: frames in the ring, and buffers that sockets have begun, each counted whole even
    /// if it is also in the ring.
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

    /// Advances a child's cursor to the next frame that it wants, so that a frame overwritten at a cursor is a missed
    /// one.
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

/// Offering several frames to a socket at once; a frame counts as begun only if the socket takes bytes of it.
impl Ring {
    /// The buffers that a child's socket may take now, in order, each with the offset of its rest. First the rest of
    /// the begun buffer, or a new message or page; these are begun by being offered, and are finished whatever happens
    /// to the ring. Then the following frames, as long as the total is at most `most` bytes. A frame is begun only when
    /// [`Ring::record_taken`] reports that bytes of it were taken. The caller must report that at once, without an
    /// await point: until then offered frames count as symbols of the ring even if they are overwritten, so that it
    /// holds fewer others. They are at most a quarter of the ring per child and a half for all children.
    pub fn offer(&mut self, id: ChildId, most: usize) -> Vec<(SharedBytes, usize)> {
        let Some(mut child) = self.children.remove(&id) else { return Vec::new() };
        self.settle(&mut child);
        child.offered.clear();
        let next = self.entry(child.next);
        let begins = child.rest().is_none() && !next.is_some_and(|next| child.takes(next));
        if begins {
            self.begin_next(&mut child);
            self.held.begin_buffer(child.begun_bytes(), self.overwritten_bytes());
        }
        let rest = child.rest().map(|(bytes, at)| (SharedBytes::clone(bytes), at));
        let begun = rest.as_ref().map_or(0, |(bytes, at)| bytes.len() - at);
        self.offer_frames(&mut child, begun, most);
        let frames =
            child.offered.iter().map(|offered| (SharedBytes::clone(&offered.entry.frame), 0));
        let all = rest.into_iter().chain(frames).collect();
        self.children.insert(id, child);
        all
    }

    fn offer_frames(&self, child: &mut Child, mut bytes: usize, most: usize) {
        let (mut seq, is_begun) = (child.next, child.rest().is_some());
        let others: usize = self.children.values().map(|other| other.offered.len()).sum();
        let room = (self.capacity / 4).min((self.capacity / 2).saturating_sub(others));
        while let Some(entry) = self.entry(seq).filter(|_| !child.has_message(seq)) {
            if wants(child, seq, entry) {
                bytes += entry.frame.len();
                let is_first = !is_begun && child.offered.is_empty();
                let fits = bytes <= most && child.offered.len() < room;
                if !child.takes(entry) || !(is_first || fits) {
                    return;
                }
                let offered =
                    Offered { seq, entry: entry.clone(), was_missed: false, is_of_before: false };
                child.offered.push_back(offered);
            }
            seq += 1;
        }
    }

    /// Records that the child's socket took `n` bytes of the offer or of its begun buffer. Returns how many of the
    /// taken symbols had been overwritten meanwhile; they no longer count as missed.
    pub fn record_taken(&mut self, id: ChildId, n: usize) -> usize {
        let Some(mut child) = self.children.remove(&id) else { return 0 };
        let mut left = n - self.take(&mut child, n);
        let mut saved = 0;
        for offered in std::mem::take(&mut child.offered) {
            if left == 0 {
                break;
            }
            saved += usize::from(offered.was_missed);
            child.send_offered(&offered, self.header_bytes);
            self.held.begin_buffer(child.begun_bytes(), self.overwritten_bytes());
            left -= self.take(&mut child, left);
        }
        self.settle(&mut child);
        self.children.insert(id, child);
        saved
    }

    /// Takes at most `most` bytes of the child's begun buffer. Returns the number of bytes.
    fn take(&mut self, child: &mut Child, most: usize) -> usize {
        let taken = most.min(child.rest_bytes());
        self.held.end_buffer(child.take_rest(taken));
        taken
    }

    /// Bytes of overwritten frames that are still offered to sockets.
    fn overwritten_bytes(&self) -> usize {
        let (firsts, ghosts) = self.overwritten();
        firsts + ghosts.values().sum::<usize>()
    }

    /// The number of overwritten frames that are still offered to sockets, except one per child.
    fn ghosts(&self) -> usize {
        self.overwritten().1.len()
    }

    /// The overwritten frames that are still offered to sockets. The first of a child without a begun buffer stands for
    /// its overflow: the total bytes of these. All others: their bytes by position.
    fn overwritten(&self) -> (usize, BTreeMap<u64, usize>) {
        let (oldest, mut firsts, mut ghosts) = (self.oldest(), 0, BTreeMap::new());
        for child in self.children.values() {
            let mut gone = child.offered.iter().take_while(|offered| offered.seq < oldest);
            let own = if child.rest().is_none() { gone.next() } else { None };
            firsts += own.map_or(0, |offered| offered.entry.frame.len());
            ghosts.extend(gone.map(|offered| (offered.seq, offered.entry.frame.len())));
        }
        (firsts, ghosts)
    }
}

/// Whether a child wants the frame at this position.
fn wants(child: &Child, seq: u64, entry: &Entry) -> bool {
    let block = entry.id.block;
    let is_wanted = match entry.is_source {
        true => child.lacks(entry.id) && !child.is_to_answer(block, seq),
        false => child.needs(block),
    };
    is_wanted && !child.done.contains(u64::from(block))
}

/// A frame that is offered to a child's socket.
#[derive(Clone, Debug)]
struct Offered {
    seq: u64,
    entry: Entry,
    /// It was overwritten meanwhile and counted as missed.
    was_missed: bool,
    /// The child has started again since. Taking this frame does not advance the child.
    is_of_before: bool,
}
