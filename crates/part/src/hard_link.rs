//! Another name of a file: given at once, in place of whatever has it.

use rustix::{
    fs::{AtFlags, FileType, Stat, linkat, renameat, statat, unlinkat},
    io::Errno,
};
use std::{ffi::OsStr, os::fd::AsFd};

/// A name in an open directory.
#[derive(Clone, Copy, Debug)]
pub struct Name<'a, D: AsFd> {
    /// The directory.
    pub directory: &'a D,
    /// The name.
    pub name: &'a OsStr,
}

impl<D: AsFd> Name<'_, D> {
    /// What has it, links themselves.
    ///
    /// # Errors
    /// The system's, but that nothing has it.
    pub fn look(&self) -> Result<Option<Stat>, Errno> {
        match statat(self.directory, self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT) => Ok(None),
            Err(other) => Err(other),
        }
    }
}

/// Whether both are one file.
pub fn is_one(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// Gives `file`, which was seen at `first`, the name `to` as well, by a temporary one of that directory. False: it has
/// it.
///
/// # Errors
/// The system's; `EISDIR` if a directory has the name, `EAGAIN` if another file has come to be at `first`.
pub fn put<D: AsFd>(
    first: Name<'_, D>,
    file: &Stat,
    to: Name<'_, D>,
    temporary: &OsStr,
) -> Result<bool, Errno> {
    match to.look()? {
        Some(found) if is_one(&found, file) => return Ok(false),
        Some(found) if FileType::from_raw_mode(found.st_mode).is_dir() => return Err(Errno::ISDIR),
        _ => {}
    }
    let link = || linkat(first.directory, first.name, to.directory, temporary, AtFlags::empty());
    match link() {
        // A leftover.
        Err(Errno::EXIST) => {
            unlinkat(to.directory, temporary, AtFlags::empty())?;
            link()?;
        }
        linked => linked?,
    }
    let linked = statat(to.directory, temporary, AtFlags::SYMLINK_NOFOLLOW);
    let named = linked.and_then(|linked| match is_one(&linked, file) {
        true => renameat(to.directory, temporary, to.directory, to.name),
        false => Err(Errno::AGAIN),
    });
    if named.is_err() {
        // Best effort: the first error is the one to tell.
        _ = unlinkat(to.directory, temporary, AtFlags::empty());
    }
    named.map(|()| true)
}
