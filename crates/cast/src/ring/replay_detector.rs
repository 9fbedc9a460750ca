//! Detects a streaming parent that sends the same symbols repeatedly.

use std::collections::{BTreeMap, VecDeque};
use thalweg_fountain::SymbolId;
use thalweg_wire::cast::ChildMessage;

/// Replayed symbols that are tolerated in any case.
const SPARE: u64 = 64;

/// The same for symbols of finished blocks, which may have been in transit when the parent was told.
const LATE: u64 = 4096;

/// The maximum number of blocks whose received symbols are remembered.
const BLOCKS: usize = 4096;

/// The symbols received on this leg, for blocks that are not done.
#[derive(Debug, Default)]
pub struct ReplayDetector {
    blocks: BTreeMap<u32, Vec<u64>>,
    order: VecDeque<u32>,
    /// Source symbols per block.
    per_block: u64,
    total: u64,
    again: u64,
    late: u64,
}

impl ReplayDetector {
    /// Creates the record for an object with `per_block` source symbols per block.
    pub fn new(per_block: u32) -> Self {
        Self { per_block: per_block.into(), ..Self::default() }
    }

    /// Records a message to the parent. Symbols that are reported as missing may come again: they may have been
    /// forwarded and lost below.
    pub fn record_message(&mut self, message: &ChildMessage) {
        match message {
            ChildMessage::RevokeDone => self.blocks.clear(),
            ChildMessage::Missing { block, runs, .. } => {
                let first = u64::from(*block) * self.per_block;
                let Some(bits) = self.blocks.get_mut(block) else { return };
                // Cannot underflow: the runs of this node's own messages lie in the block.
                let esis = runs.iter().flat_map(|(from, to)| from - first..to - first);
                for esi in esis {
                    if let Some(word) = bits.get_mut(esi as usize / 64) {
                        *word &= !(1 << (esi % 64));
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether a symbol already came on this leg, or its block is done. For done blocks nothing is remembered.
    pub fn is_replay(&mut self, id: SymbolId, is_done: bool) -> bool {
        self.total += 1;
        if is_done {
            self.blocks.remove(&id.block);
            self.late += 1;
            return true;
        }
        let bits = self.blocks.entry(id.block).or_insert_with(|| {
            self.order.push_back(id.block);
            Vec::new()
        });
        let (word, bit) = (id.esi as usize / 64, 1 << (id.esi % 64));
        if bits.len() <= word {
            bits.resize(word + 1, 0);
        }
        let is_again = bits[word] & bit != 0;
        bits[word] |= bit;
        self.again += u64::from(is_again);
        if self.order.len() > BLOCKS
            && let Some(oldest) = self.order.pop_front()
        {
            self.blocks.remove(&oldest);
        }
        is_again
    }

    /// Whether there are more replays than accidents explain.
    pub fn is_on_purpose(&self) -> bool {
        self.again > SPARE + self.total / 8 || self.late > LATE + self.total / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_replays_are_tolerated_and_many_are_not() {
        let mut replays = ReplayDetector::default();
        let id = |esi| SymbolId { block: 3, esi };
        assert!((0..1000).all(|esi| !replays.is_replay(id(esi), false)));
        assert!((0..100).all(|esi| replays.is_replay(id(esi), false)) && !replays.is_on_purpose());
        (0..200).for_each(|esi| _ = replays.is_replay(id(esi), false));
        assert!(replays.is_on_purpose());
        // A symbol that was reported as missing may come again.
        let mut replays = ReplayDetector::new(1024);
        assert!(!replays.is_replay(id(5), false) && !replays.is_replay(id(7), false));
        replays.record_message(&ChildMessage::Missing {
            block: 3,
            need: 1,
            runs: vec![(3 * 1024 + 5, 3 * 1024 + 6)],
        });
        assert!(!replays.is_replay(id(5), false) && replays.is_replay(id(7), false));
    }
}
