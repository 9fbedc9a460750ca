//! Quotas of directories that accept deliveries: bytes, entries, depth, and free space on the disk.
//!
//! ```text
//! a file, directory or link to come ─► take ─┬─ too much ─► counted anew, if the last count is old ─► refused
//!                                            └─ Charge ─► made: kept; not made: given back
//! ```
//!
//! The directory's content is counted at the first delivery, and deliveries are added to the count ([`tally`]). Since
//! other programs also add and remove files, the content is counted again when the quota is used up.

mod tally;

use crate::root::display_path;
use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{StatVfs, fstat, fstatvfs};
use std::{
    ffi::OsStr,
    fmt, fs, io,
    os::{
        fd::AsFd,
        unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use tally::{Bounds, DiskSpace, Tally};
use thalweg_base::space::{KeepFree, Shortage, on_disk};
use thalweg_units::ByteSize;
use thalweg_wire::object::Failure;

/// How long an answer about free space is used, together with the charges since. On a network file system each query is
/// a round trip.
const SPACE_CACHE_TIME: Duration = Duration::from_millis(100);

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

/// The quota of one line of the settings.
#[derive(Debug)]
pub(super) struct Quota {
    /// An absolute path without a trailing `/`.
    place: Vec<u8>,
    limits: Limits,
    /// The count of its directory, then those of accepting directories that contain it, with their bounds.
    tallies: Vec<(Bounds, Arc<Tally>)>,
    disk: Mutex<Option<Disk>>,
}

/// Room charged to the quota; given back on drop unless it is kept.
#[derive(Debug)]
#[must_use]
pub(super) struct QuotaCharge<'a> {
    charged: &'a [(Bounds, Arc<Tally>)],
    room: DiskSpace,
}

impl Quota {
    /// Creates the quotas of all accepting directories, by their absolute paths without a trailing `/`. Lines for the
    /// same directory share its count. Content of a nested directory is charged to the outer ones as well.
    ///
    /// # Errors
    /// If a directory cannot be opened.
    pub fn open_all(lines: &[(Vec<u8>, Limits)]) -> io::Result<Vec<Self>> {
        let sites = lines.iter().map(|(path, _)| Site::of(path)).collect::<io::Result<Vec<_>>>()?;
        let mut directories: Vec<(&Site, &[u8], Bounds)> = Vec::new();
        for ((place, limits), site) in lines.iter().zip(&sites) {
            let bounds = Bounds::of(limits);
            match directories.iter_mut().find(|(known, ..)| known.id == site.id) {
                Some((.., loosest)) => *loosest = loosest.loosest(bounds),
                None => directories.push((site, place, bounds)),
            }
        }
        let tallies = directories.into_iter().map(|(site, place, bounds)| {
            (site, bounds, Arc::new(Tally::new(place.to_vec(), bounds.max_entries)))
        });
        let tallies: Vec<_> = tallies.collect();
        let quota = |((place, limits), site): (&(Vec<u8>, Limits), &Site)| {
            let own = tallies.iter().filter(|(other, ..)| other.id == site.id);
            let own = own.map(|(_, _, tally)| (Bounds::of(limits), Arc::clone(tally)));
            let outer = tallies.iter().filter(|(other, ..)| site.is_in(other));
            let outer = outer.map(|(_, bounds, tally)| (*bounds, Arc::clone(tally)));
            let tallies = own.chain(outer).collect();
            Self { place: place.clone(), limits: *limits, tallies, disk: Mutex::default() }
        };
        Ok(lines.iter().zip(&sites).map(quota).collect())
    }

    /// Creates the quota of a single directory.
    pub fn new(place: Vec<u8>, limits: Limits) -> Self {
        let bounds = Bounds::of(&limits);
        let tally = Arc::new(Tally::new(place.clone(), bounds.max_entries));
        Self { place, limits, tallies: vec![(bounds, tally)], disk: Mutex::default() }
    }

    /// The bounds in the settings.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Charges content that is about to be created on the file system of `open`, in whole blocks. May count the
    /// directory's content, which blocks on the disk.
    ///
    /// # Errors
    /// Names the bound that would be exceeded and the directory, and says that earlier content stays.
    pub fn take(
        &self,
        open: impl AsFd,
        bytes: u64,
        entries: u64,
    ) -> Result<QuotaCharge<'_>, Failure> {
        self.take_at(open, bytes, entries, Instant::now())
    }

    fn take_at(
        &self,
        open: impl AsFd,
        bytes: u64,
        entries: u64,
        now: Instant,
    ) -> Result<QuotaCharge<'_>, Failure> {
        let room = DiskSpace { bytes: on_disk(bytes, entries), entries };
        let mut charge = QuotaCharge { charged: &[], room };
        if room == DiskSpace::default() {
            return Ok(charge);
        }
        if let Some(lack) = self.lack(open, room, now) {
            return Err(self.refused(&format!(
                "the disk there is full up to the space that its node keeps free: {lack} (`keep_free`)"
            )));
        }
        for (number, (bounds, tally)) in self.tallies.iter().enumerate() {
            tally.take(room, bounds, now)?;
            charge.charged = &self.tallies[..=number];
        }
        Ok(charge)
    }

    /// What the file system of `open` lacks for this much content.
    fn lack(&self, open: impl AsFd, room: DiskSpace, now: Instant) -> Option<Shortage> {
        let keep_free = self.limits.keep_free;
        let device = fstat(&open).ok()?.st_dev;
        let is_recent = |disk: &&mut Disk| disk.device == device && disk.is_recent(now);
        let has_room = |disk: &mut Disk| disk.lack(keep_free, room).is_none();
        if self.disk().as_mut().filter(is_recent).is_some_and(has_room) {
            return None;
        }
        // Not under the lock: a network file system may not answer.
        let found = fstatvfs(&open).ok()?;
        let mut disk = Disk { device, found, asked: now, taken: DiskSpace::default() };
        let lack = disk.lack(keep_free, room);
        *self.disk() = Some(disk);
        lack
    }

    fn disk(&self) -> MutexGuard<'_, Option<Disk>> {
        self.disk.lock()
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
    pub fn record_removal(&self) {
        self.tallies.iter().for_each(|(_, tally)| tally.record_removal());
    }

    /// Whether [`Self::record_removal`] was called since the last call.
    #[cfg(test)]
    pub fn take_removed(&self) -> bool {
        std::mem::take(&mut self.tallies[0].1.lock().is_less)
    }

    fn refused(&self, why: &str) -> Failure {
        refused(&self.place, why)
    }
}

fn refused(place: &[u8], why: &str) -> Failure {
    Failure::System(format!(
        "{} accepts no more: {why}; the stored data is kept; free some space there, or change the \
         setting in `[files]` of its node, globally or for that directory in `accept`",
        display_path(place)
    ))
}

impl QuotaCharge<'_> {
    /// Keeps the charge: the entry was created.
    pub fn keep(mut self) {
        let charged = std::mem::take(&mut self.charged);
        charged.iter().for_each(|(_, tally)| tally.keep(self.room));
    }
}

impl Drop for QuotaCharge<'_> {
    fn drop(&mut self) {
        self.charged.iter().for_each(|(_, tally)| tally.give_back(self.room));
    }
}

/// An accepting directory on disk.
struct Site {
    /// Without symbolic links.
    real: PathBuf,
    /// Device and inode.
    id: (u64, u64),
}

impl Site {
    fn of(path: &[u8]) -> io::Result<Self> {
        let real = fs::canonicalize(real_path(path))?;
        let found = fs::metadata(&real)?;
        Ok(Self { real, id: (found.dev(), found.ino()) })
    }

    /// Whether a count of `outer` includes it: counts end at other file systems.
    fn is_in(&self, outer: &Self) -> bool {
        let is_same = self.id == outer.id;
        !is_same && self.id.0 == outer.id.0 && self.real.starts_with(&outer.real)
    }
}

/// The path of a directory that is given without a trailing `/`.
fn real_path(place: &[u8]) -> &Path {
    let path = if place.is_empty() { b"/" } else { place };
    Path::new(OsStr::from_bytes(path))
}

/// The free space of a file system when it was last asked, and what was charged since.
struct Disk {
    device: u64,
    found: StatVfs,
    asked: Instant,
    taken: DiskSpace,
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("taken", &self.taken).finish_non_exhaustive()
    }
}

impl Disk {
    fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.asked) < SPACE_CACHE_TIME
    }

    /// What it lacks for this much more content; `None`: the content is added.
    fn lack(&mut self, keep_free: KeepFree, room: DiskSpace) -> Option<Shortage> {
        let taken = self.taken.plus(room);
        let lack = keep_free.shortage_in(&self.found, taken.bytes, taken.entries);
        if lack.is_none() {
            self.taken = taken;
        }
        lack
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags, openat};
    use std::fs::File;
    use tally::{LONGEST_PAUSE, PAUSE, PAUSE_IF_LESS, Usage};
    use thalweg_base::space::BLOCK;

    fn quota(place: &Path, limits: Limits) -> Quota {
        Quota::new(place.as_os_str().as_bytes().to_vec(), limits)
    }

    /// Charges the quota at a fixed time, so that nothing is counted again.
    fn take<'q>(
        quota: &'q Quota,
        open: &File,
        bytes: u64,
        entries: u64,
    ) -> Result<QuotaCharge<'q>, Failure> {
        static NOW: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
        quota.take_at(open, bytes, entries, *NOW)
    }

    fn used(quota: &Quota) -> MutexGuard<'_, Usage> {
        quota.tallies[0].1.lock()
    }

    fn why(refused: Result<QuotaCharge<'_>, Failure>) -> String {
        refused.map(drop).unwrap_err().to_string()
    }

    #[test]
    fn existing_content_counts_and_released_charges_do_not() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("a/c"), b"c").unwrap();
        let open = File::open(dir.path()).unwrap();
        let quota = quota(dir.path(), Limits { max_entries: 5, ..Limits::default() });
        let fourth = take(&quota, &open, 0, 1).unwrap();
        drop(take(&quota, &open, 0, 1).unwrap());
        take(&quota, &open, 0, 1).unwrap().keep();
        let said = why(take(&quota, &open, 0, 1));
        assert!(
            said.contains("5 files and directories, and 5 are allowed (`max_entries`)"),
            "{said}"
        );
        assert!(said.contains(dir.path().to_str().unwrap()) && said.contains("is kept"), "{said}");
        drop(fourth);
        take(&quota, &open, 0, 1).unwrap().keep();
        // More bytes of an existing file are not a new entry.
        take(&quota, &open, 100, 0).unwrap().keep();
    }

    #[test]
    fn a_used_up_quota_is_counted_again_later_and_sooner_after_removals() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a");
        fs::write(&file, b"a").unwrap();
        let open = File::open(dir.path()).unwrap();
        let quota = quota(dir.path(), Limits { max_entries: 1, ..Limits::default() });
        let start = Instant::now();
        assert!(quota.take_at(&open, 0, 1, start).is_err());
        fs::remove_file(&file).unwrap();
        let cost = Duration::from_millis(10);
        used(&quota).cost = cost;
        let counted = start + cost * PAUSE;
        assert!(quota.take_at(&open, 0, 1, counted - cost).is_err());
        quota.take_at(&open, 0, 1, counted).unwrap().keep();
        used(&quota).cost = cost;
        let later = counted + cost * PAUSE_IF_LESS;
        assert!(quota.take_at(&open, 0, 1, later).is_err());
        quota.record_removal();
        quota.take_at(&open, 0, 1, later).unwrap().keep();
        // The pause is bounded, however long a count takes.
        used(&quota).cost = Duration::from_secs(300);
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
        take(&quota, &open, 0, 1).unwrap().keep();
        take(&quota, &open, 1, 0).unwrap().keep();
        assert!(why(take(&quota, &open, BLOCK + 1, 1)).contains("`max_bytes`"));
        take(&quota, &open, BLOCK, 1).unwrap().keep();
        assert!(why(take(&quota, &open, 0, 1)).contains("`max_bytes`"));
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
        take(&quota, &open, 50_000, 1).unwrap().keep();
        assert_eq!(used(&quota).settled.entries, 4);
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
        let said = why(take(&quota, &open, 0, 1));
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
        take(&small, &open, 50_000, 1).unwrap().keep();
        let said = why(take(&small, &open, 90_000, 1));
        assert!(said.contains("`max_bytes`"), "{said}");
        small.check_depth(100).unwrap();
        let said = small.check_depth(101).unwrap_err().to_string();
        assert!(said.contains("101 directories deep, and 100 are allowed (`max_depth`)"), "{said}");
        let keep_free = KeepFree::Bytes(ByteSize::from_bytes(1 << 60));
        let full = quota(dir.path(), Limits { keep_free, ..Limits::default() });
        let said = why(take(&full, &open, 1, 0));
        assert!(
            said.contains("the disk there is full up to") && said.contains("`keep_free`"),
            "{said}"
        );
    }

    #[test]
    fn lines_of_one_directory_share_its_count_and_outer_directories_are_charged() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("inner")).unwrap();
        std::os::unix::fs::symlink("inner", dir.path().join("same")).unwrap();
        let path = |name: &str| dir.path().join(name).as_os_str().as_bytes().to_vec();
        let most = |max_entries| Limits { max_entries, ..Limits::default() };
        let outer = dir.path().as_os_str().as_bytes().to_vec();
        let lines = [(outer, most(6)), (path("inner"), most(2)), (path("same"), most(9))];
        let [outer, inner, same] = Quota::open_all(&lines).unwrap().try_into().unwrap();
        let open = File::open(dir.path()).unwrap();
        let full = |quota: &Quota| {
            let said = why(take(quota, &open, 0, 1));
            assert!(said.contains("`max_entries`"), "{said}");
            said
        };
        take(&inner, &open, 0, 1).unwrap().keep();
        take(&same, &open, 0, 1).unwrap().keep();
        assert!(full(&inner).contains("2 are allowed"));
        // The outer one has two entries of its own.
        take(&outer, &open, 0, 1).unwrap().keep();
        take(&same, &open, 0, 1).unwrap().keep();
        assert!(full(&same).contains("6 are allowed"));
        assert_eq!(used(&same).open, DiskSpace::default(), "a refused charge is given back");
        assert!(full(&outer).contains("6 are allowed"));
        fs::remove_file(dir.path().join("same")).unwrap();
    }

    #[test]
    fn free_space_is_asked_once_for_many_small_charges() {
        let dir = tempfile::tempdir().unwrap();
        let open = File::open(dir.path()).unwrap();
        let keep_free = KeepFree::Bytes(ByteSize::from_bytes(1));
        let quota = quota(dir.path(), Limits { keep_free, ..Limits::default() });
        let now = Instant::now();
        quota.take_at(&open, 0, 1, now).unwrap().keep();
        let taken = |now| {
            quota.take_at(&open, 0, 1, now).unwrap().keep();
            quota.disk().as_ref().unwrap().taken.entries
        };
        assert_eq!([taken(now), taken(now + SPACE_CACHE_TIME / 2)], [2, 3]);
        // If the charges since use up the free space, it is asked again.
        if let Some(disk) = quota.disk().as_mut() {
            (disk.found.f_frsize, disk.found.f_bavail) = (BLOCK, 3);
        }
        assert_eq!(taken(now), 1);
        assert_eq!([taken(now), taken(now + SPACE_CACHE_TIME)], [2, 1]);
    }

    #[test]
    fn a_count_does_not_block_or_forget_deliveries() {
        let dir = tempfile::tempdir().unwrap();
        let open = File::open(dir.path()).unwrap();
        let quota = quota(dir.path(), Limits { max_entries: 2, ..Limits::default() });
        let start = Instant::now();
        let first = quota.take_at(&open, 0, 1, start).unwrap();
        let counting = quota.tallies[0].1.counting.lock();
        let second = quota.take_at(&open, 0, 1, start).unwrap();
        drop(counting);
        // Neither charged entry is on the disk yet.
        let later = start + LONGEST_PAUSE;
        assert!(why(quota.take_at(&open, 0, 1, later)).contains("it has 2 files"));
        first.keep();
        drop(second);
        quota.take_at(&open, 0, 1, later).unwrap().keep();
        assert!(why(quota.take_at(&open, 0, 1, later)).contains("it has 2 files"));
    }
}
