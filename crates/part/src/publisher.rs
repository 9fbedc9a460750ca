//! Makes many parts durable together: one `syncfs`, then the renames.

use super::{Part, PartError, part_files};
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    fs::File,
    io,
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::{sync::oneshot, task::spawn_blocking};

/// The most parts in one group. Each holds a file descriptor and waits for the slowest.
const MAX_GROUP: usize = 256;

/// The number of parts from which one `syncfs` replaces an `fsync` for each. It also writes other programs' data on the
/// filesystem, so it does not pay for few parts.
const SYNCFS_FROM: usize = 3;

type PublishResult = Result<PathBuf, PartError>;

/// The remaining work before a part is complete: writing the bytes that are still in memory.
type Work = Box<dyn FnOnce(Part) -> Result<Part, PartError> + Send>;

/// A part to be published.
struct UnpublishedPart {
    part: Part,
    work: Option<Work>,
    length: u64,
    report: ResultSender,
}

/// A complete part, and the channel to the task that waits for its publication.
struct ProvenPart {
    part: Part,
    report: ResultSender,
}

type ResultSender = oneshot::Sender<PublishResult>;

#[derive(Default)]
struct Queue {
    waiting: VecDeque<UnpublishedPart>,
    /// A thread is publishing and will check the queue again.
    busy: bool,
}

/// Publishes parts in groups, so that a thousand small files cost only a few syncs. All downloads of a call share it.
///
/// A part is published at once if none is in progress; parts that arrive meanwhile form the next group (group commit).
/// So a single part waits for nothing, and no timer is necessary. A part is reported when its name is durable; if
/// another group waits, that group's sync makes the names durable.
#[derive(Clone, Default)]
pub struct Publisher {
    queue: Arc<Mutex<Queue>>,
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher").finish_non_exhaustive()
    }
}

impl Publisher {
    /// Publishes `part` like [`Part::publish`], possibly together with others.
    ///
    /// # Errors
    /// As [`Part::publish`]. If the sync of a group fails, all its parts fail, because the system does not report whose
    /// bytes were lost.
    pub async fn publish(&self, mut part: Part, length: u64) -> PublishResult {
        let lost = part.target().to_owned();
        let lost =
            || PartError::io("publish", &lost)(io::Error::other("the publishing thread died"));
        if !part.is_quickly_proven() {
            // Other parts should not wait while this one is read.
            let proven =
                spawn_blocking(move || part.verify_to_publish(length).map(|()| part)).await;
            part = proven.unwrap_or_else(|_| Err(lost()))?;
        }
        self.queued(part, None, length).await
    }

    /// Like [`publish`](Self::publish), after `work`, which completes the part. The publishing thread does this work
    /// before it proves and syncs the part. It is meant for work that is shorter than handing it to another thread, and
    /// for parts without digests.
    ///
    /// # Errors
    /// As [`publish`](Self::publish), or the error of `work`.
    pub async fn finish(
        &self,
        part: Part,
        work: impl FnOnce(Part) -> Result<Part, PartError> + Send + 'static,
        length: u64,
    ) -> PublishResult {
        self.queued(part, Some(Box::new(work)), length).await
    }

    async fn queued(&self, part: Part, work: Option<Work>, length: u64) -> PublishResult {
        let lost = part.target().to_owned();
        let (report, published) = oneshot::channel();
        if self.enqueue(UnpublishedPart { part, work, length, report }) {
            let queue = Arc::clone(&self.queue);
            spawn_blocking(move || publish_all(&queue));
        }
        let lost =
            || PartError::io("publish", &lost)(io::Error::other("the publishing thread died"));
        published.await.unwrap_or_else(|_| Err(lost()))
    }

    /// Appends to the queue. Returns true if no thread is working on it.
    fn enqueue(&self, begun: UnpublishedPart) -> bool {
        let mut queue = self.queue.lock();
        queue.waiting.push_back(begun);
        !std::mem::replace(&mut queue.busy, true)
    }
}

/// Publishes the queue group by group. The next group's sync makes the names of a group durable, so there is one sync
/// per group. The names of the last group are made durable by syncing their directories.
fn publish_all(queue: &Mutex<Queue>) {
    let mut named = Vec::new();
    while let Some(group) = next_group(queue, named.is_empty()) {
        let mut ready: Vec<ProvenPart> =
            group.into_iter().filter_map(UnpublishedPart::prove).collect();
        let mut renamed = Vec::new();
        while let Some(first) = ready.first() {
            let device = device(&first.part);
            let of = |w: &mut ProvenPart| self::device(&w.part) == device;
            let these: Vec<ProvenPart> = ready.extract_if(.., of).collect();
            let before: Vec<ProvenPart> = named.extract_if(.., of).collect();
            renamed.extend(publish_together(these, before));
        }
        sync_names(named);
        named = renamed;
    }
}

/// The next group from the queue, empty if it has none and is not `idle`, because names are still to be made durable.
/// `None` if there is nothing left to do; the thread then ends.
fn next_group(queue: &Mutex<Queue>, idle: bool) -> Option<Vec<UnpublishedPart>> {
    let mut queue = queue.lock();
    let n = queue.waiting.len().min(MAX_GROUP);
    queue.busy = n > 0 || !idle;
    queue.busy.then(|| queue.waiting.drain(..n).collect())
}

impl UnpublishedPart {
    /// Does the remaining work and proves the part. A part that is already proven needs only a check of its ranges and
    /// the attribute.
    fn prove(self) -> Option<ProvenPart> {
        let Self { part, work, length, report } = self;
        let worked = match work {
            Some(work) => work(part),
            None => Ok(part),
        };
        let part = match worked {
            Ok(part) => part,
            Err(error) => {
                _ = report.send(Err(error));
                return None;
            }
        };
        let mut waiting = ProvenPart { part, report };
        let done = waiting.part.verify_to_publish(length);
        step(waiting, done)
    }
}

/// Reports the failure of a step; otherwise the part continues.
fn step(waiting: ProvenPart, done: Result<(), PartError>) -> Option<ProvenPart> {
    let Err(error) = done else { return Some(waiting) };
    // The waiting task may be gone; the part is kept all the same.
    _ = waiting.report.send(Err(error));
    None
}

fn device(part: &Part) -> Option<u64> {
    part.file.metadata().ok().map(|m| m.dev())
}

/// Syncs parts of one filesystem and gives them their names. Returns the parts that have them. The sync also completes
/// the parts that got their names `before`.
fn publish_together(mut group: Vec<ProvenPart>, before: Vec<ProvenPart>) -> Vec<ProvenPart> {
    let known = group.first().is_some_and(|w| syncs_as_a_whole(&w.part.file));
    let alone = group.len() + before.len() < SYNCFS_FROM || !known;
    let synced = if alone { Ok(()) } else { sync_filesystem(&mut group) };
    match alone || synced.is_err() {
        true => sync_names(before),
        false => before.into_iter().for_each(done),
    }
    let shown = group.into_iter().filter_map(|mut waiting| {
        let part = &mut waiting.part;
        let done = match &synced {
            Err(error) => Err(PartError::io("sync", &part.files.part)(again(error))),
            Ok(()) if alone => part.sync(File::sync_all),
            Ok(()) => Ok(()),
        };
        let done = done.and_then(|()| part.give_final_name());
        step(waiting, done)
    });
    shown.collect()
}

/// Makes names durable by syncing their directories.
fn sync_names(named: Vec<ProvenPart>) {
    let mut directories: Vec<(PathBuf, Result<(), PartError>)> = Vec::new();
    for waiting in named {
        let synced = sync_directory_once(&mut directories, &waiting.part.files.target);
        step(waiting, synced).into_iter().for_each(done);
    }
}

/// Reports a part that is completely durable.
fn done(waiting: ProvenPart) {
    _ = waiting.report.send(waiting.part.remove_journal());
}

/// Whether the `syncfs` of a file's filesystem is known to write everything to the disk and to report failures. That of
/// FUSE does not reach its server, and that of overlayfs reports nothing about its layers.
pub fn syncs_as_a_whole(file: impl AsFd) -> bool {
    /// ext2 to ext4, XFS, Btrfs, F2FS (statfs(2)).
    const KNOWN: [u32; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010];
    rustix::fs::fstatfs(file).is_ok_and(|s| KNOWN.contains(&(s.f_type as u32)))
}

/// Makes one `syncfs` for all parts. From Linux 5.8 on it reports every write-back that failed since its file was
/// opened (syncfs(2)), so it is called on the file that was opened first. Earlier kernels report none; there only the
/// kernel's log does.
fn sync_filesystem(group: &mut [ProvenPart]) -> io::Result<()> {
    let Some(first) = group.iter().min_by_key(|w| w.part.opened) else { return Ok(()) };
    let done = rustix::fs::syncfs(&first.part.file).map_err(io::Error::from);
    if done.is_err() {
        group.iter_mut().for_each(|waiting| waiting.part.poisoned = true);
    }
    done
}

/// Syncs the directory of `path`, once for all its names.
fn sync_directory_once(
    done: &mut Vec<(PathBuf, Result<(), PartError>)>,
    path: &Path,
) -> Result<(), PartError> {
    let parent = path.parent().unwrap_or(Path::new("")).to_owned();
    if !done.iter().any(|(directory, _)| *directory == parent) {
        done.push((parent.clone(), part_files::sync_directory(path)));
    }
    let known = done.iter().find(|(directory, _)| *directory == parent);
    match known {
        Some((_, Err(PartError::Io { source, .. }))) => {
            Err(PartError::io("sync the directory", &parent)(again(source)))
        }
        _ => Ok(()),
    }
}

/// Copies an error for another part.
fn again(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}
