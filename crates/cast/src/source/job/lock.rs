//! A file lock: at most one process works on a job at a time.

use super::{JobError, ending, failed};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
    thread,
    time::Duration,
};

/// Attempts to take the lock; a process that checks it holds it for a moment.
const TRIES: u32 = 10;

/// The pause between attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Held until this is dropped or the process ends.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "it is held")] File);

impl Lock {
    pub(super) fn take(stem: &Path) -> Result<Self, JobError> {
        let path = ending(stem, "lock");
        for _ in 0..TRIES {
            let file = open(&path).map_err(|e| failed(stem, e))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if is_there(&path, &file).map_err(|e| failed(stem, e))? => {
                    return Ok(Self(file));
                }
                // The previous owner has just removed the file.
                Ok(()) => {}
                Err(Errno::WOULDBLOCK | Errno::INTR) => thread::sleep(PAUSE),
                Err(e) => return Err(failed(stem, e.into())),
            }
        }
        Err(JobError::Running)
    }

    /// Whether a process holds the lock.
    pub(super) fn is_held(stem: &Path) -> bool {
        let Ok(file) = File::open(ending(stem, "lock")) else { return false };
        flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}

fn is_there(path: &Path, file: &File) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(there) => Ok(there.ino() == file.metadata()?.ino()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}
