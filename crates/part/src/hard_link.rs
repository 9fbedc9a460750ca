//! Creates hard links that atomically replace an existing name.

use rustix::{
    fs::{AtFlags, FileType, Stat, linkat, renameat, statat, unlinkat},
    io::Errno,
};
use std::{ffi::OsStr, os::fd::AsFd};

/// A name in an open directory.
#[derive(Clone, Copy, Debug)]
pub struct EntryName<'a, D: AsFd> {
    pub directory: &'a D,
    pub name: &'a OsStr,
}

impl<D: AsFd> EntryName<'_, D> {
    /// Returns the status of the file with this name; symbolic links are not followed. `None` if there is no file.
    ///
    /// # Errors
    /// Any error of stat(2) except `ENOENT`.
    pub fn stat(&self) -> Result<Option<Stat>, Errno> {
        match statat(self.directory, self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT) => Ok(None),
            Err(other) => Err(other),
        }
    }
}

/// Whether both are the same file.
pub fn is_same_file(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// Links the file at `first` to `to` and replaces what is there. `file` is the status of `first` that the caller has
/// checked; `temporary` is a name in the directory of `to`. Returns false if `to` already is that file.
///
/// # Errors
/// Any system error; `EISDIR` if `to` is a directory, `EAGAIN` if `first` is no longer `file`.
pub fn create<D: AsFd>(
    first: EntryName<'_, D>,
    file: &Stat,
    to: EntryName<'_, D>,
    temporary: &OsStr,
) -> Result<bool, Errno> {
    match to.stat()? {
        Some(found) if is_same_file(&found, file) => return Ok(false),
        Some(found) if FileType::from_raw_mode(found.st_mode).is_dir() => return Err(Errno::ISDIR),
        _ => {}
    }
    let link = || linkat(first.directory, first.name, to.directory, temporary, AtFlags::empty());
    match link() {
        // A crash left it behind.
        Err(Errno::EXIST) => {
            unlinkat(to.directory, temporary, AtFlags::empty())?;
            link()?;
        }
        linked => linked?,
    }
    let linked = statat(to.directory, temporary, AtFlags::SYMLINK_NOFOLLOW);
    let named = linked.and_then(|linked| match is_same_file(&linked, file) {
        true => renameat(to.directory, temporary, to.directory, to.name),
        false => Err(Errno::AGAIN),
    });
    if named.is_err() {
        // Best effort: the first error is the one to report.
        _ = unlinkat(to.directory, temporary, AtFlags::empty());
    }
    named.map(|()| true)
}
