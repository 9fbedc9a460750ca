//! A file in the making: lock, ranges, journal, sync, verify, publish.
//!
//! In go pieces of a file with their positions, in any order and from several sources; out comes
//! the file under its final name, or what a later run needs to go on.
//!
//! ```text
//! pieces ─► Writer (a thread) ─► Part ─┬─ bytes   ─► .NAME.thalweg-part    ─ fdatasync
//!                                      └─ records ─► .NAME.thalweg-journal ─ fdatasync
//! all bytes there ─► digest ─► sync ─► rename ─► NAME
//! an interrupted run: part, journal ─► records checked against the bytes ─► ranges still missing
//! ```
//!
//! For a target `NAME` the bytes lie in `.NAME.thalweg-part` beside it, and
//! `.NAME.thalweg-journal` says which of them are good. Nothing is shown under
//! the final name before every byte is there, verified and synced.
//!
//! Safety rests on the order of writes: bytes, fdatasync of the bytes, record, fdatasync
//! of the record. So the journal never claims more than the disk holds, whatever is
//! killed or loses power when. Records carry the BLAKE3 of their bytes as they came from
//! the network; when a part is opened again, every record is checked against the file,
//! and ranges that do not match count as missing.
//!
//! [`Part`] blocks on the disk; [`Writer`] puts it on a thread of its own.

mod adopt;
mod attributes;
mod behind;
mod digest;
mod error;
mod gap;
mod group;
mod journal;
mod key;
mod leftover;
mod mark;
mod mode;
mod park;
mod place;
mod publish;
mod publisher;
mod ranges;
mod reader;
mod runs;
mod show;
#[cfg(test)]
mod tests;
mod whole;
mod write;
mod writer;

pub use adopt::ADOPTED;
pub use attributes::Attributes;
pub use digest::{Digest, DigestError};
pub use error::PartError;
pub use group::{Complete, Shown};
pub use key::{PartKey, Validator};
pub use mark::is_published_as;
pub use mode::umask;
pub use park::Parked;
pub use publisher::Publisher;
pub use publisher::syncs_as_a_whole;
pub use ranges::Ranges;
pub use reader::PartReader;
pub use writer::{WriteFailed, Writer};

use behind::Behind;
use journal::{Contents, Journal, Record};
use place::Place;
use runs::{Runs, Sources};
use std::{
    fs::File,
    ops::Range,
    path::Path,
    time::{Duration, Instant},
};
use thalweg_base::job::Job;
use whole::Whole;

/// A file up to this length gets it by being written, which is one system call less.
const SHORT: u64 = 1 << 20;

/// When the bytes written so far are synced and journaled.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// After this many bytes. While one batch is synced the next one gathers, and no third:
    /// a crash loses at most twice this. 32 MiB: at 1 GB/s a sync every 32 ms, beside the
    /// writing, so the disk is kept busy and the syncs do not show.
    pub bytes: u64,
    /// After this much time, once the sync before is over. So a crash loses at most what came
    /// in this time and in two syncs, and never more than two batches.
    pub time: Duration,
}

impl Default for Batch {
    fn default() -> Self {
        Self { bytes: 32 << 20, time: Duration::from_secs(1) }
    }
}

/// A file in the making. See the [module](self).
///
/// Dropping it is like a crash: what was not checkpointed is lost. Use
/// [`close`](Self::close) or [`publish`](Self::publish).
pub struct Part {
    place: Place,
    file: File,
    opened: Instant,
    job: Job,
    key: PartKey,
    batch: Batch,
    /// Created with the first checkpoint: a file that is complete before needs none.
    journal: Option<Journal>,
    /// A checkpoint under way; it has the journal meanwhile.
    behind: Option<Behind>,
    /// What the journal says.
    records: Vec<Record>,
    runs: Runs,
    unsynced: u64,
    last_checkpoint: Instant,
    /// Journaled bytes.
    durable: Ranges,
    /// All bytes written.
    present: Ranges,
    sources: Sources,
    /// Paths whose bytes were found wrong: nothing of theirs is journaled any more.
    distrusted: Vec<String>,
    /// The expected digests in the making.
    whole: Whole,
    /// The length that was verified since the last write.
    verified: Option<u64>,
    resumed: u64,
    discarded: bool,
    /// A sync or a record failed: what is on the disk is not known any more.
    poisoned: bool,
    /// What the published file gets; `None`: the rules of [`mode`].
    attributes: Option<Attributes>,
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
        Self::open_in(Place::of(target)?, key, job, batch)
    }

    /// As [`open`](Self::open), but a target that is a link is replaced itself, not what it
    /// points to; and the published file gets `attributes`, if any.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_exactly(
        target: &Path,
        key: PartKey,
        job: Job,
        batch: Batch,
        attributes: Option<Attributes>,
    ) -> Result<Self, PartError> {
        let part = Self::open_in(Place::exactly(target)?, key, job, batch)?;
        Ok(Self { attributes, ..part })
    }

    fn open_in(place: Place, key: PartKey, job: Job, batch: Batch) -> Result<Self, PartError> {
        let file = place.lock()?;
        let mut part = Self::empty(place, file, key, job, batch);
        match journal::read(&part.place.journal)? {
            Some(contents) if part.key.continues(&contents.key) => {
                part.drop_unfinished_journal()?;
                part.resume(contents)?;
            }
            other => {
                part.discarded = other.is_some();
                part.start_over()?;
            }
        }
        part.make_room()?;
        Ok(part)
    }

    /// A part without a name, for bytes that are passed on and not kept: in `directory`,
    /// else in the one for temporary files. It has no journal and cannot be published;
    /// its blocks are free again once it and its [readers](Self::reader) are dropped.
    ///
    /// # Errors
    /// [`PartError::DiskFull`] if the length is known and cannot fit, or the system's refusal.
    pub fn unnamed(directory: Option<&Path>, key: PartKey, job: Job) -> Result<Self, PartError> {
        let (place, file) = Place::unnamed(directory)?;
        let mut part = Self::empty(place, file, key, job, Batch::default());
        part.make_room()?;
        Ok(part)
    }

    fn empty(place: Place, file: File, key: PartKey, job: Job, batch: Batch) -> Self {
        let whole = Whole::of(key.digests());
        Self {
            place,
            file,
            whole,
            opened: Instant::now(),
            job,
            key,
            batch,
            journal: None,
            behind: None,
            records: Vec::new(),
            runs: Runs::default(),
            unsynced: 0,
            last_checkpoint: Instant::now(),
            durable: Ranges::default(),
            present: Ranges::default(),
            sources: Sources::default(),
            distrusted: Vec::new(),
            verified: None,
            resumed: 0,
            discarded: false,
            poisoned: false,
            attributes: None,
        }
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

    /// What a journal beside `target`, as [`open_exactly`](Self::open_exactly) finds it, says
    /// that is there of `key`; `None` if there is none. A look from outside: the bytes are not read.
    ///
    /// # Errors
    /// [`PartError::NotAFile`], or a journal that cannot be read.
    pub fn kept(target: &Path, key: &PartKey) -> Result<Option<Ranges>, PartError> {
        let contents = journal::read(&Place::exactly(target)?.journal)?;
        Ok(contents.map(|contents| {
            let mut kept = Ranges::default();
            let records = if key.continues(&contents.key) { contents.records } else { Vec::new() };
            records.into_iter().for_each(|record| kept.insert(record.range));
            kept
        }))
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
        for record in &good {
            for new in self.durable.missing_of(&record.range) {
                self.sources.insert(&record.by, new);
            }
            self.durable.insert(record.range.clone());
        }
        self.present = self.durable.clone();
        self.resumed = self.durable.total();
        self.job = contents.job.clone();
        let path = &self.place.journal;
        self.journal = Some(if contents.whole && good.len() == contents.records.len() {
            Journal::append_to(path, &contents)?
        } else {
            Journal::create(path, &self.job, &self.key, &good)?
        });
        self.records = good;
        Ok(())
    }

    /// Empties the part and drops its journal; the journal first, or it would claim bytes that are gone.
    fn start_over(&mut self) -> Result<(), PartError> {
        // To look costs no lock of the directory, to remove does.
        if std::fs::symlink_metadata(&self.place.journal).is_ok() {
            place::remove(&self.place.journal)?;
        }
        let path = &self.place.part;
        let found = self.file.metadata().map_err(PartError::io("look at", path))?;
        if found.len() == 0 {
            return Ok(());
        }
        self.file.set_len(0).map_err(PartError::io("empty", path))?;
        self.drop_unfinished_journal()
    }

    /// A session that was killed while it wrote a new journal left it beside.
    fn drop_unfinished_journal(&self) -> Result<(), PartError> {
        let new = journal::new_name(&self.place.journal);
        // As above: mostly there is none.
        if std::fs::symlink_metadata(&new).is_ok() { place::remove(&new) } else { Ok(()) }
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
        if length <= SHORT && self.present.is_empty() {
            return Ok(());
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

    /// Where it will be published; for a part without a name, words for it.
    pub fn target(&self) -> &Path {
        &self.place.target
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

    /// How many bytes are there.
    pub fn present(&self) -> u64 {
        self.present.total()
    }

    /// The bytes from the start on that are there without a gap.
    pub fn prefix(&self) -> u64 {
        self.present.prefix()
    }

    /// The bytes that came by the path called `from`, in this session and, as far as they were
    /// taken over, in earlier ones.
    pub fn delivered_by(&self, from: &str) -> Ranges {
        self.sources.of(from)
    }

    /// Reads bytes that are there.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn read(&self, range: Range<u64>) -> Result<Vec<u8>, PartError> {
        reader::read(&self.file, range, &self.place.part)
    }

    /// Another hand that reads while this one writes, e.g. up to the [prefix](Writer::prefix).
    ///
    /// # Errors
    /// If the system has no further file descriptor.
    pub fn reader(&self) -> Result<PartReader, PartError> {
        PartReader::of(&self.file, &self.place.part)
    }
}
