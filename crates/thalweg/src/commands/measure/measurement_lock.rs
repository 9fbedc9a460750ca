//! A lock that lets only one command per host measure at a time: next to another command's trains, a path seems
//! narrower than it is.

use rustix::{
    fs::{FlockOperation, flock},
    io::{Errno, retry_on_intr},
};
use std::{
    fs::{File, OpenOptions},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

/// The lock file, beside the host's keys: the commands of one host share its user.
const FILE: &str = "measure.lock";

/// The lock, held until this value is dropped or the process ends in whatever way.
#[derive(Debug)]
pub struct MeasurementLock(#[expect(dead_code, reason = "it is held")] File);

impl MeasurementLock {
    /// Waits until no other command measures with this state directory; calls `waits` if another one does. `None` if
    /// the lock cannot be taken there.
    pub fn take(directory: &Path, waits: impl FnOnce()) -> Option<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(directory.join(FILE)).ok()?;
        let taken = match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {
                waits();
                retry_on_intr(|| flock(&file, FlockOperation::LockExclusive))
            }
            taken => taken,
        };
        taken.ok().map(|()| Self(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::mpsc::sync_channel, thread};

    #[test]
    fn a_second_measurement_waits_for_the_first_and_reports_it() {
        let dir = tempfile::TempDir::new().unwrap();
        let first = MeasurementLock::take(dir.path(), || panic!("nobody else measures")).unwrap();
        let (reported, waits) = sync_channel(1);
        let path = dir.path().to_owned();
        let second = thread::spawn(move || {
            MeasurementLock::take(&path, || reported.send(()).unwrap()).is_some()
        });
        waits.recv().unwrap();
        assert!(!second.is_finished());
        drop(first);
        assert!(second.join().unwrap());
        assert!(MeasurementLock::take(&dir.path().join("none"), || ()).is_none());
    }
}
