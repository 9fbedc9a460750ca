//! A file in the making: lock, ranges, journal, sync, verify, publish.
//!
//! For a target `NAME` the bytes lie in `.NAME.thalweg-part` beside it, and
//! `.NAME.thalweg-journal` says which of them are good. Nothing is shown under
//! the final name before every byte is there, verified and synced.
//!
//! The order of writes is the whole safety: bytes, fdatasync of the bytes,
//! record, fdatasync of the record. So the journal never claims more than the
//! disk holds, whatever is killed or loses power when. Records carry the BLAKE3
//! of their bytes as they came from the network; when a part is opened again
//! every record is checked against the file, and what does not fit is missing.
//!
//! [`Part`] blocks on the disk; [`Writer`] puts it on a thread of its own.

mod digest;
mod error;
mod journal;
mod key;
mod place;
mod publisher;
mod ranges;
#[cfg(test)]
mod tests;
mod writer;

pub use digest::{Digest, DigestError};
pub use error::PartError;
pub use key::{PartKey, Validator};
pub use publisher::Publisher;
pub use ranges::Ranges;
pub use writer::{WriteFailed, Writer};

use crate::job::Job;
use journal::{Contents, Journal, Record};
use place::Place;
use std::{
    fs::File,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use thalweg_units::ByteSize;

/// When the bytes written so far are synced and journaled.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// After this many bytes. 64 MB: at 1 GB/s a sync every 64 ms, so the
    /// disk is kept busy and the syncs do not show.
    pub bytes: u64,
    /// After this much time. A crash loses at most this much of a download.
    pub time: Duration,
}

impl Default for Batch {
    fn default() -> Self {
        Self { bytes: 64 << 20, time: Duration::from_secs(1) }
    }
}

/// Bytes written in one run since the last checkpoint.
struct Run {
    range: Range<u64>,
    hasher: Box<blake3::Hasher>,
}

/// A file in the making. See the [module](self).
///
/// Dropping it is like a crash: what was not checkpointed is lost. Use
/// [`close`](Self::close) or [`publish`](Self::publish).
pub struct Part {
    place: Place,
    file: File,
    job: Job,
    key: PartKey,
    batch: Batch,
    /// Created with the first checkpoint: a file that is complete before needs none.
    journal: Option<Journal>,
    runs: Vec<Run>,
    unsynced: u64,
    last_checkpoint: Instant,
    /// Journaled bytes.
    durable: Ranges,
    /// All bytes written.
    present: Ranges,
    resumed: u64,
    discarded: bool,
    /// A sync or a record failed: what is on the disk is not known any more.
    poisoned: bool,
}

impl Part {
    /// Opens or creates the part for `target` and locks it.
    ///
    /// What an earlier session left is used if its key [continues](PartKey::continues)
    /// and its bytes still have their hashes; otherwise it is discarded. Then
    /// `job` is replaced by the record of that session.
    ///
    /// # Errors
    /// [`PartError::Busy`] if another process works on it, [`PartError::NotAFile`],
    /// [`PartError::DiskFull`] if the missing bytes cannot fit, or the system's refusal.
    pub fn open(target: &Path, key: PartKey, job: Job, batch: Batch) -> Result<Self, PartError> {
        let place = Place::of(target)?;
        let file = place.lock()?;
        let mut part = Self {
            place,
            file,
            job,
            key,
            batch,
            journal: None,
            runs: Vec::new(),
            unsynced: 0,
            last_checkpoint: Instant::now(),
            durable: Ranges::default(),
            present: Ranges::default(),
            resumed: 0,
            discarded: false,
            poisoned: false,
        };
        match journal::read(&part.place.journal)? {
            Some(contents) if part.key.continues(&contents.key) => part.resume(contents)?,
            other => {
                part.discarded = other.is_some();
                part.start_over()?;
            }
        }
        part.make_room()?;
        Ok(part)
    }

    /// Whether [`open`](Self::open) with this key would discard nothing and find
    /// room. A look from outside: it takes no lock and changes nothing.
    ///
    /// # Errors
    /// [`PartError::NotAFile`], or a journal that cannot be read.
    pub fn is_harmless(target: &Path, key: &PartKey) -> Result<bool, PartError> {
        let place = Place::of(target)?;
        let kept = match journal::read(&place.journal)? {
            Some(contents) if !key.continues(&contents.key) => {
                return Ok(contents.records.is_empty());
            }
            Some(contents) => {
                let lengths = contents.records.iter().map(|r| r.range.end - r.range.start);
                lengths.fold(0u64, u64::saturating_add)
            }
            None => 0,
        };
        let needed = key.length().unwrap_or(0).saturating_sub(kept);
        Ok(place.free().is_none_or(|free| free >= needed))
    }

    /// Takes over the records whose bytes are still as they were.
    fn resume(&mut self, contents: Contents) -> Result<(), PartError> {
        let length = self.key.length().unwrap_or(0);
        let size = self.file.metadata().map_err(PartError::io("look at", &self.place.part))?.len();
        let intact = |r: &&Record| {
            r.range.end <= size.min(length)
                && digest::blake3_of(&self.file, r.range.clone()).is_ok_and(|h| h == r.blake3)
        };
        let good: Vec<Record> = contents.records.iter().filter(intact).cloned().collect();
        good.iter().for_each(|r| self.durable.insert(r.range.clone()));
        self.present = self.durable.clone();
        self.resumed = self.durable.total();
        self.job = contents.job.clone();
        let path = &self.place.journal;
        self.journal = Some(if contents.whole && good.len() == contents.records.len() {
            Journal::append_to(path, &contents)?
        } else {
            Journal::create(path, &self.job, &self.key, &good)?
        });
        Ok(())
    }

    /// Empties the part and drops its journal; the journal first, or it would claim bytes that are gone.
    fn start_over(&mut self) -> Result<(), PartError> {
        place::remove(&self.place.journal)?;
        self.file.set_len(0).map_err(PartError::io("empty", &self.place.part))
    }

    /// Gives the file its length, sparse, and says now rather than late if it cannot fit.
    ///
    /// Blocks are not reserved: where that is not instant it costs a second
    /// pass over the disk, and the room may still go to somebody else's quota.
    fn make_room(&mut self) -> Result<(), PartError> {
        let Some(length) = self.key.length() else { return Ok(()) };
        let needed = length - self.present.total();
        if self.place.free().is_some_and(|free| free < needed) {
            self.leave_nothing_useless();
            return Err(PartError::write(&self.place.part, needed)(
                std::io::ErrorKind::StorageFull.into(),
            ));
        }
        self.file.set_len(length).map_err(PartError::write(&self.place.part, needed))
    }

    /// The key it was opened with.
    pub fn key(&self) -> &PartKey {
        &self.key
    }

    /// The record of the transfer: an earlier session's, if it goes on.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// Bytes taken over from an earlier session.
    pub fn resumed(&self) -> u64 {
        self.resumed
    }

    /// Whether an earlier session's bytes were thrown away: they are of another
    /// version of the object, or nothing proves that they are not.
    pub fn discarded(&self) -> bool {
        self.discarded
    }

    /// Bytes that will survive a crash.
    pub fn durable(&self) -> u64 {
        self.durable.total()
    }

    /// The bytes still to come, ascending; empty if the length is unknown.
    pub fn missing(&self) -> Vec<Range<u64>> {
        self.present.missing(self.key.length().unwrap_or(0))
    }

    /// Writes `data` at `offset`, and makes a checkpoint when the batch is full.
    ///
    /// # Errors
    /// [`PartError::DiskFull`], [`PartError::PastEnd`], or the system's
    /// refusal; what was written before stays good.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), PartError> {
        let range = offset..offset.saturating_add(data.len() as u64);
        if self.key.length().is_some_and(|length| range.end > length) {
            return Err(PartError::PastEnd(self.place.target.clone()));
        }
        let needed = self.key.length().map_or(0, |n| n.saturating_sub(self.present.total()));
        let written = self.file.write_all_at(data, offset);
        written.map_err(PartError::write(&self.place.part, needed))?;
        self.extend_run(range.clone(), data);
        self.present.insert(range);
        self.unsynced += data.len() as u64;
        self.checkpoint_if_due()
    }

    fn extend_run(&mut self, range: Range<u64>, data: &[u8]) {
        let known = self.runs.iter().position(|run| run.range.end == range.start);
        let i = known.unwrap_or_else(|| {
            let hasher = Box::new(blake3::Hasher::new());
            self.runs.push(Run { range: range.start..range.start, hasher });
            self.runs.len() - 1
        });
        let run = &mut self.runs[i];
        run.hasher.update(data);
        run.range.end = range.end;
    }

    /// Writes as [`write`](Self::write), bytes that came by the path called `from`.
    ///
    /// # Errors
    /// As [`Part::write`].
    pub fn write_from(&mut self, from: &str, offset: u64, data: &[u8]) -> Result<(), PartError> {
        _ = from;
        self.write(offset, data)
    }

    /// The bytes that came by the path called `from`, in this session and, as far as they were
    /// taken over, in earlier ones.
    pub fn delivered_by(&self, from: &str) -> Ranges {
        _ = from;
        Ranges::default()
    }

    /// Compares the complete file with the expected digests, and keeps all whatever comes out.
    ///
    /// # Errors
    /// [`PartError::Incomplete`], [`PartError::Digest`], or why it cannot be read.
    pub fn verify(&mut self, length: u64) -> Result<(), PartError> {
        _ = length;
        Ok(())
    }

    /// Reads bytes that are there.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn read(&self, range: Range<u64>) -> Result<Vec<u8>, PartError> {
        let mut bytes = vec![0; usize::try_from(range.end - range.start).unwrap_or(0)];
        let read = self.file.read_exact_at(&mut bytes, range.start);
        read.map_err(PartError::io("read", &self.place.part)).map(|()| bytes)
    }

    /// Writes other bytes in place of wrong ones; what the journal said of them holds no more.
    ///
    /// # Errors
    /// As [`Part::write`].
    pub fn replace(&mut self, from: &str, offset: u64, data: &[u8]) -> Result<(), PartError> {
        self.write_from(from, offset, data)
    }

    /// Makes a checkpoint if the batch's bytes or time are reached.
    ///
    /// # Errors
    /// As [`Part::checkpoint`].
    pub fn checkpoint_if_due(&mut self) -> Result<(), PartError> {
        let due = self.last_checkpoint.elapsed() >= self.batch.time;
        if self.unsynced >= self.batch.bytes || due { self.checkpoint() } else { Ok(()) }
    }

    /// Syncs the bytes written so far, then journals them.
    ///
    /// # Errors
    /// If either cannot be synced; from then on nothing is journaled or
    /// published, because a later sync may succeed without the lost pages.
    pub fn checkpoint(&mut self) -> Result<(), PartError> {
        self.last_checkpoint = Instant::now();
        if self.runs.is_empty() || self.key.length().is_none() {
            return Ok(());
        }
        self.sync(File::sync_data)?;
        self.record()
    }

    fn sync(&mut self, how: fn(&File) -> std::io::Result<()>) -> Result<(), PartError> {
        if self.poisoned {
            return Err(PartError::Unsynced(self.place.target.clone()));
        }
        self.poisoned = true;
        how(&self.file).map_err(PartError::io("sync", &self.place.part))?;
        self.poisoned = false;
        Ok(())
    }

    /// Journals the runs. Their bytes have just been synced.
    fn record(&mut self) -> Result<(), PartError> {
        let record =
            |run: &Run| Record { range: run.range.clone(), blake3: run.hasher.finalize().into() };
        let records: Vec<Record> = self.runs.iter().map(record).collect();
        // A record cut short by a failure would hide all later ones.
        self.poisoned = true;
        match &mut self.journal {
            Some(journal) => journal.append(&records)?,
            None => {
                let path = &self.place.journal;
                self.journal = Some(Journal::create(path, &self.job, &self.key, &records)?);
            }
        }
        self.poisoned = false;
        records.into_iter().for_each(|r| self.durable.insert(r.range));
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

    fn leave_nothing_useless(&self) {
        if self.durable.total() == 0 {
            // Best effort on the way out: the next session would empty them anyway.
            _ = self.place.remove();
        }
    }

    /// Removes what there is.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn discard(self) -> Result<(), PartError> {
        self.place.remove()
    }

    /// Verifies, syncs and renames to the target; returns its name.
    ///
    /// `length` is the object's length where the key does not know it.
    ///
    /// # Errors
    /// [`PartError::Incomplete`]; [`PartError::Digest`], after which nothing is
    /// kept; or the system's refusal, after which everything is kept. The target
    /// is then what it was before, unless only the directory could not be synced.
    pub fn publish(mut self, length: u64) -> Result<PathBuf, PartError> {
        let length = self.key.length().unwrap_or(length);
        let missing: u64 = self.present.missing(length).iter().map(|r| r.end - r.start).sum();
        if missing > 0 {
            let path = self.place.target.clone();
            return Err(PartError::Incomplete { path, missing: ByteSize::from_bytes(missing) });
        }
        let digests = match &self.key {
            PartKey::Url { digests, .. } => digests.clone(),
            PartKey::Object { hash, .. } => vec![*hash],
        };
        if let Err(wrong) =
            digests.iter().try_for_each(|d| d.check(&self.file, length, &self.place.target))
        {
            return Err(self.place.remove().err().unwrap_or(wrong));
        }
        self.sync(File::sync_all)?;
        if let Err(e) = std::fs::rename(&self.place.part, &self.place.target) {
            let error = PartError::io("rename to", &self.place.target)(e);
            return Err(self.record().err().unwrap_or(error));
        }
        place::sync_directory(&self.place.target)?;
        place::remove(&self.place.journal)?;
        Ok(self.place.target)
    }
}
