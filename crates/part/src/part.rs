//! The part itself: its bytes, its journal, its publication.

#[cfg(test)]
mod tests;

use crate::{
    Attributes, PartError, PartKey, PartReader, Ranges,
    behind::Behind,
    digest, holes,
    journal::{self, Contents, Journal, Record, new_name},
    mark, mode,
    park::{Parked, Seen},
    place::{self, Place},
    reader,
    runs::{Runs, Sources},
    show,
    whole::Whole,
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
use thalweg_base::job::Job;
use thalweg_units::ByteSize;

/// A file up to this length gets it by being written, which is one system call less.
const SHORT: u64 = 1 << 20;

/// The name that [`Part::delivered_by`] knows adopted bytes by. No path's name has blanks.
pub const ADOPTED: &str = "the existing file";

/// Copied at once where the system cannot copy from file to file.
const BLOCK: usize = 1 << 20;

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

/// A file in the making. See the [crate](crate).
///
/// Dropping it is like a crash: what was not checkpointed is lost. Use
/// [`close`](Self::close) or [`publish`](Self::publish).
pub struct Part {
    pub(super) place: Place,
    pub(super) file: File,
    pub(super) opened: Instant,
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
    pub(super) poisoned: bool,
    /// What the published file gets; `None`: the rules of [`mode`](crate::mode).
    attributes: Option<Attributes>,
    /// `Some`: zeros become holes, and these are there without being written.
    holes: Option<Vec<(u64, u64)>>,
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
        Self::open_sparse(target, key, job, batch, attributes, None)
    }

    /// The same of a sparse file: `holes` (from and to, ascending, within the length) need not come, and what comes is
    /// written without blocks of zeros. `None`: it is not sparse.
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
        let part = Self::begin_in(Place::exactly(target)?, key, job, batch)?;
        Self { attributes, holes, ..part }.begun()
    }

    fn open_in(place: Place, key: PartKey, job: Job, batch: Batch) -> Result<Self, PartError> {
        Self::begin_in(place, key, job, batch)?.begun()
    }

    fn begin_in(place: Place, key: PartKey, job: Job, batch: Batch) -> Result<Self, PartError> {
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
        Ok(part)
    }

    fn begun(mut self) -> Result<Self, PartError> {
        self.take_holes();
        self.make_room()?;
        Ok(self)
    }

    /// Holes are there: nothing was ever written in them.
    fn take_holes(&mut self) {
        for (from, to) in self.holes.iter().flatten() {
            self.present.insert(*from..*to);
        }
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
            holes: None,
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
        if length <= SHORT && self.present.is_empty() && self.holes.is_none() {
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

    /// Another hand that reads while this one writes, e.g. up to the [prefix](crate::Writer::prefix).
    ///
    /// # Errors
    /// If the system has no further file descriptor.
    pub fn reader(&self) -> Result<PartReader, PartError> {
        PartReader::of(&self.file, &self.place.part)
    }
}

/// Bytes into a part: written, synced, journaled, or taken back.
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
        let written = match self.holes {
            Some(_) => holes::write(&self.file, range.start, data),
            None => self.file.write_all_at(data, range.start),
        };
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
    pub(crate) fn distrust(&mut self, name: &str) {
        if !self.distrusted.iter().any(|known| known == name) {
            self.distrusted.push(name.to_owned());
        }
    }

    fn rewrite_journal(&mut self) -> Result<(), PartError> {
        self.durable = crate::Ranges::default();
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

    pub(crate) fn sync(&mut self, how: fn(&File) -> std::io::Result<()>) -> Result<(), PartError> {
        self.guarded(|part| how(&part.file).map_err(PartError::io("sync", &part.place.part)))
    }

    /// Does what must succeed for anything to be believed later.
    pub(crate) fn guarded(
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
    pub(crate) fn record(&mut self) -> Result<(), PartError> {
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

    pub(crate) fn leave_nothing_useless(&self) {
        if self.durable.total() == 0 {
            // Best effort on the way out: the next session would empty them anyway.
            _ = self.remove();
        }
    }
}

/// From a complete part to a file under its final name.
impl Part {
    /// Compares the complete file with the expected digests, and keeps all whatever comes
    /// out. A success holds until the next write: [`publish`](Self::publish) does not read
    /// the file again.
    ///
    /// `length` is the object's length where the key does not know it.
    ///
    /// # Errors
    /// [`PartError::Incomplete`], [`PartError::Digest`], or why it cannot be read.
    pub fn verify(&mut self, length: u64) -> Result<(), PartError> {
        let length = self.key.length().unwrap_or(length);
        if self.verified == Some(length) {
            return Ok(());
        }
        let missing: u64 = self.present.missing(length).iter().map(|r| r.end - r.start).sum();
        if missing > 0 {
            let path = self.place.target.clone();
            return Err(PartError::Incomplete { path, missing: ByteSize::from_bytes(missing) });
        }
        let read = PartError::io("read", &self.place.part);
        let found = self.whole.finish(&self.file, length).map_err(read)?;
        let mut pairs = self.key.digests().iter().zip(found);
        pairs.try_for_each(|(digest, found)| digest.expect(found, &self.place.target))?;
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
        pieces.expect(&self.file, length, &self.place.target)
    }

    /// Removes what there is.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn discard(mut self) -> Result<(), PartError> {
        // A checkpoint under way would put its journal back. Whether it succeeds is the same.
        _ = self.settle();
        self.remove()
    }

    /// Removes the files beside the target, as far as they are still this part's.
    pub(crate) fn remove(&self) -> Result<(), PartError> {
        self.place.remove(&self.file)?;
        match &self.journal {
            Some(journal) if self.place.named => journal.remove(&self.place.journal),
            _ => Ok(()),
        }
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
        self.prove(length)?;
        self.sync(File::sync_all)?;
        self.show()?;
        place::sync_directory(&self.place.target)?;
        self.forget_journal()
    }

    /// Whether [`prove`](Self::prove) reads nothing and waits for nothing.
    pub(crate) fn is_quickly_proven(&self) -> bool {
        self.behind.is_none() && (self.key.digests().is_empty() || self.verified.is_some())
    }

    /// The first step of publication: what is wrong is removed.
    pub(crate) fn prove(&mut self, length: u64) -> Result<(), PartError> {
        if !self.place.named {
            let why = io::Error::new(io::ErrorKind::Unsupported, "it has no name");
            return Err(PartError::io("publish", &self.place.target)(why));
        }
        self.settle()?;
        match self.verify(length) {
            Err(wrong @ PartError::Digest { .. }) => Err(self.remove().err().unwrap_or(wrong)),
            Err(other) => Err(other),
            Ok(()) => {
                if self.attributes.is_none() {
                    mode::put(&self.file, &self.place.target);
                }
                mark::put(&self.file, &self.key);
                Ok(())
            }
        }
    }

    /// Gives the synced file its final name. If that fails what there is is journaled.
    pub(crate) fn show(&mut self) -> Result<(), PartError> {
        let shown = show::show(&self.place, &self.file, &self.key, self.attributes.as_ref());
        let Err(error) = shown else { return Ok(()) };
        // The journal's name may be another process's, too.
        let ours = place::is_name_of(&self.place.part, &self.file)?;
        Err(if ours { self.record().err().unwrap_or(error) } else { error })
    }

    /// The last step, once the name is durable.
    pub(crate) fn forget_journal(self) -> Result<PathBuf, PartError> {
        // Each look for a name that is to go takes the directory's lock.
        if let Some(journal) = &self.journal {
            journal.remove(&self.place.journal)?;
        }
        Ok(self.place.target)
    }
}

/// Publication in steps, for who syncs many files at once: complete, synced, shown, forgotten.
impl Part {
    /// The first step of publication: proves that all bytes are there.
    ///
    /// # Errors
    /// As [`Part::publish`].
    pub fn complete(mut self, length: u64) -> Result<Complete, PartError> {
        self.prove(length)?;
        Ok(Complete(self))
    }
}

/// What an earlier session left undone, seen from outside.
impl Part {
    /// Whether nothing of an earlier session can be there, as far as two quick looks tell: then
    /// [`gap`](Self::gap) would say `None`.
    pub fn is_untouched(target: &Path) -> bool {
        Place::is_untouched(target)
    }

    /// The first bytes that an earlier session for `target` did not get: where a first question
    /// should begin. Empty if it got all; `None` if there is no such session, if nothing of it
    /// can be used, or if it cannot be told. Only a hint: takes no lock, and compares no byte
    /// with its hash.
    pub fn gap(target: &Path) -> Option<Range<u64>> {
        let contents = journal::read(&Place::of(target).ok()?.journal).ok()??;
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

/// Taking over what another program left under the final name.
impl Part {
    /// Takes over the file that lies under the final name as the object's first bytes, as
    /// far as they are missing; returns how many. None if it is empty, longer than the object,
    /// or not there.
    ///
    /// The rule: nothing says what these bytes are, so they are taken only if a digest will
    /// judge the whole. Until then they are not journaled: after a crash they are taken
    /// over again. The file itself stays as it is until publication. If the digest does
    /// not fit, [`delivered_by`](Self::delivered_by)`(`[`ADOPTED`]`)` is what to doubt.
    ///
    /// # Errors
    /// [`PartError::Unproven`] without an expected digest or a length;
    /// [`PartError::DiskFull`]; or the system's refusal.
    pub fn adopt(&mut self) -> Result<u64, PartError> {
        let target = self.place.target.clone();
        let Some(length) = self.key.length().filter(|_| !self.key.digests().is_empty()) else {
            return Err(PartError::Unproven(target));
        };
        let existing = match File::open(&target) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
            opened => opened.map_err(PartError::io("open", &target))?,
        };
        let found = existing.metadata().map_err(PartError::io("look at", &target))?;
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
        copy(existing, &self.file, gap.clone(), &self.place.part)?;
        self.distrust(ADOPTED);
        self.sources.insert(ADOPTED, gap.clone());
        self.present.insert(gap);
        self.whole.follow(&self.file, self.present.prefix());
        Ok(())
    }
}

/// A part that is let go for a while, so that its descriptors serve others.
impl Part {
    /// Makes a checkpoint and closes the files; the lock goes with them.
    ///
    /// # Errors
    /// As [`Part::checkpoint`].
    pub fn park(mut self) -> Result<Parked, PartError> {
        self.checkpoint()?;
        let seen = self.file.metadata().map_err(PartError::io("look at", &self.place.part))?;
        Ok(Parked {
            seen: Seen::of(&seen),
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

    /// As it was when it was parked, with the same `file`.
    pub(super) fn unpark(place: Place, file: File, parked: Parked) -> Result<Self, PartError> {
        let mut part = Self::empty(place, file, parked.key, parked.job, parked.batch);
        let reopen = |check| Journal::reopen(&part.place.journal, check);
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
    /// Removes what stayed beside a target that is complete, because its session was cut off
    /// between its name and its journal's end.
    ///
    /// # Errors
    /// [`PartError::Busy`] if another process is at work on it, or the system's refusal.
    pub fn tidy(target: &Path) -> Result<(), PartError> {
        let place = Place::exactly(target)?;
        let journals = [place.journal.clone(), new_name(&place.journal)];
        if journals.iter().all(|journal| std::fs::symlink_metadata(journal).is_err()) {
            return Ok(());
        }
        let file = place.lock()?;
        place.remove(&file)
    }
}

impl Part {
    /// Removes what a journal of this name and the part beside it keep, if its job and key are `idle`: nobody
    /// will go on with them. Whether it was removed; one that another process is at work on stays.
    ///
    /// # Errors
    /// A journal that cannot be read, or the system's refusal.
    pub fn forget_if(
        directory: &Path,
        name: &OsStr,
        idle: impl FnOnce(&Job, &PartKey) -> bool,
    ) -> Result<bool, PartError> {
        let Some(place) = Place::of_journal(directory, name) else { return Ok(false) };
        let contents = journal::read(&place.journal)?;
        if !contents.is_some_and(|contents| idle(&contents.job, &contents.key)) {
            return Ok(false);
        }
        let file = place.lock()?;
        place.remove(&file)?;
        Ok(true)
    }
}

/// A checkpoint beside the writing: the disk works while the next bytes come.
///
/// A writer that waits for its own sync after every batch leaves the disk idle while it
/// fills the next one, and the network while it waits. What is synced beside is only what was
/// written before it began: the records are taken first.
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
    pub(crate) fn settle(&mut self) -> Result<(), PartError> {
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

/// A part all of whose bytes are there and proven. Dropping it is like a crash: it is resumed as far
/// as it was journaled.
pub struct Complete(Part);

impl std::fmt::Debug for Complete {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Complete").field(&self.0.target()).finish()
    }
}

/// A part that has its final name.
pub struct Shown(Part);

impl Complete {
    /// Syncs this one alone, where no `syncfs` did.
    ///
    /// # Errors
    /// The system's refusal; then it must not be shown.
    pub fn sync(&mut self) -> Result<(), PartError> {
        self.0.sync(File::sync_all)
    }

    /// The second step, once its bytes are on the disk: the final name. It is durable with
    /// the next sync.
    ///
    /// # Errors
    /// If the system refuses; all is kept.
    pub fn show(mut self) -> Result<Shown, PartError> {
        self.0.show()?;
        Ok(Shown(self.0))
    }

    /// Lets go without showing it; a later session finds it complete.
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

impl AsFd for Complete {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
    }
}

impl Shown {
    /// The last step, once the name is durable: the journal is removed.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn forget(self) -> Result<(), PartError> {
        self.0.forget_journal().map(drop)
    }
}

/// Copies `range` to the same place; shares the blocks where the filesystem can.
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
