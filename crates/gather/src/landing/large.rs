//! Large files: parts with a journal, of which only a few are open at a time.

use super::{
    batch::Batches,
    plan::Target,
    resumed_parts::Opener,
    state::LandingState,
    step_error::StepError,
    tree::{DirectoryCache, OpenDirectory},
};
use std::{collections::BTreeMap, sync::Arc};
use thalweg_part::{ParkedPart, Part, PartError};

/// The maximum number of open parts of all threads. Each holds three descriptors, of the 1,024 that a process has by
/// default. Beyond it the least recently used part is parked.
const OPEN: usize = 64;

struct OpenLargeFile {
    part: Part,
    /// The part's names are relative to it.
    hold: Arc<OpenDirectory>,
    used: u64,
}

/// The large files of one thread.
pub(super) struct LargeFiles {
    shared: Arc<LandingState>,
    holds: DirectoryCache,
    open: BTreeMap<u32, OpenLargeFile>,
    parked: BTreeMap<u32, ParkedPart>,
    uses: u64,
    most: usize,
}

impl LargeFiles {
    /// Creates the state of one of `threads` threads.
    pub(super) fn new(shared: &Arc<LandingState>, threads: usize) -> Self {
        Self {
            shared: Arc::clone(shared),
            holds: DirectoryCache::new(&shared.tree),
            open: BTreeMap::new(),
            parked: BTreeMap::new(),
            uses: 0,
            most: (OPEN / threads.max(1)).max(1),
        }
    }

    /// Adds a file that an earlier session began.
    pub(super) fn add_parked(&mut self, number: u32, parked: ParkedPart) {
        self.parked.insert(number, parked);
    }

    /// Writes a piece; a file that is complete then goes into the batch.
    pub(super) fn write(
        &mut self,
        number: u32,
        at: u64,
        bytes: &[u8],
        batches: &Batches,
    ) -> Result<(), StepError> {
        let shared = Arc::clone(&self.shared);
        let Some(target) = shared.target(number) else { return Ok(()) };
        let failed = |e: PartError| shared.plan.classify_part_error(&e);
        let opened = self.opened(number, target)?;
        let before = opened.part.present();
        opened.part.write(at, bytes).map_err(failed)?;
        shared.record_written(number, opened.part.present() - before);
        if opened.part.prefix() == target.size() {
            let Some(OpenLargeFile { part, hold, .. }) = self.open.remove(&number) else {
                return Ok(());
            };
            let complete = part.complete(target.size()).map_err(failed)?;
            batches.add_large(number, complete, hold);
        }
        Ok(())
    }

    fn opened(&mut self, number: u32, target: &Target) -> Result<&mut OpenLargeFile, StepError> {
        self.uses += 1;
        if !self.open.contains_key(&number) {
            self.make_room()?;
            let new = self.begin(number, target)?;
            self.open.insert(number, new);
        }
        let uses = self.uses;
        let opened = self.open.get_mut(&number);
        let opened = opened.ok_or_else(|| StepError::One("it is already closed".into()))?;
        opened.used = uses;
        Ok(opened)
    }

    fn begin(&mut self, number: u32, target: &Target) -> Result<OpenLargeFile, StepError> {
        let hold = self.holds.get(&self.shared.plan, target.directory);
        let hold = hold.map_err(|e| self.shared.plan.classify_error("open the directory of", e))?;
        let path = hold.path(&target.name);
        let part = match self.parked.remove(&number) {
            Some(parked) => parked.open(&path),
            None => self.opener().open(&hold, target),
        };
        let part = part.map_err(|e| self.shared.plan.classify_part_error(&e))?;
        Ok(OpenLargeFile { part, hold, used: self.uses })
    }

    fn opener(&self) -> Opener<'_> {
        let LandingState { plan, job, checkpoint, .. } = &*self.shared;
        Opener { plan, job, checkpoint: *checkpoint }
    }

    /// Parks the least recently used part with a checkpoint if too many are open.
    fn make_room(&mut self) -> Result<(), StepError> {
        if self.open.len() < self.most {
            return Ok(());
        }
        let oldest = self.open.iter().min_by_key(|(_, opened)| opened.used).map(|(n, _)| *n);
        let Some((number, opened)) = oldest.and_then(|n| self.open.remove_entry(&n)) else {
            return Ok(());
        };
        match opened.part.park() {
            Ok(parked) => _ = self.parked.insert(number, parked),
            // The error belongs to the other file.
            Err(error) => {
                self.shared.record_error(number, self.shared.plan.classify_part_error(&error))
            }
        }
        Ok(())
    }

    /// Makes checkpoints that are due by time even if no bytes arrive.
    pub(super) fn tick(&mut self) {
        let shared = Arc::clone(&self.shared);
        for (number, opened) in &mut self.open {
            if let Err(error) = opened.part.checkpoint_if_due() {
                shared.record_error(*number, shared.plan.classify_part_error(&error));
            }
        }
    }

    /// Closes a file that will not be completed in this session; its data is kept.
    pub(super) fn forget(&mut self, number: u32) {
        if let Some(parked) = self.parked.remove(&number) {
            self.shared.add_kept(parked.durable());
        }
        if let Some(opened) = self.open.remove(&number) {
            self.keep(number, opened);
        }
    }

    fn keep(&self, number: u32, mut opened: OpenLargeFile) {
        let done = opened.part.checkpoint();
        self.shared.add_kept(opened.part.durable());
        if let Err(error) = done.and_then(|()| opened.part.close()) {
            self.shared.record_error(number, self.shared.plan.classify_part_error(&error));
        }
    }

    /// Closes all files; their data is kept.
    pub(super) fn end(&mut self) {
        while let Some((number, opened)) = self.open.pop_first() {
            self.keep(number, opened);
        }
        let parked: u64 = self.parked.values().map(ParkedPart::durable).sum();
        self.shared.add_kept(parked);
    }
}
