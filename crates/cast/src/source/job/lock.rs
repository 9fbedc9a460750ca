//! One process at a time works at a job.

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

/// Who only looks has the lock for a moment.
const TRIES: u32 = 10;

/// Between the tries.
const BETWEEN: Duration = Duration::from_millis(20);

/// Held until this is dropped, or the process ends, on whatever way.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "it is held")] File);

impl Lock {
    /// Takes it.
    pub(super) fn take(stem: &Path) -> Result<Self, JobError> {
        let path = ending(stem, "lock");
        for _ in 0..TRIES {
            let file = open(&path).map_err(|e| failed(stem, e))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if is_there(&path, &file).map_err(|e| failed(stem, e))? => {
                    return Ok(Self(file));
                }
                // Its owner has removed it just before.
                Ok(()) => {}
                Err(Errno::WOULDBLOCK | Errno::INTR) => thread::sleep(BETWEEN),
                Err(e) => return Err(failed(stem, e.into())),
            }
        }
        Err(JobError::Running)
    }

    /// Whether somebody has it.
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
