//! What is kept of a file besides its content: as `rsync -a` does, and `-HAX` if asked for.

use crate::xattr::{self, Word};
use rustix::{
    fs::{
        AtFlags, CWD, Gid, Mode, Stat, Timespec, Timestamps, UTIME_OMIT, Uid, chmodat, chownat,
        fchmod, fchown, futimens, utimensat,
    },
    io::Errno,
};
use std::{
    ffi::OsStr,
    os::fd::{AsFd, AsRawFd as _},
};
use thalweg_wire::object::{FileTime, Keep, Xattr};

/// Numbers of the user and the group that a file is to belong to; `None`: as the system gives them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The user.
    pub user: Option<u32>,
    /// The group.
    pub group: Option<u32>,
}

/// To chown(2) this number means "leave it": no file belongs to it.
const NOBODY: u32 = u32::MAX;

impl Owner {
    /// Whether both are given.
    pub fn is_whole(self) -> bool {
        self.user.is_some() && self.group.is_some()
    }

    /// Whether these are the numbers, as far as any are given.
    pub fn is_met(self, (user, group): (u32, u32)) -> bool {
        self.user.is_none_or(|wanted| wanted == user)
            && self.group.is_none_or(|wanted| wanted == group)
    }

    /// As chown(2) takes them.
    fn ids(self) -> (Option<Uid>, Option<Gid>) {
        let is_number = |number: &u32| *number != NOBODY;
        let user = self.user.filter(is_number).map(Uid::from_raw);
        (user, self.group.filter(is_number).map(Gid::from_raw))
    }
}

/// Mode, owner and time of a file that was made elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Permissions, the lower 12 bits of `st_mode`.
    pub mode: u16,
    /// To whom it belongs.
    pub owner: Owner,
    /// When its content last changed.
    pub modified: FileTime,
}

impl Attributes {
    /// Gives `file` these. The owner first, since that takes bits of the mode away.
    ///
    /// False if the filesystem, or whoever this process is, has no such modes or owners: then
    /// the rest is as it should be.
    ///
    /// # Errors
    /// The system's refusal of anything else.
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

    /// The same for a file that is open by its path alone (open(2), `O_PATH`).
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn put_by_path(&self, file: impl AsFd) -> Result<bool, Errno> {
        let path = path(&file);
        let owned = match self.owner.ids() {
            (None, None) => true,
            (user, group) => allowed(chownat(CWD, &path, user, group, AtFlags::empty()))?,
        };
        let mode = Mode::from_raw_mode(self.mode_if(owned).into());
        let moded = allowed(chmodat(CWD, &path, mode, AtFlags::empty()))?;
        utimensat(CWD, &path, &self.times(), AtFlags::empty())?;
        Ok(owned && moded)
    }

    /// Owner and time of the symbolic link of this name. One that cannot have them is a link all the same.
    pub fn put_on_link(&self, directory: impl AsFd, name: &OsStr) {
        let (user, group) = self.owner.ids();
        if user.is_some() || group.is_some() {
            _ = chownat(&directory, name, user, group, AtFlags::SYMLINK_NOFOLLOW);
        }
        _ = utimensat(&directory, name, &self.times(), AtFlags::SYMLINK_NOFOLLOW);
    }

    /// Nobody gets rights of an owner who was not meant.
    fn mode_if(&self, is_owned: bool) -> u16 {
        if is_owned { self.mode } else { self.mode & 0o1777 }
    }

    /// For `utimensat`: the time of reading stays.
    pub fn times(&self) -> Timestamps {
        let (tv_sec, tv_nsec) = (self.modified.seconds(), self.modified.nanos().into());
        let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        Timestamps { last_access, last_modification: Timespec { tv_sec, tv_nsec } }
    }
}

/// All that is kept of a file besides its content.
#[derive(Clone, Copy, Debug)]
pub struct Dress<'a> {
    /// What every file has.
    pub attributes: Attributes,
    /// Extended attributes and access control lists.
    pub xattrs: &'a [Xattr],
    /// Which of them are kept.
    pub keep: Keep,
    /// Who says so.
    pub by: Word,
}

impl Dress<'_> {
    /// Gives an open file of this process's all of it. Whether it has its attributes and lists is told apart: a file
    /// that cannot have them has its content all the same.
    ///
    /// # Errors
    /// As [`Attributes::put`].
    pub fn put(&self, file: impl AsFd) -> Result<Result<(), Errno>, Errno> {
        let with = self.put_xattrs(&file);
        self.attributes.put(&file).map(|_| with)
    }

    /// The extended attributes alone, which come before the mode.
    ///
    /// # Errors
    /// The system's.
    pub fn put_xattrs(&self, file: impl AsFd) -> Result<(), Errno> {
        if self.keep == Keep::default() {
            return Ok(());
        }
        xattr::put(file, self.xattrs, self.keep, self.by)
    }

    /// The same for a file that is open by its path alone and may be one that its owner may neither read nor write.
    ///
    /// # Errors
    /// The system's.
    pub fn put_by_path(&self, file: impl AsFd) -> Result<(), Errno> {
        if self.has_others(&file) {
            // Attributes are for who may read and write.
            let mode = Mode::from_raw_mode(u32::from(self.attributes.mode) & 0o777 | 0o600);
            chmodat(CWD, path(&file), mode, AtFlags::empty())?;
            let others = self.put_xattrs(&file);
            // Mode and time also where the file system has no attributes.
            self.attributes.put_by_path(file)?;
            return others;
        }
        self.attributes.put_by_path(file).map(drop)
    }

    /// Whether the file has other extended attributes or lists, of those that are kept.
    pub fn has_others(&self, file: impl AsFd) -> bool {
        self.keep != Keep::default() && xattr::differ(file, self.xattrs, self.keep, self.by)
    }

    /// Whether mode and owner are these already; `bits` of the mode count.
    pub fn is_on(&self, found: &Stat, bits: u32) -> bool {
        let mode = found.st_mode & bits == u32::from(self.attributes.mode) & bits;
        mode && self.attributes.owner.is_met((found.st_uid, found.st_gid))
    }
}

/// A path that leads to what is open, also if it was opened by its path alone.
fn path(file: impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

/// Whether it was done; not to be allowed is no error.
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
    fn an_owner_is_met_as_far_as_it_is_given() {
        let owner = |user, group| Owner { user, group };
        assert!(owner(None, None).is_met((1, 2)) && owner(Some(1), None).is_met((1, 2)));
        assert!(!owner(Some(1), Some(3)).is_met((1, 2)) && owner(Some(1), Some(2)).is_whole());
        // The number that leaves an owner as it is comes from nobody.
        assert_eq!(owner(Some(NOBODY), Some(NOBODY)).ids(), (None, None));
    }
}
