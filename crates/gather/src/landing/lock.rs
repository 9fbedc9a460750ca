//! One collection at a time into a directory, and its durable record.
//!
//! The file `.thalweg-gather` in the directory is locked as long as a collection lands there, and
//! holds its [`Job`]. It is removed once all is complete; so one that is found says that the
//! session before was cut off, and may have left temporary files.

use super::{OpenError, tree::Tree};
use rustix::{
    fs::{AtFlags, FlockOperation, Mode, OFlags, flock, fstat, openat, statat, unlinkat},
    io::Errno,
};
use std::{fs::File, io::Read, os::unix::fs::FileExt, path::Path, time::Duration};
use thalweg_base::job::Job;

const NAME: &str = ".thalweg-gather";

/// A record is some hundred bytes; the paths of many sources may be long. A longer one is not
/// understood, as if there were none.
const MAX_RECORD: u64 = 16 << 20;

/// Held as long as this collection is at work.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    tree: Tree,
    /// This collection, or the one that it goes on with.
    pub(super) job: Job,
    /// A session before did not come to its end.
    pub(super) was_cut_off: bool,
}

impl Lock {
    /// Takes the lock, or says who has it.
    pub(super) fn take(tree: &Tree, into: &Path, job: Job) -> Result<Self, OpenError> {
        let refused = |what| {
            let path = into.join(NAME);
            move |e: Errno| OpenError::Io { what, path, source: e.into() }
        };
        loop {
            let file = open(tree).map_err(refused("create"))?;
            match patiently(|| flock(&file, FlockOperation::NonBlockingLockExclusive)) {
                Err(Errno::WOULDBLOCK) => return Err(OpenError::Locked(into.to_owned())),
                done => done.map_err(refused("lock"))?,
            }
            // Its owner may have removed it just before its lock was free.
            if is_there(tree, &file).map_err(refused("look at"))? {
                let earlier = read(&file);
                let was_cut_off = earlier.is_some();
                let goes_on = |old: &Job| {
                    (old.kind, &old.source, &old.target) == (job.kind, &job.source, &job.target)
                };
                let known = earlier.flatten().filter(goes_on);
                let mut lock = Self { file, tree: tree.clone(), job, was_cut_off };
                match known {
                    Some(known) => lock.job = known,
                    None => lock.write().map_err(|source| OpenError::Io {
                        what: "write",
                        path: into.join(NAME),
                        source,
                    })?,
                }
                return Ok(lock);
            }
        }
    }

    fn write(&self) -> std::io::Result<()> {
        let text = serde_json::to_vec(&self.job)?;
        self.file.set_len(0)?;
        self.file.write_all_at(&text, 0)
    }

    /// Everything is complete: nothing is to be gone on with.
    pub(super) fn forget(&self) -> Result<(), Errno> {
        match unlinkat(self.tree.first(), NAME, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            done => done,
        }
    }
}

/// A process that another thread is just starting shares all locks until it has begun.
fn patiently(mut lock: impl FnMut() -> Result<(), Errno>) -> Result<(), Errno> {
    const TRIES: u32 = 50;
    const PAUSE: Duration = Duration::from_millis(10);
    for _ in 1..TRIES {
        match lock() {
            Err(Errno::WOULDBLOCK) => std::thread::sleep(PAUSE),
            done => return done,
        }
    }
    lock()
}

fn open(tree: &Tree) -> Result<File, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    openat(tree.first(), NAME, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR).map(File::from)
}

fn is_there(tree: &Tree, file: &File) -> Result<bool, Errno> {
    let ours = fstat(file)?;
    match statat(tree.first(), NAME, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(false),
        found => found.map(|found| (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)),
    }
}

/// `None`: it is new. `Some(None)`: it holds no record.
fn read(file: &File) -> Option<Option<Job>> {
    let mut text = Vec::new();
    // What cannot be read is no record.
    _ = file.take(MAX_RECORD).read_to_end(&mut text);
    (!text.is_empty()).then(|| serde_json::from_slice(&text).ok())
}
