//! Tries a directory by a small file without a name.

use crate::checks::disk::{DirectoryFacts, WriteFault};
use rustix::{
    fs::{CWD, Mode, OFlags, fsync, openat},
    io::{Errno, write},
};
use std::{path::Path, time::Duration, time::Instant};
use thalweg_base::space::Space;

/// The size of the file that is tried, bytes: one block.
const BLOCK: usize = 4096;

/// How often it is tried.
const TRIES: usize = 3;

/// Writes and syncs a small file in `path` that never has a name, so that nothing is left behind.
pub fn try_directory(role: &str, path: &Path, comfortable: u64) -> DirectoryFacts {
    // The best of a few, so that another program's burst of writes does not count.
    let tries: Result<Vec<Duration>, Errno> = (0..TRIES).map(|_| try_write(path)).collect();
    let write = tries.map(|all| all.into_iter().min().unwrap_or_default());
    let write = write.map_err(|why| fault(why, path));
    let (role, path, space) = (role.to_owned(), path.to_owned(), Space::at(path));
    DirectoryFacts { role, path, space, write, comfortable }
}

fn try_write(path: &Path) -> Result<Duration, Errno> {
    let begun = Instant::now();
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = openat(CWD, path, flags, Mode::RUSR | Mode::WUSR)?;
    let block = [0u8; BLOCK];
    if write(&file, &block)? < BLOCK {
        return Err(Errno::NOSPC);
    }
    fsync(&file)?;
    Ok(begun.elapsed())
}

fn fault(why: Errno, path: &Path) -> WriteFault {
    match why {
        Errno::NOENT | Errno::NOTDIR => WriteFault::Absent,
        Errno::ROFS => WriteFault::ReadOnly,
        Errno::NOSPC | Errno::DQUOT => WriteFault::Full,
        Errno::ACCESS | Errno::PERM => WriteFault::Denied,
        // Kernels and file systems without O_TMPFILE see an attempt to write to a directory.
        Errno::OPNOTSUPP | Errno::ISDIR if path.is_dir() => WriteFault::Unsupported,
        other => WriteFault::Other(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_behind_and_absence_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let facts = try_directory("inbox", dir.path(), 1);
        assert!(matches!(facts.write, Ok(_) | Err(WriteFault::Unsupported)), "{facts:?}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let none = try_directory("inbox", &dir.path().join("none"), 1);
        assert_eq!(none.write, Err(WriteFault::Absent));
    }
}
