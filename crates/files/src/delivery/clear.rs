//! Removal of surplus files: names that do not exist at the source, where the settings allow removals.

use super::{Destination, check_removal, protected::Protected, read_only};
use crate::{Excludes, Requester, root::failure};
use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, openat, statat, unlinkat},
    io::Errno,
};
use std::{
    collections::BTreeSet,
    ffi::OsStr,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::ffi::OsStrExt as _,
    },
};
use thalweg_wire::object::{Failure, RemovalReport, SurplusRemoval, is_reserved};
use tokio_util::sync::CancellationToken;

/// The most removed names and the most failures in one reply: even with long names it stays within both ends' socket
/// buffers.
const MAX_NAMES: usize = 64;

/// The most nested directories, since each takes a descriptor. Deeper ones are not removed, and are reported.
const MAX_DEPTH: usize = 256;

/// Removes the surplus names in a range of a directory, or only reports them. Blocks on the disk; ends early on
/// `stop`.
///
/// # Errors
/// [`Failure`]: nothing was removed.
pub(crate) fn clear(
    requester: &Requester,
    surplus: &SurplusRemoval,
    stop: &CancellationToken,
) -> Result<RemovalReport, Failure> {
    let mut destination = Destination::new(requester, &surplus.into)?;
    let below = surplus.directory.as_bytes();
    destination.split_path(below)?;
    let excludes = Excludes::new(&surplus.exclude)?;
    // A missing directory has no surplus names.
    let found = match destination.directory(below, false) {
        // A sent directory will replace what is there, so nothing in it is surplus.
        Err(_) if !surplus.remove && destination.obstacle(below)?.is_some() => {
            return Ok(RemovalReport::default());
        }
        found => found?,
    };
    let Some(directory) = found else { return Ok(RemovalReport::default()) };
    check_removal(&directory.path, directory.may)?;
    let keep: BTreeSet<&[u8]> = surplus.keep.iter().map(Vec::as_slice).collect();
    let goes = |name: &[u8]| {
        let is_in = name > &surplus.after[..] && (surplus.to.is_empty() || name <= &surplus.to[..]);
        is_in && !keep.contains(name) && !is_reserved(name)
    };
    let (remove, protected) = (surplus.remove, &Protected::of(requester));
    let removal = Removal {
        protected,
        excludes: &excludes,
        stop,
        remove,
        above: &directory.path,
        sent: below,
        removed: RemovalReport::default(),
    };
    let removed = removal.clear(&directory, goes);
    if remove && !removed.as_ref().is_ok_and(|removed| removed.count == 0) {
        // Also after an error: part of it may be gone.
        directory.quota.record_removal();
    }
    removed.map_err(|e| failure(&directory.path, e))
}

/// Removes a directory and everything below it without following links. `path` is the absolute path of its parent. If
/// something in it is protected, nothing is removed.
///
/// # Errors
/// The protected item, or the system's error; in that case other items are already removed.
pub(super) fn remove_all(
    protected: &Protected<'_>,
    directory: impl AsFd,
    path: &[u8],
    name: &[u8],
) -> Result<(), Failure> {
    check_all(protected, &directory, path, name)?;
    each_of_all(protected, &directory, path, name, true)
}

/// Checks that [`remove_all`] would find nothing that is protected.
///
/// # Errors
/// The protected item, or the system's error.
pub(super) fn check_all(
    protected: &Protected<'_>,
    directory: impl AsFd,
    path: &[u8],
    name: &[u8],
) -> Result<(), Failure> {
    each_of_all(protected, directory, path, name, false)
}

fn each_of_all(
    protected: &Protected<'_>,
    directory: impl AsFd,
    path: &[u8],
    name: &[u8],
    remove: bool,
) -> Result<(), Failure> {
    let (excludes, stop) = (&Excludes::default(), &CancellationToken::new());
    let (removed, sent) = (RemovalReport::default(), &b""[..]);
    let mut removal = Removal { protected, excludes, stop, remove, above: path, sent, removed };
    removal.entry(directory.as_fd(), name, MAX_DEPTH);
    let Some((name, why)) = removal.removed.failed.pop() else { return Ok(()) };
    Err(Failure::System(format!("{}: {why}", crate::root::display_path(&name))))
}

/// A removal of names in a directory, with everything below them.
struct Removal<'a> {
    protected: &'a Protected<'a>,
    excludes: &'a Excludes,
    stop: &'a CancellationToken,
    /// Whether to remove; otherwise the removal only reports.
    remove: bool,
    /// The absolute path of the directory.
    above: &'a [u8],
    /// The directory's path relative to the target, as patterns see it.
    sent: &'a [u8],
    removed: RemovalReport,
}

impl Removal<'_> {
    /// Removes the names in the directory for which `goes` returns true.
    fn clear(
        mut self,
        directory: impl AsFd,
        goes: impl Fn(&[u8]) -> bool,
    ) -> Result<RemovalReport, Errno> {
        loop {
            let before = self.removed.count;
            for entry in Dir::read_from(&directory)? {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if name != b"." && name != b".." && goes(name) {
                    self.entry(directory.as_fd(), name, MAX_DEPTH);
                }
            }
            // A file system may skip names while others are removed (readdir(3p)).
            if !self.remove || self.removed.count == before || self.stop.is_cancelled() {
                return Ok(self.removed);
            }
        }
    }

    /// Removes the item at `path`, whose last name is in `directory`. Returns whether it is removed, or would be.
    fn entry(&mut self, directory: BorrowedFd<'_>, path: &[u8], deeper: usize) -> bool {
        match self.try_entry(directory, path, deeper) {
            Ok(is_gone) => is_gone,
            Err(why) => {
                self.fail(path, why);
                false
            }
        }
    }

    fn try_entry(
        &mut self,
        directory: BorrowedFd<'_>,
        path: &[u8],
        deeper: usize,
    ) -> Result<bool, Failure> {
        if self.stop.is_cancelled() {
            return Ok(false);
        }
        let named = OsStr::from_bytes(path.rsplit(|letter| *letter == b'/').next().unwrap_or(path));
        let found = match statat(directory, named, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(true),
            found => found.map_err(system)?,
        };
        let is_directory = FileType::from_raw_mode(found.st_mode).is_dir();
        let sent = if self.sent.is_empty() { path.to_vec() } else { join(self.sent, path) };
        if self.excludes.leaves_out(&sent, is_directory) {
            return Ok(false);
        }
        if is_reserved(named.as_bytes()) {
            return Err(kept("a file of Thalweg's own, for example of an unfinished transfer"));
        }
        if is_directory {
            return self.directory(directory, named, path, deeper);
        }
        if self.protected.is_in_use(&join(self.above, path)) {
            return Err(kept("a file that is being stored"));
        }
        self.unlink(directory, named, AtFlags::empty()).map_err(|e| self.not_removed(path, e))?;
        self.count(path);
        Ok(true)
    }

    fn directory(
        &mut self,
        above: BorrowedFd<'_>,
        named: &OsStr,
        path: &[u8],
        deeper: usize,
    ) -> Result<bool, Failure> {
        if deeper == 0 {
            return Err(system(Errno::NAMETOOLONG));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let inside = openat(above, named, flags, Mode::empty()).map_err(system)?;
        if self.protected.is_configured(&fstat(&inside).map_err(system)?) {
            return Err(kept_in_settings());
        }
        let mut inside = Dir::new(inside).map_err(system)?;
        let before = (self.removed.count, self.removed.names.len());
        loop {
            let known = self.removed.count;
            if !self.inside(&mut inside, path, deeper - 1)? {
                return Ok(false);
            }
            // Deliveries may be writing to it under names that do not exist yet.
            if self.protected.is_used_below(&join(self.above, path)) {
                return Err(kept("a directory in which something is being stored"));
            }
            let removed = self.unlink(above, named, AtFlags::REMOVEDIR);
            match removed {
                // The file system skipped names while others were removed, or a new one appeared.
                Err(Errno::NOTEMPTY | Errno::EXIST) if self.removed.count > known => {
                    inside.rewind();
                }
                removed => {
                    removed.map_err(|e| self.not_removed(path, e))?;
                    // The directory counts as one item, including its content.
                    self.removed.count = before.0;
                    self.removed.names.truncate(before.1);
                    self.count(path);
                    return Ok(true);
                }
            }
        }
    }

    /// Removes the content of an open directory at `path`. Returns whether everything is removed, or would be.
    fn inside(&mut self, inside: &mut Dir, path: &[u8], deeper: usize) -> Result<bool, Failure> {
        let mut is_empty = true;
        while let Some(entry) = inside.read() {
            let entry = entry.map_err(system)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                let directory = inside.fd().map_err(system)?;
                is_empty &= self.entry(directory, &join(path, name), deeper);
            }
        }
        Ok(is_empty)
    }

    fn unlink(
        &self,
        directory: BorrowedFd<'_>,
        named: &OsStr,
        flags: AtFlags,
    ) -> Result<(), Errno> {
        match if self.remove { unlinkat(directory, named, flags) } else { Ok(()) } {
            Err(Errno::NOENT) => Ok(()),
            done => done,
        }
    }

    fn not_removed(&self, path: &[u8], e: Errno) -> Failure {
        let above = path.iter().rposition(|letter| *letter == b'/').map(|end| &path[..end]);
        match (e, above) {
            (Errno::ACCESS, Some(above)) => read_only(&join(self.above, above)),
            (Errno::ACCESS, None) => read_only(self.above),
            (e, _) => system(e),
        }
    }

    fn count(&mut self, path: &[u8]) {
        self.removed.count += 1;
        if self.removed.names.len() < MAX_NAMES {
            self.removed.names.push(path.to_vec());
        }
    }

    /// Records a failure, once for each path.
    fn fail(&mut self, path: &[u8], why: Failure) {
        let failed = &mut self.removed.failed;
        if failed.len() < MAX_NAMES && !failed.iter().any(|(known, _)| known == path) {
            failed.push((path.to_vec(), why));
        }
    }
}

fn join(above: &[u8], name: &[u8]) -> Vec<u8> {
    [above, b"/", name].concat()
}

pub(super) fn kept_in_settings() -> Failure {
    kept("a directory named in the settings of its node")
}

fn kept(what: &str) -> Failure {
    Failure::System(format!("{what}: it and the directories that contain it are not removed"))
}

fn system(e: Errno) -> Failure {
    Failure::System(std::io::Error::from(e).to_string())
}
