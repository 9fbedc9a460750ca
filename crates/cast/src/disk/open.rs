//! Opens what is below a directory, and nothing else.

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2},
    io::Errno,
};
use std::{ffi::OsStr, io, os::fd::OwnedFd, os::unix::ffi::OsStrExt as _, path::Path};

/// Renames come one after the other; 100 of them all in our way do not happen.
const TRIES: u32 = 100;

/// A directory by its path; links on the way to it are the operator's own choice.
///
/// # Errors
/// The system's.
pub fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(CWD, path, flags, Mode::empty())?)
}

/// What is below a directory, through no link at all (openat2(2)); made, if the flags say so, for
/// its owner alone.
///
/// # Errors
/// The system's; `ELOOP` and `EXDEV` for what leads elsewhere.
pub fn below(directory: &OwnedFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let mode = if flags.contains(OFlags::CREATE) { Mode::RUSR | Mode::WUSR } else { Mode::empty() };
    let (path, flags) = (OsStr::from_bytes(path), flags | OFlags::CLOEXEC | OFlags::NOFOLLOW);
    let mut tries = 0;
    loop {
        match openat2(directory, path, flags, mode, resolve) {
            Err(Errno::AGAIN | Errno::INTR) if tries < TRIES => tries += 1,
            done => return done,
        }
    }
}
