//! The content of an accepting directory: counted on disk, with deliveries added to the count.

use super::{Limits, real_path, refused};
use crate::root::display_path;
use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, openat, statat};
use std::{
    collections::BTreeSet,
    ffi::OsStr,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::Path,
    time::{Duration, Instant},
};
use thalweg_base::space::BLOCK;
use thalweg_units::ByteSize;
use thalweg_wire::object::Failure;

/// A directory whose quota is used up is counted again after a multiple of the time that the last count took. A million
/// entries take about a second.
pub(super) const PAUSE: u32 = 20;

/// The same multiple if a member removed or replaced something: counts then take at most a fifth of the time.
pub(super) const PAUSE_IF_LESS: u32 = 4;

/// The longest pause between counts.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Room for content on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DiskSpace {
    pub bytes: u64,
    pub entries: u64,
}

impl DiskSpace {
    /// The sum, kept at the maximum instead of overflowing.
    pub fn plus(self, other: Self) -> Self {
        let bytes = self.bytes.saturating_add(other.bytes);
        Self { bytes, entries: self.entries.saturating_add(other.entries) }
    }

    /// The difference, at least zero.
    pub fn less(self, other: Self) -> Self {
        let bytes = self.bytes.saturating_sub(other.bytes);
        Self { bytes, entries: self.entries.saturating_sub(other.entries) }
    }
}

/// The bounds on a directory's content.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub max_bytes: Option<ByteSize>,
    pub max_entries: u64,
}

impl Bounds {
    /// The part of the limits that bounds a directory.
    pub fn of(limits: &Limits) -> Self {
        Self { max_bytes: limits.max_bytes, max_entries: limits.max_entries }
    }

    /// The looser bound of each kind.
    pub fn loosest(self, other: Self) -> Self {
        let max_bytes = self.max_bytes.zip(other.max_bytes).map(|(one, other)| one.max(other));
        Self { max_bytes, max_entries: self.max_entries.max(other.max_entries) }
    }

    /// Which bound a directory with this content exceeds if this much more comes.
    fn exceeded(&self, has: DiskSpace, more: DiskSpace) -> Option<String> {
        let (all, most) = (has.plus(more), self.max_entries);
        if more.entries > 0 && all.entries > most {
            return Some(format!(
                "it has {} files and directories, and {most} are allowed (`max_entries`)",
                has.entries
            ));
        }
        let most = self.max_bytes?;
        let is_over = more.bytes > 0 && all.bytes > most.as_bytes();
        let (has, more) = (ByteSize::from_bytes(has.bytes), more.bytes);
        is_over.then(|| {
            format!(
                "it has {has}, {more} more bytes were to be stored, and {most} are allowed (`max_bytes`)"
            )
        })
    }
}

/// The count of one directory, shared by all lines of the settings that name it.
#[derive(Debug)]
pub(super) struct Tally {
    /// An absolute path without a trailing `/`.
    place: Vec<u8>,
    /// More entries are not counted.
    most: u64,
    used: Mutex<Usage>,
    /// Held while the directory is counted. Deliveries within the last count's bounds go on meanwhile.
    pub counting: Mutex<()>,
}

/// The counted content of a directory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    /// What was counted, and what was made since.
    pub settled: DiskSpace,
    /// What is about to be made; a count may not find it yet.
    pub open: DiskSpace,
    counted: Option<Instant>,
    /// How long the last count took.
    pub cost: Duration,
    /// Whether a member removed or replaced something since the last count.
    pub is_less: bool,
}

impl Usage {
    /// Whether another count may begin.
    fn may_be_counted(&self, now: Instant) -> bool {
        let pause = self.cost * if self.is_less { PAUSE_IF_LESS } else { PAUSE };
        let pause = pause.min(LONGEST_PAUSE);
        self.counted.is_none_or(|counted| now.saturating_duration_since(counted) >= pause)
    }
}

impl Tally {
    /// Creates the tally of the directory `place`, in which at most `max_entries` are allowed.
    pub fn new(place: Vec<u8>, max_entries: u64) -> Self {
        // One entry above the bound suffices to refuse.
        let most = max_entries.saturating_add(1);
        Self { place, most, used: Mutex::default(), counting: Mutex::default() }
    }

    /// Charges room for content to come. Blocks while the directory is counted, if it was never counted or is full
    /// according to the last count.
    ///
    /// # Errors
    /// Names the bound that would be exceeded and the directory.
    pub fn take(&self, room: DiskSpace, bounds: &Bounds, now: Instant) -> Result<(), Failure> {
        let exceeded = |used: &Usage| bounds.exceeded(used.settled.plus(used.open), room);
        let is_counted = |used: &Usage| used.counted.is_some() && exceeded(used).is_none();
        let mut used = self.lock();
        if !is_counted(&used) {
            drop(used);
            self.count_if_due(now)?;
            used = self.lock();
        }
        if let Some(why) = exceeded(&used) {
            return Err(refused(&self.place, &why));
        }
        used.open = used.open.plus(room);
        Ok(())
    }

    /// Keeps a charge: the content was made.
    pub fn keep(&self, room: DiskSpace) {
        let mut used = self.lock();
        used.open = used.open.less(room);
        used.settled = used.settled.plus(room);
    }

    /// Gives a charge back.
    pub fn give_back(&self, room: DiskSpace) {
        let mut used = self.lock();
        used.open = used.open.less(room);
    }

    /// Records that something was removed or replaced.
    pub fn record_removal(&self) {
        self.lock().is_less = true;
    }

    /// Counts the content, or waits until another thread has counted it.
    fn count_if_due(&self, now: Instant) -> Result<(), Failure> {
        let _turn = self.counting.lock();
        let before = {
            let mut used = self.lock();
            if !used.may_be_counted(now) {
                return Ok(());
            }
            used.is_less = false;
            used.settled
        };
        let began = Instant::now();
        let found = count_below(real_path(&self.place), self.most).map_err(|e| {
            let place = display_path(&self.place);
            Failure::System(format!(
                "cannot count what is in {place}: {e}; nothing more is stored there"
            ))
        })?;
        let mut used = self.lock();
        // The count may have missed what was made meanwhile.
        used.settled = found.plus(used.settled.less(before));
        (used.counted, used.cost) = (Some(now), began.elapsed());
        Ok(())
    }

    /// Locks the counts, for several changes at once.
    pub fn lock(&self) -> MutexGuard<'_, Usage> {
        self.used.lock()
    }
}

/// Counts at most `most` entries below a directory. Does not follow links. Skips entries that vanish or cannot be read.
fn count_below(place: &Path, most: u64) -> io::Result<DiskSpace> {
    let mut used = DiskSpace::default();
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
                return Ok(used);
            }
            if is_directory && found.st_dev == device {
                waiting.push([&below[..], name.to_bytes(), b"/"].concat());
            }
        }
    }
    Ok(used)
}

/// The longest path that is opened at once, bytes; the kernel accepts paths shorter than 4,096 bytes.
const MAX_PATH: usize = 4_000;

/// Opens a directory by its path `below` of any length.
fn beneath(root: &OwnedFd, below: &[u8]) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |at: &OwnedFd, path: &[u8]| {
        let path = if path.is_empty() { b"." } else { path };
        openat(at, OsStr::from_bytes(path), flags, Mode::empty()).ok()
    };
    let (mut above, mut rest): (Option<OwnedFd>, _) = (None, below);
    while rest.len() > MAX_PATH {
        let end = rest[..MAX_PATH].iter().rposition(|letter| *letter == b'/')?;
        above = Some(open(above.as_ref().unwrap_or(root), &rest[..end])?);
        rest = &rest[end + 1..];
    }
    open(above.as_ref().unwrap_or(root), rest)
}
