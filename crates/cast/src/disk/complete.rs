//! Completes an existing copy of an object without changing the files that it has.

use super::{
    InboxPolicy,
    files::ObjectLocation,
    open::below,
    tree::{above, allow, is_name, is_same, look, make_directory, named},
};
use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, chmodat, fstat, renameat_with},
    io::Errno,
};
use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs::File,
    io::{self, Read as _},
    os::unix::ffi::OsStrExt as _,
};
use thalweg_base::descriptors::path_of;
use thalweg_wire::cast::{Layout, LayoutEntry, LayoutKind};

/// Bytes read at a time when two files are compared.
const PIECE: usize = 1 << 18;

/// Whether the object's name belongs to a directory that may be an incomplete copy: it is empty or contains entries of
/// the object, and each of them has the right kind and length, as far as this process may look. Content is not read.
/// Copies are incomplete because a cast leaves out what its source cannot read.
pub fn may_be_part(place: &ObjectLocation, layout: &Layout, policy: &InboxPolicy) -> bool {
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

/// Whether an entry's path exists with the entry's kind and length.
fn is_there(place: &ObjectLocation, layout: &Layout, entry: &LayoutEntry) -> io::Result<bool> {
    match entry.same_as() {
        None => is_same(place, entry, None),
        Some(_) => {
            look(place, entry)?;
            Ok(is_name(place, entry, layout.first_of(entry)).unwrap_or(false))
        }
    }
}

fn is_empty(place: &ObjectLocation) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let opened = below(&place.directory, &place.name, flags).and_then(rustix::fs::Dir::new);
    opened.is_ok_and(|entries| {
        let mut names = entries.map(|entry| entry.map(|entry| entry.file_name().to_owned()));
        names.all(|name| name.is_ok_and(|name| matches!(name.to_bytes(), b"." | b"..")))
    })
}

/// Moves the files that are missing at `to` from the complete copy at `from`. Returns `false`, and moves nothing, if an
/// existing file differs.
///
/// # Errors
/// I/O errors, with the path.
pub fn complete(
    from: &ObjectLocation,
    to: &ObjectLocation,
    layout: &Layout,
    policy: &InboxPolicy,
) -> io::Result<bool> {
    if !may_be_part(to, layout, policy) {
        return Ok(false);
    }
    let mut opened = WritableDirectories { place: to, directories: Vec::new() };
    opened.open_all(layout)?;
    if !may_be_part(to, layout, policy) {
        return Ok(false);
    }
    let Some(lacking) = missing_files(from, to, layout)? else { return Ok(false) };
    for entry in &layout.entries {
        let path = to.path(entry.path.as_bytes());
        let made = match entry.kind {
            LayoutKind::Directory => make_directory(to, &path),
            _ if lacking.contains(entry.path.as_bytes()) => move_new(from, to, entry),
            // Equal files stay. Links are created later.
            _ => Ok(()),
        };
        made.map_err(|e| named(&path, &e))?;
    }
    // The directories' final modes are set later, so their earlier modes need not be restored.
    opened.directories.clear();
    Ok(true)
}

fn has_content(entry: &LayoutEntry) -> bool {
    matches!(entry.kind, LayoutKind::File { .. }) && entry.same_as().is_none()
}

/// Directories to which this process gained access. Dropping this restores their modes.
struct WritableDirectories<'a> {
    place: &'a ObjectLocation,
    /// Paths and earlier modes.
    directories: Vec<(Vec<u8>, Mode)>,
}

impl WritableDirectories<'_> {
    /// Gives this process all rights to the existing directories of `layout`.
    fn open_all(&mut self, layout: &Layout) -> io::Result<()> {
        let place = self.place;
        for entry in layout.entries.iter().filter(|entry| entry.kind == LayoutKind::Directory) {
            let path = place.path(entry.path.as_bytes());
            match below(&place.directory, &path, OFlags::PATH | OFlags::DIRECTORY) {
                Err(Errno::NOENT) => continue,
                found => {
                    let found = found.map_err(|e| named(&path, &e.into()))?;
                    let mode = Mode::from_raw_mode(fstat(&found)?.st_mode);
                    if !mode.contains(Mode::RWXU) {
                        allow(place, &path, FileType::Directory).map_err(|e| named(&path, &e))?;
                        self.directories.push((path, mode));
                    }
                }
            }
        }
        Ok(())
    }
}

impl Drop for WritableDirectories<'_> {
    fn drop(&mut self) {
        let opened = self.directories.iter().rev();
        opened.for_each(|(path, mode)| close(self.place, path, *mode));
    }
}

/// Restores a directory's mode. If that fails, its owner keeps more rights than before.
fn close(place: &ObjectLocation, path: &[u8], mode: Mode) {
    let opened = below(&place.directory, path, OFlags::PATH | OFlags::DIRECTORY);
    _ = opened.and_then(|found| chmodat(CWD, path_of(&found), mode, AtFlags::empty()));
}

/// The paths of files that are missing at `to`; `None` if an existing file differs.
fn missing_files<'a>(
    from: &ObjectLocation,
    to: &ObjectLocation,
    layout: &'a Layout,
) -> io::Result<Option<BTreeSet<&'a [u8]>>> {
    let mut lacking = BTreeSet::new();
    for entry in layout.entries.iter().filter(|entry| has_content(entry)) {
        match compare(from, to, entry)? {
            Comparison::Lacking => _ = lacking.insert(entry.path.as_bytes()),
            Comparison::Equal => {}
            Comparison::Other => return Ok(None),
        }
    }
    Ok(Some(lacking))
}

/// The result of comparing a file with the one at its destination.
enum Comparison {
    Lacking,
    Equal,
    Other,
}

fn compare(
    from: &ObjectLocation,
    to: &ObjectLocation,
    entry: &LayoutEntry,
) -> io::Result<Comparison> {
    let open = |place: &ObjectLocation| {
        let path = place.path(entry.path.as_bytes());
        let opened = below(&place.directory, &path, OFlags::RDONLY | OFlags::NONBLOCK);
        opened.map(File::from).map_err(|e| named(&path, &e.into()))
    };
    match open(to) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(Comparison::Lacking),
        there => match is_equal(open(from)?, there?)? {
            true => Ok(Comparison::Equal),
            false => Ok(Comparison::Other),
        },
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

/// Moves a file that was missing. If a file has appeared there meanwhile, this fails and leaves it in place, because it
/// was not compared.
fn move_new(from: &ObjectLocation, to: &ObjectLocation, entry: &LayoutEntry) -> io::Result<()> {
    let [old, new] = [from, to].map(|place| place.path(entry.path.as_bytes()));
    let ((old_above, old), (new_above, new)) = (above(from, &old)?, above(to, &new)?);
    let (old, new) = (OsStr::from_bytes(old), OsStr::from_bytes(new));
    Ok(renameat_with(old_above, old, new_above, new, RenameFlags::NOREPLACE)?)
}
