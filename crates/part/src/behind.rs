//! A checkpoint beside the writing: the disk works while the next bytes come.
//!
//! A writer that waits for its own sync after every batch leaves the disk idle while it
//! fills the next one, and the network while it waits. What is synced beside is only what was
//! written before it began: the records are taken first.

use super::{
    Part, PartError,
    journal::{Journal, Record},
};
use std::{
    io,
    thread::{Builder, JoinHandle},
};

/// A checkpoint under way. Dropping it waits for its end, so that nothing is written for a part
/// that is gone.
pub(super) struct Behind {
    records: Vec<Record>,
    thread: Option<JoinHandle<Result<Journal, PartError>>>,
}

impl Behind {
    fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn wait(&mut self) -> Result<Journal, PartError> {
        let died = || PartError::io("sync", "".as_ref())(io::Error::other("the thread died"));
        let done = self.thread.take().map(JoinHandle::join);
        done.unwrap_or_else(|| Err(Box::new(()))).unwrap_or_else(|_| Err(died()))
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        // Whoever wanted its result has waited for it.
        _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Part {
    /// Makes a checkpoint beside the writing if the batch's bytes or time are reached. While
    /// one is under way the next batch gathers; if that is full the writer waits: a disk
    /// slower than the network must slow it down.
    ///
    /// # Errors
    /// As [`Part::checkpoint`], of this one or of the last.
    pub fn checkpoint_if_due(&mut self) -> Result<(), PartError> {
        match &self.behind {
            Some(behind) if behind.is_over() => self.settle()?,
            Some(_) if self.unsynced >= self.batch.bytes => self.settle()?,
            Some(_) => return Ok(()),
            None => {}
        }
        let due = self.last_checkpoint.elapsed() >= self.batch.time;
        if (self.unsynced < self.batch.bytes && !due) || self.runs.is_empty() {
            return Ok(());
        }
        if self.poisoned {
            return Err(PartError::Unsynced(self.place.target.clone()));
        }
        self.begin_behind()
    }

    fn begin_behind(&mut self) -> Result<(), PartError> {
        let path = &self.place.part;
        let file = self.file.try_clone().map_err(PartError::io("sync", path))?;
        let (records, mut journal) = (self.runs.records(), self.journal.take());
        let (known, job, key, place) =
            (records.clone(), self.job.clone(), self.key.clone(), self.place.clone());
        let work = move || {
            file.sync_data().map_err(PartError::io("sync", &place.part))?;
            match journal.take() {
                Some(mut journal) => journal.append(&known).map(|()| journal),
                None => Journal::create(&place.journal, &job, &key, &known),
            }
        };
        // Until it is settled nothing may be believed.
        self.poisoned = true;
        let thread = Builder::new().name("part-sync".into()).spawn(work);
        let thread = Some(thread.map_err(PartError::io("sync", path))?);
        self.poisoned = false;
        self.behind = Some(Behind { records, thread });
        self.last_checkpoint = std::time::Instant::now();
        self.runs.clear();
        self.unsynced = 0;
        Ok(())
    }

    /// Waits for the checkpoint under way, if there is one, and takes note of it.
    pub(super) fn settle(&mut self) -> Result<(), PartError> {
        let Some(mut behind) = self.behind.take() else { return Ok(()) };
        self.guarded(|part| {
            part.journal = Some(behind.wait()?);
            Ok(())
        })?;
        let records = std::mem::take(&mut behind.records);
        records.iter().for_each(|r| self.durable.insert(r.range.clone()));
        self.records.extend(records);
        Ok(())
    }
}
