//! In which order a source fills its ring.
//!
//! In passes over the object: the first sends each block's source symbols, later ones some
//! repair symbols of each block that somebody still lacks, and once these are used up, source
//! symbols again. So whatever a child took of a pass is new to it, and no fast child waits for
//! the blocks of a slow one (ROMA §IV: "a continuous encoding"; per-block feedback instead of
//! a rateless code over the whole object). Within a pass several blocks are open, one symbol of
//! each in a round, each round permuted: a drop that recurs hits no block alone.

use crate::{
    geometry::{Geometry, SymbolId},
    have::HaveSet,
};
use rand_core::Rng;
use std::collections::BTreeMap;

/// How many blocks a call of [`Emission::next`] looks at for one that is wanted.
const SCAN: u32 = 4096;

/// How an emission goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmissionSettings {
    /// Blocks open at once; at least 1.
    pub width: usize,
    /// Repair symbols of a block in one pass; at least 1. Few keep those small that are sent
    /// before a child can say it is done, many make the pass fewer pages of digests.
    pub burst: u32,
    /// Which part of the repair symbols is this sender's.
    pub share: Share,
}

impl Default for EmissionSettings {
    /// Four blocks, bursts of four, the only sender.
    fn default() -> Self {
        Self { width: 4, burst: 4, share: Share::default() }
    }
}

/// One of several senders of the same object: each sends another range of the repair
/// symbols, and begins at another source symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// This sender, below `of`.
    pub index: u32,
    /// How many there are; at least 1.
    pub of: u32,
}

impl Default for Share {
    /// The only one.
    fn default() -> Self {
        Self { index: 0, of: 1 }
    }
}

impl Share {
    /// Where this sender's part of `n` begins, for part `index`.
    fn bound(self, n: u32, index: u32) -> u32 {
        let of = u64::from(self.of.max(1));
        (u64::from(n) * u64::from(index).min(of) / of) as u32
    }
}

/// A block that is being sent.
#[derive(Clone, Copy, Debug)]
struct Open {
    block: u32,
    /// Symbols until it makes room for another.
    left: u32,
}

/// What a block sends once its repair symbols are used up.
#[derive(Clone, Debug, Default)]
struct Again {
    /// Source symbols that children said they lack, by ESI; all if empty.
    lacked: Vec<u32>,
    /// How many were sent.
    sent: u32,
    /// Where this round through them began.
    offset: u32,
}

impl Again {
    /// The place of the next one among `length`: in order the first time, if children said
    /// which; else each round from another one on.
    fn next(&mut self, length: u32, rng: &mut impl Rng) -> u32 {
        let first = self.sent == 0 && !self.lacked.is_empty();
        if self.sent.is_multiple_of(length) && !first {
            self.offset = (rng.next_u64() % u64::from(length)) as u32;
        }
        let at = (self.sent % length + self.offset) % length;
        self.sent = self.sent.wrapping_add(1);
        at
    }
}

/// The order in which a source sends symbols to a ring.
#[derive(Clone, Debug)]
pub struct Emission {
    geometry: Geometry,
    settings: EmissionSettings,
    done: HaveSet,
    /// Symbols sent of each block.
    sent: Vec<u32>,
    again: BTreeMap<u32, Again>,
    /// The block that opens next.
    cursor: u32,
    pass: u32,
    open: Vec<Open>,
    /// What is left of this round: blocks that are open.
    round: Vec<u32>,
}

impl Emission {
    /// From the beginning.
    pub fn new(geometry: Geometry, settings: EmissionSettings) -> Self {
        Self {
            geometry,
            settings,
            done: HaveSet::over(u64::from(geometry.blocks()), 512),
            sent: vec![0; geometry.blocks() as usize],
            again: BTreeMap::new(),
            cursor: 0,
            pass: 0,
            open: Vec::new(),
            round: Vec::new(),
        }
    }

    /// How often all blocks were gone through.
    pub fn pass(&self) -> u32 {
        self.pass
    }

    /// Symbols sent of a block.
    pub fn sent_of(&self, block: u32) -> u32 {
        self.sent.get(block as usize).copied().unwrap_or(0)
    }

    /// Everybody below has this block.
    pub fn done(&mut self, block: u32) {
        self.done.insert(u64::from(block));
        self.again.remove(&block);
    }

    /// Somebody joined who has nothing: no block is done any more.
    pub fn joined(&mut self) {
        self.done.remove_range(0..u64::MAX);
    }

    /// These source symbols of a block are what children lack, by ESI: sent in this order
    /// once the repair symbols are used up. Those that most children lack should come first,
    /// so that most of what each gets is of use to it. Those that do not exist are left out.
    pub fn lacked(&mut self, block: u32, mut esis: Vec<u32>) {
        esis.retain(|esi| *esi < self.geometry.source_symbols_of(block));
        self.again.insert(block, Again { lacked: esis, ..Again::default() });
    }

    /// Whether a block's repair symbols are used up and what children lacked of it, if they
    /// said so, was sent: then they should be asked what they lack ([`Self::lacked`]); else
    /// all source symbols are sent again.
    pub fn needs_lacked(&self, block: u32) -> bool {
        let source = self.geometry.source_symbols_of(block);
        let used_up = self.sent_of(block) >= source + self.repair().len() as u32;
        let again = self.again.get(&block);
        used_up && again.is_none_or(|again| again.sent >= again.lacked.len() as u32)
    }

    /// The next symbol, of a block that `wanted` holds of: of which somebody lacks symbols
    /// who can take one now ([`crate::Ring::feasible`]). `None` if no such block was found
    /// among the next few thousand; then ask again when a child has taken something.
    pub fn next(&mut self, rng: &mut impl Rng, wanted: impl Fn(u32) -> bool) -> Option<SymbolId> {
        for _ in 0..2 {
            while let Some(block) = self.round.pop() {
                if self.done.contains(u64::from(block)) || !wanted(block) {
                    self.open.retain(|open| open.block != block);
                    continue;
                }
                return Some(self.emit(block, rng));
            }
            self.refill(&wanted);
            self.round.extend(self.open.iter().map(|open| open.block));
            shuffle(&mut self.round, rng);
        }
        None
    }

    /// Closes blocks that have had their turn and opens those that come next. A pass ends
    /// when its last blocks have had their turn.
    fn refill(&mut self, wanted: &impl Fn(u32) -> bool) {
        self.open.retain(|open| open.left > 0);
        for _ in 0..self.geometry.blocks().min(SCAN) {
            if self.open.len() >= self.settings.width.max(1) || !self.pass_goes_on() {
                return;
            }
            let block = self.cursor;
            self.cursor += 1;
            if !self.done.contains(u64::from(block)) && wanted(block) {
                self.open.push(Open { block, left: self.turn(block) });
            }
        }
    }

    /// Begins the next pass if this one has ended; false if it waits for its last blocks.
    fn pass_goes_on(&mut self) -> bool {
        if self.cursor < self.geometry.blocks() {
            return true;
        }
        if !self.open.is_empty() {
            return false;
        }
        self.cursor = 0;
        self.pass = self.pass.saturating_add(1);
        true
    }

    /// This sender's repair symbols, counted from 0.
    fn repair(&self) -> std::ops::Range<u32> {
        let (all, share) = (self.geometry.repair_symbols(), self.settings.share);
        share.bound(all, share.index)..share.bound(all, share.index.saturating_add(1))
    }

    /// Symbols of a block in one turn: its source symbols, then bursts.
    fn turn(&self, block: u32) -> u32 {
        let source = self.geometry.source_symbols_of(block);
        match source.saturating_sub(self.sent_of(block)) {
            0 => self.settings.burst.max(1),
            left => left,
        }
    }

    fn emit(&mut self, block: u32, rng: &mut impl Rng) -> SymbolId {
        if let Some(open) = self.open.iter_mut().find(|open| open.block == block) {
            open.left = open.left.saturating_sub(1);
        }
        let count = self.sent_of(block);
        self.sent[block as usize] = count.saturating_add(1);
        SymbolId { block, esi: self.esi(block, count, rng) }
    }

    /// The ESI of a block's symbol number `count`.
    fn esi(&mut self, block: u32, count: u32, rng: &mut impl Rng) -> u32 {
        let source = self.geometry.source_symbols_of(block);
        let share = self.settings.share;
        if count < source {
            return (count + share.bound(source, share.index)) % source;
        }
        let repair = self.repair();
        match repair.start.checked_add(count - source).filter(|esi| *esi < repair.end) {
            Some(place) => source + place,
            None => self.source_again(block, rng),
        }
    }

    fn source_again(&mut self, block: u32, rng: &mut impl Rng) -> u32 {
        let source = self.geometry.source_symbols_of(block);
        let again = self.again.entry(block).or_default();
        let length = if again.lacked.is_empty() { source } else { again.lacked.len() as u32 };
        let at = again.next(length, rng);
        again.lacked.get(at as usize).copied().unwrap_or(at)
    }
}

/// Fisher and Yates.
fn shuffle(items: &mut [u32], rng: &mut impl Rng) {
    for last in (1..items.len()).rev() {
        items.swap(last, (rng.next_u64() % (last as u64 + 1)) as usize);
    }
}
