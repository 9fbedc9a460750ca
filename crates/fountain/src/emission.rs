//! In which order a sender fills its ring.
//!
//! First each block's source symbols, once; several blocks are open at a time, one symbol of each in
//! a round, each round permuted: a drop that recurs hits no block alone. What was sent of a block
//! is *spent*: the sender asks who is not done with it what is lacking, behind the last symbol in
//! the same connection, so that the answer counts all that came. Then it sends repair symbols of
//! its share, as many as the one that lacks most needs; once these are used up, or for one that
//! lacks more than there are, the very source symbols that are lacking. So hardly anything comes
//! that is of no use, and no fast child waits for the blocks of a slow one (ROMA §IV: "a continuous
//! encoding"; answers instead of a rateless code over the whole object).

use crate::{
    geometry::{Geometry, SymbolId},
    have::HaveSet,
};
use rand_core::Rng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How many blocks a call of [`Emission::next`] looks at for one that is wanted.
const SCAN: usize = 4096;

/// How an emission goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmissionSettings {
    /// Blocks open at once; at least 1.
    pub width: usize,
    /// Which part of the repair symbols is this sender's.
    pub share: Share,
}

impl Default for EmissionSettings {
    /// Four blocks, the only sender.
    fn default() -> Self {
        Self { width: 4, share: Share::default() }
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
    /// This sender's part of `n`.
    pub fn part(self, n: u32) -> std::ops::Range<u32> {
        self.bound(n, self.index)..self.bound(n, self.index.saturating_add(1))
    }

    /// Where this sender's part of `n` begins, for part `index`.
    fn bound(self, n: u32, index: u32) -> u32 {
        let of = u64::from(self.of.max(1));
        (u64::from(n) * u64::from(index).min(of) / of) as u32
    }
}

/// What a block sends after its source symbols.
#[derive(Clone, Debug, Default)]
struct Late {
    /// Repair symbols of the share that were sent, or are not to be.
    repaired: u32,
    /// Repair symbols to send now.
    repair: u32,
    /// Source symbols to send now, by ESI.
    again: VecDeque<u32>,
}

/// The order in which a sender fills its ring.
///
/// Memory: 4 bytes a block, and for blocks that are not done what is to be sent of them.
#[derive(Clone, Debug)]
pub struct Emission {
    geometry: Geometry,
    settings: EmissionSettings,
    done: HaveSet,
    /// Source symbols sent of each block, the first time.
    sent: Vec<u32>,
    late: BTreeMap<u32, Late>,
    /// Blocks that have something to send and were passed over, or got something to send again.
    ready: BTreeSet<u32>,
    /// Where in these it is looked for the next.
    turn: u32,
    /// Blocks all of which was sent that is to be sent: their children are asked.
    spent: BTreeSet<u32>,
    /// The block that opens next.
    cursor: u32,
    open: Vec<u32>,
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
            late: BTreeMap::new(),
            ready: BTreeSet::new(),
            turn: 0,
            spent: BTreeSet::new(),
            cursor: 0,
            open: Vec::new(),
            round: Vec::new(),
        }
    }

    /// Of one that hands on what comes to it, and gives itself only what children still lack of
    /// blocks that it holds: [`Self::hold`].
    pub fn behind(geometry: Geometry, settings: EmissionSettings) -> Self {
        let mut emission = Self::new(geometry, settings);
        let all = |(block, sent): (u32, &mut u32)| *sent = geometry.source_symbols_of(block);
        (0..).zip(&mut emission.sent).for_each(all);
        emission.cursor = geometry.blocks();
        emission
    }

    /// A block that was handed on is held now.
    pub fn hold(&mut self, block: u32) {
        if block < self.geometry.blocks() && !self.done.contains(u64::from(block)) {
            self.spent.insert(block);
        }
    }

    /// Symbols sent of a block, the first time through its source symbols.
    pub fn sent_of(&self, block: u32) -> u32 {
        self.sent.get(block as usize).copied().unwrap_or(0)
    }

    /// Everybody below has this block.
    pub fn done(&mut self, block: u32) {
        self.done.insert(u64::from(block));
        self.late.remove(&block);
        self.ready.remove(&block);
        self.spent.remove(&block);
    }

    /// Somebody joined who has nothing: no block is done any more.
    pub fn joined(&mut self) {
        let blocks: Vec<u64> = self.done.runs().flatten().collect();
        self.done.remove_range(0..u64::MAX);
        for block in blocks.into_iter().map(|block| block as u32) {
            if self.left(block) == 0 {
                self.spent.insert(block);
            }
        }
    }

    /// Blocks of which all was sent that is to be sent for now, from the first on: those who are
    /// not done with them are to be asked what they lack.
    pub fn spent(&self) -> impl Iterator<Item = u32> + Clone {
        self.spent_from(0)
    }

    /// As [`Self::spent`], beginning with this block and coming back to the first.
    pub fn spent_from(&self, block: u32) -> impl Iterator<Item = u32> + Clone {
        self.spent.range(block..).chain(self.spent.range(..block)).copied()
    }

    /// One of those below needs so many symbols more of a block, and lacks these of its source
    /// symbols (those that do not exist are left out).
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

    /// This sender has no (more) repair symbols of a block to give: nobody could check them.
    pub fn no_repair(&mut self, block: u32) {
        let share = self.repair().len() as u32;
        if let Some(late) = self.late.get_mut(&block) {
            (late.repaired, late.repair) = (share, 0);
        }
        self.settle(block);
    }

    /// The next symbol, of a block that `wanted` holds of: of which somebody lacks symbols
    /// who can take one now ([`crate::Ring::feasible`]). `None` if no such block was found
    /// among the next few thousand; then ask again when a child has taken something.
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

    /// A block makes room for another; what is left of it comes later.
    fn close(&mut self, block: u32) {
        self.open.retain(|open| *open != block);
        if self.left(block) > 0 {
            self.ready.insert(block);
        }
    }

    /// Opens those that come next: first what is left of blocks that were open before.
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

    /// This sender's repair symbols, counted from 0.
    fn repair(&self) -> std::ops::Range<u32> {
        self.settings.share.part(self.geometry.repair_symbols())
    }

    /// Symbols of a block that may be sent now.
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

/// Fisher and Yates.
fn shuffle(items: &mut [u32], rng: &mut impl Rng) {
    for last in (1..items.len()).rev() {
        items.swap(last, (rng.next_u64() % (last as u64 + 1)) as usize);
    }
}
