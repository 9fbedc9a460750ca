//! What is kept of a file besides its content: as `rsync -a` does.

use rustix::{
    fs::{
        AtFlags, CWD, Gid, Mode, Timespec, Timestamps, UTIME_OMIT, Uid, chmodat, chownat, fchmod,
        fchown, futimens, utimensat,
    },
    io::Errno,
};
use std::os::fd::{AsFd, AsRawFd as _};
use thalweg_wire::object::FileTime;

/// Mode, owner and time of a file that was made elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Permissions, the lower 12 bits of `st_mode`.
    pub mode: u16,
    /// Numbers of owner and group; `None`: as the system gives them.
    pub owner: Option<(u32, u32)>,
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
        let owned = match self.owner {
            Some((user, group)) => {
                let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
                allowed(fchown(&file, Some(user), Some(group)))?
            }
            None => true,
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
        let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
        let owned = match self.owner {
            Some((user, group)) => {
                let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
                allowed(chownat(CWD, &path, Some(user), Some(group), AtFlags::empty()))?
            }
            None => true,
        };
        let mode = Mode::from_raw_mode(self.mode_if(owned).into());
        let moded = allowed(chmodat(CWD, &path, mode, AtFlags::empty()))?;
        utimensat(CWD, &path, &self.times(), AtFlags::empty())?;
        Ok(owned && moded)
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

/// Whether it was done; not to be allowed is no error.
fn allowed(done: Result<(), Errno>) -> Result<bool, Errno> {
    match done {
        Ok(()) => Ok(true),
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(false),
        Err(other) => Err(other),
    }
}
