//! One reader of a ring.

use super::{ChildStatus, Offered, SharedBytes};
use crate::{geometry::SymbolId, have::HaveSet};
use std::collections::{BTreeMap, VecDeque};

/// A frame in the ring, with the page that proves it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) id: SymbolId,
    pub(super) is_source: bool,
    pub(super) frame: SharedBytes,
    pub(super) page: SharedBytes,
}

/// Identifies a page: the block, and whether it is the page of source symbols.
pub(super) type PageKey = (u32, bool);

impl Entry {
    pub(super) fn page_key(&self) -> PageKey {
        (self.id.block, self.is_source)
    }
}

/// A child: its position in the ring, and the buffer that its socket has begun.
#[derive(Clone, Debug)]
pub(super) struct Child {
    /// The sequence number of the next frame to send; never one that the child does not want.
    pub(super) next: u64,
    /// Blocks that the child is done with.
    pub(super) done: HaveSet,
    pub(super) counts: ChildStatus,
    /// The missing source symbols, as bits by ESI, of each block for which the child reported them.
    lacks: BTreeMap<u32, Vec<u64>>,
    /// The number of symbols of a block that it needs beyond those that are sent anyway: what it reported, or else the
    /// number of source symbols that it missed here. This many repair symbols are of use to it.
    needs: BTreeMap<u32, u32>,
    /// Blocks about which it was asked and has not answered, with the position of the question.
    asked: BTreeMap<u32, u64>,
    /// Pages that were sent to it last.
    known: VecDeque<PageKey>,
    /// Messages, each to be sent after the frames before its position.
    messages: VecDeque<(u64, SharedBytes)>,
    /// The buffer that the socket has begun, and the number of bytes taken.
    overflow: Option<(SharedBytes, usize)>,
    /// Frames offered to the socket, behind the begun buffer.
    pub(super) offered: VecDeque<Offered>,
}

impl Child {
    pub(super) fn new(next: u64, done: HaveSet) -> Self {
        Self {
            next,
            done,
            counts: ChildStatus::default(),
            lacks: BTreeMap::new(),
            needs: BTreeMap::new(),
            asked: BTreeMap::new(),
            known: VecDeque::new(),
            messages: VecDeque::new(),
            overflow: None,
            offered: VecDeque::new(),
        }
    }

    /// Takes over the begun buffer and the offered frames from the child's earlier state: the socket must finish the
    /// buffer and may take the frames, although the child starts again.
    pub(super) fn go_on_from(&mut self, before: Self) {
        (self.overflow, self.offered) = (before.overflow, before.offered);
        self.offered.iter_mut().for_each(|offered| offered.is_of_before = true);
    }

    /// The begun buffer, which the socket must take first, and the offset of its rest.
    pub(super) fn rest(&self) -> Option<(&SharedBytes, usize)> {
        self.overflow.as_ref().map(|(bytes, taken)| (bytes, *taken))
    }

    /// The length of the begun buffer, including the bytes already taken.
    pub(super) fn begun_bytes(&self) -> usize {
        self.overflow.as_ref().map_or(0, |(bytes, _)| bytes.len())
    }

    /// Records that the socket took `n` bytes of the begun buffer. Returns the length of the buffer if it is finished,
    /// otherwise 0.
    pub(super) fn take_rest(&mut self, n: usize) -> usize {
        let Some((bytes, taken)) = &mut self.overflow else { return 0 };
        *taken += n;
        if *taken < bytes.len() {
            return 0;
        }
        let all = bytes.len();
        self.overflow = None;
        all
    }

    /// Bytes of the begun buffer that the socket has not taken yet.
    pub(super) fn rest_bytes(&self) -> usize {
        self.overflow.as_ref().map_or(0, |(bytes, taken)| bytes.len() - taken)
    }

    pub(super) fn begin(&mut self, bytes: SharedBytes) {
        self.overflow = Some((bytes, 0));
    }

    /// Queues a message behind the frames before position `after`.
    pub(super) fn say(&mut self, after: u64, message: SharedBytes) {
        self.messages.push_back((after, message));
    }

    /// Queues a question about a block behind the frames before position `after`.
    pub(super) fn ask(&mut self, after: u64, block: u32, message: SharedBytes) {
        self.say(after, message);
        self.asked.insert(block, after);
    }

    /// Whether a frame at position `seq` is behind an unanswered question about its block.
    pub(super) fn is_to_answer(&self, block: u32, seq: u64) -> bool {
        self.asked.get(&block).is_some_and(|after| seq >= *after)
    }

    /// The number of queued messages.
    pub(super) fn messages(&self) -> usize {
        self.messages.len()
    }

    /// Whether a message must be sent before the frame at position `seq`.
    pub(super) fn has_message(&self, seq: u64) -> bool {
        self.messages.front().is_some_and(|(after, _)| *after <= seq)
    }

    /// Removes the message that must be sent now.
    pub(super) fn next_message(&mut self) -> Option<SharedBytes> {
        if self.has_message(self.next) {
            self.messages.pop_front().map(|(_, message)| message)
        } else {
            None
        }
    }

    pub(super) fn knows(&self, page: PageKey) -> bool {
        self.known.contains(&page)
    }

    /// Records that a page is sent. The child is assumed to remember the last `most` pages.
    pub(super) fn learn(&mut self, page: PageKey, most: usize) {
        self.known.truncate(most.saturating_sub(1));
        self.known.push_front(page);
    }

    /// Records which symbols of a block the child reported as missing, and how many it needs.
    pub(super) fn lack(
        &mut self,
        block: u32,
        need: u32,
        esis: impl Iterator<Item = u32>,
        is_more: bool,
    ) {
        self.asked.remove(&block);
        let known = self.needs.get(&block).copied().filter(|_| is_more);
        self.needs.insert(block, need.max(known.unwrap_or(0)));
        let before = self.lacks.remove(&block).filter(|_| is_more);
        let mut bits: Vec<u64> = before.unwrap_or_default();
        for esi in esis {
            let word = esi as usize / 64;
            if bits.len() <= word {
                bits.resize(word + 1, 0);
            }
            bits[word] |= 1 << (esi % 64);
        }
        self.lacks.insert(block, bits);
    }

    /// Whether it has reported its missing symbols of a block.
    pub(super) fn has_lacks(&self, block: u32) -> bool {
        self.lacks.contains_key(&block)
    }

    /// Whether it lacks a source symbol, as far as it has reported.
    pub(super) fn lacks(&self, id: SymbolId) -> bool {
        let Some(bits) = self.lacks.get(&id.block) else { return true };
        bits.get(id.esi as usize / 64).is_some_and(|word| word >> (id.esi % 64) & 1 == 1)
    }

    /// Whether it needs repair symbols of a block.
    pub(super) fn needs(&self, block: u32) -> bool {
        self.needs.get(&block).is_some_and(|need| *need > 0)
    }

    pub(super) fn finish(&mut self, block: u32) {
        self.done.insert(u64::from(block));
        self.lacks.remove(&block);
        self.needs.remove(&block);
        self.asked.remove(&block);
    }

    /// Sends the frame at its cursor.
    pub(super) fn send(&mut self, entry: &Entry, header_bytes: usize) {
        if !entry.is_source || self.strike(entry.id) {
            self.needs_one_less(entry.id.block);
        }
        self.begin(SharedBytes::clone(&entry.frame));
        self.next += 1;
        self.counts.sent_symbols += 1;
        self.counts.sent_bytes += entry.frame.len().saturating_sub(header_bytes) as u64;
    }

    /// Removes a source symbol from the reported missing ones. Returns whether it was among them.
    fn strike(&mut self, id: SymbolId) -> bool {
        let bits = self.lacks.get_mut(&id.block);
        let Some(word) = bits.and_then(|bits| bits.get_mut(id.esi as usize / 64)) else {
            return false;
        };
        let bit = 1 << (id.esi % 64);
        let was_there = *word & bit != 0;
        *word &= !bit;
        was_there
    }

    fn needs_one_less(&mut self, block: u32) {
        self.needs.entry(block).and_modify(|need| *need = need.saturating_sub(1));
    }

    /// Records that the frame at its cursor is overwritten.
    pub(super) fn miss(&mut self, id: SymbolId, is_source: bool) {
        let missed = self.next;
        if let Some(offered) = self.offered.iter_mut().find(|offered| offered.seq == missed) {
            offered.was_missed = true;
        }
        self.next += 1;
        self.counts.missed_symbols += 1;
        // Reported missing symbols are counted in `needs` already.
        if is_source && !self.lacks.contains_key(&id.block) {
            *self.needs.entry(id.block).or_default() += 1;
        }
    }

    /// Records that the socket took a frame that was counted as missed.
    pub(super) fn unmiss(&mut self, entry: &Entry) {
        self.counts.missed_symbols = self.counts.missed_symbols.saturating_sub(1);
        if entry.is_source && !self.lacks.contains_key(&entry.id.block) {
            self.needs_one_less(entry.id.block);
        }
    }
}

/// Offering several frames to a socket at once; a frame counts as begun only if the socket takes bytes of it.
impl Child {
    /// Whether a wanted frame may be offered with others: the child knows its page, and sending it changes nothing for
    /// the frames behind it.
    pub(super) fn takes(&self, entry: &Entry) -> bool {
        let is_proven = entry.page.is_empty() || self.knows(entry.page_key());
        entry.is_source
            && is_proven
            && !self.has_lacks(entry.id.block)
            && !self.has_message(self.next)
    }

    pub(super) fn send_offered(&mut self, offered: &Offered, header_bytes: usize) {
        if offered.was_missed && !offered.is_of_before {
            self.unmiss(&offered.entry);
        }
        let moved = if offered.is_of_before { self.next } else { offered.seq + 1 };
        let next = self.next.max(moved);
        self.send(&offered.entry, header_bytes);
        self.next = next;
    }
}
