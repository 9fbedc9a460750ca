//! Bytes into a part: written, synced, journaled, or taken back.

use super::{Part, PartError, journal::Journal};
use std::{fs::File, ops::Range, os::unix::fs::FileExt};

impl Part {
    /// Writes as [`write_from`](Self::write_from), by a path without a name.
    ///
    /// # Errors
    /// As [`write_from`](Self::write_from).
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), PartError> {
        self.write_from("", offset, data)
    }

    /// Writes `data` at `offset`, which came by the path called `from`, and begins a
    /// checkpoint when the batch is full; its failure is told by a later call.
    ///
    /// Bytes that are there already stay as they are: what was journaled of them
    /// stays true.
    ///
    /// # Errors
    /// [`PartError::DiskFull`], [`PartError::PastEnd`], or the system's
    /// refusal; what was written before stays good.
    pub fn write_from(&mut self, from: &str, offset: u64, data: &[u8]) -> Result<(), PartError> {
        let range = self.admit(offset, data)?;
        for gap in self.present.missing_of(&range) {
            let (a, b) = ((gap.start - offset) as usize, (gap.end - offset) as usize);
            self.put(from, gap, &data[a..b])?;
        }
        self.checkpoint_if_due()
    }

    /// Writes other bytes in place of wrong ones.
    ///
    /// The paths that delivered the wrong ones, other than `from`, are not believed any more:
    /// nothing of theirs is journaled, and what was is taken out of the journal before a byte
    /// is overwritten. So a crash at any moment leaves a journal that speaks of no wrong byte;
    /// it costs these paths' bytes once more.
    ///
    /// # Errors
    /// As [`write_from`](Self::write_from).
    pub fn replace(&mut self, from: &str, offset: u64, data: &[u8]) -> Result<(), PartError> {
        let range = self.admit(offset, data)?;
        self.withdraw(from, &range)?;
        self.put(from, range, data)?;
        self.checkpoint_if_due()
    }

    fn admit(&self, offset: u64, data: &[u8]) -> Result<Range<u64>, PartError> {
        let range = offset..offset.saturating_add(data.len() as u64);
        if self.key.length().is_some_and(|length| range.end > length) {
            return Err(PartError::PastEnd(self.place.target.clone()));
        }
        Ok(range)
    }

    /// Writes bytes that are not there.
    fn put(&mut self, from: &str, range: Range<u64>, data: &[u8]) -> Result<(), PartError> {
        let needed = self.key.length().map_or(0, |n| n.saturating_sub(self.present.total()));
        self.verified = None;
        let written = self.file.write_all_at(data, range.start);
        written.map_err(PartError::write(&self.place.part, needed))?;
        if self.is_journaled() && !self.distrusted.iter().any(|name| name == from) {
            self.runs.extend(from, range.start, data);
        }
        self.unsynced += data.len() as u64;
        self.sources.insert(from, range.clone());
        self.present.insert(range);
        self.whole.follow(&self.file, self.present.prefix());
        Ok(())
    }

    /// Nothing can be resumed of a stream, or of an object whose length is unknown.
    fn is_journaled(&self) -> bool {
        self.place.named && self.key.length().is_some()
    }

    /// Forgets `range`, in the journal first, and with it all that others than `from` delivered
    /// who delivered some of it.
    fn withdraw(&mut self, from: &str, range: &Range<u64>) -> Result<(), PartError> {
        self.settle()?;
        let wrong = self.sources.remove(range);
        wrong.iter().filter(|name| *name != from).for_each(|name| self.distrust(name));
        let distrusted = &self.distrusted;
        let keep = |by: &str, of: &Range<u64>| {
            let apart = of.end <= range.start || range.end <= of.start;
            apart && !distrusted.iter().any(|name| name == by)
        };
        self.runs.retain(keep);
        let before = self.records.len();
        self.records.retain(|r| keep(&r.by, &r.range));
        self.present.remove(range);
        self.whole.begin_again();
        if self.records.len() < before { self.rewrite_journal() } else { Ok(()) }
    }

    /// From now on nothing that came by `name` is journaled.
    pub(super) fn distrust(&mut self, name: &str) {
        if !self.distrusted.iter().any(|known| known == name) {
            self.distrusted.push(name.to_owned());
        }
    }

    fn rewrite_journal(&mut self) -> Result<(), PartError> {
        self.durable = super::Ranges::default();
        self.records.iter().for_each(|r| self.durable.insert(r.range.clone()));
        self.guarded(|part| {
            let path = &part.place.journal;
            let journal = Journal::create(path, &part.job, &part.key, &part.records)?;
            part.journal = Some(journal);
            Ok(())
        })
    }

    /// Syncs the bytes written so far, then journals them.
    ///
    /// # Errors
    /// If either cannot be synced; from then on nothing is journaled or
    /// published, because a later sync may succeed without the lost pages.
    pub fn checkpoint(&mut self) -> Result<(), PartError> {
        self.last_checkpoint = std::time::Instant::now();
        self.settle()?;
        if self.runs.is_empty() {
            return Ok(());
        }
        self.sync(File::sync_data)?;
        self.record()
    }

    pub(super) fn sync(&mut self, how: fn(&File) -> std::io::Result<()>) -> Result<(), PartError> {
        self.guarded(|part| how(&part.file).map_err(PartError::io("sync", &part.place.part)))
    }

    /// Does what must succeed for anything to be believed later.
    pub(super) fn guarded(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<(), PartError>,
    ) -> Result<(), PartError> {
        if self.poisoned {
            return Err(PartError::Unsynced(self.place.target.clone()));
        }
        self.poisoned = true;
        work(self)?;
        self.poisoned = false;
        Ok(())
    }

    /// Journals the runs. Their bytes have just been synced.
    pub(super) fn record(&mut self) -> Result<(), PartError> {
        let records = self.runs.records();
        // A record cut short by a failure would hide all later ones.
        self.guarded(|part| match &mut part.journal {
            Some(journal) => journal.append(&records),
            None => {
                let path = &part.place.journal;
                part.journal = Some(Journal::create(path, &part.job, &part.key, &records)?);
                Ok(())
            }
        })?;
        records.iter().for_each(|r| self.durable.insert(r.range.clone()));
        self.records.extend(records);
        self.runs.clear();
        self.unsynced = 0;
        Ok(())
    }

    /// Checkpoints and lets go; the next session goes on from here.
    ///
    /// A part that could not be resumed is removed.
    ///
    /// # Errors
    /// As [`Part::checkpoint`].
    pub fn close(mut self) -> Result<(), PartError> {
        let done = self.checkpoint();
        self.leave_nothing_useless();
        done
    }

    pub(super) fn leave_nothing_useless(&self) {
        if self.durable.total() == 0 {
            // Best effort on the way out: the next session would empty them anyway.
            _ = self.remove();
        }
    }
}
