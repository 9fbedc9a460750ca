//! Files that are whole at every moment, also after a power loss.

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

/// Replaces `file` by one of mode 0600 with these bytes: written beside, synced, renamed.
///
/// # Errors
/// The system's; then the file is as it was, or the new one whose name may not
/// outlive a power loss.
pub fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = beside(file, ".new");
    let written = write_new(&new, bytes).and_then(|()| fs::rename(&new, file));
    if written.is_err() {
        // What is left of the attempt helps nobody; the first error is the one to tell.
        _ = fs::remove_file(&new);
    }
    written.and_then(|()| sync_directory(file))
}

/// Moves a file that cannot be used out of the way, to the name that is returned.
///
/// # Errors
/// The system's.
pub fn set_aside(file: &Path) -> io::Result<PathBuf> {
    let aside = beside(file, ".damaged");
    fs::rename(file, &aside)?;
    sync_directory(file).map(|()| aside)
}

/// The file's bytes, `None` if there is no file.
///
/// # Errors
/// The system's, and `FileTooLarge` beyond `max` bytes.
pub fn read(file: &Path, max: usize) -> io::Result<Option<Vec<u8>>> {
    let opened = match File::open(file) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    opened.take(max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > max { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(Some(bytes)) }
}

/// Waits for the turn among processes that replace files in the directory of `file`.
///
/// # Errors
/// The system's. The turn ends when the handle is dropped.
pub fn turn(file: &Path) -> io::Result<File> {
    let directory = File::open(directory_of(file))?;
    flock(&directory, FlockOperation::LockExclusive)?;
    Ok(directory)
}

/// The same for who has something better to do than to wait for a process that was stopped in its turn.
///
/// # Errors
/// The system's, and `TimedOut`.
pub fn turn_within(file: &Path, time: Duration) -> io::Result<File> {
    let directory = File::open(directory_of(file))?;
    let until = Instant::now() + time;
    loop {
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(directory),
            Err(Errno::WOULDBLOCK) if Instant::now() < until => sleep(ASK_AGAIN),
            Err(Errno::WOULDBLOCK) => {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("another process has had it locked for {} s", time.as_secs()),
                ));
            }
            Err(other) => return Err(other.into()),
        }
    }
}

/// A turn takes some milliseconds: a file is written and synced.
const ASK_AGAIN: Duration = Duration::from_millis(5);

/// Makes the names in the directory of `file` durable.
///
/// # Errors
/// The system's.
pub fn sync_directory(file: &Path) -> io::Result<()> {
    match File::open(directory_of(file)).and_then(|d| d.sync_all()) {
        // What network filesystems say that have no such thing (fsync(2)).
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

fn directory_of(file: &Path) -> &Path {
    file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
