//! Opens directories below the first one, never through a symbolic link.
//!
//! Another user who may write below the directory could replace a directory by a link. So each directory is opened from
//! the first one with `RESOLVE_BENEATH` and `RESOLVE_NO_SYMLINKS` (openat2(2)), and its contents are named relative to
//! it. Links that stay inside are not followed either, because two names for one directory would mix the contents of
//! two.

use super::plan::TreePlan;
use rustix::{
    fs::{
        AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, chmodat, fgetxattr, fstat, openat,
        openat2, renameat, statat, unlinkat,
    },
    io::Errno,
    process::geteuid,
};
use std::{
    collections::VecDeque,
    ffi::OsStr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};
use thalweg_base::descriptors::path_of;

/// The maximum number of directories that each thread keeps open, one descriptor each. Beyond it the oldest is closed,
/// and reopened when needed.
const KEPT: usize = 24;

/// An open directory.
#[derive(Debug)]
pub(super) struct OpenDirectory {
    descriptor: OwnedFd,
    pub(super) device: u64,
    /// New files in it get the requested mode and the process's group: it has no default ACL and no set-group-ID bit.
    pub(super) is_plain: bool,
}

impl OpenDirectory {
    fn of(descriptor: OwnedFd) -> Result<Self, Errno> {
        let found = fstat(&descriptor)?;
        let inherits = fgetxattr(&descriptor, "system.posix_acl_default", &mut [0_u8; 0]);
        let is_plain = found.st_mode & 0o2000 == 0 && inherits.is_err();
        Ok(Self { descriptor, device: found.st_dev, is_plain })
    }

    /// A path to `name` in it, for functions that take paths. It is valid while this is open.
    pub(super) fn path(&self, name: &OsStr) -> PathBuf {
        self.own_path().join(name)
    }

    /// Such a path to the directory itself.
    pub(super) fn own_path(&self) -> PathBuf {
        path_of(&self.descriptor)
    }
}

impl AsFd for OpenDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// For lookups in a directory that may be entered but not read.
const ENTERED: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The first directory.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    first: Arc<OpenDirectory>,
}

impl Tree {
    /// Opens it. Links in the path to it are followed, because the user chose that path.
    pub(super) fn open(into: &Path) -> Result<Self, Errno> {
        let open = |flags| openat(CWD, into, flags, Mode::empty());
        let descriptor = match open(DIRECTORY) {
            Err(Errno::ACCESS) => open(ENTERED)?,
            opened => opened?,
        };
        Ok(Self { first: Arc::new(OpenDirectory::of(descriptor)?) })
    }

    /// Opens it, and gives its owner all rights until the end. Also returns its original mode if that had fewer.
    pub(super) fn open_up(into: &Path) -> Result<(Self, Option<u16>), Errno> {
        let was = allow(openat(CWD, into, ENTERED, Mode::empty())?)?;
        Ok((Self::open(into)?, was))
    }

    /// Restores its original mode.
    pub(super) fn close(&self, was: Option<u16>) {
        // If that fails, it is only accessible to its owner.
        was.into_iter().for_each(|mode| _ = give(&*self.first, mode.into()));
    }

    pub(super) fn first(&self) -> &Arc<OpenDirectory> {
        &self.first
    }

    /// Opens the directory at a path below it.
    pub(super) fn below(&self, path: &Path) -> Result<Arc<OpenDirectory>, Errno> {
        if path.as_os_str().is_empty() {
            return Ok(Arc::clone(&self.first));
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let open = |flags| again(|| openat2(&self.first, path, flags, Mode::empty(), resolve));
        let opened = match open(DIRECTORY) {
            Err(Errno::ACCESS) => open(ENTERED)?,
            opened => opened?,
        };
        Ok(Arc::new(OpenDirectory::of(opened)?))
    }
}

/// Gives the owner of a directory all rights to it, if this process runs as the owner and not as root. Returns the
/// original mode if that had fewer.
pub(super) fn allow(directory: impl AsFd) -> Result<Option<u16>, Errno> {
    let found = fstat(&directory)?;
    let user = geteuid();
    if user.is_root() || found.st_mode & 0o700 == 0o700 || found.st_uid != user.as_raw() {
        return Ok(None);
    }
    give(directory, found.st_mode & 0o7777 | 0o700)?;
    Ok(Some((found.st_mode & 0o7777) as u16))
}

/// Sets the mode of a directory, even if it is open with `O_PATH` only (open(2)).
pub(super) fn give(directory: impl AsFd, mode: u32) -> Result<(), Errno> {
    chmodat(CWD, path_of(directory), Mode::from_raw_mode(mode), AtFlags::empty())
}

/// Renames a file or link within a directory. It replaces an empty directory, as with rsync.
///
/// # Errors
/// Any system error; `ENOTEMPTY` if a directory that is not empty has the name.
pub(super) fn rename(hold: &OpenDirectory, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
    let rename = || renameat(hold, from, hold, to);
    match rename() {
        Err(Errno::ISDIR) => {
            remove_directory(hold, to)?;
            rename()
        }
        renamed => renamed,
    }
}

/// Removes an empty directory, device, socket or pipe, which a part cannot replace. If one remains, opening the part
/// fails.
pub(super) fn make_way(hold: &OpenDirectory, name: &OsStr) {
    let Ok(found) = statat(hold, name, AtFlags::SYMLINK_NOFOLLOW) else { return };
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile | FileType::Symlink => {}
        FileType::Directory => _ = remove_directory(hold, name),
        _ => _ = unlinkat(hold, name, AtFlags::empty()),
    }
}

/// Removes a directory if it is empty. Leaves other items in place.
///
/// # Errors
/// Any system error; `ENOTEMPTY` if it is not empty.
pub(super) fn remove_directory(hold: &OpenDirectory, name: &OsStr) -> Result<(), Errno> {
    match unlinkat(hold, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOTDIR | Errno::NOENT) => Ok(()),
        removed => removed,
    }
}

/// Retries openat2 while concurrent renames make it fail.
fn again<T>(mut open: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    const TRIES: usize = 16;
    let mut tries = (0..TRIES).map(|_| open());
    let first = tries.find(|done| !matches!(done, Err(Errno::AGAIN | Errno::INTR)));
    first.unwrap_or(Err(Errno::AGAIN))
}

/// Directories of a plan that one thread has open.
#[derive(Debug)]
pub(super) struct DirectoryCache {
    tree: Tree,
    kept: VecDeque<(u32, Arc<OpenDirectory>)>,
}

impl DirectoryCache {
    pub(super) fn new(tree: &Tree) -> Self {
        Self { tree: tree.clone(), kept: VecDeque::new() }
    }

    /// Opens the plan's directory of this number.
    pub(super) fn get(
        &mut self,
        plan: &TreePlan,
        number: u32,
    ) -> Result<Arc<OpenDirectory>, Errno> {
        if let Some(at) = self.kept.iter().position(|(known, _)| *known == number) {
            if at > 0 {
                self.kept.swap(0, at);
            }
            return self.kept.front().map(|(_, hold)| Arc::clone(hold)).ok_or(Errno::BADF);
        }
        plan.directories.get(number as usize).ok_or(Errno::NOENT)?;
        let hold = self.tree.below(&plan.below(number))?;
        self.kept.truncate(KEPT - 1);
        self.kept.push_front((number, Arc::clone(&hold)));
        Ok(hold)
    }
}
