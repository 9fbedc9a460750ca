//! A node's ring for one cast, shared behind a lock, with the state of its children's messages.

use super::{
    proof_cache::Proof,
    upstream_queue::{MissingSymbols, UpstreamQueue},
};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};
use thalweg_fountain::{ChildId, Geometry, Ring, SharedBytes, SymbolId};
use thalweg_wire::cast::{ChildMessage, FRAME_HEAD, Frame, ParentMessage, are_sound};
use tokio::sync::Notify;

/// The maximum number of unanswered questions to a child.
const MAX_QUESTIONS: usize = 16;

/// The maximum number of blocks whose missing symbols a child may report without being asked. It does so for blocks
/// that it has in part when it joins.
const MAX_UNASKED_LACKS: usize = 256;

/// The maximum number of a child's requests for digests of repair symbols, per block on average: one request when a
/// node below it misses a symbol, and another if a relay has forgotten the digests. The limit exists because making
/// them costs CPU time.
const SHEET_REQUESTS_PER_BLOCK: u32 = 4;

/// A child with this many queued messages is not asked for now.
const MAX_MESSAGES: usize = 1024;

/// One ring, and all its readers.
#[derive(Debug)]
pub struct SharedRing {
    geometry: Geometry,
    inner: Mutex<RingState>,
    has_children: AtomicBool,
    missed: AtomicU64,
    served: AtomicU64,
    /// Notified when there is something for children.
    pub fresh: Notify,
    /// Notified when a child took or said something; wakes the feed.
    pub moved: Notify,
}

/// The ring, and messages of children that the feed has not processed.
#[derive(Debug)]
pub struct RingState {
    pub ring: Ring,
    /// How often a child joined.
    pub joined: u64,
    /// Blocks that all children are done with.
    pub done: VecDeque<u32>,
    pub lacks: BTreeMap<(ChildId, u32), MissingSymbols>,
    asked: BTreeMap<ChildId, BTreeSet<u32>>,
    /// Children that wait for the digests of a block's repair symbols.
    waiting: BTreeMap<u32, BTreeSet<ChildId>>,
    /// How often each child requested such digests.
    sheets: BTreeMap<ChildId, u32>,
    next: u64,
    /// At a relay: where its children's messages are passed on.
    upstream: Option<Arc<UpstreamQueue>>,
}

/// A registered child; dropping this removes it.
#[derive(Debug)]
pub struct RegisteredChild {
    ring: Arc<SharedRing>,
    pub id: ChildId,
}

impl Drop for RegisteredChild {
    fn drop(&mut self) {
        self.ring.leave(self.id);
    }
}

impl SharedRing {
    /// Creates a ring of at most `bytes` bytes, but for at least one symbol. `upstream` is set at a relay without a
    /// store.
    ///
    /// # Errors
    /// No ring can hold a symbol of this geometry.
    pub fn new(
        geometry: &Geometry,
        bytes: u64,
        upstream: Option<Arc<UpstreamQueue>>,
    ) -> io::Result<Arc<Self>> {
        let least = FRAME_HEAD + geometry.symbol_bytes() as usize;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).max(least);
        let ring = Ring::new(geometry, bytes, FRAME_HEAD).map_err(io::Error::other)?;
        let inner = RingState {
            ring,
            joined: 0,
            done: VecDeque::new(),
            lacks: BTreeMap::new(),
            asked: BTreeMap::new(),
            waiting: BTreeMap::new(),
            sheets: BTreeMap::new(),
            next: 0,
            upstream,
        };
        Ok(Arc::new(Self {
            geometry: *geometry,
            inner: Mutex::new(inner),
            has_children: AtomicBool::new(false),
            missed: AtomicU64::new(0),
            served: AtomicU64::new(0),
            fresh: Notify::new(),
            moved: Notify::new(),
        }))
    }

    /// Locks the ring. The guard must not be held across an await point.
    pub fn lock(&self) -> MutexGuard<'_, RingState> {
        self.inner.lock()
    }

    /// Whether the ring has children.
    pub fn has_children(&self) -> bool {
        self.has_children.load(Relaxed)
    }

    /// Symbols that children missed because they were too slow.
    pub fn missed(&self) -> u64 {
        self.missed.load(Relaxed)
    }

    /// The peak number of bytes held for children: in the ring, and partly taken by their connections.
    pub fn peak(&self) -> u64 {
        self.lock().ring.peak_bytes() as u64
    }

    /// Bytes of symbols that children's connections took.
    pub fn served(&self) -> u64 {
        self.served.load(Relaxed)
    }

    /// Adds a child, which has nothing.
    pub fn join(self: &Arc<Self>) -> RegisteredChild {
        let mut inner = self.lock();
        let id = ChildId(inner.next);
        inner.next += 1;
        inner.join(id);
        drop(inner);
        self.has_children.store(true, Relaxed);
        self.moved.notify_one();
        RegisteredChild { ring: Arc::clone(self), id }
    }

    fn leave(&self, id: ChildId) {
        let mut inner = self.lock();
        inner.ring.leave(id);
        inner.asked.remove(&id);
        inner.sheets.remove(&id);
        inner.lacks.retain(|(child, _), _| *child != id);
        inner.waiting.values_mut().for_each(|children| _ = children.remove(&id));
        inner.waiting.retain(|_, children| !children.is_empty());
        let is_empty = inner.ring.children().next().is_none();
        self.has_children.store(!is_empty, Relaxed);
        if !is_empty {
            // Blocks that only this child was not done with may be done for all now.
            let blocks = (0..self.geometry.blocks()).filter(|b| inner.ring.done_by_all(*b));
            let blocks: Vec<u32> = blocks.collect();
            blocks.into_iter().for_each(|block| inner.all_done(block));
        }
        drop(inner);
        self.moved.notify_one();
    }

    /// Puts a verified symbol into the ring, unless there are no children. If children missed symbols thereby, returns
    /// the block of the last of these.
    pub fn push(&self, id: SymbolId, frame: &SharedBytes, proof: &Proof) -> Option<u32> {
        if !self.has_children() {
            return None;
        }
        // Cannot fail: the ring was made for this geometry.
        let mut inner = self.lock();
        let pushed = inner.ring.push(id, SharedBytes::clone(frame), &proof.message);
        let (missed, block) = pushed.unwrap_or((0, 0));
        // Counted before the lock is released, because `took` may subtract it again.
        self.missed.fetch_add(missed as u64, Relaxed);
        drop(inner);
        self.fresh.notify_waiters();
        (missed > 0).then_some(block)
    }

    /// The buffers that a child's connection may take now, at most `most` bytes; see [`Ring::offer`].
    pub fn offer(&self, id: ChildId, most: usize) -> Vec<(SharedBytes, usize)> {
        self.counting(id, |ring| ring.offer(id, most))
    }

    /// Records that the connection took `n` bytes of the offer, possibly none.
    pub fn record_taken(&self, id: ChildId, n: usize) {
        let saved = self.counting(id, |ring| ring.record_taken(id, n));
        self.missed.fetch_sub(saved as u64, Relaxed);
        if n > 0 {
            self.moved.notify_one();
        }
    }

    /// Counts the symbol bytes that `work` serves to a child.
    fn counting<T>(&self, id: ChildId, work: impl FnOnce(&mut Ring) -> T) -> T {
        let mut inner = self.lock();
        let before = inner.ring.sent_bytes(id);
        let done = work(&mut inner.ring);
        let now = inner.ring.sent_bytes(id);
        drop(inner);
        self.served.fetch_add(now.saturating_sub(before), Relaxed);
        done
    }

    /// Asks all children that are not done with a block which symbols they lack.
    pub fn ask(&self, block: u32) {
        let mut inner = self.lock();
        let children: Vec<ChildId> = inner.ring.children().collect();
        for id in children {
            if inner.ring.messages(id) >= MAX_MESSAGES {
                continue;
            }
            inner.asked.entry(id).or_default().remove(&block);
            inner.ask(id, block);
        }
        drop(inner);
        self.fresh.notify_waiters();
    }

    /// Processes a message of a child. Returns a block if the child needs the digests of its repair symbols.
    ///
    /// # Errors
    /// A message that violates the protocol.
    pub fn handle_message(&self, id: ChildId, message: ChildMessage) -> io::Result<Option<u32>> {
        let wrong =
            || io::Error::new(io::ErrorKind::InvalidData, "the child sent an invalid request");
        let blocks = self.geometry.blocks();
        match message {
            ChildMessage::Done(runs) if are_sound(&runs, blocks.into()) => {
                let mut inner = self.lock();
                // Fits: below the number of blocks.
                let all = runs.into_iter().flat_map(|(from, to)| from as u32..to as u32);
                all.for_each(|block| inner.finish(id, block));
            }
            ChildMessage::Missing { block, need, runs } => {
                let lack = MissingSymbols { need, runs };
                self.check(block, &lack).ok_or_else(wrong)?;
                self.lock().lack(id, block, lack, &self.geometry);
            }
            ChildMessage::RevokeDone => {
                let mut inner = self.lock();
                inner.asked.remove(&id);
                inner.join(id);
            }
            ChildMessage::RepairPage(block) if block < blocks => {
                let mut inner = self.lock();
                let asked = inner.sheets.entry(id).or_default();
                *asked = asked.saturating_add(1);
                return Ok(
                    (*asked <= SHEET_REQUESTS_PER_BLOCK.saturating_mul(blocks)).then_some(block)
                );
            }
            ChildMessage::Request(runs) if runs.is_empty() => {}
            ChildMessage::Bye | ChildMessage::Held(_) => {}
            _ => return Err(wrong()),
        }
        self.moved.notify_one();
        self.fresh.notify_waiters();
        Ok(None)
    }

    fn check(&self, block: u32, lack: &MissingSymbols) -> Option<()> {
        let symbols = self.geometry.symbols_of(block);
        let is_within = lack.runs.first().is_none_or(|run| run.0 >= symbols.start);
        let is_sound = are_sound(&lack.runs, symbols.end) && is_within;
        (is_sound && lack.need <= self.geometry.source_symbols_of(block) + 64).then_some(())
    }

    /// Registers a child for the digests of a block's repair symbols. Returns whether it is the first.
    pub fn wait_for_page(&self, id: ChildId, block: u32) -> bool {
        let mut inner = self.lock();
        let is_first = !inner.waiting.contains_key(&block);
        inner.waiting.entry(block).or_default().insert(id);
        is_first
    }

    /// Sends digests that have become known to the children that wait for them.
    pub fn deliver_page(&self, proof: &Proof) {
        let mut inner = self.lock();
        for id in inner.waiting.remove(&proof.block()).unwrap_or_default() {
            inner.ring.say(id, SharedBytes::clone(&proof.message));
        }
        drop(inner);
        self.fresh.notify_waiters();
    }

    /// Sends digests to a child.
    pub fn give_page(&self, id: ChildId, proof: &Proof) {
        self.lock().ring.say(id, SharedBytes::clone(&proof.message));
        self.fresh.notify_waiters();
    }
}

impl RingState {
    fn join(&mut self, id: ChildId) {
        self.ring.join(id);
        self.joined += 1;
        if let Some(upstream) = &self.upstream {
            upstream.restart();
        }
    }

    fn finish(&mut self, id: ChildId, block: u32) {
        if let Some(asked) = self.asked.get_mut(&id) {
            asked.remove(&block);
        }
        self.lacks.remove(&(id, block));
        let is_new = !self.ring.is_done(id, block);
        if self.ring.finish(id, block) && is_new {
            self.all_done(block);
        }
    }

    fn all_done(&mut self, block: u32) {
        match &self.upstream {
            Some(upstream) => upstream.finish(block),
            None => self.done.push_back(block),
        }
    }

    fn lack(&mut self, id: ChildId, block: u32, lack: MissingSymbols, geometry: &Geometry) {
        let was_asked = self.asked.get_mut(&id).is_some_and(|asked| asked.remove(&block));
        let unanswered = self.lacks.range((id, 0)..=(id, u32::MAX)).count();
        if self.ring.is_done(id, block) || (!was_asked && unanswered >= MAX_UNASKED_LACKS) {
            return;
        }
        // A relay passes on its children's lacks one after the other, so further ones may follow.
        self.ring.lacks(id, block, lack.need, esis(&lack, block, geometry), !was_asked);
        match &self.upstream {
            Some(upstream) => upstream.report_missing(block, &lack),
            None if was_asked => _ = self.lacks.insert((id, block), lack),
            None => self.lacks.entry((id, block)).or_default().merge(&lack),
        }
    }

    /// Asks a child which symbols of a block it lacks, unless it is done with the block, was asked already, or has too
    /// many unanswered questions. Returns whether it was asked.
    pub fn ask(&mut self, id: ChildId, block: u32) -> bool {
        let asked = self.asked.entry(id).or_default();
        let may =
            asked.len() < MAX_QUESTIONS && !self.ring.is_done(id, block) && asked.insert(block);
        if may {
            self.ring.ask(
                id,
                block,
                Arc::new(Frame::encode_message(&ParentMessage::BlockSent(block))),
            );
        }
        may
    }

    /// Asks all children about these blocks, as [`Self::ask`] does. Returns whether any was asked.
    pub fn ask_about(&mut self, blocks: impl Iterator<Item = u32> + Clone) -> bool {
        let mut is_any = false;
        for id in self.ring.children().collect::<Vec<_>>() {
            let may = |asked: &BTreeSet<u32>| asked.len() < MAX_QUESTIONS;
            if self.asked.get(&id).is_none_or(may) {
                for block in blocks.clone() {
                    is_any |= self.ask(id, block);
                }
            }
        }
        is_any
    }
}

/// The ESIs of the missing source symbols.
pub fn esis(
    lack: &MissingSymbols,
    block: u32,
    geometry: &Geometry,
) -> impl Iterator<Item = u32> + use<> {
    let first = geometry.symbols_of(block).start;
    // Fits: the runs lie in the block.
    let runs = lack.runs.clone().into_iter();
    runs.flat_map(move |(from, to)| (from - first) as u32..(to - first) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_fountain::digest::SourcePage;

    #[test]
    fn a_child_that_restarts_within_a_symbol_gets_its_rest_first() {
        let geometry = Geometry::new(1 << 20, 1 << 10, 1024, 8).unwrap();
        let ring = SharedRing::new(&geometry, 1 << 20, None).unwrap();
        let joined = ring.join();
        let proof = Proof::source(&Arc::new(SourcePage { block: 0, digests: vec![[0; 32]; 1024] }));
        let frame: SharedBytes = Arc::new(vec![7; FRAME_HEAD + 1024]);
        ring.push(SymbolId { block: 0, esi: 0 }, &frame, &proof);
        let next = || ring.offer(joined.id, 0);
        assert_eq!(next(), [(SharedBytes::clone(&proof.message), 0)]);
        ring.record_taken(joined.id, proof.message.len());
        assert_eq!(next(), [(SharedBytes::clone(&frame), 0)]);
        ring.record_taken(joined.id, 100);
        assert_eq!(ring.handle_message(joined.id, ChildMessage::RevokeDone).unwrap(), None);
        assert_eq!(next(), [(SharedBytes::clone(&frame), 100)]);
        ring.record_taken(joined.id, frame.len() - 100);
        // Then everything again, the page first.
        assert_eq!(next(), [(SharedBytes::clone(&proof.message), 0)]);
        ring.record_taken(joined.id, proof.message.len());
        assert_eq!(next(), [(frame, 0)]);
    }
}
