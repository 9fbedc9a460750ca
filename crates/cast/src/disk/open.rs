//! Opens paths below a directory without leaving it.

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2},
    io::Errno,
};
use std::{ffi::OsStr, io, os::fd::OwnedFd, os::unix::ffi::OsStrExt as _, path::Path};

/// `openat2` fails with `EAGAIN` if a rename interferes. 100 such renames in a row do not happen.
const TRIES: u32 = 100;

/// Opens a directory by its path. Symbolic links on the path are followed: the operator chose them.
///
/// # Errors
/// I/O errors.
pub fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(CWD, path, flags, Mode::empty())?)
}

/// Opens a path below a directory without following any link (openat2(2)). With `OFlags::CREATE` the file is created
/// readable and writable for its owner only.
///
/// # Errors
/// I/O errors; `ELOOP` and `EXDEV` for a path that leads out of the directory.
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
