//! Files that are complete at any time, even after a power failure.

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

/// Replaces `file` by one of mode 0600 with these bytes: writes a new file beside it, syncs it and renames it.
///
/// # Errors
/// The system's error; the file is then unchanged, or is the new one, whose name may not survive a power failure.
pub fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut new = beside(file, ".new");
    let mut written = write_new(&new, bytes);
    if written.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::InvalidFilename) {
        new = short_beside(file, ".new");
        written = write_new(&new, bytes);
    }
    let written = written.and_then(|()| fs::rename(&new, file));
    if written.is_err() {
        // Best effort: the first error is the one to report.
        _ = fs::remove_file(&new);
    }
    written.and_then(|()| sync_directory(file))
}

/// Renames an unusable file, so that it is out of the way. Returns the new name.
///
/// # Errors
/// The system's error.
pub fn set_aside(file: &Path) -> io::Result<PathBuf> {
    let aside = beside(file, ".damaged");
    fs::rename(file, &aside)?;
    sync_directory(file).map(|()| aside)
}

/// The file's bytes; `None` if there is no file.
///
/// # Errors
/// The system's error; `FileTooLarge` beyond `max` bytes.
pub fn read(file: &Path, max: usize) -> io::Result<Option<Vec<u8>>> {
    let opened = match File::open(file) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    opened.take(max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > max { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(Some(bytes)) }
}

/// Waits for the lock among processes that replace files in the directory of `file`. Dropping the handle releases it.
///
/// # Errors
/// The system's error.
pub fn lock_directory(file: &Path) -> io::Result<File> {
    let directory = File::open(directory_of(file))?;
    flock(&directory, FlockOperation::LockExclusive)?;
    Ok(directory)
}

/// Like [`lock_directory`], but waits at most for `time`, because a process may be stopped while it holds the lock.
///
/// # Errors
/// The system's error, and `TimedOut`.
pub fn lock_within(file: &Path, time: Duration) -> io::Result<File> {
    let directory = File::open(directory_of(file))?;
    let until = Instant::now() + time;
    loop {
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(directory),
            Err(Errno::WOULDBLOCK) if Instant::now() < until => sleep(RETRY_INTERVAL),
            Err(Errno::WOULDBLOCK) => {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("another process has held the lock for {} s", time.as_secs()),
                ));
            }
            Err(other) => return Err(other.into()),
        }
    }
}

/// The interval of attempts. The lock is held for some milliseconds, in which a file is written and synced.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// Makes the names in the directory of `file` durable.
///
/// # Errors
/// The system's error.
pub fn sync_directory(file: &Path) -> io::Result<()> {
    match File::open(directory_of(file)).and_then(|d| d.sync_all()) {
        // The error of network filesystems that do not support syncing a directory (fsync(2)).
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => Ok(()),
        done => done,
    }
}

fn write_new(new: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::remove_file(new) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(new)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.file_name().map(OsString::from).unwrap_or_default();
    name.push(suffix);
    file.with_file_name(name)
}

/// The same for a name of the maximum length, which is replaced by its digest.
fn short_beside(file: &Path, suffix: &str) -> PathBuf {
    let name = file.file_name().unwrap_or_default();
    let digest = blake3::hash(name.as_encoded_bytes()).to_hex();
    file.with_file_name(format!(".{}{suffix}", &digest[..16]))
}

fn directory_of(file: &Path) -> &Path {
    file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_a_name_of_maximum_length_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        for length in [1, 251, 252, 255] {
            let file = dir.join("n".repeat(length));
            for bytes in [b"1", b"2"] {
                replace(&file, bytes).unwrap();
                assert_eq!(read(&file, 9).unwrap().unwrap(), bytes, "{length}");
            }
        }
        assert_eq!(fs::read_dir(dir).unwrap().count(), 4, "nothing is left beside");
        let error = replace(&dir.join("n".repeat(256)), b"").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidFilename);
    }
}
