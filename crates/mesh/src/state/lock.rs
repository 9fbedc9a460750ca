//! The lock of a state directory, for one process at a time.

use super::StateError;
use rustix::fs::{FlockOperation, flock};
use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Seek as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

/// Reserves the state directory for this process.
///
/// The kernel frees the lock when the process ends, however that happens; the file stays.
#[derive(Debug)]
pub struct StateLock {
    _held: File,
}

impl StateLock {
    pub(super) fn take(file: &Path) -> Result<Self, StateError> {
        let failed = |e: io::Error| StateError::io("lock", file)(e);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut held = options.open(file).map_err(failed)?;
        match flock(&held, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let dir = file.parent().unwrap_or(file).to_owned();
                return Err(StateError::Busy { dir, pid: pid(held) });
            }
            taken => taken.map_err(|e| failed(e.into()))?,
        }
        // The id is for people; the lock holds without it.
        let written = held.set_len(0).and_then(|()| held.rewind());
        written.and_then(|()| writeln!(held, "{}", std::process::id())).map_err(failed)?;
        Ok(Self { _held: held })
    }
}

/// The process id in the file; `None` while its owner is just writing it.
fn pid(file: File) -> Option<u32> {
    let mut text = String::new();
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
