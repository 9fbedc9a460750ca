//! Allows one collection at a time into a directory, and stores its durable record.
//!
//! The file `.thalweg-gather` in the directory is locked while a collection lands there, and holds its [`Job`]. It is
//! removed once everything is complete. So if one exists, an earlier session was cut off and may have left temporary
//! files.

use super::{OpenError, tree::Tree};
use rustix::{
    fs::{AtFlags, FlockOperation, Mode, OFlags, flock, fstat, openat, statat, unlinkat},
    io::Errno,
};
use std::{fs::File, io::Read, os::unix::fs::FileExt, path::Path, time::Duration};
use thalweg_base::job::Job;

const NAME: &str = ".thalweg-gather";

/// The maximum size of a record, bytes. One has some hundred bytes; the paths of many sources may be long. A longer one
/// is ignored, as if it were empty.
const MAX_RECORD: u64 = 16 << 20;

/// The lock, held while this collection is at work.
#[derive(Debug)]
pub(super) struct LandingLock {
    file: File,
    tree: Tree,
    /// The record of this collection, or of the one that it resumes.
    pub(super) job: Job,
    /// Whether an earlier session did not reach its end.
    pub(super) was_cut_off: bool,
}

impl LandingLock {
    /// Takes the lock; an error if another collection holds it.
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
            // Its previous owner may have removed the file just before releasing the lock.
            if is_there(tree, &file).map_err(refused("stat"))? {
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

    /// Checks whether the lock is free, without creating anything.
    pub(super) fn check(tree: &Tree, into: &Path) -> Result<(), OpenError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = openat(tree.first(), NAME, flags, Mode::empty()) else { return Ok(()) };
        match patiently(|| flock(&file, FlockOperation::NonBlockingLockShared)) {
            Err(Errno::WOULDBLOCK) => Err(OpenError::Locked(into.to_owned())),
            _ => Ok(()),
        }
    }

    fn write(&self) -> std::io::Result<()> {
        let text = serde_json::to_vec(&self.job)?;
        self.file.set_len(0)?;
        self.file.write_all_at(&text, 0)
    }

    /// Removes the record, because nothing is left to resume.
    pub(super) fn delete_record(&self) -> Result<(), Errno> {
        match unlinkat(self.tree.first(), NAME, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            done => done,
        }
    }
}

/// Retries for 0.5 s: a child process that another thread is just starting shares all locks until it executes its
/// program.
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

/// Reads the record. `None`: the file is new. `Some(None)`: it holds no valid record.
fn read(file: &File) -> Option<Option<Job>> {
    let mut text = Vec::new();
    // An unreadable file counts as one without a record.
    _ = file.take(MAX_RECORD).read_to_end(&mut text);
    (!text.is_empty()).then(|| serde_json::from_slice(&text).ok())
}
