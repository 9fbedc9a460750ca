//! The file of the history: reading, locking and replacing it.

use super::{
    record::{self, DecodedHistory, MAX_BYTES},
    state::HistoryState,
};
use rustix::fs::{FlockOperation, flock};
use std::{
    fs::{DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};
use thalweg_base::durable;
use thalweg_units::WallTime;

/// How long to wait for another process, which writes for milliseconds.
const PATIENCE: Duration = Duration::from_millis(500);

/// The interval between two attempts to take the lock.
const AGAIN: Duration = Duration::from_millis(10);

/// The contents of the file.
pub(super) enum HistoryFile {
    /// A valid history; empty if there is no file.
    Valid(HistoryState),
    /// A file of a newer program, with its format number.
    Newer(u32),
    /// The file is damaged, with the reason.
    Damaged(String),
}

/// Reads the file.
///
/// # Errors
/// I/O errors, if the file exists.
pub(super) fn read(file: &Path) -> io::Result<HistoryFile> {
    let bytes = match durable::read(file, MAX_BYTES) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(HistoryFile::Valid(HistoryState::default())),
        Err(e) if e.kind() == io::ErrorKind::FileTooLarge => {
            return Ok(HistoryFile::Damaged(format!("it is longer than {MAX_BYTES} bytes")));
        }
        Err(e) => return Err(e),
    };
    Ok(match record::read(&bytes) {
        DecodedHistory::Valid(memory) => HistoryFile::Valid(memory),
        DecodedHistory::Newer(format) => HistoryFile::Newer(format),
        DecodedHistory::Damaged(why) => HistoryFile::Damaged(why),
    })
}

/// Replaces the file. The caller holds its lock.
///
/// # Errors
/// I/O errors. The file is then unchanged.
pub(super) fn write(file: &Path, memory: &HistoryState, now: WallTime) -> io::Result<()> {
    durable::replace(file, &record::write(memory, now))
}

/// Moves a damaged file aside and returns its new name; `None` if another process has replaced it with a valid one.
///
/// # Errors
/// I/O errors, or `WouldBlock` as in [`lock`].
pub(super) fn set_aside(file: &Path) -> io::Result<Option<PathBuf>> {
    let _lock = lock(file)?;
    match read(file)? {
        HistoryFile::Damaged(_) => durable::set_aside(file).map(Some),
        _ => Ok(None),
    }
}

/// Takes the lock among processes and threads. It is released when the handle is dropped.
///
/// The lock is a separate file, because the history is replaced and its directory has other users.
///
/// # Errors
/// I/O errors, or `WouldBlock` if another process held the lock for the whole wait.
pub(crate) fn lock(file: &Path) -> io::Result<File> {
    let mut name = file.as_os_str().to_owned();
    name.push(".lock");
    let directory = file.parent().filter(|p| !p.as_os_str().is_empty());
    if let Some(directory) = directory {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let mut options = OpenOptions::new();
    let lock = options.write(true).create(true).truncate(false).mode(0o600).open(name)?;
    let until = Instant::now() + PATIENCE;
    loop {
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(lock),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => thread::sleep(AGAIN),
            Err(e) => return Err(e.into()),
        }
    }
}
