//! What is kept of a file besides its content: as `rsync -a` does.

use rustix::{
    fs::{Gid, Mode, Timespec, Timestamps, UTIME_OMIT, Uid, fchmod, fchown, futimens},
    io::Errno,
};
use std::os::fd::AsFd;

/// Mode, owner and time of a file that was made elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Permissions, the lower 12 bits of `st_mode`.
    pub mode: u16,
    /// Numbers of owner and group; `None`: as the system gives them.
    pub owner: Option<(u32, u32)>,
    /// When its content last changed, ns since 1970.
    pub modified_ns: i64,
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
        // Nobody gets rights of an owner who was not meant.
        let mode = if owned { self.mode } else { self.mode & 0o1777 };
        let moded = allowed(fchmod(&file, Mode::from_raw_mode(mode.into())))?;
        futimens(&file, &self.times())?;
        Ok(owned && moded)
    }

    /// For `utimensat`: the time of reading stays.
    pub fn times(&self) -> Timestamps {
        let (tv_sec, tv_nsec) = self.modified();
        let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        Timestamps { last_access, last_modification: Timespec { tv_sec, tv_nsec } }
    }

    /// The time as seconds since 1970, rounded down, and ns.
    pub fn modified(&self) -> (i64, i64) {
        const SECOND: i64 = 1_000_000_000;
        (self.modified_ns.div_euclid(SECOND), self.modified_ns.rem_euclid(SECOND))
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
