//! The part itself: its bytes, its journal, its publication.

#[cfg(test)]
mod tests;

use crate::{
    Attributes, PartError, PartKey, PartReader, Ranges,
    background::BackgroundCheckpoint,
    digest, final_name, holes,
    journal::{self, Journal, JournalContents, Record, new_name},
    mark, mode,
    parked::{FileState, ParkedPart},
    part_files::{self, PartFiles},
    reader,
    runs::{DeliveredBytes, Runs},
    whole_digests::WholeDigests,
};
use rustix::{fs::copy_file_range, io::Errno};
use std::{
    ffi::OsStr,
    fs::File,
    io,
    ops::Range,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::FileExt,
    },
    path::{Path, PathBuf},
    thread::Builder,
    time::{Duration, Instant},
};
use thalweg_base::{job::Job, locked_file::LockedFile};
use thalweg_units::ByteSize;

/// A file up to this length gets its length by being written, which saves a system call.
const SHORT: u64 = 1 << 20;

/// The name under which [`Part::delivered_by`] lists adopted bytes. Names of paths contain no blanks.
pub const ADOPTED: &str = "the existing file";

/// The size of a copied block, if the system cannot copy from file to file.
const BLOCK: usize = 1 << 20;

/// When the bytes written so far are synced and journaled.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// After this many bytes. While one batch is synced only one more gathers, so a crash loses at most twice this.
    /// With 32 MiB at 1 GB/s there is a sync every 32 ms, in parallel to the writing, which keeps the disk busy and
    /// costs no throughput.
    pub bytes: u64,
    /// After this much time, once the previous sync is over. So a crash loses at most the bytes that arrived in this
    /// time and during two syncs, and never more than two batches.
    pub time: Duration,
}

impl Default for Batch {
    fn default() -> Self {
        Self { bytes: 32 << 20, time: Duration::from_secs(1) }
    }
}

/// A file that is being received. See the [crate](crate).
///
/// Dropping it is like a crash: bytes since the last checkpoint are lost. Use [`close`](Self::close) or
/// [`publish`](Self::publish).
pub struct Part {
    pub(super) files: PartFiles,
    pub(super) opened: Instant,
    job: Job,
    key: PartKey,
    batch: Batch,
    /// Created by the first checkpoint; a file that is complete before needs none.
    journal: Option<Journal>,
    /// A running checkpoint, which has the journal meanwhile.
    checkpoint_thread: Option<BackgroundCheckpoint>,
    /// The records in the journal.
    records: Vec<Record>,
    runs: Runs,
    unsynced: u64,
    last_checkpoint: Instant,
    /// Journaled bytes.
    durable: Ranges,
    /// All bytes written.
    present: Ranges,
    sources: DeliveredBytes,
    /// Paths that delivered wrong bytes; none of their bytes are journaled any more.
    distrusted: Vec<String>,
    /// The expected digests, as far as they are computed.
    whole: WholeDigests,
    /// The length that was verified since the last write.
    verified: Option<u64>,
    resumed: u64,
    discarded: bool,
    /// A sync or a record failed, so the disk's content is unknown.
    pub(super) poisoned: bool,
    /// The attributes of the published file; `None`: the rules of [`mode`](crate::mode).
    attributes: Option<Attributes>,
    /// `Some` for a sparse file: zeros become holes, and these holes count as present without being written.
    holes: Option<Vec<(u64, u64)>>,
    /// Dropped last: what runs in the background needs the lock.
    pub(super) file: LockedFile,
}

impl Part {
    /// Opens or creates the part for `target` and locks it.
    ///
    /// The state of an earlier session is used if its key [continues](PartKey::continues) and its bytes still have
    /// their hashes; otherwise it is discarded. If it is used, its job replaces `job`.
    ///
    /// # Errors
    /// [`PartError::Busy`] if another process has locked it, [`PartError::NotAFile`], [`PartError::DiskFull`] if the
    /// missing bytes cannot fit, or the system's error.
    pub fn open(target: &Path, key: PartKey, job: Job, batch: Batch) -> Result<Self, PartError> {
        Self::open_in(PartFiles::resolve(target)?, key, job, batch)
    }

    /// Like [`open`](Self::open), but a target that is a link is replaced itself, not its destination; and the
    /// published file gets `attributes`, if any.
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
        Self::open_sparse(target, key, job, batch, attributes, None)
    }

    /// Like [`open_exactly`](Self::open_exactly), for a sparse file: `holes` (start and end, ascending, within the
    /// length) need not arrive, and blocks of zeros become holes. `None`: the file is not sparse.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_sparse(
        target: &Path,
        key: PartKey,
        job: Job,
        batch: Batch,
        attributes: Option<Attributes>,
        holes: Option<Vec<(u64, u64)>>,
    ) -> Result<Self, PartError> {
        let part = Self::begin_in(PartFiles::without_following(target)?, key, job, batch)?;
        Self { attributes, holes, ..part }.finish_opening()
    }

    fn open_in(files: PartFiles, key: PartKey, job: Job, batch: Batch) -> Result<Self, PartError> {
        Self::begin_in(files, key, job, batch)?.finish_opening()
    }

    fn begin_in(files: PartFiles, key: PartKey, job: Job, batch: Batch) -> Result<Self, PartError> {
        let file = files.lock()?;
        let mut part = Self::empty(files, file, key, job, batch);
        match journal::read(&part.files.journal)? {
            Some(contents) if part.key.continues(&contents.key) => {
                part.drop_unfinished_journal()?;
                part.resume(contents)?;
            }
            other => {
                part.discarded = other.is_some();
                part.start_over()?;
            }
        }
        Ok(part)
    }

    fn finish_opening(mut self) -> Result<Self, PartError> {
        self.take_holes();
        self.make_room()?;
        Ok(self)
    }

    /// Marks the holes as present, because nothing was ever written in them.
    fn take_holes(&mut self) {
        for (from, to) in self.holes.iter().flatten() {
            self.present.insert(*from..*to);
        }
    }

    /// Creates a part without a name, for bytes that are passed on and not kept: in `directory`, or else in the
    /// directory for temporary files. It has no journal and cannot be published. Its blocks are free again once it and
    /// its [readers](Self::reader) are dropped.
    ///
    /// # Errors
    /// [`PartError::DiskFull`] if the length is known and cannot fit, or the system's error.
    pub fn unnamed(directory: Option<&Path>, key: PartKey, job: Job) -> Result<Self, PartError> {
        let (files, file) = PartFiles::unnamed(directory)?;
        let mut part = Self::empty(files, LockedFile::new(file), key, job, Batch::default());
        part.make_room()?;
        Ok(part)
    }

    fn empty(files: PartFiles, file: LockedFile, key: PartKey, job: Job, batch: Batch) -> Self {
        let whole = WholeDigests::new(key.digests());
        Self {
            files,
            file,
            whole,
            opened: Instant::now(),
            job,
            key,
            batch,
            journal: None,
            checkpoint_thread: None,
            records: Vec::new(),
            runs: Runs::default(),
            unsynced: 0,
            last_checkpoint: Instant::now(),
            durable: Ranges::default(),
            present: Ranges::default(),
            sources: DeliveredBytes::default(),
            distrusted: Vec::new(),
            verified: None,
            resumed: 0,
            discarded: false,
            poisoned: false,
            attributes: None,
            holes: None,
        }
    }

    /// Whether [`open`](Self::open) with this key would discard nothing and find enough room. It takes no lock and
    /// changes nothing.
    ///
    /// # Errors
    /// [`PartError::NotAFile`], or a journal that cannot be read.
    pub fn can_continue(target: &Path, key: &PartKey) -> Result<bool, PartError> {
        let files = PartFiles::resolve(target)?;
        let kept = match journal::read(&files.journal)? {
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
        Ok(files.free_bytes().is_none_or(|free| free >= needed))
    }

    /// The bytes of `key` that a journal beside `target` claims, where [`open_exactly`](Self::open_exactly) would look
    /// for it; `None` if there is no journal. The bytes are not read.
    ///
    /// # Errors
    /// [`PartError::NotAFile`], or a journal that cannot be read.
    pub fn journaled_ranges(target: &Path, key: &PartKey) -> Result<Option<Ranges>, PartError> {
        let contents = journal::read(&PartFiles::without_following(target)?.journal)?;
        Ok(contents.map(|contents| {
            let mut kept = Ranges::default();
            let records = if key.continues(&contents.key) { contents.records } else { Vec::new() };
            records.into_iter().for_each(|record| kept.insert(record.range));
            kept
        }))
    }

    /// Takes over the records whose bytes are unchanged.
    fn resume(&mut self, contents: JournalContents) -> Result<(), PartError> {
        let length = self.key.length().unwrap_or(0);
        let size = self.file.metadata().map_err(PartError::io("stat", &self.files.part))?.len();
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
        let path = &self.files.journal;
        self.journal = Some(if contents.whole && good.len() == contents.records.len() {
            Journal::append_to(path, &contents)?
        } else {
            Journal::create(path, &self.job, &self.key, &good)?
        });
        self.records = good;
        Ok(())
    }

    /// Empties the part and removes its journal. The journal goes first, because it would otherwise claim bytes that
    /// are gone.
    fn start_over(&mut self) -> Result<(), PartError> {
        // Unlike removing, looking takes no lock of the directory.
        if std::fs::symlink_metadata(&self.files.journal).is_ok() {
            part_files::remove(&self.files.journal)?;
        }
        let path = &self.files.part;
        let found = self.file.metadata().map_err(PartError::io("stat", path))?;
        if found.len() == 0 {
            return Ok(());
        }
        self.file.set_len(0).map_err(PartError::io("empty", path))?;
        self.drop_unfinished_journal()
    }

    /// Removes the new journal of a session that was killed while it wrote it.
    fn drop_unfinished_journal(&self) -> Result<(), PartError> {
        let new = journal::new_name(&self.files.journal);
        // As above, there usually is none.
        if std::fs::symlink_metadata(&new).is_ok() { part_files::remove(&new) } else { Ok(()) }
    }

    /// Sets the file's length, sparse, and fails now rather than later if it cannot fit.
    ///
    /// Blocks are not reserved: where this is not instant it costs a second pass over the disk, and another user's
    /// quota may still take the space.
    fn make_room(&mut self) -> Result<(), PartError> {
        let Some(length) = self.key.length() else { return Ok(()) };
        let needed = length - self.present.total();
        if self.files.free_bytes().is_some_and(|free| free < needed) {
            self.remove_if_useless();
            return Err(PartError::write(&self.files.part, needed)(
                std::io::ErrorKind::StorageFull.into(),
            ));
        }
        if length <= SHORT && self.present.is_empty() && self.holes.is_none() {
            return Ok(());
        }
        self.file.set_len(length).map_err(PartError::write(&self.files.part, needed))
    }

    /// The key with which the part was opened.
    pub fn key(&self) -> &PartKey {
        &self.key
    }

    /// The record of the transfer: an earlier session's, if it is continued.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// Where the part will be published; for a part without a name, a description of it.
    pub fn target(&self) -> &Path {
        &self.files.target
    }

    /// The number of bytes taken over from an earlier session.
    pub fn resumed(&self) -> u64 {
        self.resumed
    }

    /// Whether bytes of an earlier session were discarded, because they are of another version of the object, or
    /// nothing proves that they are not.
    pub fn discarded(&self) -> bool {
        self.discarded
    }

    /// The number of bytes that survive a crash.
    pub fn durable(&self) -> u64 {
        self.durable.total()
    }

    /// The missing bytes, ascending; empty if the length is unknown.
    pub fn missing(&self) -> Vec<Range<u64>> {
        self.present.missing(self.key.length().unwrap_or(0))
    }

    /// The number of bytes present.
    pub fn present(&self) -> u64 {
        self.present.total()
    }

    /// The number of bytes present from the start without a gap.
    pub fn prefix(&self) -> u64 {
        self.present.prefix()
    }

    /// The bytes delivered by the path named `from`, in this session and, if they were taken over, in earlier ones.
    pub fn delivered_by(&self, from: &str) -> Ranges {
        self.sources.delivered_by(from)
    }

    /// Reads bytes that are present.
    ///
    /// # Errors
    /// The system's error.
    pub fn read(&self, range: Range<u64>) -> Result<Vec<u8>, PartError> {
        reader::read(&self.file, range, &self.files.part)
    }

    /// Creates a reader that works while this part is written, e.g. up to the [prefix](crate::Writer::prefix).
    ///
    /// # Errors
    /// If the system has no further file descriptor.
    pub fn reader(&self) -> Result<PartReader, PartError> {
        PartReader::of(&self.file, &self.files.part)
    }
}

/// Writing, syncing, journaling and withdrawing bytes.
impl Part {
    /// Like [`write_from`](Self::write_from), with a path without a name.
    ///
    /// # Errors
    /// As [`write_from`](Self::write_from).
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), PartError> {
        self.write_from("", offset, data)
    }

    /// Writes `data` at `offset`, delivered by the path named `from`, and begins a checkpoint when the batch is full. A
    /// later call reports the checkpoint's failure.
    ///
    /// Bytes that are already present stay unchanged, so that their records remain true.
    ///
    /// # Errors
    /// [`PartError::DiskFull`], [`PartError::PastEnd`], or the system's error. Bytes written before stay valid.
    pub fn write_from(&mut self, from: &str, offset: u64, data: &[u8]) -> Result<(), PartError> {
        let range = self.admit(offset, data)?;
        for gap in self.present.missing_of(&range) {
            let (a, b) = ((gap.start - offset) as usize, (gap.end - offset) as usize);
            self.put(from, gap, &data[a..b])?;
        }
        self.checkpoint_if_due()
    }

    /// Overwrites wrong bytes.
    ///
    /// The paths other than `from` that delivered the wrong bytes are distrusted: none of their bytes are journaled any
    /// more, and their records are removed from the journal before any byte is overwritten. So a crash at any time
    /// leaves a journal that claims no wrong byte, at the cost of fetching these paths' bytes again.
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
            return Err(PartError::PastEnd(self.files.target.clone()));
        }
        Ok(range)
    }

    /// Writes bytes that are not present.
    fn put(&mut self, from: &str, range: Range<u64>, data: &[u8]) -> Result<(), PartError> {
        let needed = self.key.length().map_or(0, |n| n.saturating_sub(self.present.total()));
        self.verified = None;
        let written = match self.holes {
            Some(_) => holes::write(&self.file, range.start, data),
            None => self.file.write_all_at(data, range.start),
        };
        written.map_err(PartError::write(&self.files.part, needed))?;
        if self.is_journaled() && !self.distrusted.iter().any(|name| name == from) {
            self.runs.extend(from, range.start, data);
        }
        self.unsynced += data.len() as u64;
        self.sources.insert(from, range.clone());
        self.present.insert(range);
        self.whole.follow(&self.file, self.present.prefix());
        Ok(())
    }

    /// Whether bytes are journaled: a stream, or an object of unknown length, cannot be resumed.
    fn is_journaled(&self) -> bool {
        self.files.named && self.key.length().is_some()
    }

    /// Removes `range`, first from the journal, together with all bytes of other paths than `from` that delivered part
    /// of it.
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
        self.whole.stop_following();
        if self.records.len() < before { self.rewrite_journal() } else { Ok(()) }
    }

    /// Stops journaling bytes delivered by `name`.
    pub(crate) fn distrust(&mut self, name: &str) {
        if !self.distrusted.iter().any(|known| known == name) {
            self.distrusted.push(name.to_owned());
        }
    }

    fn rewrite_journal(&mut self) -> Result<(), PartError> {
        self.durable = crate::Ranges::default();
        self.records.iter().for_each(|r| self.durable.insert(r.range.clone()));
        self.poison_on_error(|part| {
            let path = &part.files.journal;
            let journal = Journal::create(path, &part.job, &part.key, &part.records)?;
            part.journal = Some(journal);
            Ok(())
        })
    }

    /// Syncs the bytes written so far, then journals them.
    ///
    /// # Errors
    /// If either cannot be synced. After that nothing is journaled or published, because a later sync may succeed
    /// without the lost pages.
    pub fn checkpoint(&mut self) -> Result<(), PartError> {
        self.last_checkpoint = std::time::Instant::now();
        self.settle()?;
        if self.runs.is_empty() {
            return Ok(());
        }
        self.sync(File::sync_data)?;
        self.record()
    }

    pub(crate) fn sync(&mut self, how: fn(&File) -> std::io::Result<()>) -> Result<(), PartError> {
        self.poison_on_error(|part| {
            how(&part.file).map_err(PartError::io("sync", &part.files.part))
        })
    }

    /// Does work that must succeed for anything later to be trusted.
    pub(crate) fn poison_on_error(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<(), PartError>,
    ) -> Result<(), PartError> {
        if self.poisoned {
            return Err(PartError::Unsynced(self.files.target.clone()));
        }
        self.poisoned = true;
        work(self)?;
        self.poisoned = false;
        Ok(())
    }

    /// Journals the runs, whose bytes have just been synced.
    pub(crate) fn record(&mut self) -> Result<(), PartError> {
        let records = self.runs.records();
        // A record cut short by a failure would hide all later ones.
        self.poison_on_error(|part| match &mut part.journal {
            Some(journal) => journal.append(&records),
            None => {
                let path = &part.files.journal;
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

    /// Makes a checkpoint and closes the part, from which the next session continues.
    ///
    /// A part that could not be resumed is removed.
    ///
    /// # Errors
    /// As [`Part::checkpoint`].
    pub fn close(mut self) -> Result<(), PartError> {
        let done = self.checkpoint();
        self.remove_if_useless();
        done
    }

    pub(crate) fn remove_if_useless(&self) {
        if self.durable.total() == 0 {
            // Best effort, because the next session would empty the files anyway.
            _ = self.remove();
        }
    }
}

/// From a complete part to a file under its final name.
impl Part {
    /// Compares the complete file with the expected digests, and keeps all files in either case. A success holds until
    /// the next write, so [`publish`](Self::publish) does not read the file again.
    ///
    /// `length` is the object's length if the key does not contain it.
    ///
    /// # Errors
    /// [`PartError::Incomplete`], [`PartError::Digest`], or the error of reading the file.
    pub fn verify(&mut self, length: u64) -> Result<(), PartError> {
        let length = self.key.length().unwrap_or(length);
        if self.verified == Some(length) {
            return Ok(());
        }
        let missing: u64 = self.present.missing(length).iter().map(|r| r.end - r.start).sum();
        if missing > 0 {
            let path = self.files.target.clone();
            return Err(PartError::Incomplete { path, missing: ByteSize::from_bytes(missing) });
        }
        let read = PartError::io("read", &self.files.part);
        let found = self.whole.finish(&self.file, length).map_err(read)?;
        let mut pairs = self.key.digests().iter().zip(found);
        pairs.try_for_each(|(digest, found)| digest.expect(found, &self.files.target))?;
        self.verified = Some(length);
        Ok(())
    }

    /// Compares the complete file of `length` bytes with the digests of its pieces. Keeps the file in either case.
    ///
    /// # Errors
    /// [`PartError::Piece`] if a piece differs, or an error if the file cannot be read.
    pub fn verify_pieces(
        &self,
        pieces: &digest::PieceDigests,
        length: u64,
    ) -> Result<(), PartError> {
        pieces.expect(&self.file, length, &self.files.target)
    }

    /// Removes the part and its journal.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn discard(mut self) -> Result<(), PartError> {
        // A running checkpoint would recreate its journal. Its result does not matter.
        _ = self.settle();
        self.remove()
    }

    /// Removes the files beside the target if they still are this part's.
    pub(crate) fn remove(&self) -> Result<(), PartError> {
        self.files.remove(&self.file)?;
        match &self.journal {
            Some(journal) if self.files.named => journal.remove(&self.files.journal),
            _ => Ok(()),
        }
    }

    /// Verifies, syncs and renames the file to the target. Returns the target's path.
    ///
    /// `length` is the object's length if the key does not contain it.
    ///
    /// # Errors
    /// [`PartError::Incomplete`]; [`PartError::Digest`], after which nothing is kept; or the system's error, after
    /// which everything is kept. The target is then unchanged, unless only the directory could not be synced.
    pub fn publish(mut self, length: u64) -> Result<PathBuf, PartError> {
        self.verify_to_publish(length)?;
        self.sync(File::sync_all)?;
        self.give_final_name()?;
        part_files::sync_directory(&self.files.target)?;
        self.remove_journal()
    }

    /// Whether [`verify_to_publish`](Self::verify_to_publish) neither reads the file nor waits.
    pub(crate) fn is_quickly_proven(&self) -> bool {
        self.checkpoint_thread.is_none()
            && (self.key.digests().is_empty() || self.verified.is_some())
    }

    /// Does the first step of publication: proves that all bytes are right. A part with a wrong digest is removed.
    pub(crate) fn verify_to_publish(&mut self, length: u64) -> Result<(), PartError> {
        if !self.files.named {
            let why = io::Error::new(io::ErrorKind::Unsupported, "it has no name");
            return Err(PartError::io("publish", &self.files.target)(why));
        }
        self.settle()?;
        match self.verify(length) {
            Err(wrong @ PartError::Digest { .. }) => Err(self.remove().err().unwrap_or(wrong)),
            Err(other) => Err(other),
            Ok(()) => {
                if self.attributes.is_none() {
                    mode::put(&self.file, &self.files.target);
                }
                mark::put(&self.file, &self.key);
                Ok(())
            }
        }
    }

    /// Gives the synced file its final name. If that fails, the bytes are journaled.
    pub(crate) fn give_final_name(&mut self) -> Result<(), PartError> {
        let shown = final_name::rename_to_target(
            &self.files,
            &self.file,
            &self.key,
            self.attributes.as_ref(),
        );
        let Err(error) = shown else { return Ok(()) };
        // The journal may be another process's too, like the part.
        let ours = part_files::is_name_of(&self.files.part, &self.file)?;
        Err(if ours { self.record().err().unwrap_or(error) } else { error })
    }

    /// Does the last step, once the name is durable: removes the journal.
    pub(crate) fn remove_journal(self) -> Result<PathBuf, PartError> {
        // Each lookup of the journal takes the directory's lock.
        if let Some(journal) = &self.journal {
            journal.remove(&self.files.journal)?;
        }
        Ok(self.files.target)
    }
}

/// Publication in steps, for callers that sync many files at once: complete, synced, shown, forgotten.
impl Part {
    /// Does the first step of publication: proves that all bytes are right.
    ///
    /// # Errors
    /// As [`Part::publish`].
    pub fn complete(mut self, length: u64) -> Result<CompletePart, PartError> {
        self.verify_to_publish(length)?;
        Ok(CompletePart(self))
    }
}

/// The state that an earlier session left, without opening the part.
impl Part {
    /// Whether two quick lookups find no sign of an earlier session. If so, [`gap`](Self::gap) would return `None`.
    pub fn is_untouched(target: &Path) -> bool {
        PartFiles::is_untouched(target)
    }

    /// The first bytes that an earlier session for `target` did not get, at which a first request should begin. Empty
    /// if it got all bytes; `None` if there is no such session, its bytes cannot be used, or it cannot be read. Only a
    /// hint: it takes no lock, and compares no byte with its hash.
    pub fn gap(target: &Path) -> Option<Range<u64>> {
        let contents = journal::read(&PartFiles::resolve(target).ok()?.journal).ok()??;
        let length = contents.key.length()?;
        if let PartKey::Url { validator: None, digests, .. } = &contents.key
            && digests.is_empty()
        {
            return None;
        }
        let mut there = Ranges::default();
        contents.records.into_iter().for_each(|r| there.insert(r.range));
        Some(there.missing(length).into_iter().next().unwrap_or(length..length))
    }
}

/// Taking over a file that another program left under the final name.
impl Part {
    /// Takes over the file under the final name as the object's first bytes, as far as they are missing. Returns their
    /// number, 0 if the file is empty, longer than the object, or absent.
    ///
    /// Nothing proves these bytes, so they are taken only if a digest will verify the whole. Until then they are not
    /// journaled, and after a crash they are taken over again. The file itself stays unchanged until publication. If
    /// the digest does not match, the bytes of [`delivered_by`](Self::delivered_by)`(`[`ADOPTED`]`)` are the doubtful
    /// ones.
    ///
    /// # Errors
    /// [`PartError::Unproven`] without an expected digest or a length; [`PartError::DiskFull`]; or the system's error.
    pub fn adopt(&mut self) -> Result<u64, PartError> {
        let target = self.files.target.clone();
        let Some(length) = self.key.length().filter(|_| !self.key.digests().is_empty()) else {
            return Err(PartError::Unproven(target));
        };
        let existing = match File::open(&target) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
            opened => opened.map_err(PartError::io("open", &target))?,
        };
        let found = existing.metadata().map_err(PartError::io("stat", &target))?;
        if !found.is_file() || found.len() > length {
            return Ok(0);
        }
        let gaps = self.present.missing_of(&(0..found.len()));
        gaps.into_iter().try_fold(0, |sum, gap| {
            let n = gap.end - gap.start;
            self.take_over(&existing, gap).map(|()| sum + n)
        })
    }

    fn take_over(&mut self, existing: &File, gap: Range<u64>) -> Result<(), PartError> {
        self.verified = None;
        copy(existing, &self.file, gap.clone(), &self.files.part)?;
        self.distrust(ADOPTED);
        self.sources.insert(ADOPTED, gap.clone());
        self.present.insert(gap);
        self.whole.follow(&self.file, self.present.prefix());
        Ok(())
    }
}

/// Closing a part for a while, so that others can use its descriptors.
impl Part {
    /// Makes a checkpoint and closes the files, which releases the lock.
    ///
    /// # Errors
    /// As [`Part::checkpoint`].
    pub fn park(mut self) -> Result<ParkedPart, PartError> {
        self.checkpoint()?;
        let seen = self.file.metadata().map_err(PartError::io("stat", &self.files.part))?;
        Ok(ParkedPart {
            seen: FileState::from_metadata(&seen),
            journal: self.journal.as_ref().map(Journal::check),
            job: self.job,
            key: self.key,
            batch: self.batch,
            attributes: self.attributes,
            holes: self.holes,
            records: self.records,
            durable: self.durable,
            sources: self.sources,
        })
    }

    /// Restores a parked part, with the same `file`.
    pub(super) fn unpark(
        files: PartFiles,
        file: LockedFile,
        parked: ParkedPart,
    ) -> Result<Self, PartError> {
        let mut part = Self::empty(files, file, parked.key, parked.job, parked.batch);
        let reopen = |check| Journal::reopen(&part.files.journal, check);
        part.journal = parked.journal.map(reopen).transpose()?;
        part.attributes = parked.attributes;
        part.present = parked.durable.clone();
        part.holes = parked.holes;
        part.take_holes();
        (part.records, part.durable, part.sources) =
            (parked.records, parked.durable, parked.sources);
        Ok(part)
    }
}

impl Part {
    /// Removes the files beside a complete target whose session ended between giving the name and removing the journal.
    ///
    /// # Errors
    /// [`PartError::Busy`] if another process has locked it, or the system's error.
    pub fn remove_leftovers(target: &Path) -> Result<(), PartError> {
        let files = PartFiles::without_following(target)?;
        let journals = [files.journal.clone(), new_name(&files.journal)];
        if journals.iter().all(|journal| std::fs::symlink_metadata(journal).is_err()) {
            return Ok(());
        }
        let file = files.lock()?;
        files.remove(&file)
    }
}

impl Part {
    /// Removes the part and the journal of this name if `idle` returns true for their job and key, because nobody will
    /// continue them. Returns whether they were removed.
    ///
    /// # Errors
    /// [`PartError::Busy`] if another process has locked the part, a journal that cannot be read, or the system's
    /// error.
    pub fn remove_if(
        directory: &Path,
        name: &OsStr,
        idle: impl FnOnce(&Job, &PartKey) -> bool,
    ) -> Result<bool, PartError> {
        let Some(files) = PartFiles::from_journal_name(directory, name) else { return Ok(false) };
        let contents = journal::read(&files.journal)?;
        if !contents.is_some_and(|contents| idle(&contents.job, &contents.key)) {
            return Ok(false);
        }
        let file = files.lock()?;
        files.remove(&file)?;
        Ok(true)
    }
}

/// Checkpoints in the background; the module `background` explains why.
impl Part {
    /// Begins a checkpoint in the background if the batch's bytes or time are reached. While one is running the next
    /// batch gathers; if that is full, the writer waits: a disk that is slower than the network must slow it down.
    ///
    /// # Errors
    /// As [`Part::checkpoint`], for this one or the last.
    pub fn checkpoint_if_due(&mut self) -> Result<(), PartError> {
        match &self.checkpoint_thread {
            Some(checkpoint_thread) if checkpoint_thread.is_finished() => self.settle()?,
            Some(_) if self.unsynced >= self.batch.bytes => self.settle()?,
            Some(_) => return Ok(()),
            None => {}
        }
        let due = self.last_checkpoint.elapsed() >= self.batch.time;
        if (self.unsynced < self.batch.bytes && !due) || self.runs.is_empty() {
            return Ok(());
        }
        if self.poisoned {
            return Err(PartError::Unsynced(self.files.target.clone()));
        }
        self.begin_background_checkpoint()
    }

    fn begin_background_checkpoint(&mut self) -> Result<(), PartError> {
        let path = &self.files.part;
        let file = self.file.try_clone().map_err(PartError::io("sync", path))?;
        let (records, mut journal) = (self.runs.records(), self.journal.take());
        let (known, job, key, files) =
            (records.clone(), self.job.clone(), self.key.clone(), self.files.clone());
        let work = move || {
            file.sync_data().map_err(PartError::io("sync", &files.part))?;
            match journal.take() {
                Some(mut journal) => journal.append(&known).map(|()| journal),
                None => Journal::create(&files.journal, &job, &key, &known),
            }
        };
        // Nothing may be trusted until the checkpoint is settled.
        self.poisoned = true;
        let thread = Builder::new().name("part-sync".into()).spawn(work);
        let thread = Some(thread.map_err(PartError::io("sync", path))?);
        self.poisoned = false;
        self.checkpoint_thread = Some(BackgroundCheckpoint { records, thread });
        self.last_checkpoint = std::time::Instant::now();
        self.runs.clear();
        self.unsynced = 0;
        Ok(())
    }

    /// Waits for the running checkpoint, if there is one, and records its result.
    pub(crate) fn settle(&mut self) -> Result<(), PartError> {
        let Some(mut checkpoint_thread) = self.checkpoint_thread.take() else { return Ok(()) };
        self.poison_on_error(|part| {
            part.journal = Some(checkpoint_thread.wait()?);
            Ok(())
        })?;
        let records = std::mem::take(&mut checkpoint_thread.records);
        records.iter().for_each(|r| self.durable.insert(r.range.clone()));
        self.records.extend(records);
        Ok(())
    }
}

/// A part whose bytes are complete and proven. Dropping it is like a crash: a later session resumes its journaled
/// bytes.
pub struct CompletePart(Part);

impl std::fmt::Debug for CompletePart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CompletePart").field(&self.0.target()).finish()
    }
}

/// A part that has its final name.
pub struct NamedPart(Part);

impl CompletePart {
    /// Syncs only this part, if no `syncfs` did.
    ///
    /// # Errors
    /// The system's error; the part must not be shown then.
    pub fn sync(&mut self) -> Result<(), PartError> {
        self.0.sync(File::sync_all)
    }

    /// Does the second step, once the bytes are on the disk: gives the part its final name, which the next sync makes
    /// durable.
    ///
    /// # Errors
    /// If the system refuses; everything is kept.
    pub fn give_final_name(mut self) -> Result<NamedPart, PartError> {
        self.0.give_final_name()?;
        Ok(NamedPart(self.0))
    }

    /// Closes the part without showing it. A later session finds it complete.
    ///
    /// # Errors
    /// As [`Part::close`].
    pub fn close(self) -> Result<(), PartError> {
        self.0.close()
    }
}

impl AsFd for Part {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsFd for CompletePart {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
    }
}

impl NamedPart {
    /// Does the last step, once the name is durable: removes the journal.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn remove_journal(self) -> Result<(), PartError> {
        self.0.remove_journal().map(drop)
    }
}

/// Copies `range` to the same offset, sharing the blocks if the filesystem can.
pub(crate) fn copy(
    from: &File,
    to: &File,
    range: Range<u64>,
    path: &Path,
) -> Result<(), PartError> {
    let (mut read, mut written) = (range.start, range.start);
    while read < range.end {
        let left = usize::try_from(range.end - read).unwrap_or(usize::MAX);
        match copy_file_range(from, Some(&mut read), to, Some(&mut written), left) {
            Ok(0) => {
                return Err(PartError::io("copy to", path)(io::ErrorKind::UnexpectedEof.into()));
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                return copy_plainly(from, to, read..range.end, path);
            }
            Err(e) => return Err(PartError::write(path, range.end - read)(e.into())),
        }
    }
    Ok(())
}

fn copy_plainly(from: &File, to: &File, range: Range<u64>, path: &Path) -> Result<(), PartError> {
    let mut block = vec![0; BLOCK];
    let mut at = range.start;
    while at < range.end {
        let n = BLOCK.min(usize::try_from(range.end - at).unwrap_or(BLOCK));
        from.read_exact_at(&mut block[..n], at).map_err(PartError::io("copy to", path))?;
        to.write_all_at(&block[..n], at).map_err(PartError::write(path, range.end - at))?;
        at += n as u64;
    }
    Ok(())
}
