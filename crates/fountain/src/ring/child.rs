//! One reader of a ring.

use super::{ChildStatus, Shared, offer::Offered};
use crate::{geometry::SymbolId, have::HaveSet};
use std::collections::{BTreeMap, VecDeque};

/// A frame in the ring, with what proves it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) id: SymbolId,
    pub(super) is_source: bool,
    pub(super) frame: Shared,
    pub(super) page: Shared,
}

/// Which page: of a block's source symbols, or of its repair symbols.
pub(super) type PageKey = (u32, bool);

impl Entry {
    pub(super) fn page_key(&self) -> PageKey {
        (self.id.block, self.is_source)
    }
}

/// A child: its place in the ring, and what its socket has begun.
#[derive(Clone, Debug)]
pub(super) struct Child {
    /// The sequence number of the next frame to send; never one it does not want.
    pub(super) next: u64,
    /// Blocks it is done with.
    pub(super) done: HaveSet,
    pub(super) counts: ChildStatus,
    /// Of blocks of which it said what it lacks: these source symbols, as bits by ESI.
    lacks: BTreeMap<u32, Vec<u64>>,
    /// Symbols that it needs of a block beyond those that come by themselves: what it said, or else
    /// source symbols that it missed here. So many repair symbols are of use to it.
    needs: BTreeMap<u32, u32>,
    /// Blocks about which it was asked and has not answered, and behind which place.
    asked: BTreeMap<u32, u64>,
    /// Pages that it was sent last.
    known: VecDeque<PageKey>,
    /// Messages, each to be sent when the frames before that place have gone.
    messages: VecDeque<(u64, Shared)>,
    /// What the socket has begun, and how much of it it took.
    overflow: Option<(Shared, usize)>,
    /// Frames that lie before the socket, behind what it has begun.
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

    /// What this child's socket has begun is finished, and what lies before it may be taken, though the
    /// child begins anew.
    pub(super) fn go_on_from(&mut self, before: Self) {
        (self.overflow, self.offered) = (before.overflow, before.offered);
        self.offered.iter_mut().for_each(|offered| offered.is_of_before = true);
    }

    /// What its socket must take before anything else, from where on.
    pub(super) fn rest(&self) -> Option<(&Shared, usize)> {
        self.overflow.as_ref().map(|(bytes, taken)| (bytes, *taken))
    }

    /// Bytes of what the socket has begun, those included that it took already.
    pub(super) fn begun_bytes(&self) -> usize {
        self.overflow.as_ref().map_or(0, |(bytes, _)| bytes.len())
    }

    /// The socket took `n` bytes of what it has begun; the bytes that are let go if that was the rest.
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

    /// Bytes of what the socket has begun that it did not take yet.
    pub(super) fn rest_bytes(&self) -> usize {
        self.overflow.as_ref().map_or(0, |(bytes, taken)| bytes.len() - taken)
    }

    pub(super) fn begin(&mut self, bytes: Shared) {
        self.overflow = Some((bytes, 0));
    }

    /// A message, once the frames before `after` have gone.
    pub(super) fn say(&mut self, after: u64, message: Shared) {
        self.messages.push_back((after, message));
    }

    /// A question about a block, once the frames before `after` have gone.
    pub(super) fn ask(&mut self, after: u64, block: u32, message: Shared) {
        self.say(after, message);
        self.asked.insert(block, after);
    }

    /// Whether a frame at this place lies behind a question about its block that has no answer yet.
    pub(super) fn is_to_answer(&self, block: u32, seq: u64) -> bool {
        self.asked.get(&block).is_some_and(|after| seq >= *after)
    }

    /// Messages that wait.
    pub(super) fn messages(&self) -> usize {
        self.messages.len()
    }

    /// Whether a message goes before the frame at this place.
    pub(super) fn has_message(&self, seq: u64) -> bool {
        self.messages.front().is_some_and(|(after, _)| *after <= seq)
    }

    /// The message that goes now, taken out.
    pub(super) fn next_message(&mut self) -> Option<Shared> {
        if self.has_message(self.next) {
            self.messages.pop_front().map(|(_, message)| message)
        } else {
            None
        }
    }

    pub(super) fn knows(&self, page: PageKey) -> bool {
        self.known.contains(&page)
    }

    /// It is sent a page; it is taken to know the last `most` of them.
    pub(super) fn learn(&mut self, page: PageKey, most: usize) {
        self.known.truncate(most.saturating_sub(1));
        self.known.push_front(page);
    }

    /// It said what it lacks of a block, and how many symbols it needs.
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

    /// Whether it said what it lacks of a block.
    pub(super) fn has_lacks(&self, block: u32) -> bool {
        self.lacks.contains_key(&block)
    }

    /// Whether a source symbol is one that it lacks, by what it said.
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

    /// The frame at its cursor goes now.
    pub(super) fn send(&mut self, entry: &Entry, header_bytes: usize) {
        if !entry.is_source || self.strike(entry.id) {
            self.needs_one_less(entry.id.block);
        }
        self.begin(Shared::clone(&entry.frame));
        self.next += 1;
        self.counts.sent_symbols += 1;
        self.counts.sent_bytes += entry.frame.len().saturating_sub(header_bytes) as u64;
    }

    /// Strikes a source symbol from what it said it lacks; whether it was there.
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

    /// The frame at its cursor is overwritten.
    pub(super) fn miss(&mut self, id: SymbolId, is_source: bool) {
        let missed = self.next;
        if let Some(offered) = self.offered.iter_mut().find(|offered| offered.seq == missed) {
            offered.was_missed = true;
        }
        self.next += 1;
        self.counts.missed_symbols += 1;
        // Of what it said it lacks this is counted already.
        if is_source && !self.lacks.contains_key(&id.block) {
            *self.needs.entry(id.block).or_default() += 1;
        }
    }

    /// A frame that was counted as missed was taken all the same.
    pub(super) fn unmiss(&mut self, entry: &Entry) {
        self.counts.missed_symbols = self.counts.missed_symbols.saturating_sub(1);
        if entry.is_source && !self.lacks.contains_key(&entry.id.block) {
            self.needs_one_less(entry.id.block);
        }
    }
}
