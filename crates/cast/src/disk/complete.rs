//! Adds what an existing copy of an object lacks, and changes nothing that is there.

use super::{
    Policy,
    files::Place,
    open::below,
    tree::{above, allow, is_name, is_same, look, make_directory, named},
};
use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, chmodat, fstat, renameat_with},
    io::Errno,
};
use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read as _},
    os::unix::ffi::OsStrExt as _,
};
use thalweg_base::descriptors::path_of;
use thalweg_wire::cast::{Layout, LayoutEntry, LayoutKind};

/// What is read at once of two files that are compared.
const PIECE: usize = 1 << 18;

/// Whether what has the object's name is a directory that may be part of the object: it contains entries of the
/// object, or nothing. Each of them is of the same kind and length, as far as this process may look; content is not
/// read. Earlier casts leave out what their source could not read.
pub fn may_be_part(place: &Place, layout: &Layout, policy: &Policy) -> bool {
    let is_directory = layout.entries.first().is_some_and(|e| e.kind == LayoutKind::Directory);
    let mut present = 0;
    let mut fits = |entry: &LayoutEntry| {
        if policy.check_link(entry, &place.path(entry.path.as_bytes())).is_err() {
            return true;
        }
        match is_there(place, layout, entry) {
            Ok(is_same) => {
                present += usize::from(!entry.path.as_bytes().is_empty());
                is_same
            }
            Err(why) => {
                let is_hidden = why.kind() == io::ErrorKind::PermissionDenied;
                (is_hidden || why.kind() == io::ErrorKind::NotFound)
                    && !entry.path.as_bytes().is_empty()
            }
        }
    };
    is_directory && layout.entries.iter().all(&mut fits) && (present > 0 || is_empty(place))
}

/// Whether what is there under an entry's path is of its kind and length.
fn is_there(place: &Place, layout: &Layout, entry: &LayoutEntry) -> io::Result<bool> {
    match entry.same_as() {
        None => is_same(place, entry, None),
        Some(_) => {
            look(place, entry)?;
            Ok(is_name(place, entry, layout.first_of(entry)).unwrap_or(false))
        }
    }
}

fn is_empty(place: &Place) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let opened = below(&place.directory, &place.name, flags).and_then(rustix::fs::Dir::new);
    opened.is_ok_and(|entries| {
        let mut names = entries.map(|entry| entry.map(|entry| entry.file_name().to_owned()));
        names.all(|name| name.is_ok_and(|name| matches!(name.to_bytes(), b"." | b"..")))
    })
}

/// Moves the files that are lacking at `to` there from `from`, where the whole object is. `false`: a file that is there
/// is another, and nothing was moved.
///
/// # Errors
/// The system's, with the path.
pub fn complete(from: &Place, to: &Place, layout: &Layout, policy: &Policy) -> io::Result<bool> {
    if !may_be_part(to, layout, policy) {
        return Ok(false);
    }
    let opened = open_directories(to, layout)?;
    let is_part = may_be_part(to, layout, policy) && is_equal_or_lacking(from, to, layout)?;
    if !is_part {
        opened.iter().rev().for_each(|(path, mode)| close(to, path, *mode));
        return Ok(false);
    }
    for entry in &layout.entries {
        let path = to.path(entry.path.as_bytes());
        let made = match entry.kind {
            LayoutKind::Directory => make_directory(to, &path),
            _ if has_content(entry) => move_new(from, to, entry),
            // Links follow.
            _ => Ok(()),
        };
        made.map_err(|e| named(&path, &e))?;
    }
    Ok(true)
}

fn has_content(entry: &LayoutEntry) -> bool {
    matches!(entry.kind, LayoutKind::File { .. }) && entry.same_as().is_none()
}

/// Gives this process all rights to the directories that are there. Returns the paths and modes of those that gave it
/// fewer.
fn open_directories(place: &Place, layout: &Layout) -> io::Result<Vec<(Vec<u8>, Mode)>> {
    let mut opened = Vec::new();
    for entry in layout.entries.iter().filter(|entry| entry.kind == LayoutKind::Directory) {
        let path = place.path(entry.path.as_bytes());
        match below(&place.directory, &path, OFlags::PATH | OFlags::DIRECTORY) {
            Err(Errno::NOENT) => continue,
            found => {
                let found = found.map_err(|e| named(&path, &e.into()))?;
                let mode = Mode::from_raw_mode(fstat(&found)?.st_mode);
                if !mode.contains(Mode::RWXU) {
                    allow(place, &path, FileType::Directory).map_err(|e| named(&path, &e))?;
                    opened.push((path, mode));
                }
            }
        }
    }
    Ok(opened)
}

/// Gives a directory its mode again. If that fails it is more open to its owner than before.
fn close(place: &Place, path: &[u8], mode: Mode) {
    let opened = below(&place.directory, path, OFlags::PATH | OFlags::DIRECTORY);
    _ = opened.and_then(|found| chmodat(CWD, path_of(&found), mode, AtFlags::empty()));
}

fn is_equal_or_lacking(from: &Place, to: &Place, layout: &Layout) -> io::Result<bool> {
    for entry in layout.entries.iter().filter(|entry| has_content(entry)) {
        if !is_file_equal_or_lacking(from, to, entry)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_file_equal_or_lacking(from: &Place, to: &Place, entry: &LayoutEntry) -> io::Result<bool> {
    let open = |place: &Place| {
        let path = place.path(entry.path.as_bytes());
        let opened = below(&place.directory, &path, OFlags::RDONLY | OFlags::NONBLOCK);
        opened.map(File::from).map_err(|e| named(&path, &e.into()))
    };
    match open(to) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(true),
        there => is_equal(open(from)?, there?),
    }
}

fn is_equal(mut one: File, mut other: File) -> io::Result<bool> {
    let (mut first, mut second) = (Vec::with_capacity(PIECE), Vec::with_capacity(PIECE));
    loop {
        first.clear();
        second.clear();
        let read = (&mut one).take(PIECE as u64).read_to_end(&mut first)?;
        (&mut other).take(PIECE as u64).read_to_end(&mut second)?;
        if first != second {
            return Ok(false);
        }
        if read == 0 {
            return Ok(true);
        }
    }
}

fn move_new(from: &Place, to: &Place, entry: &LayoutEntry) -> io::Result<()> {
    let [old, new] = [from, to].map(|place| place.path(entry.path.as_bytes()));
    let ((old_above, old), (new_above, new)) = (above(from, &old)?, above(to, &new)?);
    let (old, new) = (OsStr::from_bytes(old), OsStr::from_bytes(new));
    match renameat_with(old_above, old, new_above, new, RenameFlags::NOREPLACE) {
        // It was compared.
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
