//! Fills a ring from stored blocks: the source sends every block, a receiver only symbols that its children lack.

use super::{
    proof_cache::{Proof, ProofCache},
    repairs::{RepairEncoder, frame_of},
    shared::{SharedRing, esis},
};
use crate::store::Store;
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng as _};
use std::{io, ops::Range, sync::Arc, time::Duration};
use thalweg_fountain::{Emission, EmissionSettings, SenderShare, SharedBytes, SymbolId};
use tokio::{sync::watch, task::spawn_blocking, time::sleep};

/// The minimum interval between a receiver's checks for newly held blocks.
const LOOK: Duration = Duration::from_millis(20);

/// The number of blocks about which children are asked between two batches of symbols.
const QUESTIONS_PER_BATCH: usize = 64;

/// Fills one ring.
pub struct Feed {
    store: Arc<Store>,
    ring: Arc<SharedRing>,
    repairs: Arc<RepairEncoder>,
    proofs: Arc<ProofCache>,
    emission: Emission,
    share: SenderShare,
    random: Xoshiro256PlusPlus,
    /// At a receiver: the blocks that were held at the last check.
    held: Option<HeldBlocks>,
    joined: u64,
    /// The block with which the next round of questions starts.
    turn: u32,
}

struct HeldBlocks {
    blocks: Vec<bool>,
    changes: watch::Receiver<u64>,
}

impl Feed {
    /// Creates a feed. At the source (`is_source`) it sends all blocks; otherwise only missing symbols of blocks that
    /// are held.
    pub fn new(
        store: Arc<Store>,
        ring: Arc<SharedRing>,
        repairs: Arc<RepairEncoder>,
        proofs: Arc<ProofCache>,
        share: SenderShare,
        is_source: bool,
    ) -> Self {
        let geometry = store.known.geometry;
        let settings = EmissionSettings { share, ..EmissionSettings::default() };
        let blocks = vec![false; geometry.blocks() as usize];
        let (emission, held) = match is_source {
            true => (Emission::new(geometry, settings), None),
            false => {
                let mut changes = store.changes();
                changes.mark_changed();
                (Emission::for_forwarder(geometry, settings), Some(HeldBlocks { blocks, changes }))
            }
        };
        let seed = u64::from_be_bytes(store.known.id.as_bytes()[..8].try_into().unwrap_or([0; 8]));
        let random = Xoshiro256PlusPlus::seed_from_u64(seed ^ u64::from(share.index));
        Self { store, ring, repairs, proofs, emission, share, random, held, joined: 0, turn: 0 }
    }

    /// Runs until a disk error, which it returns.
    pub async fn run(mut self) -> io::Error {
        loop {
            self.look();
            let batch = self.choose();
            if batch.is_empty() {
                self.ask(usize::MAX);
                self.wait().await;
                continue;
            }
            let filling = spawn_blocking(move || {
                let filled = self.fill(&batch);
                // Only a few at a time while there is something to send, so that long lists cost little.
                self.ask(QUESTIONS_PER_BATCH);
                (self, filled)
            });
            match filling.await {
                Ok((feed, Ok(()))) => self = feed,
                Ok((_, Err(why))) => return why,
                Err(why) => return io::Error::other(why),
            }
        }
    }

    async fn wait(&mut self) {
        let moved = self.ring.moved.notified();
        match &mut self.held {
            None => moved.await,
            Some(held) => tokio::select! {
                () = moved => {}
                changed = held.changes.changed() => {
                    // The store, and with it the sender, lives as long as this feed.
                    changed.unwrap_or(());
                    held.changes.mark_changed();
                    sleep(LOOK).await;
                }
            },
        }
    }

    /// Finds blocks that have become complete since the last check.
    fn look(&mut self) {
        let Some(HeldBlocks { blocks, changes }) = &mut self.held else { return };
        if !changes.has_changed().unwrap_or(false) {
            return;
        }
        changes.mark_unchanged();
        let have = self.store.have();
        for (block, was_held) in (0..).zip(blocks) {
            if have.holds_block(block) && !std::mem::replace(was_held, true) {
                self.emission.hold(block);
            }
        }
    }

    /// Processes the children's messages, and chooses the next symbols for the ring: enough that the fastest child does
    /// not run dry, while slower children may lag by half of the ring.
    fn choose(&mut self) -> Vec<SymbolId> {
        let mut inner = self.ring.lock();
        if inner.joined != self.joined {
            self.joined = inner.joined;
            self.emission.reopen_blocks();
        }
        while let Some(block) = inner.done.pop_front() {
            if inner.ring.done_by_all(block) {
                self.emission.finish(block);
            }
        }
        let geometry = &self.store.known.geometry;
        for ((_, block), lack) in std::mem::take(&mut inner.lacks) {
            self.emission.lacks(block, lack.need, esis(&lack, block, geometry));
        }
        let ahead = inner.ring.capacity() / 2;
        let Some(least) = inner.ring.least_backlog().filter(|least| *least <= ahead) else {
            return Vec::new();
        };
        let most = (inner.ring.capacity() / 4).max(1).min(ahead + 1 - least);
        let next = || {
            let ring = &inner.ring;
            self.emission.next(&mut self.random, |block| ring.feasible(block, ahead))
        };
        std::iter::from_fn(next).take(most).collect()
    }

    /// Asks children about fully sent blocks. The questions go behind the last symbol, which is in the ring by now.
    fn ask(&mut self, most: usize) {
        let blocks = self.emission.spent_from(self.turn).take(most);
        self.turn = blocks.clone().last().map_or(0, |last| last + 1);
        let is_asked = self.ring.lock().ask_about(blocks);
        if is_asked {
            self.ring.fresh.notify_waiters();
        }
    }

    /// Reads or computes these symbols, and puts them into the ring.
    fn fill(&mut self, batch: &[SymbolId]) -> io::Result<()> {
        for id in batch {
            let found = match self.store.known.geometry.is_source(*id) {
                true => self.source_symbol(*id)?,
                false => self.repairs.symbol(&self.store, *id, self.share_of(id.block))?,
            };
            match found {
                Some((frame, proof)) => _ = self.ring.push(*id, &frame, &proof),
                None => self.emission.skip_repair(id.block),
            }
        }
        Ok(())
    }

    fn source_symbol(&self, id: SymbolId) -> io::Result<Option<(SharedBytes, Proof)>> {
        let geometry = &self.store.known.geometry;
        let range = geometry.index(id).and_then(|index| geometry.bytes_at(index));
        let Some(range) = range else { return Ok(None) };
        let proof = match self.proofs.get(id.block, true) {
            Some(proof) => proof,
            None => {
                let page = self.store.page(id.block)?;
                let page =
                    page.ok_or_else(|| io::Error::other("the digests of a block are missing"))?;
                let proof = Proof::source(&page);
                self.proofs.put(proof.clone());
                proof
            }
        };
        let length = (range.end - range.start) as usize;
        let frame = frame_of(id, length, |symbol| self.store.files.read(range.start, symbol))?;
        Ok(Some((frame, proof)))
    }

    /// The ESIs of this sender's repair symbols of a block.
    fn share_of(&self, block: u32) -> Range<u32> {
        let first = self.store.known.geometry.source_symbols_of(block);
        let part = self.share.part(self.store.known.geometry.repair_symbols());
        first + part.start..first + part.end
    }
}
