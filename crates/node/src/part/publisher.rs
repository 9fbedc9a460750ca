//! Many parts made durable at once: one `syncfs`, then the renames.

use super::{Part, PartError, place};
use std::{
    collections::VecDeque,
    fs::File,
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};
use tokio::{sync::oneshot, task::spawn_blocking};

/// The most parts in one group; each holds a file descriptor, and waits for the slowest.
const GROUP: usize = 256;

/// From so many parts on one `syncfs` is used instead of an `fsync` for each. It also writes what
/// others have written to the filesystem, so it is not for a few.
const TOGETHER: usize = 3;

type Published = Result<PathBuf, PartError>;

/// A complete part, and who waits for its publication.
struct Waiting {
    part: Part,
    length: u64,
    report: oneshot::Sender<Published>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// A thread is publishing, and will look at the queue again.
    busy: bool,
}

/// Publishes parts in groups, so that a thousand small files cost a few syncs. Shared by all
/// downloads of a call.
///
/// A part goes at once if none is on its way; those that come meanwhile are the next group
/// (group commit). So a lone one waits for nothing, and no timer is needed.
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
    /// Publishes `part` as [`Part::publish`] does, possibly together with others.
    ///
    /// # Errors
    /// As [`Part::publish`]. If the sync of a group fails, all its parts fail: the system does
    /// not say whose bytes were lost.
    pub async fn publish(&self, mut part: Part, length: u64) -> Published {
        let lost = part.target().to_owned();
        let lost = || PartError::io("publish", &lost)(io::Error::other("the thread died"));
        if !part.is_quickly_proven() {
            // Others shall not wait for what it still has to read.
            let proven = spawn_blocking(move || part.prove(length).map(|()| part)).await;
            part = proven.unwrap_or_else(|_| Err(lost()))?;
        }
        let (report, published) = oneshot::channel();
        if self.enqueue(Waiting { part, length, report }) {
            let queue = Arc::clone(&self.queue);
            spawn_blocking(move || while publish_group(&queue) {});
        }
        published.await.unwrap_or_else(|_| Err(lost()))
    }

    /// True if nobody is at work on the queue.
    fn enqueue(&self, waiting: Waiting) -> bool {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.waiting.push_back(waiting);
        !std::mem::replace(&mut queue.busy, true)
    }
}

/// Publishes what waits, up to a group; false if there was nothing.
fn publish_group(queue: &Mutex<Queue>) -> bool {
    let mut group: Vec<Waiting> = {
        let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
        let n = queue.waiting.len().min(GROUP);
        queue.busy = n > 0;
        queue.waiting.drain(..n).collect()
    };
    // Proven ones are so at once: a look at their ranges, and the attribute.
    let prove = |mut waiting: Waiting| {
        let done = waiting.part.prove(waiting.length);
        step(waiting, done)
    };
    group = group.into_iter().filter_map(prove).collect();
    while let Some(first) = group.first() {
        let device = device(&first.part);
        let (these, others) = group.into_iter().partition(|w| self::device(&w.part) == device);
        publish_together(these);
        group = others;
    }
    queue.lock().unwrap_or_else(PoisonError::into_inner).busy
}

/// Tells the failure of a step, if it failed; else the part goes on.
fn step(waiting: Waiting, done: Result<(), PartError>) -> Option<Waiting> {
    let Err(error) = done else { return Some(waiting) };
    // Whoever waited may be gone; the part is kept all the same.
    _ = waiting.report.send(Err(error));
    None
}

fn device(part: &Part) -> Option<u64> {
    part.file.metadata().ok().map(|m| m.dev())
}

/// Publishes parts of one filesystem.
fn publish_together(mut group: Vec<Waiting>) {
    let alone = group.len() < TOGETHER || !syncs_as_a_whole(&group);
    let synced = if alone { Ok(()) } else { sync_filesystem(&mut group) };
    let shown = group.into_iter().filter_map(|mut waiting| {
        let part = &mut waiting.part;
        let done = match &synced {
            Err(error) => Err(PartError::io("sync", &part.place.part)(again(error))),
            Ok(()) if alone => part.sync(File::sync_all),
            Ok(()) => Ok(()),
        };
        let done = done.and_then(|()| part.show());
        step(waiting, done)
    });
    let shown: Vec<Waiting> = shown.collect();
    let mut directories: Vec<(PathBuf, Result<(), PartError>)> = Vec::new();
    for waiting in shown {
        let done = sync_directory_once(&mut directories, &waiting.part.place.target);
        if let Some(Waiting { part, report, .. }) = step(waiting, done) {
            _ = report.send(part.forget_journal());
        }
    }
}

/// Whether the `syncfs` of the group's filesystem is known to write all to the disk and to tell of
/// failures. That of FUSE does not reach its server, that of overlayfs tells nothing of its layers.
fn syncs_as_a_whole(group: &[Waiting]) -> bool {
    /// ext2 to ext4, XFS, Btrfs, F2FS (statfs(2)).
    const KNOWN: [u32; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010];
    let kind = group.first().and_then(|w| rustix::fs::fstatfs(&w.part.file).ok());
    kind.is_some_and(|s| KNOWN.contains(&(s.f_type as u32)))
}

/// One `syncfs` for all. From Linux 5.8 on it reports every failed write-back since its file
/// was opened (syncfs(2)); so it is asked of the file that was opened first. Earlier ones
/// report none: there the kernel's log is the only witness.
fn sync_filesystem(group: &mut [Waiting]) -> io::Result<()> {
    let Some(first) = group.iter().min_by_key(|w| w.part.opened) else { return Ok(()) };
    let done = rustix::fs::syncfs(&first.part.file).map_err(io::Error::from);
    if done.is_err() {
        group.iter_mut().for_each(|waiting| waiting.part.poisoned = true);
    }
    done
}

/// The directory of `path`, synced once for the group.
fn sync_directory_once(
    done: &mut Vec<(PathBuf, Result<(), PartError>)>,
    path: &Path,
) -> Result<(), PartError> {
    let parent = path.parent().unwrap_or(Path::new("")).to_owned();
    if !done.iter().any(|(directory, _)| *directory == parent) {
        done.push((parent.clone(), place::sync_directory(path)));
    }
    let known = done.iter().find(|(directory, _)| *directory == parent);
    match known {
        Some((_, Err(PartError::Io { source, .. }))) => {
            Err(PartError::io("sync the directory", &parent)(again(source)))
        }
        _ => Ok(()),
    }
}

/// An error for one more part.
fn again(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}
