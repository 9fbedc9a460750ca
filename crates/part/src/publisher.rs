//! Many parts made durable at once: one `syncfs`, then the renames.

use super::{Part, PartError, place};
use std::{
    collections::VecDeque,
    fs::File,
    io,
    os::{fd::AsFd, unix::fs::MetadataExt},
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

/// What is left to do before a part is complete: to write what is held of it.
type Work = Box<dyn FnOnce(Part) -> Result<Part, PartError> + Send>;

/// A part that is to be published.
struct Begun {
    part: Part,
    work: Option<Work>,
    length: u64,
    report: Report,
}

/// A complete part, and who waits for its publication.
struct Waiting {
    part: Part,
    report: Report,
}

type Report = oneshot::Sender<Published>;

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Begun>,
    /// A thread is publishing, and will look at the queue again.
    busy: bool,
}

/// Publishes parts in groups, so that a thousand small files cost a few syncs. Shared by all
/// downloads of a call.
///
/// A part goes at once if none is on its way; those that come meanwhile are the next group
/// (group commit). So a lone one waits for nothing, and no timer is needed. A part is reported
/// when its name is durable: where another group waits, its sync does that, too.
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
        self.queued(part, None, length).await
    }

    /// As [`publish`](Self::publish), after `work`, which makes the part complete. It is done by the
    /// thread that publishes, before it proves and syncs the part: for what takes less time than
    /// to have another thread do it. A part with digests is not for this.
    ///
    /// # Errors
    /// As [`publish`](Self::publish), or that of `work`.
    pub async fn finish(
        &self,
        part: Part,
        work: impl FnOnce(Part) -> Result<Part, PartError> + Send + 'static,
        length: u64,
    ) -> Published {
        self.queued(part, Some(Box::new(work)), length).await
    }

    async fn queued(&self, part: Part, work: Option<Work>, length: u64) -> Published {
        let lost = part.target().to_owned();
        let (report, published) = oneshot::channel();
        if self.enqueue(Begun { part, work, length, report }) {
            let queue = Arc::clone(&self.queue);
            spawn_blocking(move || publish_all(&queue));
        }
        let lost = || PartError::io("publish", &lost)(io::Error::other("the thread died"));
        published.await.unwrap_or_else(|_| Err(lost()))
    }

    /// True if nobody is at work on the queue.
    fn enqueue(&self, begun: Begun) -> bool {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.waiting.push_back(begun);
        !std::mem::replace(&mut queue.busy, true)
    }
}

/// Publishes what waits, group by group. The names that a group was given become durable by the next
/// group's sync: one sync a group. The last one's by that of their directories.
fn publish_all(queue: &Mutex<Queue>) {
    let mut named = Vec::new();
    while let Some(group) = next_group(queue, named.is_empty()) {
        let mut ready: Vec<Waiting> = group.into_iter().filter_map(Begun::prove).collect();
        let mut renamed = Vec::new();
        while let Some(first) = ready.first() {
            let device = device(&first.part);
            let of = |w: &mut Waiting| self::device(&w.part) == device;
            let these: Vec<Waiting> = ready.extract_if(.., of).collect();
            let before: Vec<Waiting> = named.extract_if(.., of).collect();
            renamed.extend(publish_together(these, before));
        }
        sync_names(named);
        named = renamed;
    }
}

/// What waits, up to a group. It may be empty if there is something `else` to do; `None` if there
/// is nothing at all: then nobody is at work any more.
fn next_group(queue: &Mutex<Queue>, idle: bool) -> Option<Vec<Begun>> {
    let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
    let n = queue.waiting.len().min(GROUP);
    queue.busy = n > 0 || !idle;
    queue.busy.then(|| queue.waiting.drain(..n).collect())
}

impl Begun {
    /// Does what is left, and proves the part. A proven one is so at once: a look at its ranges, and
    /// the attribute.
    fn prove(self) -> Option<Waiting> {
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
        let mut waiting = Waiting { part, report };
        let done = waiting.part.prove(length);
        step(waiting, done)
    }
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

/// Syncs parts of one filesystem and gives them their names; those that have them. What was given
/// its name `before` is done by that.
fn publish_together(mut group: Vec<Waiting>, before: Vec<Waiting>) -> Vec<Waiting> {
    let known = group.first().is_some_and(|w| syncs_as_a_whole(&w.part.file));
    let alone = group.len() + before.len() < TOGETHER || !known;
    let synced = if alone { Ok(()) } else { sync_filesystem(&mut group) };
    match alone || synced.is_err() {
        true => sync_names(before),
        false => before.into_iter().for_each(done),
    }
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
    shown.collect()
}

/// Makes names durable by their directories' sync.
fn sync_names(named: Vec<Waiting>) {
    let mut directories: Vec<(PathBuf, Result<(), PartError>)> = Vec::new();
    for waiting in named {
        let synced = sync_directory_once(&mut directories, &waiting.part.place.target);
        step(waiting, synced).into_iter().for_each(done);
    }
}

/// All of it is durable.
fn done(waiting: Waiting) {
    _ = waiting.report.send(waiting.part.forget_journal());
}

/// Whether the `syncfs` of a file's filesystem is known to write all to the disk and to tell of
/// failures. That of FUSE does not reach its server, that of overlayfs tells nothing of its layers.
pub fn syncs_as_a_whole(file: impl AsFd) -> bool {
    /// ext2 to ext4, XFS, Btrfs, F2FS (statfs(2)).
    const KNOWN: [u32; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010];
    rustix::fs::fstatfs(file).is_ok_and(|s| KNOWN.contains(&(s.f_type as u32)))
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
