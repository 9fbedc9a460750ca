//! Makes the files of a layout, and gives them modes, times and links at the end.
//!
//! A directory keeps its owner's right to write until the object has its final name: Linux moves no
//! directory to another one that may not be written itself (its `..` changes).

use super::{files::Place, open::below};
use rustix::{
    fs::{
        AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps, chmodat, fchmod, fstat,
        futimens, mkdirat, readlinkat, statat, symlinkat,
    },
    io::Errno,
};
use std::{
    ffi::OsStr,
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
};
use thalweg_wire::cast::{Layout, LayoutEntry, LayoutKind};

/// More files than this are synced with the whole file system.
const SINGLY: usize = 16;

/// Makes directories and files of their lengths, without content; links come at the end, so that
/// nothing is ever written through one. What is there already stays, and may be written by its owner:
/// an earlier try may have come as far as to the modes.
///
/// # Errors
/// The system's, with the path.
pub fn make(place: &Place, layout: &Layout) -> io::Result<()> {
    for entry in &layout.entries {
        let path = place.path(entry.path.as_bytes());
        let made = match entry.kind {
            LayoutKind::Directory => make_directory(place, &path),
            LayoutKind::File { length } => make_file(place, &path, length),
            LayoutKind::Symlink { .. } => Ok(()),
        };
        made.map_err(|e| named(&path, &e))?;
    }
    Ok(())
}

fn make_directory(place: &Place, path: &[u8]) -> io::Result<()> {
    let (above, name) = above(place, path)?;
    match mkdirat(above.as_fd(), OsStr::from_bytes(name), Mode::RWXU) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) => allow(place, path, FileType::Directory),
        Err(e) => Err(e.into()),
    }
}

fn make_file(place: &Place, path: &[u8], length: u64) -> io::Result<()> {
    let open = || below(&place.directory, path, OFlags::RDWR | OFlags::CREATE);
    let opened = match open() {
        Err(Errno::ACCESS) => {
            allow(place, path, FileType::RegularFile)?;
            open()
        }
        opened => opened,
    };
    File::from(opened?).set_len(length)
}

/// Gives the owner of what is there all rights to it, if it is what it should be.
fn allow(place: &Place, path: &[u8], kind: FileType) -> io::Result<()> {
    let found = below(&place.directory, path, OFlags::PATH)?;
    let seen = fstat(&found)?;
    if FileType::from_raw_mode(seen.st_mode) != kind {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let wanted = if kind == FileType::Directory { Mode::RWXU } else { Mode::RUSR | Mode::WUSR };
    let mode = Mode::from_raw_mode(seen.st_mode);
    if mode.contains(wanted) {
        return Ok(());
    }
    // What is open by its path alone has its mode changed by its name in /proc alone (open(2)).
    let name = format!("/proc/self/fd/{}", found.as_raw_fd());
    Ok(chmodat(CWD, name, mode | wanted, AtFlags::empty())?)
}

/// The directory that a path's last part is in, and that part.
fn above<'a>(place: &Place, path: &'a [u8]) -> io::Result<(OwnedFd, &'a [u8])> {
    let (above, name) = match path.iter().rposition(|b| *b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&b"."[..], path),
    };
    Ok((below(&place.directory, above, OFlags::RDONLY | OFlags::DIRECTORY)?, name))
}

/// Makes the links, sets modes and times of files, and syncs all of it: what is done before the object
/// has its name.
///
/// No set-user-ID, set-group-ID or sticky bits: they are another host's word.
///
/// # Errors
/// The system's, with the path.
pub fn settle(place: &Place, layout: &Layout) -> io::Result<()> {
    each(place, layout, |entry, path, sync| match &entry.kind {
        LayoutKind::Symlink { target } => make_link(place, path, target),
        LayoutKind::File { .. } => set(place, entry, path, OFlags::RDONLY, sync),
        LayoutKind::Directory => Ok(()),
    })
}

/// Sets modes and times of directories, the deepest first, and syncs them: what is done once the object
/// has its name. It may be done again when it was broken off.
///
/// # Errors
/// The system's, with the path.
pub fn seal(place: &Place, layout: &Layout) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let seal = || {
        each(place, layout, |entry, path, sync| match entry.kind {
            LayoutKind::Directory => set(place, entry, path, flags, sync),
            _ => Ok(()),
        })
    };
    match seal() {
        // One that its owner may not enter has got its mode before: all below it, too.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            let is_directory = |entry: &&LayoutEntry| entry.kind == LayoutKind::Directory;
            for entry in layout.entries.iter().filter(is_directory) {
                let path = place.path(entry.path.as_bytes());
                allow(place, &path, FileType::Directory).map_err(|e| named(&path, &e))?;
            }
            seal()
        }
        sealed => sealed,
    }
}

/// All entries from the last one on: what is in a directory before the directory.
fn each(
    place: &Place,
    layout: &Layout,
    step: impl Fn(&LayoutEntry, &[u8], bool) -> io::Result<()>,
) -> io::Result<()> {
    let singly = layout.entries.len() <= SINGLY;
    for entry in layout.entries.iter().rev() {
        let path = place.path(entry.path.as_bytes());
        step(entry, &path, singly).map_err(|e| named(&path, &e))?;
    }
    if !singly {
        rustix::fs::syncfs(&*place.directory)?;
    }
    Ok(())
}

fn make_link(place: &Place, path: &[u8], target: &[u8]) -> io::Result<()> {
    let (above, name) = above(place, path)?;
    match symlinkat(OsStr::from_bytes(target), above.as_fd(), OsStr::from_bytes(name)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

fn set(
    place: &Place,
    entry: &LayoutEntry,
    path: &[u8],
    flags: OFlags,
    sync: bool,
) -> io::Result<()> {
    let made = below(&place.directory, path, flags)?;
    let time = Timespec {
        tv_sec: entry.modified_ns.div_euclid(1_000_000_000),
        tv_nsec: entry.modified_ns.rem_euclid(1_000_000_000),
    };
    futimens(&made, &Timestamps { last_access: time, last_modification: time })?;
    fchmod(&made, Mode::from_raw_mode((entry.mode & 0o777).into()))?;
    if sync { Ok(rustix::fs::fsync(&made)?) } else { Ok(()) }
}

/// Whether all entries are there as [`settle`] left them: what they are, files' lengths and times,
/// links' targets. Content is not read.
pub fn is_as_made(place: &Place, layout: &Layout) -> bool {
    has_shape(place, layout, true)
}

/// The same, whenever files were changed last.
pub fn may_be(place: &Place, layout: &Layout) -> bool {
    has_shape(place, layout, false)
}

fn has_shape(place: &Place, layout: &Layout, with_times: bool) -> bool {
    let is_same = |entry: &LayoutEntry| is_same(place, entry, with_times).unwrap_or(false);
    layout.entries.iter().all(is_same)
}

fn is_same(place: &Place, entry: &LayoutEntry, with_times: bool) -> io::Result<bool> {
    let path = place.path(entry.path.as_bytes());
    let (above, name) = above(place, &path)?;
    let (above, name) = (above.as_fd(), OsStr::from_bytes(name));
    let found = statat(above, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let kind = FileType::from_raw_mode(found.st_mode);
    Ok(match &entry.kind {
        LayoutKind::Directory => kind == FileType::Directory,
        LayoutKind::Symlink { target } => {
            kind == FileType::Symlink && readlinkat(above, name, [])?.as_bytes() == target
        }
        LayoutKind::File { length } => {
            let (seconds, ns) = (i128::from(found.st_mtime), i128::from(found.st_mtime_nsec));
            let modified = seconds * 1_000_000_000 + ns;
            kind == FileType::RegularFile
                && u64::try_from(found.st_size) == Ok(*length)
                && (!with_times || modified == i128::from(entry.modified_ns))
        }
    })
}

fn named(path: &[u8], why: &io::Error) -> io::Error {
    io::Error::new(why.kind(), format!("{}: {why}", path.escape_ascii()))
}
