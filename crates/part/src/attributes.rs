//! Metadata of files: mode, owner, group and time as `rsync -a` keeps them, and extended attributes and access control
//! lists as `-X` and `-A` do.

use crate::xattr::{self, AttributeOrigin};
use rustix::{
    fs::{
        AtFlags, CWD, Gid, Mode, Stat, Timespec, Timestamps, UTIME_OMIT, Uid, chmodat, chownat,
        fchmod, fchown, futimens, utimensat,
    },
    io::Errno,
};
use std::{ffi::OsStr, os::fd::AsFd};
use thalweg_base::descriptors::path_of;
use thalweg_wire::object::{FileTime, Keep, Xattr};

/// The user and group ids to set on a file; `None` leaves the id that the system assigns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The user id.
    pub user: Option<u32>,
    /// The group id.
    pub group: Option<u32>,
}

/// chown(2) takes this id as "do not change".
const UNCHANGED: u32 = u32::MAX;

impl Owner {
    /// Whether both ids are given.
    pub fn is_complete(self) -> bool {
        self.user.is_some() && self.group.is_some()
    }

    /// Whether a file with these ids matches; an id that is not given matches any.
    pub fn matches(self, (user, group): (u32, u32)) -> bool {
        self.user.is_none_or(|wanted| wanted == user)
            && self.group.is_none_or(|wanted| wanted == group)
    }

    /// The arguments of chown(2).
    fn ids(self) -> (Option<Uid>, Option<Gid>) {
        let is_valid = |id: &u32| *id != UNCHANGED;
        let user = self.user.filter(is_valid).map(Uid::from_raw);
        (user, self.group.filter(is_valid).map(Gid::from_raw))
    }
}

/// Mode, owner and time of a file that comes from another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Permissions, the lower 12 bits of `st_mode`.
    pub mode: u16,
    /// The owner and group to set.
    pub owner: Owner,
    /// The time of the last change of the content.
    pub modified: FileTime,
}

impl Attributes {
    /// Sets these attributes on `file`. The owner comes first, because changing it clears bits of the mode.
    ///
    /// Returns false if the filesystem does not support such modes or owners, or the process may not set them; the rest
    /// is set then.
    ///
    /// # Errors
    /// Any other error of the system.
    pub fn put(&self, file: impl AsFd) -> Result<bool, Errno> {
        let owned = match self.owner.ids() {
            (None, None) => true,
            (user, group) => allowed(fchown(&file, user, group))?,
        };
        let mode = Mode::from_raw_mode(self.mode_if(owned).into());
        let moded = allowed(fchmod(&file, mode))?;
        futimens(&file, &self.times())?;
        Ok(owned && moded)
    }

    /// Sets these attributes on a file opened with `O_PATH` (open(2)).
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn put_by_path(&self, file: impl AsFd) -> Result<bool, Errno> {
        let path = path_of(&file);
        let owned = match self.owner.ids() {
            (None, None) => true,
            (user, group) => allowed(chownat(CWD, &path, user, group, AtFlags::empty()))?,
        };
        let mode = Mode::from_raw_mode(self.mode_if(owned).into());
        let moded = allowed(chmodat(CWD, &path, mode, AtFlags::empty()))?;
        utimensat(CWD, &path, &self.times(), AtFlags::empty())?;
        Ok(owned && moded)
    }

    /// Sets owner, group and time of a symbolic link. Errors are ignored: a link without them is still useful.
    pub fn put_on_link(&self, directory: impl AsFd, name: &OsStr) {
        let (user, group) = self.owner.ids();
        if user.is_some() || group.is_some() {
            _ = chownat(&directory, name, user, group, AtFlags::SYMLINK_NOFOLLOW);
        }
        _ = utimensat(&directory, name, &self.times(), AtFlags::SYMLINK_NOFOLLOW);
    }

    /// The mode to set: without the owner, set-user-ID and set-group-ID bits would grant the rights of another user.
    fn mode_if(&self, is_owned: bool) -> u16 {
        if is_owned { self.mode } else { self.mode & 0o1777 }
    }

    /// The times for `utimensat`, which leave the access time unchanged.
    pub fn times(&self) -> Timestamps {
        let (tv_sec, tv_nsec) = (self.modified.seconds(), self.modified.nanos().into());
        let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        Timestamps { last_access, last_modification: Timespec { tv_sec, tv_nsec } }
    }
}

/// All metadata to set on a file.
#[derive(Clone, Copy, Debug)]
pub struct FileMetadata<'a> {
    /// Mode, owner, group and time.
    pub attributes: Attributes,
    /// Extended attributes and access control lists.
    pub xattrs: &'a [Xattr],
    /// Which of `xattrs` to set.
    pub keep: Keep,
    /// Whose request it is; limits which extended attributes are set.
    pub origin: AttributeOrigin,
}

impl FileMetadata<'_> {
    /// Sets all metadata on an open file. The inner result is that of the extended attributes and access control
    /// lists, because a file without them is still complete.
    ///
    /// # Errors
    /// As [`Attributes::put`].
    pub fn put(&self, file: impl AsFd) -> Result<Result<(), Errno>, Errno> {
        let with = self.put_xattrs(&file);
        self.attributes.put(&file).map(|_| with)
    }

    /// Sets only extended attributes and access control lists. Call it before the mode is set.
    ///
    /// # Errors
    /// The system's error.
    pub fn put_xattrs(&self, file: impl AsFd) -> Result<(), Errno> {
        if self.keep == Keep::default() {
            return Ok(());
        }
        xattr::put(file, self.xattrs, self.keep, self.origin)
    }

    /// Sets all metadata on a file opened with `O_PATH`, whose mode may deny its owner reading and writing.
    ///
    /// # Errors
    /// The system's error.
    pub fn put_by_path(&self, file: impl AsFd) -> Result<(), Errno> {
        if self.differs_from(&file) {
            // Reading and setting extended attributes needs read and write permission.
            let mode = Mode::from_raw_mode(u32::from(self.attributes.mode) & 0o777 | 0o600);
            chmodat(CWD, path_of(&file), mode, AtFlags::empty())?;
            let result = self.put_xattrs(&file);
            // Mode and time are set even if the file system has no extended attributes.
            self.attributes.put_by_path(file)?;
            return result;
        }
        self.attributes.put_by_path(file).map(drop)
    }

    /// Whether the kept extended attributes or access control lists of the file differ from these.
    pub fn differs_from(&self, file: impl AsFd) -> bool {
        self.keep != Keep::default() && xattr::differ(file, self.xattrs, self.keep, self.origin)
    }

    /// Whether the file already has this mode, compared in `bits`, and this owner and group.
    pub fn matches(&self, found: &Stat, bits: u32) -> bool {
        let mode = found.st_mode & bits == u32::from(self.attributes.mode) & bits;
        mode && self.attributes.owner.matches((found.st_uid, found.st_gid))
    }
}

/// Whether an attribute was set. A missing permission is no error.
fn allowed(done: Result<(), Errno>) -> Result<bool, Errno> {
    match done {
        Ok(()) => Ok(true),
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(false),
        Err(other) => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_matches_in_the_ids_that_are_given() {
        let owner = |user, group| Owner { user, group };
        assert!(owner(None, None).matches((1, 2)) && owner(Some(1), None).matches((1, 2)));
        assert!(!owner(Some(1), Some(3)).matches((1, 2)) && owner(Some(1), Some(2)).is_complete());
        // A peer that sends the "do not change" id has no effect.
        assert_eq!(owner(Some(UNCHANGED), Some(UNCHANGED)).ids(), (None, None));
    }
}
