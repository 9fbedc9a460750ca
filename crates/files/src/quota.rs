//! Quotas of directories that accept deliveries: bytes, entries, depth, and free space on the disk.
//!
//! ```text
//! a file, directory or link to come ─► take ─┬─ too much ─► counted anew, if the last count is old ─► refused
//!                                            └─ Charge ─► made: kept; not made: given back
//! ```
//!
//! The directory's content is counted at the first delivery, and deliveries are added to the count. Since other
//! programs also add and remove files, the content is counted again when the quota is used up.

use crate::beneath::shown;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, openat, statat};
use std::{
    collections::BTreeSet,
    ffi::OsStr,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use thalweg_base::space::{BLOCK, KeepFree, on_disk};
use thalweg_units::ByteSize;
use thalweg_wire::object::Failure;

/// A directory whose quota is used up is counted again after a multiple of the time that the last count took. A million
/// entries take about a second.
const PAUSE: u32 = 20;

/// The same multiple if a member removed or replaced something: counts then take at most a fifth of the time.
const PAUSE_IF_LESS: u32 = 4;

/// The longest pause between counts.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The bounds of an accepting directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes on disk, including earlier content; `None`: bounded only by [`Limits::keep_free`].
    pub max_bytes: Option<ByteSize>,
    /// The most files, directories and links. A request of 4 kB can create thousands of directories.
    pub max_entries: u64,
    /// The most nested directories. Programs that walk the tree may hold one descriptor for each level.
    pub max_depth: usize,
    /// Free space that deliveries must leave on the file system.
    pub keep_free: KeepFree,
}

impl Default for Limits {
    fn default() -> Self {
        let keep_free = KeepFree::default();
        // A home directory with source trees has some hundred thousand entries, and at most some dozens of levels.
        Self { max_bytes: None, max_entries: 1_000_000, max_depth: 100, keep_free }
    }
}

/// The quota of one accepting directory.
#[derive(Debug)]
pub(super) struct Quota {
    /// An absolute path without a trailing `/`.
    place: Vec<u8>,
    limits: Limits,
    used: Mutex<Used>,
}

/// The counted content of the directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Used {
    bytes: u64,
    entries: u64,
    counted: Option<Instant>,
    /// How long the last count took.
    cost: Duration,
    /// Whether a member removed or replaced something since the last count.
    is_less: bool,
}

impl Used {
    /// Whether another count may begin.
    fn may_be_counted(&self, now: Instant) -> bool {
        let pause = self.cost * if self.is_less { PAUSE_IF_LESS } else { PAUSE };
        let pause = pause.min(LONGEST_PAUSE);
        self.counted.is_none_or(|counted| now.saturating_duration_since(counted) >= pause)
    }
}

/// Room charged to the quota; given back on drop unless it is kept.
#[derive(Debug)]
#[must_use]
pub(super) struct Charge<'a> {
    quota: &'a Quota,
    bytes: u64,
    entries: u64,
}

impl Quota {
    /// Creates the quota of the accepting directory `place`.
    pub fn new(place: Vec<u8>, limits: Limits) -> Self {
        Self { place, limits, used: Mutex::default() }
    }

    /// Charges content that is about to be created on the file system of `open`, in whole blocks. May count the directory's content,
    /// which blocks on the disk.
    ///
    /// # Errors
    /// Names the bound that would be exceeded and the directory, and says that earlier content stays.
    pub fn take(&self, open: impl AsFd, bytes: u64, entries: u64) -> Result<Charge<'_>, Failure> {
        self.take_at(open, bytes, entries, Instant::now())
    }

    fn take_at(
        &self,
        open: impl AsFd,
        bytes: u64,
        entries: u64,
        now: Instant,
    ) -> Result<Charge<'_>, Failure> {
        if (bytes, entries) == (0, 0) {
            return Ok(Charge { quota: self, bytes, entries });
        }
        if let Some(lack) = self.limits.keep_free.lack(open, bytes, entries) {
            return Err(self.refused(&format!(
                "the disk there is full up to what its node keeps free: {lack} (`keep_free`)"
            )));
        }
        let bytes = on_disk(bytes, entries);
        let mut used = self.lock();
        if used.counted.is_none() {
            *used = self.count(now)?;
        }
        if let Some(why) = self.exceeded(*used, bytes, entries) {
            if !used.may_be_counted(now) {
                return Err(self.refused(&why));
            }
            *used = self.count(now)?;
            if let Some(why) = self.exceeded(*used, bytes, entries) {
                return Err(self.refused(&why));
            }
        }
        used.bytes += bytes;
        used.entries += entries;
        Ok(Charge { quota: self, bytes, entries })
    }

    /// Checks a new directory that is `depth` directories below the accepting one.
    ///
    /// # Errors
    /// If it is too deep.
    pub fn check_depth(&self, depth: usize) -> Result<(), Failure> {
        let most = self.limits.max_depth;
        if depth <= most {
            return Ok(());
        }
        let why =
            format!("it would be {depth} directories deep, and {most} are allowed (`max_depth`)");
        Err(self.refused(&why))
    }

    /// Records that an entry was removed or replaced, so that a used-up quota is counted again sooner.
    pub fn removed(&self) {
        self.lock().is_less = true;
    }

    fn exceeded(&self, used: Used, bytes: u64, entries: u64) -> Option<String> {
        let most = self.limits.max_entries;
        if entries > 0 && used.entries.saturating_add(entries) > most {
            return Some(format!(
                "it has {} files and directories, and {most} are allowed (`max_entries`)",
                used.entries
            ));
        }
        let most = self.limits.max_bytes?;
        let over = bytes > 0 && used.bytes.saturating_add(bytes) > most.as_bytes();
        let has = ByteSize::from_bytes(used.bytes);
        over.then(|| format!("it has {has}, {bytes} bytes more were to come, and {most} are allowed (`max_bytes`)"))
    }

    fn refused(&self, why: &str) -> Failure {
        Failure::System(format!(
            "{} takes no more: {why}; what is stored there stays; free some there, or change the setting beside \
             that directory in `[files] accept` of its node",
            shown(&self.place)
        ))
    }

    fn count(&self, now: Instant) -> Result<Used, Failure> {
        let (mut used, began) = (Used { counted: Some(now), ..Used::default() }, Instant::now());
        let path = if self.place.is_empty() { b"/" } else { &self.place[..] };
        let path = OsStr::from_bytes(path);
        // One entry above the bound suffices to refuse.
        let most = self.limits.max_entries.saturating_add(1);
        let counted = count_below(Path::new(path), most, &mut used);
        used.cost = began.elapsed();
        counted.map(|()| used).map_err(|e| {
            let place = shown(&self.place);
            Failure::System(format!(
                "cannot count what is in {place}: {e}; nothing more is stored there"
            ))
        })
    }

    /// Counts stay consistent even if a thread panicked while it held the lock.
    fn lock(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Charge<'_> {
    /// Keeps the charge: the entry was created.
    pub fn keep(mut self) {
        (self.bytes, self.entries) = (0, 0);
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        let mut used = self.quota.lock();
        used.bytes = used.bytes.saturating_sub(self.bytes);
        used.entries = used.entries.saturating_sub(self.entries);
    }
}

/// Counts at most `most` entries below a directory. Does not follow links. Skips entries that vanish or cannot be read.
fn count_below(place: &Path, most: u64, used: &mut Used) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(place, flags, Mode::empty())?;
    let device = fstat(&root)?.st_dev;
    // Files with several names take their blocks once.
    let mut linked = BTreeSet::new();
    // Paths instead of descriptors: a deep tree has more levels than a process has descriptors.
    let mut waiting = vec![Vec::new()];
    while let Some(below) = waiting.pop() {
        let Some(directory) = beneath(&root, &below) else { continue };
        let Ok(mut names) = Dir::read_from(&directory) else { continue };
        while let Some(Ok(entry)) = names.read() {
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let Ok(found) = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            used.entries += 1;
            let is_directory = FileType::from_raw_mode(found.st_mode).is_dir();
            let has_names = !is_directory && found.st_nlink > 1;
            if !has_names || linked.insert((found.st_dev, found.st_ino)) {
                let bytes = (found.st_blocks.unsigned_abs() * 512).max(BLOCK);
                used.bytes = used.bytes.saturating_add(bytes);
            }
            if used.entries >= most {
                return Ok(());
            }
            if is_directory && found.st_dev == device {
                waiting.push([&below[..], name.to_bytes(), b"/"].concat());
            }
        }
    }
    Ok(())
}

/// The kernel accepts paths shorter than 4,096 bytes.
const AT_ONCE: usize = 4_000;

/// Opens a directory by its path `below` of any length.
fn beneath(root: &OwnedFd, below: &[u8]) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |at: &OwnedFd, path: &[u8]| {
        let path = if path.is_empty() { b"." } else { path };
        openat(at, OsStr::from_bytes(path), flags, Mode::empty()).ok()
    };
    let (mut above, mut rest): (Option<OwnedFd>, _) = (None, below);
    while rest.len() > AT_ONCE {
        let end = rest[..AT_ONCE].iter().rposition(|letter| *letter == b'/')?;
        above = Some(open(above.as_ref().unwrap_or(root), &rest[..end])?);
        rest = &rest[end + 1..];
    }
    open(above.as_ref().unwrap_or(root), rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    fn quota(place: &Path, limits: Limits) -> Quota {
        Quota::new(place.as_os_str().as_bytes().to_vec(), limits)
    }

    fn why(refused: Result<Charge<'_>, Failure>) -> String {
        refused.map(drop).unwrap_err().to_string()
    }

    #[test]
    fn existing_content_counts_and_released_charges_do_not() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("a/c"), b"c").unwrap();
        let open = File::open(dir.path()).unwrap();
        let quota = quota(dir.path(), Limits { max_entries: 5, ..Limits::default() });
        let fourth = quota.take(&open, 0, 1).unwrap();
        drop(quota.take(&open, 0, 1).unwrap());
        quota.take(&open, 0, 1).unwrap().keep();
        let said = why(quota.take(&open, 0, 1));
        assert!(
            said.contains("5 files and directories, and 5 are allowed (`max_entries`)"),
            "{said}"
        );
        assert!(said.contains(dir.path().to_str().unwrap()) && said.contains("stays"), "{said}");
        drop(fourth);
        quota.take(&open, 0, 1).unwrap().keep();
        // More bytes of an existing file are no new entry.
        quota.take(&open, 100, 0).unwrap().keep();
    }

    #[test]
    fn a_used_up_quota_is_counted_anew_after_a_while_and_sooner_if_something_went() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a");
        fs::write(&file, b"a").unwrap();
        let open = File::open(dir.path()).unwrap();
        let quota = quota(dir.path(), Limits { max_entries: 1, ..Limits::default() });
        let start = Instant::now();
        assert!(quota.take_at(&open, 0, 1, start).is_err());
        fs::remove_file(&file).unwrap();
        let cost = Duration::from_millis(10);
        quota.lock().cost = cost;
        let counted = start + cost * PAUSE;
        assert!(quota.take_at(&open, 0, 1, counted - cost).is_err());
        quota.take_at(&open, 0, 1, counted).unwrap().keep();
        quota.lock().cost = cost;
        let later = counted + cost * PAUSE_IF_LESS;
        assert!(quota.take_at(&open, 0, 1, later).is_err());
        quota.removed();
        quota.take_at(&open, 0, 1, later).unwrap().keep();
        // However long a count takes.
        quota.lock().cost = Duration::from_secs(300);
        assert!(quota.take_at(&open, 0, 1, later + LONGEST_PAUSE / 2).is_err());
        quota.take_at(&open, 0, 1, later + LONGEST_PAUSE).unwrap().keep();
    }

    #[test]
    fn entries_without_content_and_parts_of_blocks_take_whole_blocks() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("b"), b"").unwrap();
        std::os::unix::fs::symlink("b", dir.path().join("c")).unwrap();
        let open = File::open(dir.path()).unwrap();
        let max_bytes = Some(ByteSize::from_bytes(6 * BLOCK));
        let quota = quota(dir.path(), Limits { max_bytes, ..Limits::default() });
        quota.take(&open, 0, 1).unwrap().keep();
        quota.take(&open, 1, 0).unwrap().keep();
        assert!(why(quota.take(&open, BLOCK + 1, 1)).contains("`max_bytes`"));
        quota.take(&open, BLOCK, 1).unwrap().keep();
        assert!(why(quota.take(&open, 0, 1)).contains("`max_bytes`"));
    }

    #[test]
    fn a_file_with_several_names_takes_its_blocks_once() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), vec![1; 100_000]).unwrap();
        let open = File::open(dir.path().join("a")).unwrap();
        open.sync_all().unwrap();
        for name in ["b", "c"] {
            fs::hard_link(dir.path().join("a"), dir.path().join(name)).unwrap();
        }
        let limits = Limits { max_bytes: Some(ByteSize::from_bytes(200_000)), ..Limits::default() };
        let quota = quota(dir.path(), limits);
        quota.take(&open, 50_000, 1).unwrap().keep();
        assert_eq!(quota.lock().entries, 4);
    }

    #[test]
    fn deep_entries_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let mut at = File::open(dir.path()).unwrap();
        let name = "d".repeat(200);
        for _ in 0..50 {
            rustix::fs::mkdirat(&at, &*name, Mode::from_raw_mode(0o700)).unwrap();
            at = openat(&at, &*name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
                .unwrap()
                .into();
        }
        let open = File::open(dir.path()).unwrap();
        let quota = quota(dir.path(), Limits { max_entries: 50, ..Limits::default() });
        let said = why(quota.take(&open, 0, 1));
        assert!(said.contains("it has 50 files and directories"), "{said}");
    }

    #[test]
    fn bytes_depth_and_room_on_the_disk_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), vec![1; 100_000]).unwrap();
        File::open(dir.path().join("a")).unwrap().sync_all().unwrap();
        let open = File::open(dir.path()).unwrap();
        let max_bytes = Some(ByteSize::from_bytes(200_000));
        let small = quota(dir.path(), Limits { max_bytes, ..Limits::default() });
        small.take(&open, 50_000, 1).unwrap().keep();
        let said = why(small.take(&open, 90_000, 1));
        assert!(said.contains("`max_bytes`"), "{said}");
        small.check_depth(100).unwrap();
        let said = small.check_depth(101).unwrap_err().to_string();
        assert!(said.contains("101 directories deep, and 100 are allowed (`max_depth`)"), "{said}");
        let keep_free = KeepFree::Bytes(ByteSize::from_bytes(1 << 60));
        let full = quota(dir.path(), Limits { keep_free, ..Limits::default() });
        let said = why(full.take(&open, 1, 0));
        assert!(
            said.contains("the disk there is full up to") && said.contains("`keep_free`"),
            "{said}"
        );
    }
}
