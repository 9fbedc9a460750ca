//! Stores files that other members send in parts: each file is written to a [`thalweg_part::Part`] until it is
//! complete.
//!
//! Existing files are replaced only if the sender requests it and the settings allow it. Written bytes survive crashes
//! of both ends; a sender asks which bytes are held, and continues.

use super::{
    Requester,
    delivery::{
        self, DirectoryId, Keys, Obstacle, PathClaims, PathKey, Protected, TemporaryNames,
        depth_of, directory_id, is_protected, metadata_of, open_up, xattr_bytes,
    },
    offer::StoreRights,
    quota::{Quota, QuotaCharge},
    root::{Root, display_path, failure, modified},
};
use parking_lot::{Mutex, MutexGuard};
use rustix::{fs::Stat, io::Errno};
use std::{
    collections::{BTreeMap, VecDeque},
    ffi::OsStr,
    fmt, mem,
    ops::Range,
    os::{fd::AsFd as _, unix::ffi::OsStrExt as _},
    path::PathBuf,
    sync::{Arc, Weak},
    thread,
    time::{Duration, SystemTime},
};
use thalweg_base::{
    descriptors::path_of,
    job::{Job, Kind as JobKind},
    space::on_disk,
};
use thalweg_part::{Batch, Part, PartError, PartKey, StoredTimes};
use thalweg_units::NodeId;
use thalweg_wire::object::{Entry, Failure, Kind, Rules, Snapshot, TransferHash, is_reserved};

/// How long, and how often, another session waits while a session that has just ended closes a file.
const CLOSE_RETRY: (Duration, u32) = (Duration::from_millis(50), 100);

/// The most remembered files that replaced others: their pieces may arrive a second time over another path.
const MAX_RECENT: usize = 256;

/// Files that are being stored.
#[derive(Debug)]
pub(super) struct Inbox {
    /// Files that are being stored in parts, by their directories and names.
    partial_file: Mutex<BTreeMap<PathKey, Weak<PartialFile>>>,
    /// The paths that deliveries are storing to.
    pub claims: PathClaims,
    /// The temporary names of deliveries.
    pub names: TemporaryNames,
    /// When this process started to accept files.
    pub since: SystemTime,
    /// The last files that replaced others, the newest first.
    recent: Mutex<VecDeque<ReplacedFile>>,
}

/// A file that is being stored, held by the sessions that write it.
pub(super) struct PartialFile {
    key: PartKey,
    above: Vec<DirectoryId>,
    work: Mutex<Stage>,
}

/// The state of a file that is being stored.
enum Stage {
    /// Nothing is open yet.
    New,
    /// The partial file is open.
    Open(Box<OpenPart>),
    /// The file is complete and has its final name.
    Done,
}

/// A partial file, and the open directory by which its paths are resolved.
struct OpenPart {
    part: Part,
    _parent: Root,
}

/// Received bytes of a file.
#[derive(Debug)]
pub(super) struct ReceivedPiece {
    pub into: Vec<u8>,
    pub entry: Entry,
    pub rules: Rules,
    pub from: u64,
    pub bytes: Vec<u8>,
    pub check: TransferHash,
}

impl fmt::Debug for PartialFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Making").field("key", &self.key).finish_non_exhaustive()
    }
}

/// A file that has replaced another file.
#[derive(Debug)]
struct ReplacedFile {
    path: Vec<u8>,
    key: PartKey,
    /// The identity of the published file; it changes when the file is changed or replaced.
    seen: Identity,
}

/// Device, inode, length, and the times of the last changes of content and inode in seconds and nanoseconds.
type Identity = (u64, u64, i64, (i64, i64), (i64, i64));

/// The path at which a file is stored.
struct Target {
    parent: Root,
    name: Vec<u8>,
    path: Vec<u8>,
    /// The identity of the path, which is the same for all paths to it.
    id: PathKey,
    snapshot: Snapshot,
    may: StoreRights,
    quota: Arc<Quota>,
    /// Whether an existing file with this name is replaced.
    replaces: bool,
}

impl Inbox {
    /// Creates the inbox of the node with this key.
    pub fn new(node: NodeId) -> Self {
        let (partial_file, claims, recent) = Default::default();
        let names = TemporaryNames::of(node);
        Self { partial_file, claims, names, since: SystemTime::now(), recent }
    }

    /// Writes a piece. Returns the file as long as it is not complete. Waits for the disk.
    pub fn store(
        &self,
        requester: &Requester,
        piece: &ReceivedPiece,
    ) -> Result<Option<Arc<PartialFile>>, Failure> {
        if *blake3::hash(&piece.bytes).as_bytes() != piece.check.0 {
            let why = "the bytes do not match their hash; send them again";
            return Err(Failure::System(why.into()));
        }
        let mut target = Target::of(requester, &piece.into, &piece.entry, Some(piece.rules))?;
        target.replaces &= piece.rules.has(Rules::REPLACE);
        let was_there = match target.replaces {
            true => self.replaced_just_now(&target, &key(requester, &target.snapshot))?,
            false => target.is_there(&piece.entry)?,
        };
        if was_there {
            return Ok(None);
        }
        let replaces = target.replaces;
        let may = target.may;
        let quota = Arc::clone(&target.quota);
        let charge = self.charge(requester, &quota, &target, piece)?;
        let partial_file = self.partial_file(requester, target, piece)?;
        let is_complete = partial_file.write(requester, piece, may)?;
        charge.keep();
        if replaces && is_complete {
            quota.record_removal();
            let target = Target::of(requester, &piece.into, &piece.entry, None)?;
            if let Some(seen) = target.identity()? {
                let key = key(requester, &target.snapshot);
                let mut recent = self.recent.lock();
                recent.truncate(MAX_RECENT - 1);
                recent.push_front(ReplacedFile { path: target.path, key, seen });
            }
        }
        Ok((!is_complete).then_some(partial_file))
    }

    /// Charges the quota for the bytes of a piece that are not stored yet. A file that does not fit is refused with its
    /// first piece. The kept bytes of an interrupted file are in the count already.
    fn charge<'q>(
        &self,
        requester: &Requester,
        quota: &'q Quota,
        target: &Target,
        piece: &ReceivedPiece,
    ) -> Result<QuotaCharge<'q>, Failure> {
        let is_live = self.lock().get(&target.id).is_some_and(|known| known.strong_count() > 0);
        // This fails if a directory has this name; opening the part reports other errors.
        let kept = self.missing(requester, target).unwrap_or_default();
        let is_sparse = piece.entry.more.as_ref().is_some_and(|more| more.holes.is_some());
        let is_begun = is_live || kept.is_some();
        let is_new = !is_begun && target.identity()?.is_none();
        let missing = kept.unwrap_or_else(|| whole(target.snapshot.size));
        let beside = if is_begun { 0 } else { xattr_bytes(&piece.entry) };
        let on_disk = |bytes| on_disk(bytes, u64::from(!is_begun)).saturating_add(beside);
        let parent = target.parent.as_fd();
        if !is_live && !is_sparse {
            let rest = missing.iter().map(|gap| gap.end - gap.start).sum();
            drop(quota.take(parent, on_disk(rest), u64::from(is_new))?);
        }
        let end = piece.from.saturating_add(piece.bytes.len() as u64);
        let new =
            missing.iter().map(|gap| gap.end.min(end).saturating_sub(gap.start.max(piece.from)));
        quota.take(parent, on_disk(new.sum()), u64::from(is_new))
    }

    /// Whether the existing file is the one that just replaced another: size and time may be the same for both.
    fn replaced_just_now(&self, target: &Target, key: &PartKey) -> Result<bool, Failure> {
        let Some(now) = target.identity()? else { return Ok(false) };
        let recent = self.recent.lock();
        let is_it =
            |file: &ReplacedFile| file.path == target.path && file.key == *key && file.seen == now;
        Ok(recent.iter().any(is_it))
    }

    /// Checks that no file with this path is being stored in parts.
    pub fn check_idle(&self, path: &[u8]) -> Result<(), Failure> {
        let id = PathKey::of(path);
        let is_live = |partial_file: &Weak<PartialFile>| partial_file.strong_count() > 0;
        let known = id.is_some_and(|id| self.lock().get(&id).is_some_and(is_live));
        if known { Err(another(path)) } else { Ok(()) }
    }

    /// Whether a file with this path is being stored.
    pub fn is_in_use(&self, path: &[u8]) -> bool {
        self.check_idle(path).is_err() || self.claims.has(path)
    }

    /// Whether a file below this path is being stored.
    pub fn is_used_below(&self, path: &[u8]) -> bool {
        let Some(directory) = directory_id(path) else { return false };
        let all: Vec<Weak<PartialFile>> = self.lock().values().cloned().collect();
        let is_made = all.iter().filter_map(Weak::upgrade).any(|m| m.above.contains(&directory));
        is_made || self.claims.has_below(path)
    }

    /// The kept bytes of an incomplete file, whatever item has its final name.
    pub fn incomplete_ranges(
        &self,
        requester: &Requester,
        into: &[u8],
        entry: &Entry,
    ) -> Result<Vec<(u64, u64)>, Failure> {
        let target = Target::of(requester, into, entry, None)?;
        self.kept_ranges(requester, &target)
    }

    /// The bytes of a file that are stored: all of them if the file exists, otherwise those of its incomplete state.
    pub fn stored_ranges(
        &self,
        requester: &Requester,
        into: &[u8],
        entry: &Entry,
    ) -> Result<Vec<(u64, u64)>, Failure> {
        let target = match Target::of(requester, into, entry, None) {
            Err(Failure::System(_)) => return Ok(Vec::new()),
            target => target?,
        };
        if target.is_there(entry)? {
            return Ok(vec![(0, target.snapshot.size)]);
        }
        self.kept_ranges(requester, &target)
    }

    fn kept_ranges(
        &self,
        requester: &Requester,
        target: &Target,
    ) -> Result<Vec<(u64, u64)>, Failure> {
        let size = target.snapshot.size;
        let missing = self.missing(requester, target)?.unwrap_or_else(|| whole(size));
        let mut held = Vec::new();
        let mut at = 0;
        for gap in missing {
            if gap.start > at {
                held.push((at, gap.start));
            }
            at = gap.end;
        }
        if at < size {
            held.push((at, size));
        }
        Ok(held)
    }

    /// The bytes that are not kept yet; `None` if nothing is kept.
    fn missing(
        &self,
        requester: &Requester,
        target: &Target,
    ) -> Result<Option<Vec<Range<u64>>>, Failure> {
        let key = key(requester, &target.snapshot);
        let known = self.lock().get(&target.id).and_then(Weak::upgrade);
        let known = known.filter(|partial_file| partial_file.key == key);
        if let Some(missing) = known.and_then(|partial_file| partial_file.missing()) {
            return Ok(Some(missing));
        }
        let kept = Part::journaled_ranges(&target.on_disk(), &key).map_err(refused)?;
        Ok(kept.map(|kept| kept.missing(target.snapshot.size)))
    }

    /// Opens the file that a piece belongs to. Only sessions that store the same file wait while it is opened.
    fn partial_file(
        &self,
        requester: &Requester,
        target: Target,
        piece: &ReceivedPiece,
    ) -> Result<Arc<PartialFile>, Failure> {
        let partial_file = self.find_or_add(&target, key(requester, &target.snapshot))?;
        let mut stage = partial_file.lock();
        if matches!(*stage, Stage::New) {
            target.make_way(requester, piece.rules)?;
            let part = open(requester, &partial_file.key, &target, piece)?;
            *stage = Stage::Open(Box::new(OpenPart { part, _parent: target.parent }));
        }
        drop(stage);
        Ok(partial_file)
    }

    /// Finds or adds the entry of a file that is being stored.
    ///
    /// # Errors
    /// If another file is being stored at this path.
    fn find_or_add(&self, target: &Target, key: PartKey) -> Result<Arc<PartialFile>, Failure> {
        let above = Keys::up_to(b"").of(&target.path).map(|key| key.directory).collect();
        let mut all = self.lock();
        if let Some(known) = all.get(&target.id).and_then(Weak::upgrade) {
            return match known.key == key {
                true => Ok(known),
                false => Err(another(&target.path)),
            };
        }
        all.retain(|_, partial_file| partial_file.strong_count() > 0);
        let partial_file = Arc::new(PartialFile { key, above, work: Mutex::new(Stage::New) });
        all.insert(target.id.clone(), Arc::downgrade(&partial_file));
        Ok(partial_file)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PathKey, Weak<PartialFile>>> {
        self.partial_file.lock()
    }
}

/// All bytes of a file, as the only range.
fn whole(size: u64) -> Vec<Range<u64>> {
    std::iter::once(0..size).collect()
}

fn another(path: &[u8]) -> Failure {
    Failure::System(format!(
        "{}: another file with this name is being stored; wait, or choose another name",
        display_path(path)
    ))
}

fn open(
    requester: &Requester,
    key: &PartKey,
    target: &Target,
    piece: &ReceivedPiece,
) -> Result<Part, Failure> {
    let attributes = metadata_of(&piece.entry, piece.rules, target.may).attributes;
    let holes = piece.entry.more.as_ref().and_then(|more| more.holes.as_ref());
    let path = target.on_disk();
    let mut tries = 0;
    loop {
        let (source, shown_path) = (requester.member.name.to_string(), display_path(&target.path));
        let job = Job::begin(JobKind::Send, source, shown_path);
        let (batch, holes) = (Batch::default(), holes.cloned());
        let opened = Part::open_sparse(&path, key.clone(), job, batch, Some(attributes), holes);
        match opened {
            Err(PartError::Busy(_)) if tries < CLOSE_RETRY.1 => {
                tries += 1;
                #[expect(clippy::disallowed_methods, reason = "a thread of the blocking pool")]
                thread::sleep(CLOSE_RETRY.0);
            }
            opened => return opened.map_err(refused),
        }
    }
}

impl PartialFile {
    /// Writes a piece. Returns true if the file is now complete and has its final name.
    fn write(
        &self,
        requester: &Requester,
        piece: &ReceivedPiece,
        may: StoreRights,
    ) -> Result<bool, Failure> {
        let mut stage = self.lock();
        let Stage::Open(work) = &mut *stage else { return Ok(true) };
        let part = &mut work.part;
        part.write_from(requester.member.name.as_str(), piece.from, &piece.bytes)
            .map_err(refused)?;
        if !part.missing().is_empty() {
            return Ok(false);
        }
        let Stage::Open(work) = mem::replace(&mut *stage, Stage::Done) else { return Ok(true) };
        let xattrs = metadata_of(&piece.entry, piece.rules, may).put_xattrs(&work.part);
        work.part.publish(0).map_err(refused)?;
        xattrs.map(|()| true).map_err(|e| Failure::System(xattr_error(e)))
    }

    /// The missing ranges; `None` if nothing is open.
    fn missing(&self) -> Option<Vec<Range<u64>>> {
        match &*self.lock() {
            Stage::New => None,
            Stage::Open(work) => Some(work.part.missing()),
            Stage::Done => Some(Vec::new()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.work.lock()
    }
}

impl OpenPart {
    fn close(self) {
        // Best effort: bytes that are lost here are requested again.
        _ = self.part.close();
    }
}

/// When the last session that wrote the file ends, the received bytes are made durable.
impl Drop for PartialFile {
    fn drop(&mut self) {
        let Stage::Open(work) = mem::replace(&mut *self.lock(), Stage::Done) else { return };
        // It is dropped on a thread of the async runtime, which must not wait for a disk.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || work.close())),
            Err(_) => work.close(),
        }
    }
}

impl Target {
    /// Opens the directory of `entry`, where `requester` must have the right to write. With `make`, missing directories
    /// above it are created, and those of the delivery are made writable, by these rules.
    fn of(
        requester: &Requester,
        into: &[u8],
        entry: &Entry,
        make: Option<Rules>,
    ) -> Result<Self, Failure> {
        let Kind::File { snapshot } = entry.kind else {
            return Err(Failure::System("only files can be stored".into()));
        };
        let below = entry.path.as_bytes();
        let into = into.strip_suffix(b"/").unwrap_or(into);
        let path = [into, b"/", below].concat();
        let (place, inside) = requester.offers().writable(&requester.member, &path)?;
        let (parents, name) = match inside.iter().rposition(|letter| *letter == b'/') {
            Some(end) => (&inside[..end], &inside[end + 1..]),
            None => (&b""[..], inside),
        };
        if name.is_empty() || is_reserved(name) {
            let why = format!("{}: a file cannot have this name here", display_path(&path));
            return Err(Failure::System(why));
        }
        let root = Root::open(&place.path)?;
        // The first directory of the delivery; the accepting directory keeps its mode.
        let above = depth_of(inside) - depth_of(below);
        let first = |rules: Rules| if rules.has(Rules::ROOT) { above.max(1) } else { above + 1 };
        let parent = directory(&root, parents, make.map(first), (&place.quota, &path))?;
        let quota = Arc::clone(&place.quota);
        let is_protected = is_protected(requester, parent.as_fd(), depth_of(parents));
        let may = StoreRights { is_protected, ..place.may };
        let replaces = may.replaces(Rules::REPLACE);
        let id = PathKey::in_directory(parent.as_fd(), name);
        let id = id.ok_or_else(|| failure(&path, Errno::NOENT))?;
        let name = name.to_vec();
        Ok(Self { parent, name, path: path.clone(), id, snapshot, may, quota, replaces })
    }

    /// The identity of the existing file; `None` if there is none.
    fn identity(&self) -> Result<Option<Identity>, Failure> {
        match self.parent.stat(&self.name) {
            Err(Errno::NOENT) => Ok(None),
            found => {
                let found = found.map_err(|e| failure(&self.path, e))?;
                let content = (found.st_mtime, found.st_mtime_nsec as i64);
                let inode = (found.st_ctime, found.st_ctime_nsec as i64);
                Ok(Some((found.st_dev, found.st_ino, found.st_size, content, inode)))
            }
        }
    }

    /// Whether the same file exists already.
    ///
    /// # Errors
    /// If another item has its name.
    fn is_there(&self, entry: &Entry) -> Result<bool, Failure> {
        let found: Stat = match self.parent.stat(&self.name) {
            Err(Errno::NOENT) => return Ok(false),
            found => found.map_err(|e| failure(&self.path, e))?,
        };
        let is_file = rustix::fs::FileType::from_raw_mode(found.st_mode).is_file();
        let parent = self.parent.as_fd().as_fd();
        let (device, time) = (found.st_dev, modified(&found));
        let same = found.st_size == self.snapshot.size as i64
            && is_file
            && StoredTimes::read_only().are_same(parent, device, entry.modified, time);
        match same {
            true => Ok(true),
            false => Err(Failure::System(format!(
                "{} exists there already with other content; it is not replaced: remove it there, \
                 or choose another name",
                display_path(&self.path)
            ))),
        }
    }

    /// Removes a directory or special file that a part cannot replace, if the rules allow it.
    fn make_way(&self, requester: &Requester, rules: Rules) -> Result<(), Failure> {
        let parent = self.parent.as_fd();
        let found = Obstacle::find(parent, &self.name).map_err(|e| failure(&self.path, e))?;
        let Some(obstacle) = found.filter(|found| !found.is_replaced_by_parts()) else {
            return Ok(());
        };
        obstacle.check_in(rules, self.may, &self.path)?;
        let end = self.path.len() - self.name.len() - 1;
        let removed = obstacle.remove(&Protected::of(requester), rules, &self.path[..end]);
        self.quota.record_removal();
        removed
    }

    /// Its path by way of the open directory's descriptor, so that links created meanwhile cannot redirect it.
    fn on_disk(&self) -> PathBuf {
        path_of(self.parent.as_fd()).join(OsStr::from_bytes(&self.name))
    }
}

/// Opens the directory at a path without links. With `make`, missing directories are created, and directories from this
/// depth on are made writable. Errors name `full_path`.
fn directory(
    root: &Root,
    path: &[u8],
    make: Option<usize>,
    (quota, full_path): (&Quota, &[u8]),
) -> Result<Root, Failure> {
    let failed = |e| failure(full_path, e);
    let mut at = root.directory(b"").map_err(failed)?;
    for (part, depth) in
        path.split(|letter| *letter == b'/').filter(|part| !part.is_empty()).zip(1..)
    {
        at = match Root::open_subdirectory(&at, part) {
            Err(Errno::NOENT) if make.is_some() => {
                delivery::make(&at, part, 0o777, (quota, depth_of(path)))?;
                Root::open_subdirectory(&at, part)
            }
            opened => opened,
        }
        .map_err(failed)?;
        if make.is_some_and(|first| depth >= first) {
            open_up(&at);
        }
    }
    Ok(at)
}

/// The error for a file whose extended attributes or access control lists could not be set.
pub(super) fn xattr_error(e: Errno) -> String {
    let e = std::io::Error::from(e);
    format!("stored without its extended attributes or access control list: {e}")
}

fn key(requester: &Requester, snapshot: &Snapshot) -> PartKey {
    PartKey::Listed { node: requester.member.name.to_string(), snapshot: *snapshot }
}

/// The failure for the sender. It does not contain paths, since those by this process's descriptors mean nothing to it.
fn refused(error: PartError) -> Failure {
    Failure::System(match error {
        PartError::DiskFull { needed, free, .. } => match free {
            Some(free) => format!("the disk there is full: {needed} more are needed, {free} free"),
            None => format!("the disk there is full: {needed} more are needed"),
        },
        PartError::NoInodes { free, .. } => {
            let free = free.map(|free| format!(", though {free} are free")).unwrap_or_default();
            format!("no inodes are left there: its file system takes no more files{free}")
        }
        PartError::Io { what, source, .. } => format!("cannot {what} it there: {source}"),
        PartError::Busy(_) => "another program there is writing this file".into(),
        PartError::PastEnd(_) => "data past the end of the file was received".into(),
        other => other.to_string(),
    })
}
