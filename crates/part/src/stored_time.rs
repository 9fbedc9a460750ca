//! Compares modification times as far as the file system can store them.
//!
//! ext3 stores whole seconds, VFAT two seconds, and most file systems have a first and a last year. So the time read
//! later may differ from the time that was set, and an exact comparison would fetch everything again each time. If the
//! difference could come from coarser storage, the file system is asked: the wanted time is set on a file without a
//! name in the same directory, and the time then read is the expected one. On a file system that stores times exactly,
//! another time means another file.

use rustix::{
    fs::{
        AtFlags, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, fstat, fstatfs, futimens, openat,
        unlinkat,
    },
    io::Errno,
};
use std::{
    collections::BTreeMap,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};
use thalweg_wire::object::FileTime;

/// The coarsest rounding of a file system: VFAT's two seconds.
const COARSEST: i64 = 2;

/// The range of times that all file systems can store: from 1980 (VFAT; others begin in 1970 or before) to 2038.
const FIRST: i64 = 315_619_200;
const LAST: i64 = i32::MAX as i64 - 86_400;

/// The magic number of VFAT (statfs(2)).
const MSDOS: i64 = 0x4d44;

/// How file systems store times, by device.
#[derive(Debug, Default)]
pub struct StoredTimes {
    /// `None`: no file can be created there.
    probes: BTreeMap<u64, Option<OwnedFd>>,
    /// No file with a name may be created, however short its life.
    is_read_only: bool,
}

impl StoredTimes {
    /// Creates an instance for callers that must change nothing. It guesses if no file without a name can be created.
    pub fn read_only() -> Self {
        Self { is_read_only: true, ..Self::default() }
    }

    /// Whether `found` is the time that the file system of this open directory stores for `wanted`.
    pub fn are_same(
        &mut self,
        directory: BorrowedFd<'_>,
        device: u64,
        wanted: FileTime,
        found: FileTime,
    ) -> bool {
        if wanted == found {
            return true;
        }
        let is_read_only = self.is_read_only;
        could_be(wanted, found) && {
            let made = || nameless(directory, !is_read_only).ok();
            match self.probes.entry(device).or_insert_with(made) {
                Some(probe) => stored(probe, wanted).is_ok_and(|stored| stored == found),
                None => guess(directory, wanted, found),
            }
        }
    }
}

/// Whether some file system could store `wanted` as `found`.
fn could_be(wanted: FileTime, found: FileTime) -> bool {
    let near = wanted.seconds().abs_diff(found.seconds()) <= COARSEST as u64;
    let is_far = |time: FileTime| !(FIRST..LAST).contains(&time.seconds());
    near || is_far(wanted) && is_far(found)
}

/// The time that the file system stores for `wanted`.
fn stored(probe: &OwnedFd, wanted: FileTime) -> Result<FileTime, Errno> {
    let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let last_modification = Timespec { tv_sec: wanted.seconds(), tv_nsec: wanted.nanos().into() };
    futimens(probe, &Timestamps { last_access, last_modification })?;
    let found = fstat(probe)?;
    Ok(FileTime::from_stat(found.st_mtime, found.st_mtime_nsec))
}

/// Creates a file without a name or, if the file system has no such files, one whose name is removed at once.
fn nameless(directory: BorrowedFd<'_>, may_be_named: bool) -> Result<OwnedFd, Errno> {
    let mode = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    match openat(directory, ".", flags | OFlags::TMPFILE, mode) {
        Err(why) if !may_be_named => Err(why),
        Err(_) => {
            let name = format!(".thalweg-time-{}", std::process::id());
            let opened = openat(directory, &name, flags | OFlags::CREATE | OFlags::EXCL, mode);
            _ = unlinkat(directory, &name, AtFlags::empty());
            opened
        }
        made => made,
    }
}

/// Guesses by the usual steps, whole seconds or VFAT's two, without asking the file system.
fn guess(directory: BorrowedFd<'_>, wanted: FileTime, found: FileTime) -> bool {
    // The type differs by architecture.
    #[allow(clippy::useless_conversion)]
    let is_vfat = fstatfs(directory.as_fd()).is_ok_and(|fs| i64::from(fs.f_type) == MSDOS);
    let step = if is_vfat { 2 } else { 1 };
    found.nanos() == 0 && found.seconds() == wanted.seconds() - wanted.seconds().rem_euclid(step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn at(seconds: i64, nanos: u32) -> FileTime {
        FileTime::new(seconds, nanos).unwrap()
    }

    #[test]
    fn on_a_file_system_with_exact_times_only_the_same_time_matches() {
        let dir = tempfile::tempdir().unwrap();
        let directory = File::open(dir.path()).unwrap();
        let mut times = StoredTimes::default();
        let wanted = at(1_700_000_001, 123_456_789);
        for (found, same) in [
            (wanted, true),
            (at(1_700_000_001, 0), false),
            (at(1_700_000_000, 0), false),
            (at(1_700_000_002, 123_456_789), false),
            (at(1_600_000_000, 0), false),
        ] {
            assert_eq!(times.are_same(directory.as_fd(), 1, wanted, found), same, "{found:?}");
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing stays");
    }

    #[test]
    fn only_differences_that_a_file_system_can_cause_are_possible() {
        for (wanted, found, could) in [
            (at(1_700_000_001, 5), at(1_700_000_000, 0), true),
            (at(1_700_000_001, 5), at(1_700_000_002, 0), true),
            (at(1_700_000_001, 5), at(1_700_000_004, 0), false),
            (at(1_700_000_001, 5), at(1_600_000_000, 0), false),
            (at(15_032_385_535, 0), at(4_294_967_295, 0), true),
            (at(-11_644_473_600, 0), at(-2_147_483_648, 0), true),
            (at(-11_644_473_600, 0), at(315_532_800, 0), true),
            (at(15_032_385_535, 0), at(1_700_000_000, 0), false),
        ] {
            assert_eq!(could_be(wanted, found), could, "{wanted:?} {found:?}");
        }
    }
}
