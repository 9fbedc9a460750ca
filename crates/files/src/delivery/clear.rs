//! What is not at the source goes, where the settings allow it.

use super::{Bay, not_allowed};
use crate::{Reader, beneath::failure};
use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags, openat, unlinkat},
    io::Errno,
};
use std::{
    collections::BTreeSet,
    ffi::OsStr,
    os::{fd::AsFd, unix::ffi::OsStrExt as _},
};
use thalweg_wire::object::{Failure, Removed, Surplus, is_ours};

/// Names that are collected before they are removed: some MiB, whatever a directory holds.
const AT_ONCE: usize = 8192;

/// Names that a reply tells, of each sort: with long ones it stays within both ends' sockets.
const TOLD: usize = 64;

/// Directories in directories; each takes a descriptor. What is deeper stays, and is named.
const DEEPEST: usize = 256;

/// Removes the names of a directory in a range that are not to be kept, or tells them. Waits for the disk.
///
/// # Errors
/// [`Failure`]: nothing was removed.
pub(crate) fn clear(reader: &Reader, surplus: &Surplus) -> Result<Removed, Failure> {
    let mut bay = Bay::of(reader, &surplus.into)?;
    let below = surplus.directory.as_bytes();
    bay.parts(below)?;
    let mut removed = Removed::default();
    // One that is not there holds nothing.
    let found = match bay.directory(below, false) {
        // Nor does what a directory is to replace.
        Err(_) if !surplus.remove && bay.obstacle(below)?.is_some() => return Ok(removed),
        found => found?,
    };
    let Some(directory) = found else { return Ok(removed) };
    if !directory.may.remove {
        return Err(not_allowed(&directory.path, "removal of what is there", "remove"));
    }
    let keep: BTreeSet<&[u8]> = surplus.keep.iter().map(Vec::as_slice).collect();
    let goes = |name: &[u8]| {
        let is_in = name > &surplus.after[..] && (surplus.to.is_empty() || name <= &surplus.to[..]);
        is_in && !keep.contains(name) && !is_ours(name)
    };
    let mut stay = BTreeSet::new();
    loop {
        let names = names(&directory, |name| goes(name) && !stay.contains(name));
        let names = names.map_err(|e| failure(&directory.path, e))?;
        let is_last = names.len() < AT_ONCE || !surplus.remove;
        for name in names {
            match surplus.remove.then(|| remove(directory.as_fd(), &name, DEEPEST)) {
                None | Some(Ok(())) => {
                    removed.count += 1;
                    if removed.names.len() < TOLD {
                        removed.names.push(name);
                    }
                }
                Some(Err(e)) => {
                    if removed.failed.len() < TOLD {
                        let why = Failure::System(std::io::Error::from(e).to_string());
                        removed.failed.push((name.clone(), why));
                    }
                    // It would be found again and again.
                    stay.insert(name);
                }
            }
        }
        if is_last {
            return Ok(removed);
        }
    }
}

/// The first of these names, without `.` and `..`.
fn names(directory: impl AsFd, goes: impl Fn(&[u8]) -> bool) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." && goes(name) {
            names.push(name.to_vec());
            if names.len() == AT_ONCE {
                break;
            }
        }
    }
    Ok(names)
}

/// Removes a name with all below it; no link is followed.
///
/// # Errors
/// The system's; `ENAMETOOLONG` if directories are too deep.
pub(super) fn remove_all(directory: impl AsFd, name: &[u8]) -> Result<(), Errno> {
    remove(directory, name, DEEPEST)
}

/// A name, with all below it; no link is followed.
fn remove(directory: impl AsFd, name: &[u8], deeper: usize) -> Result<(), Errno> {
    let directory = directory.as_fd();
    let named = OsStr::from_bytes(name);
    match unlinkat(directory, named, AtFlags::empty()) {
        // What a directory is answered (unlink(2)).
        Err(Errno::ISDIR | Errno::PERM) => {}
        done => return done,
    }
    if deeper == 0 {
        return Err(Errno::NAMETOOLONG);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let inside = openat(directory, named, flags, Mode::empty())?;
    loop {
        let names = names(&inside, |_| true)?;
        if names.is_empty() {
            return unlinkat(directory, named, AtFlags::REMOVEDIR);
        }
        names.iter().try_for_each(|name| remove(&inside, name, deeper - 1))?;
    }
}
