//! The order in which a sender fills its ring.
//!
//! First, each block's source symbols are sent once. Several blocks are open at a time; each round sends one symbol of
//! each open block, in random order, so that periodic loss does not hit one block alone. A block whose symbols have all
//! been sent is *spent*: the sender asks the children that are not done with it which symbols they lack. The question
//! goes behind the last symbol in the same connection, so the answer takes all arrived symbols into account. Then the
//! sender sends repair symbols of its share, as many as the child with the greatest need needs. Once these are used up,
//! or for a child that lacks more than there are, it sends the missing source symbols themselves. So very few symbols
//! are useless, and a fast child does not wait for the blocks of a slow one (ROMA §IV: "a continuous encoding"; here
//! answers replace a rateless code over the whole object).

use crate::{
    geometry::{Geometry, SymbolId},
    have::HaveSet,
};
use rand_core::Rng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The number of blocks that one call of [`Emission::next`] examines for a wanted one.
const SCAN: usize = 4096;

/// Settings of an emission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmissionSettings {
    /// The number of open blocks; at least 1.
    pub width: usize,
    /// This sender's part of the repair symbols.
    pub share: SenderShare,
}

impl Default for EmissionSettings {
    /// Four open blocks, and a single sender.
    fn default() -> Self {
        Self { width: 4, share: SenderShare::default() }
    }
}

/// Identifies one of several senders of the same object. Each sends another range of the repair symbols, and begins at
/// another source symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderShare {
    /// The number of this sender, below `of`.
    pub index: u32,
    /// The number of senders; at least 1.
    pub of: u32,
}

impl Default for SenderShare {
    /// A single sender.
    fn default() -> Self {
        Self { index: 0, of: 1 }
    }
}

impl SenderShare {
    /// This sender's part of `n` items, as a range.
    pub fn part(self, n: u32) -> std::ops::Range<u32> {
        self.bound(n, self.index)..self.bound(n, self.index.saturating_add(1))
    }

    /// The beginning of part `index` of `n` items.
    fn bound(self, n: u32, index: u32) -> u32 {
        let of = u64::from(self.of.max(1));
        (u64::from(n) * u64::from(index).min(of) / of) as u32
    }
}

/// The symbols that a block still sends after its source symbols.
#[derive(Clone, Debug, Default)]
struct LateSymbols {
    /// Repair symbols of the share that were sent, or must not be sent.
    repaired: u32,
    /// Repair symbols to send now.
    repair: u32,
    /// Source symbols to send again now, by ESI.
    again: VecDeque<u32>,
}

/// Chooses the order in which a sender fills its ring.
///
/// Memory: 4 bytes per block, and the pending symbols of blocks that are not done.
#[derive(Clone, Debug)]
pub struct Emission {
    geometry: Geometry,
    settings: EmissionSettings,
    done: HaveSet,
    /// The number of source symbols of each block that were sent for the first time.
    sent: Vec<u32>,
    late: BTreeMap<u32, LateSymbols>,
    /// Blocks with symbols to send that were passed over, or that got further symbols to send.
    ready: BTreeSet<u32>,
    /// Where the search in `ready` continues.
    turn: u32,
    /// Spent blocks: children are asked about them.
    spent: BTreeSet<u32>,
    /// The next block to open.
    cursor: u32,
    open: Vec<u32>,
    /// The open blocks that are left in this round.
    round: Vec<u32>,
}

impl Emission {
    /// Creates the emission of a source, which starts at the first block.
    pub fn new(geometry: Geometry, settings: EmissionSettings) -> Self {
        Self {
            geometry,
            settings,
            done: HaveSet::with_block_size(u64::from(geometry.blocks()), 512),
            sent: vec![0; geometry.blocks() as usize],
            late: BTreeMap::new(),
            ready: BTreeSet::new(),
            turn: 0,
            spent: BTreeSet::new(),
            cursor: 0,
            open: Vec::new(),
            round: Vec::new(),
        }
    }

    /// Creates the emission of a forwarding node: it sends only symbols that children still lack, of blocks that it
    /// holds ([`Self::hold`]).
    pub fn for_forwarder(geometry: Geometry, settings: EmissionSettings) -> Self {
        let mut emission = Self::new(geometry, settings);
        let all = |(block, sent): (u32, &mut u32)| *sent = geometry.source_symbols_of(block);
        (0..).zip(&mut emission.sent).for_each(all);
        emission.cursor = geometry.blocks();
        emission
    }

    /// Records that a forwarded block is held now.
    pub fn hold(&mut self, block: u32) {
        if block < self.geometry.blocks() && !self.done.contains(u64::from(block)) {
            self.spent.insert(block);
        }
    }

    /// The number of source symbols of a block that were sent for the first time.
    pub fn sent_of(&self, block: u32) -> u32 {
        self.sent.get(block as usize).copied().unwrap_or(0)
    }

    /// Records that all children have this block.
    pub fn finish(&mut self, block: u32) {
        self.done.insert(u64::from(block));
        self.late.remove(&block);
        self.ready.remove(&block);
        self.spent.remove(&block);
    }

    /// Records that a child without any symbols has joined, so that no block is done any more.
    pub fn reopen_blocks(&mut self) {
        let blocks: Vec<u64> = self.done.runs().flatten().collect();
        self.done.remove_range(0..u64::MAX);
        for block in blocks.into_iter().map(|block| block as u32) {
            if self.left(block) == 0 {
                self.spent.insert(block);
            }
        }
    }

    /// The spent blocks, in order: children that are not done with them should be asked which symbols they lack.
    pub fn spent(&self) -> impl Iterator<Item = u32> + Clone {
        self.spent_from(0)
    }

    /// Like [`Self::spent`], starting with this block and wrapping around.
    pub fn spent_from(&self, block: u32) -> impl Iterator<Item = u32> + Clone {
        self.spent.range(block..).chain(self.spent.range(..block)).copied()
    }

    /// Records that a child needs `need` more symbols of a block, and lacks these source symbols. ESIs of other symbols
    /// are ignored.
    pub fn lacks(&mut self, block: u32, need: u32, esis: impl Iterator<Item = u32>) {
        let source = self.geometry.source_symbols_of(block);
        if need == 0 || self.done.contains(u64::from(block)) || self.sent_of(block) < source {
            return;
        }
        let share = self.repair().len() as u32;
        let late = self.late.entry(block).or_default();
        if need <= share.saturating_sub(late.repaired) {
            late.repair = late.repair.max(need);
        } else {
            let (known, new): (Vec<u32>, Vec<u32>) =
                esis.filter(|esi| *esi < source).partition(|esi| late.again.contains(esi));
            late.again.extend(new.into_iter().take((need as usize).saturating_sub(known.len())));
        }
        if self.left(block) > 0 {
            self.spent.remove(&block);
            self.ready.insert(block);
        }
    }

    /// Records that this sender can send no (more) repair symbols of a block, because there is no proof of them.
    pub fn skip_repair(&mut self, block: u32) {
        let share = self.repair().len() as u32;
        if let Some(late) = self.late.get_mut(&block) {
            (late.repaired, late.repair) = (share, 0);
        }
        self.settle(block);
    }

    /// The next symbol, of a block for which `wanted` returns true: one of which a child that can take a symbol now
    /// still lacks some ([`crate::Ring::feasible`]). `None` if no such block is among the next few thousand; call again
    /// when a child has taken something.
    pub fn next(&mut self, rng: &mut impl Rng, wanted: impl Fn(u32) -> bool) -> Option<SymbolId> {
        for _ in 0..2 {
            while let Some(block) = self.round.pop() {
                if self.left(block) > 0 && wanted(block) {
                    return Some(self.emit(block));
                }
                self.close(block);
            }
            self.refill(&wanted);
            self.round.extend(&self.open);
            shuffle(&mut self.round, rng);
        }
        None
    }

    /// Closes a block to make room for another; its remaining symbols are sent later.
    fn close(&mut self, block: u32) {
        self.open.retain(|open| *open != block);
        if self.left(block) > 0 {
            self.ready.insert(block);
        }
    }

    /// Opens the next blocks, first those that were open before and have symbols left.
    fn refill(&mut self, wanted: &impl Fn(u32) -> bool) {
        let open = std::mem::take(&mut self.open);
        self.open = open.into_iter().filter(|block| self.left(*block) > 0).collect();
        let width = self.settings.width.max(1);
        let ready = self.ready.range(self.turn..).chain(self.ready.range(..self.turn));
        let is_new = |block: &&u32| !self.open.contains(block) && wanted(**block);
        let room = width.saturating_sub(self.open.len());
        let next: Vec<u32> = ready.take(SCAN).filter(is_new).take(room).copied().collect();
        for block in next {
            self.ready.remove(&block);
            self.turn = block + 1;
            self.open.push(block);
        }
        for _ in 0..SCAN {
            if self.open.len() >= width || self.cursor >= self.geometry.blocks() {
                return;
            }
            let block = self.cursor;
            self.cursor += 1;
            match self.left(block) {
                0 => {}
                _ if wanted(block) => self.open.push(block),
                _ => _ = self.ready.insert(block),
            }
        }
    }

    /// This sender's range of repair symbols, counted from 0.
    fn repair(&self) -> std::ops::Range<u32> {
        self.settings.share.part(self.geometry.repair_symbols())
    }

    /// The number of symbols of a block that may be sent now.
    fn left(&self, block: u32) -> u32 {
        if self.done.contains(u64::from(block)) {
            return 0;
        }
        match self.geometry.source_symbols_of(block).saturating_sub(self.sent_of(block)) {
            0 => self.late.get(&block).map_or(0, |late| late.repair + late.again.len() as u32),
            left => left,
        }
    }

    fn emit(&mut self, block: u32) -> SymbolId {
        let source = self.geometry.source_symbols_of(block);
        let share = self.settings.share;
        let (count, first) = (self.sent_of(block), self.repair().start);
        let esi = if count < source {
            self.sent[block as usize] = count + 1;
            (count + share.bound(source, share.index)) % source
        } else {
            let late = self.late.entry(block).or_default();
            match late.repair {
                0 => late.again.pop_front().unwrap_or(0),
                _ => {
                    (late.repair, late.repaired) = (late.repair - 1, late.repaired + 1);
                    source + first + late.repaired - 1
                }
            }
        };
        self.settle(block);
        SymbolId { block, esi }
    }

    fn settle(&mut self, block: u32) {
        if self.left(block) == 0 && !self.done.contains(u64::from(block)) {
            self.ready.remove(&block);
            self.spent.insert(block);
        }
    }
}

/// Fisher–Yates shuffle.
fn shuffle(items: &mut [u32], rng: &mut impl Rng) {
    for last in (1..items.len()).rev() {
        items.swap(last, (rng.next_u64() % (last as u64 + 1)) as usize);
    }
}
