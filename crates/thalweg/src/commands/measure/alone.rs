//! One command of a host measures at a time: beside another one's trains a path seems narrower than it is.

use rustix::{
    fs::{FlockOperation, flock},
    io::{Errno, retry_on_intr},
};
use std::{
    fs::{File, OpenOptions},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

/// Beside the host's keys: the same host, the same user.
const FILE: &str = "measure.lock";

/// Held until this is dropped, or the process ends, on whatever way.
#[derive(Debug)]
pub struct Alone(#[expect(dead_code, reason = "it is held")] File);

impl Alone {
    /// Waits in this state directory until no other command measures; `waits` is called if one does. `None`: nobody can be
    /// kept out there.
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
    fn the_second_one_waits_for_the_first_and_says_so() {
        let dir = tempfile::TempDir::new().unwrap();
        let first = Alone::take(dir.path(), || panic!("nobody else measures")).unwrap();
        let (said, waits) = sync_channel(1);
        let path = dir.path().to_owned();
        let second = thread::spawn(move || Alone::take(&path, || said.send(()).unwrap()).is_some());
        waits.recv().unwrap();
        assert!(!second.is_finished());
        drop(first);
        assert!(second.join().unwrap());
        assert!(Alone::take(&dir.path().join("none"), || ()).is_none());
    }
}
