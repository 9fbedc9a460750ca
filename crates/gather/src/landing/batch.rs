//! Makes many files durable at once: one `syncfs`, then the renames.
//!
//! The writers put complete files into a batch; a separate thread syncs full batches while the next one fills. Names
//! become durable with the sync of the next batch, the last ones with the sync at the end.

use super::{
    plan::temporary,
    small::put_xattrs,
    state::{LandingState, TargetState},
    step_error::StepError,
    tree::{DirectoryCache, OpenDirectory, rename},
};
use parking_lot::Mutex;
use rustix::{
    fs::{AtFlags, Mode, OFlags, fsync, openat, syncfs, unlinkat},
    io::Errno,
};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::{Builder, JoinHandle},
    time::{Duration, Instant},
};
use thalweg_part::{CompletePart, NamedPart};

/// The maximum number of files in a batch. A crash costs this many; their sync takes some 100 ms on a current disk.
const FILES: usize = 8192;

/// The maximum number of bytes of small files in a batch: two seconds at 1 Gbit/s.
const BYTES: u64 = 256 << 20;

/// The maximum number of large files in a batch; each holds two or three descriptors.
const PARTS: usize = 32;

/// The maximum age of a batch that is not full.
const AGE: Duration = Duration::from_secs(3);

/// How often a batch's age is checked.
const TICK: Duration = Duration::from_millis(500);

/// A complete file or link that waits for its name.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) number: u32,
    directory: u32,
    part: Option<Box<LargeFile>>,
}

/// A large file. Its names are relative to the directory, which stays open for them.
#[derive(Debug)]
struct LargeFile {
    part: CompletePart,
    _hold: Arc<OpenDirectory>,
}

#[derive(Debug, Default)]
struct FillingBatch {
    items: Vec<Item>,
    bytes: u64,
    parts: usize,
    since: Option<Instant>,
}

impl FillingBatch {
    fn is_full(&self) -> bool {
        self.items.len() >= FILES || self.bytes >= BYTES || self.parts >= PARTS
    }

    fn is_old(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() >= AGE)
    }
}

enum Message {
    Batch(Vec<Item>),
    End,
}

/// Accepts complete files; shared by the writers.
#[derive(Debug)]
pub(super) struct Batches {
    shared: Arc<LandingState>,
    filling: Arc<Mutex<FillingBatch>>,
    /// One batch is being synced, one waits in this channel, and one fills.
    full: SyncSender<Message>,
}

impl Batches {
    /// Starts the sync thread. It ends with [`end`](Self::end).
    pub(super) fn start(
        shared: &Arc<LandingState>,
        tick: impl Fn() + Send + 'static,
    ) -> std::io::Result<(Self, JoinHandle<()>)> {
        let (full, queue) = sync_channel(1);
        let filling = Arc::new(Mutex::new(FillingBatch::default()));
        let committer = Committer {
            shared: Arc::clone(shared),
            filling: Arc::clone(&filling),
            holds: DirectoryCache::new(&shared.tree),
            syncs_as_a_whole: syncs_as_a_whole(shared),
            devices: BTreeSet::new(),
            named: Vec::new(),
        };
        let work = move || committer.run(&queue, tick);
        let thread = Builder::new().name("landing-sync".into()).spawn(work)?;
        Ok((Self { shared: Arc::clone(shared), filling, full }, thread))
    }

    /// Adds a small file or link that is complete under its temporary name.
    pub(super) fn add_small(&self, number: u32, bytes: u64) {
        self.add(number, bytes, None);
    }

    /// Adds a complete large file.
    pub(super) fn add_large(&self, number: u32, part: CompletePart, hold: Arc<OpenDirectory>) {
        self.add(number, 0, Some(Box::new(LargeFile { part, _hold: hold })));
    }

    fn add(&self, number: u32, bytes: u64, part: Option<Box<LargeFile>>) {
        let Some(target) = self.shared.target(number) else { return };
        self.shared.change_state(number, TargetState::Waiting, TargetState::Written);
        let mut filling = self.filling.lock();
        filling.since.get_or_insert_with(Instant::now);
        filling.bytes += bytes;
        filling.parts += usize::from(part.is_some());
        filling.items.push(Item { number, directory: target.directory, part });
        if filling.is_full() {
            let batch = std::mem::take(&mut *filling).items;
            drop(filling);
            self.send(Message::Batch(batch));
        }
    }

    /// Commits the remaining files, and ends the thread.
    pub(super) fn end(&self) {
        let last = std::mem::take(&mut *self.filling.lock()).items;
        self.send(Message::Batch(last));
        self.send(Message::End);
    }

    fn send(&self, message: Message) {
        if self.full.send(message).is_err() {
            let died = std::io::Error::other("the sync thread died");
            self.shared.stop(self.shared.plan.end_of_all("sync", &died));
        }
    }
}

struct Committer {
    shared: Arc<LandingState>,
    filling: Arc<Mutex<FillingBatch>>,
    holds: DirectoryCache,
    syncs_as_a_whole: bool,
    /// Filesystems mounted below the directory that received files.
    devices: BTreeSet<(u64, u32)>,
    /// Large files whose names the next sync makes durable.
    named: Vec<(u32, NamedPart, Arc<OpenDirectory>)>,
}

impl Committer {
    fn run(mut self, queue: &Receiver<Message>, tick: impl Fn()) {
        loop {
            match queue.recv_timeout(TICK) {
                Ok(Message::Batch(batch)) => self.commit(batch),
                Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => tick(),
            }
            let old = Some(self.filling.lock()).filter(|g| g.is_old());
            let old = old.map(|mut filling| std::mem::take(&mut *filling).items);
            old.into_iter().for_each(|batch| self.commit(batch));
        }
        self.end();
    }

    /// Syncs a batch, and gives its files their names.
    fn commit(&mut self, mut batch: Vec<Item>) {
        if self.shared.is_abandoned() || batch.is_empty() {
            return;
        }
        batch.sort_by_key(|item| item.directory);
        let given_up = |item: &mut Item| self.shared.state(item.number) != TargetState::Written;
        let gone: Vec<Item> = batch.extract_if(.., given_up).collect();
        gone.into_iter().for_each(|item| self.remove(item));
        if let Err(error) = self.sync(&mut batch) {
            let error = self.shared.plan.end_of_all("sync", &error);
            self.shared.stop(error);
            return batch.into_iter().for_each(|item| self.remove(item));
        }
        self.remove_journals();
        let directories: BTreeSet<u32> = batch.iter().map(|item| item.directory).collect();
        for item in batch {
            let number = item.number;
            // It may have been given up during the sync.
            if self.shared.state(number) != TargetState::Written {
                self.remove(item);
                continue;
            }
            match self.give_name(item) {
                Ok(()) => self.shared.record_named(number),
                Err(error) => self.shared.record_error(number, error),
            }
        }
        if !self.syncs_as_a_whole {
            directories.into_iter().for_each(|directory| self.sync_directory(directory));
            self.remove_journals();
        }
    }

    fn sync(&mut self, batch: &mut [Item]) -> std::io::Result<()> {
        if !self.syncs_as_a_whole {
            return batch.iter_mut().try_for_each(|item| self.sync_alone(item));
        }
        self.record_devices(batch);
        syncfs(self.shared.tree.first())?;
        let others: Vec<u32> = self.devices.iter().map(|(_, directory)| *directory).collect();
        for directory in others {
            // A directory that is gone has no files to sync.
            if let Ok(hold) = self.holds.get(&self.shared.plan, directory) {
                syncfs(hold)?;
            }
        }
        Ok(())
    }

    /// Records filesystems that are mounted below.
    fn record_devices(&mut self, batch: &[Item]) {
        let mut last = None;
        for item in batch {
            if last.replace(item.directory) == Some(item.directory) {
                continue;
            }
            let Ok(hold) = self.holds.get(&self.shared.plan, item.directory) else { continue };
            let known = self.devices.iter().any(|(device, _)| *device == hold.device);
            if hold.device != self.shared.tree.first().device && !known {
                self.devices.insert((hold.device, item.directory));
            }
        }
    }

    /// Syncs one item, on filesystems whose `syncfs` is not known to suffice.
    fn sync_alone(&mut self, item: &mut Item) -> std::io::Result<()> {
        if let Some(whole) = &mut item.part {
            return whole.part.sync().map_err(std::io::Error::other);
        }
        if self.shared.target(item.number).is_none_or(|target| !target.is_file()) {
            return Ok(());
        }
        let hold = self.holds.get(&self.shared.plan, item.directory)?;
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(hold, temporary(self.shared.tag, item.number), flags, Mode::empty()) {
            Ok(file) => Ok(fsync(file)?),
            // Not even the file's owner may write it; root may.
            Err(Errno::ACCESS) => self.sync_by_reading(item),
            Err(error) => Err(error.into()),
        }
    }

    fn sync_by_reading(&mut self, item: &Item) -> std::io::Result<()> {
        let hold = self.holds.get(&self.shared.plan, item.directory)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&hold, temporary(self.shared.tag, item.number), flags, Mode::empty()) {
            Ok(file) => Ok(fsync(file)?),
            // The file cannot be opened at all, so sync its whole filesystem.
            Err(Errno::ACCESS) => Ok(syncfs(hold)?),
            Err(error) => Err(error.into()),
        }
    }

    fn give_name(&mut self, item: Item) -> Result<(), StepError> {
        let shared = Arc::clone(&self.shared);
        if let Some(whole) = item.part {
            let LargeFile { part, _hold: hold } = *whole;
            if let Some(target) = shared.target(item.number) {
                put_xattrs(&shared, item.number, target, &part);
            }
            let shown = part.give_final_name().map_err(|e| shared.plan.classify_part_error(&e))?;
            self.named.push((item.number, shown, hold));
            return Ok(());
        }
        let Some(target) = shared.target(item.number) else { return Ok(()) };
        let temporary = temporary(shared.tag, item.number);
        let hold = self.holds.get(&shared.plan, item.directory);
        let hold = hold.map_err(|e| shared.plan.classify_error("open the directory of", e))?;
        rename(&hold, temporary.as_ref(), &target.name).map_err(|e| {
            // Best effort: the first error is the one to report.
            _ = unlinkat(&hold, &temporary, AtFlags::empty());
            shared.plan.classify_error("rename", e)
        })
    }

    /// Discards an item that gets no name: deletes a small one's temporary file, and keeps a large one.
    fn remove(&mut self, item: Item) {
        match item.part {
            Some(whole) => _ = whole.part.close(),
            None => {
                let name = temporary(self.shared.tag, item.number);
                let hold = self.holds.get(&self.shared.plan, item.directory);
                _ = hold.and_then(|hold| unlinkat(hold, name, AtFlags::empty()));
            }
        }
    }

    /// Removes the journals of files whose names are durable.
    fn remove_journals(&mut self) {
        for (number, shown, _hold) in self.named.drain(..) {
            // The file is in place, so a journal that remains does no harm.
            if let Err(error) = shown.remove_journal() {
                self.shared.record_error(number, self.shared.plan.classify_part_error(&error));
            }
        }
    }

    fn sync_directory(&mut self, directory: u32) {
        let hold = self.holds.get(&self.shared.plan, directory);
        match hold.and_then(fsync) {
            Ok(()) | Err(Errno::INVAL) => {}
            Err(error) => {
                let error = self.shared.plan.end_of_all("sync", &error.into());
                self.shared.stop(error);
            }
        }
    }

    /// Makes the last names durable.
    fn end(mut self) {
        if self.shared.is_abandoned() {
            return;
        }
        let synced = if self.syncs_as_a_whole { self.sync(&mut []) } else { Ok(()) };
        match synced {
            Ok(()) => self.remove_journals(),
            Err(error) => self.shared.stop(self.shared.plan.end_of_all("sync", &error)),
        }
    }
}

/// Whether `syncfs` on the directory's filesystem is known to write everything and to report failures.
fn syncs_as_a_whole(shared: &LandingState) -> bool {
    thalweg_part::syncs_as_a_whole(shared.tree.first())
}
