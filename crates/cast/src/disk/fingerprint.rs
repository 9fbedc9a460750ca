//! Detects changes of files since they were read, by their inode numbers, lengths and times of change.
//!
//! Every write to a file updates its time of last status change (ctime, inode(7)), which no system call can set back.
//! The modification time can be set to any value (utimensat(2)).

use super::{files::ObjectLocation, tree::above};
use rustix::fs::{AtFlags, statat};
use std::{
    ffi::OsStr,
    io,
    os::{fd::AsFd as _, unix::ffi::OsStrExt as _},
    time::Duration,
};
use thalweg_wire::cast::{Layout, LayoutKind};

/// The clock tick of a file system with times finer than a second: two ticks of 100 Hz.
const TICK: Duration = Duration::from_millis(20);

/// The coarsest clock tick: that of FAT.
const COARSE_TICK: Duration = Duration::from_secs(2);

/// A fingerprint of all files of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// BLAKE3 of inode numbers, modes, lengths and times.
    pub hash: [u8; 32],
    /// A second change within this time after the first may leave the times unchanged.
    pub tick: Duration,
}

/// Computes the fingerprint of all files of a layout. Content is not read.
///
/// # Errors
/// I/O errors.
pub fn fingerprint(place: &ObjectLocation, layout: &Layout) -> io::Result<Fingerprint> {
    let mut hasher = blake3::Hasher::new();
    let mut tick = TICK;
    let is_file = |kind: &LayoutKind| matches!(kind, LayoutKind::File { .. });
    for entry in layout.entries.iter().filter(|entry| is_file(&entry.kind)) {
        let path = place.path(entry.path.as_bytes());
        let (above, name) = above(place, &path)?;
        let found = statat(above.as_fd(), OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW)?;
        if found.st_ctime_nsec == 0 {
            tick = COARSE_TICK;
        }
        for number in [found.st_dev, found.st_ino, u64::from(found.st_mode)] {
            hasher.update(&number.to_be_bytes());
        }
        let times = [
            (found.st_mtime, found.st_mtime_nsec as i64),
            (found.st_ctime, found.st_ctime_nsec as i64),
        ];
        for number in [found.st_size].into_iter().chain(times.iter().flat_map(|t| [t.0, t.1])) {
            hasher.update(&number.to_be_bytes());
        }
    }
    Ok(Fingerprint { hash: hasher.finalize().into(), tick })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::open_directory;
    use std::{
        fs::{self, File, FileTimes},
        os::unix::fs::{FileExt as _, PermissionsExt as _},
        path::Path,
        sync::Arc,
        thread::sleep,
    };
    use thalweg_wire::{
        cast::LayoutEntry,
        object::{FilePath, FileTime},
    };

    fn of(dir: &Path) -> Option<[u8; 32]> {
        let entry = |path: &str, length| LayoutEntry {
            path: FilePath::new(path.into()).unwrap(),
            kind: LayoutKind::File { length },
            mode: 0o644,
            modified: FileTime::default(),
            more: None,
        };
        let layout = Layout::new(vec![entry("a", 5), entry("d/b", 5)]);
        let directory = Arc::new(open_directory(dir).unwrap());
        let place = ObjectLocation { directory, name: b"o".to_vec() };
        let found = fingerprint(&place, &layout).ok()?;
        // Waits for the next clock tick, so that the next change has another time.
        sleep(found.tick);
        Some(found.hash)
    }

    /// Changes a file and restores its modification time.
    fn quietly(file: &Path, change: impl FnOnce(&Path)) {
        let modified = fs::metadata(file).unwrap().modified().unwrap();
        change(file);
        let opened = File::options().append(true).open(file).unwrap();
        opened.set_times(FileTimes::new().set_modified(modified)).unwrap();
    }

    #[test]
    fn every_change_alters_the_fingerprint_even_if_mtime_is_restored() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("o/a"), dir.path().join("o/d/b"));
        fs::create_dir_all(dir.path().join("o/d")).unwrap();
        for file in [&a, &b] {
            fs::write(file, "12345").unwrap();
        }
        let write = |file: &Path, bytes: &[u8], at| {
            File::options().write(true).open(file).unwrap().write_all_at(bytes, at).unwrap();
        };
        type Change<'a> = (&'a str, Box<dyn Fn() + 'a>);
        let changes: [Change<'_>; 9] = [
            ("a byte", Box::new(|| quietly(&a, |file| write(file, b"x", 2)))),
            ("the same byte", Box::new(|| quietly(&a, |file| write(file, b"x", 2)))),
            ("a byte further down", Box::new(|| quietly(&b, |file| write(file, b"y", 0)))),
            ("longer", Box::new(|| quietly(&a, |file| write(file, b"z", 5)))),
            ("shorter", Box::new(|| quietly(&a, |file| fs::write(file, "1234").unwrap()))),
            (
                "another file",
                Box::new(|| {
                    quietly(&b, |file| {
                        fs::remove_file(file).unwrap();
                        fs::write(file, "12345").unwrap();
                    });
                }),
            ),
            (
                "moved over it",
                Box::new(|| {
                    fs::copy(&b, dir.path().join("c")).unwrap();
                    fs::rename(dir.path().join("c"), &b).unwrap();
                }),
            ),
            (
                "time alone",
                Box::new(|| {
                    let times = FileTimes::new().set_modified(std::time::SystemTime::UNIX_EPOCH);
                    File::options().append(true).open(&a).unwrap().set_times(times).unwrap();
                }),
            ),
            (
                "mode alone",
                Box::new(|| {
                    fs::set_permissions(&a, fs::Permissions::from_mode(0o600)).unwrap();
                }),
            ),
        ];
        let mut before = of(dir.path());
        assert_eq!(of(dir.path()), before, "who looks changes nothing");
        for (what, change) in changes {
            change();
            let after = of(dir.path());
            assert!(after.is_some() && after != before, "{what}");
            before = after;
        }
        fs::remove_file(&a).unwrap();
        assert_eq!(of(dir.path()), None);
        std::os::unix::fs::symlink("d/b", &a).unwrap();
        assert_ne!(of(dir.path()), before, "a link is not followed");
    }
}
