//! Deliveries: batches of files, directories and links that a member stores in an accepting directory.
//!
//! ```text
//! Delivery ─► Destination: rights, open directories ─┬ compare  ─► existing items at each path
//!                                                    ├ put      ─► temporary files ─► one sync ─► names ─► synced
//!                                                    ├ link     ─► hard links
//!                                                    ├ metadata ─► modes and times of directories
//!                                                    └ clear    ─► surplus files are removed
//! ```
//!
//! No path is followed through a symbolic link. A new directory has the mode [`UNFINISHED`] until it gets its final
//! one, so that other users cannot read content that the sender's host does not show them.

mod claims;
mod clear;
mod compare;
mod creator;
mod fidelity;
mod leftovers;
mod link;
mod metadata;
mod obstacle;
mod path_key;
mod protected;
mod put;

pub(super) use claims::PathClaims;
pub(super) use clear::clear;
pub(super) use compare::compare;
pub(super) use fidelity::{localize, localize_one, metadata_of, xattr_bytes};
pub(super) use leftovers::TemporaryNames;
pub(super) use link::link;
pub(super) use metadata::apply_metadata;
pub(super) use obstacle::Obstacle;
pub(super) use path_key::{DirectoryId, Keys, PathKey, directory_id};
pub(super) use protected::{Protected, is_protected};
pub(super) use put::put;

use super::{
    Requester,
    offer::StoreRights,
    quota::{Quota, QuotaCharge},
    root::{Root, display_path, failure},
};
use rustix::{
    fs::{Access, AtFlags, FileType, Mode, Stat, accessat, fgetxattr, fstat, mkdirat, openat},
    io::Errno,
};
use std::{
    ffi::OsStr,
    fs::{Permissions, set_permissions},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    },
    sync::Arc,
};
use thalweg_base::{descriptors::path_of, space::on_disk};
use thalweg_wire::object::{Failure, Rules, is_reserved};

/// The mode of a new directory that has not got its final mode yet. No program and no sender uses this mode, and it
/// survives a crash. The sticky bit has no effect where nobody else may enter.
const UNFINISHED: u32 = 0o1700;

/// The most directories that a delivery keeps open. Beyond it, the least recently used one is closed.
const MAX_OPEN: usize = 24;

/// The target directory of a delivery, with the rights of `requester` in it.
struct Destination<'a> {
    requester: &'a Requester,
    /// Absolute, without a last `/`.
    into: Vec<u8>,
    /// Whether `into` itself is part of the delivery.
    sends_root: bool,
    /// Open directories by their paths below `into`, the most recently used first.
    kept: Vec<(Vec<u8>, Arc<Directory>)>,
}

/// An open directory below one that accepts files.
struct Directory {
    descriptor: OwnedFd,
    /// Absolute, on this host.
    path: Vec<u8>,
    /// The accepting directory, and how many directories below it this one is.
    place: Vec<u8>,
    depth: usize,
    may: StoreRights,
    quota: Arc<Quota>,
    device: u64,
    /// Whether new files in it get the requested mode and group: it has no default access control list and no set-group
    /// bit.
    is_plain: bool,
    /// Whether it is part of the delivery, which sets its mode at the end: it is below the target, or it is the target
    /// and the target itself is sent.
    is_delivered: bool,
}

/// An existing item that is not a directory and has the name of one.
struct BlockingItem {
    /// Its parent directory.
    directory: Arc<Directory>,
    name: Vec<u8>,
    found: Stat,
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl<'a> Destination<'a> {
    /// # Errors
    /// [`Failure::NotOffered`].
    fn new(requester: &'a Requester, into: &[u8]) -> Result<Self, Failure> {
        let into = into.strip_suffix(b"/").unwrap_or(into).to_vec();
        requester.offers().writable(&requester.member, &into)?;
        Ok(Self { requester, into, sends_root: false, kept: Vec::new() })
    }

    /// Applies the rules of a delivery.
    fn with_rules(self, rules: Rules) -> Self {
        Self { sends_root: rules.has(Rules::ROOT), ..self }
    }

    /// The member's further rights in the target directory.
    fn may(&self) -> Result<StoreRights, Failure> {
        Ok(self.requester.offers().writable(&self.requester.member, &self.into)?.0.may)
    }

    /// The accepting directory's path.
    fn accepting_path(&self) -> Result<&[u8], Failure> {
        Ok(&self.requester.offers().writable(&self.requester.member, &self.into)?.0.path)
    }

    /// Splits a path into its directory and its last name. For the empty path both are empty.
    ///
    /// # Errors
    /// If the path contains a name of Thalweg's own files.
    fn split_path<'p>(&self, path: &'p [u8]) -> Result<(&'p [u8], &'p [u8]), Failure> {
        if path.split(|letter| *letter == b'/').any(is_reserved) {
            let why = "the name is reserved for Thalweg's own files and is not accepted";
            return Err(Failure::System(why.to_owned()));
        }
        Ok(match path.iter().rposition(|letter| *letter == b'/') {
            Some(end) => (&path[..end], &path[end + 1..]),
            None => (b"", path),
        })
    }

    /// Opens a directory. With `make`, creates it and missing directories above it; otherwise `None` if it does not
    /// exist.
    fn directory(&mut self, below: &[u8], make: bool) -> Result<Option<Arc<Directory>>, Failure> {
        if let Some(at) = self.kept.iter().position(|(path, _)| path == below) {
            let known = self.kept.remove(at);
            let directory = Arc::clone(&known.1);
            self.kept.insert(0, known);
            return Ok(Some(directory));
        }
        let made = make.then_some(0o777);
        let Some(directory) = self.open(below, made)?.map(Arc::new) else { return Ok(None) };
        self.kept.truncate(MAX_OPEN - 1);
        self.kept.insert(0, (below.to_vec(), Arc::clone(&directory)));
        Ok(Some(directory))
    }

    /// Opens a directory, and creates it if it does not exist.
    fn create_directory(&mut self, below: &[u8]) -> Result<Arc<Directory>, Failure> {
        let made = self.directory(below, true)?;
        made.ok_or_else(|| failure(below, Errno::NOENT))
    }

    /// Opens a directory without following links. With `made`, missing directories are created: the last one with this
    /// mode, those above it with mode 0777.
    fn open(&self, below: &[u8], made: Option<u32>) -> Result<Option<Directory>, Failure> {
        let path = self.path(below);
        let (place, inside) = self.requester.offers().writable(&self.requester.member, &path)?;
        let root = Root::open(&place.path)?;
        let failed = |e| failure(&path, e);
        let mut at = root.directory(b"").map_err(failed)?;
        let mut depth = 0;
        let deepest = depth_of(inside);
        let above = deepest - depth_of(below);
        let parts = inside.split(|letter| *letter == b'/').filter(|part| !part.is_empty());
        let mut parts = parts.peekable();
        while let Some(part) = parts.next() {
            let mut is_new = false;
            let mode = if parts.peek().is_none() { made } else { made.map(|_| 0o777) };
            at = match (at.open_subdirectory(part), mode) {
                (Err(Errno::NOENT), None) => return Ok(None),
                (Err(Errno::NOENT), Some(mode)) => {
                    is_new = make(&at, part, mode, (&place.quota, deepest))?;
                    at.open_subdirectory(part).map_err(failed)?
                }
                (opened, _) => opened.map_err(failed)?,
            };
            if is_new && mode == Some(UNFINISHED) {
                creator::record(at.as_fd(), self.requester);
            }
            depth += 1;
            let is_root = depth == above && self.sends_root;
            if made.is_some() && (depth > above || is_root) {
                open_up(&at);
            }
        }
        let descriptor = readable(&at).map_err(failed)?;
        let found = fstat(&descriptor).map_err(failed)?;
        let inherits = fgetxattr(&descriptor, "system.posix_acl_default", &mut [0_u8; 0]).is_ok();
        let is_plain = found.st_mode & 0o2000 == 0 && !inherits;
        let is_protected = is_protected(self.requester, &descriptor, depth);
        let (device, may) = (found.st_dev, StoreRights { is_protected, ..place.may });
        let (place, quota) = (place.path.clone(), Arc::clone(&place.quota));
        // The accepting directory itself keeps its mode.
        let is_delivered = !below.is_empty() || self.sends_root && depth > 0;
        Ok(Some(Directory {
            descriptor,
            path,
            place,
            depth,
            may,
            quota,
            device,
            is_plain,
            is_delivered,
        }))
    }

    /// The absolute path of a path below `into`.
    fn path(&self, below: &[u8]) -> Vec<u8> {
        if below.is_empty() { self.into.clone() } else { [&self.into[..], b"/", below].concat() }
    }

    /// Finds the obstacle on the path to a directory below `into`: its first component that is not a directory.
    fn obstacle(&mut self, below: &[u8]) -> Result<Option<BlockingItem>, Failure> {
        let ends =
            below.iter().enumerate().filter(|(_, letter)| **letter == b'/').map(|(at, _)| at);
        for end in ends.chain([below.len()]) {
            let (above, name) = self.split_path(&below[..end])?;
            let Some(directory) = self.directory(above, false)? else { return Ok(None) };
            match directory.stat(name).map_err(|e| failure(name, e))? {
                None => return Ok(None),
                Some(found) if FileType::from_raw_mode(found.st_mode).is_dir() => {}
                Some(found) => {
                    let name = name.to_vec();
                    return Ok(Some(BlockingItem { directory, name, found }));
                }
            }
        }
        Ok(None)
    }

    /// Finds the nearest existing directory at or above this one. Creates nothing.
    fn nearest(&mut self, below: &[u8]) -> Result<Option<Arc<Directory>>, Failure> {
        let mut below = below;
        loop {
            if let Some(found) = self.directory(below, false)? {
                return Ok(Some(found));
            }
            if below.is_empty() {
                return self.nearest_above();
            }
            let end = below.iter().rposition(|letter| *letter == b'/').unwrap_or(0);
            below = &below[..end];
        }
    }

    /// Finds the nearest existing directory above `into`.
    fn nearest_above(&self) -> Result<Option<Arc<Directory>>, Failure> {
        let mut into = &self.into[..];
        while let Some(end) = into.iter().rposition(|letter| *letter == b'/') {
            into = &into[..end];
            let (into, kept) = (into.to_vec(), Vec::new());
            let above = Destination { requester: self.requester, into, sends_root: false, kept };
            match above.open(b"", None) {
                Ok(Some(found)) => return Ok(Some(Arc::new(found))),
                Ok(None) => {}
                // Members get no information about directories above the accepting one.
                Err(_) => return Ok(None),
            }
        }
        Ok(None)
    }
}

impl Directory {
    /// Charges the quota for a new item of this size in place of `existing`.
    fn room_for(&self, existing: Option<&Stat>, bytes: u64) -> Result<QuotaCharge<'_>, Failure> {
        self.quota.take(self, on_disk(bytes, 1), u64::from(existing.is_none()))
    }

    /// Returns the status of the item with this name; links are not followed. `None` if there is none.
    fn stat(&self, name: &[u8]) -> Result<Option<Stat>, Errno> {
        match rustix::fs::statat(self, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Checks that this process may write to the directory. A mode of this host that forbids it is kept, except in
    /// directories of the delivery.
    fn check_writable(&self) -> Result<(), Failure> {
        match accessat(self, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS) {
            // The delivery makes it writable before it writes, as rsync does.
            Err(Errno::ACCESS) if self.is_delivered && is_own(self.as_fd()) => Ok(()),
            Err(Errno::ACCESS) => Err(read_only(&self.path)),
            done => done.map_err(|e| failure(&self.path, e)),
        }
    }
}

/// The error for a directory in which the node's user may not write.
fn read_only(path: &[u8]) -> Failure {
    Failure::System(format!(
        "{}: permission denied: the node may not write in this directory and does not change its \
         mode; change the mode there",
        display_path(path)
    ))
}

/// Makes a directory. `deepest` is the depth of the last directory to be made in it. Returns false if something has
/// this name already.
pub(super) fn make(
    above: &Root,
    name: &[u8],
    mode: u32,
    (quota, deepest): (&Quota, usize),
) -> Result<bool, Failure> {
    quota.check_depth(deepest)?;
    let charge = quota.take(above.as_fd(), 0, 1)?;
    match mkdirat(above.as_fd(), OsStr::from_bytes(name), Mode::from_raw_mode(mode)) {
        Ok(()) => {
            charge.keep();
            Ok(true)
        }
        Err(Errno::EXIST) => Ok(false),
        Err(e) => Err(failure(name, e)),
    }
}

/// The number of names in a path.
pub(super) fn depth_of(path: &[u8]) -> usize {
    path.split(|letter| *letter == b'/').filter(|name| !name.is_empty()).count()
}

/// Makes a delivered directory writable if its mode at the source forbids writing. Its mode is set again at the end.
pub(super) fn open_up(directory: &Root) {
    if rustix::process::geteuid().is_root() || !is_own(directory.as_fd().as_fd()) {
        return;
    }
    let Ok(found) = fstat(directory.as_fd()) else { return };
    if found.st_mode & 0o700 != 0o700 {
        // Best effort: a later write reports missing rights.
        _ = set_permissions(
            path_of(directory.as_fd()),
            Permissions::from_mode(found.st_mode & 0o7777 | 0o700),
        );
    }
}

fn is_own(directory: BorrowedFd<'_>) -> bool {
    fstat(directory).is_ok_and(|found| found.st_uid == rustix::process::geteuid().as_raw())
}

/// Opens a directory for syncs and listings, for which a descriptor opened with `O_PATH` does not suffice.
fn readable(directory: &Root) -> Result<OwnedFd, Errno> {
    use rustix::fs::OFlags;
    openat(
        directory.as_fd(),
        ".",
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// Checks that this member may remove something in a directory.
fn check_removal(directory: &[u8], may: StoreRights) -> Result<(), Failure> {
    if may.is_protected {
        return Err(protected_from(directory, "removals"));
    }
    match may.remove {
        true => Ok(()),
        false => Err(not_allowed(directory, "removals", "remove")),
    }
}

/// Checks that this member may replace something in a directory; `what` names the replacements.
fn check_replacement(directory: &[u8], what: &str, may: StoreRights) -> Result<(), Failure> {
    if may.is_protected {
        return Err(protected_from(directory, what));
    }
    match may.replace {
        true => Ok(()),
        false => Err(not_allowed(directory, what, "replace")),
    }
}

/// The error for a change in a directory of another service.
fn protected_from(directory: &[u8], what: &str) -> Failure {
    Failure::System(format!(
        "{} accepts no {what}: it is in an inbox of casts or in a drop box of its node; change it there",
        display_path(directory)
    ))
}

/// The error for a change that the settings do not allow.
fn not_allowed(directory: &[u8], what: &str, setting: &str) -> Failure {
    Failure::System(format!(
        "{} accepts no {what}: its node's settings do not set `{setting} = true` for that \
         directory in `[files] accept`",
        display_path(directory)
    ))
}
