//! Directories below the first one, open, never through a symbolic link.
//!
//! Whoever may write below the directory could put a link where a directory was; so each is
//! opened from the first one on with `RESOLVE_BENEATH` and `RESOLVE_NO_SYMLINKS`
//! (openat2(2)), and everything in it is named relative to that. Links that stay
//! inside are not followed either: two names for one directory would mix two.

use super::plan::Plan;
use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, fgetxattr, fstat, openat, openat2},
    io::Errno,
};
use std::{
    collections::VecDeque,
    ffi::OsStr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Directories that each of the threads keeps open, a descriptor each. Of more, the one used longest ago is closed,
/// and opened again when it is needed.
const KEPT: usize = 24;

/// An open directory.
#[derive(Debug)]
pub(super) struct Hold {
    descriptor: OwnedFd,
    pub(super) device: u64,
    /// New files in it get mode and group as asked: no default list of rights, no group of its own.
    pub(super) is_plain: bool,
}

impl Hold {
    fn of(descriptor: OwnedFd) -> Result<Self, Errno> {
        let found = fstat(&descriptor)?;
        let inherits = fgetxattr(&descriptor, "system.posix_acl_default", &mut [0_u8; 0]);
        let is_plain = found.st_mode & 0o2000 == 0 && inherits.is_err();
        Ok(Self { descriptor, device: found.st_dev, is_plain })
    }

    /// A path to `name` in it for those who take paths. It holds as long as this is open.
    pub(super) fn path(&self, name: &OsStr) -> PathBuf {
        self.itself().join(name)
    }

    /// Its own path of that sort.
    pub(super) fn itself(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.descriptor.as_raw_fd()).into()
    }
}

impl AsFd for Hold {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The first directory.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    first: Arc<Hold>,
}

impl Tree {
    /// Opens it; links on the way to it are the user's own choice.
    pub(super) fn open(into: &Path) -> Result<Self, Errno> {
        let descriptor = openat(CWD, into, DIRECTORY, Mode::empty())?;
        Ok(Self { first: Arc::new(Hold::of(descriptor)?) })
    }

    pub(super) fn first(&self) -> &Arc<Hold> {
        &self.first
    }

    /// The directory at a path below it.
    pub(super) fn below(&self, path: &Path) -> Result<Arc<Hold>, Errno> {
        if path.as_os_str().is_empty() {
            return Ok(Arc::clone(&self.first));
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let opened = again(|| openat2(&self.first, path, DIRECTORY, Mode::empty(), resolve))?;
        Ok(Arc::new(Hold::of(opened)?))
    }
}

/// What openat2 says when somebody renames meanwhile.
fn again<T>(mut open: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    const TRIES: usize = 16;
    let mut tries = (0..TRIES).map(|_| open());
    let first = tries.find(|done| !matches!(done, Err(Errno::AGAIN | Errno::INTR)));
    first.unwrap_or(Err(Errno::AGAIN))
}

/// Directories of a plan that one thread has open, the last used first.
#[derive(Debug)]
pub(super) struct Holds {
    tree: Tree,
    kept: VecDeque<(u32, Arc<Hold>)>,
}

impl Holds {
    pub(super) fn of(tree: &Tree) -> Self {
        Self { tree: tree.clone(), kept: VecDeque::new() }
    }

    /// The plan's directory of this number.
    pub(super) fn get(&mut self, plan: &Plan, number: u32) -> Result<Arc<Hold>, Errno> {
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
