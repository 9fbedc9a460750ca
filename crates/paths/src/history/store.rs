//! The history's file: read, locked, replaced.

use super::{
    memory::Memory,
    record::{self, MAX_BYTES, Read},
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

/// How long another process is waited for: it writes for milliseconds.
const PATIENCE: Duration = Duration::from_millis(500);

/// How often the lock is tried meanwhile.
const AGAIN: Duration = Duration::from_millis(10);

/// What there is.
pub(super) enum Found {
    /// This; an empty memory if there is no file.
    Memory(Memory),
    /// A newer program's file.
    Newer(u32),
    /// A file that cannot be understood, and why.
    Damaged(String),
}

/// Reads the file.
///
/// # Errors
/// The system's, if there is a file.
pub(super) fn read(file: &Path) -> io::Result<Found> {
    let bytes = match durable::read(file, MAX_BYTES) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(Found::Memory(Memory::default())),
        Err(e) if e.kind() == io::ErrorKind::FileTooLarge => {
            return Ok(Found::Damaged(format!("it is longer than {MAX_BYTES} bytes")));
        }
        Err(e) => return Err(e),
    };
    Ok(match record::read(&bytes) {
        Read::Memory(memory) => Found::Memory(memory),
        Read::Newer(format) => Found::Newer(format),
        Read::Damaged(why) => Found::Damaged(why),
    })
}

/// Replaces the file, which has the lock.
///
/// # Errors
/// The system's; the file is then as it was.
pub(super) fn write(file: &Path, memory: &Memory, now: WallTime) -> io::Result<()> {
    durable::replace(file, &record::write(memory, now))
}

/// The damaged file's new name; `None` if it is sound by now, since another process mended it.
///
/// # Errors
/// The system's, or `WouldBlock` as [`lock`].
pub(super) fn set_aside(file: &Path) -> io::Result<Option<PathBuf>> {
    let _lock = lock(file)?;
    match read(file)? {
        Found::Damaged(_) => durable::set_aside(file).map(Some),
        _ => Ok(None),
    }
}

/// Waits for the turn among processes and threads; it ends when the handle is dropped.
///
/// A file of its own, since the history is replaced and its directory has other users.
///
/// # Errors
/// The system's, or `WouldBlock` if another has had the turn all the time.
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
