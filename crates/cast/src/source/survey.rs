//! Examines what is to be cast: a file, or a directory with everything below it.

use crate::disk::{ObjectLocation, open_directory};
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs, io,
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::MetadataExt as _,
    },
    path::{Path, PathBuf},
    sync::Arc,
};
use thalweg_part::{Fidelity, describe::Describer};
use thalweg_wire::{
    cast::{Layout, LayoutEntry, LayoutKind, LayoutMetadata, MAX_ENTRIES},
    object::{ExtraMetadata, FilePath, FileTime, Keep, is_reserved},
};
use thiserror::Error;

/// Why a path cannot be cast.
#[derive(Debug, Error)]
pub enum SurveyError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The path is neither a file nor a directory.
    #[error("{}: it is neither a file nor a directory", .0.display())]
    Special(PathBuf),
    /// The path has no name that receivers could use.
    #[error("{}: it has no name that receivers could use; cast something below it", .0.display())]
    Name(PathBuf),
    /// The directory has too many entries.
    #[error("{}: more than {MAX_ENTRIES} files, directories and links; cast parts of it", .0.display())]
    Many(PathBuf),
}

/// The result of a survey.
#[derive(Debug)]
pub struct Survey {
    pub place: ObjectLocation,
    /// The object's path.
    pub root: PathBuf,
    pub layout: Arc<Layout>,
    /// Bytes of all files.
    pub length: u64,
    /// A hash of the layout's entries and of all files' identities, sizes and times.
    pub snapshot: [u8; 32],
    /// Pipes, sockets, devices and Thalweg's own files, which are left out.
    pub passed_over: Vec<PathBuf>,
    /// Entries that cannot be read and are left out, with the errors.
    pub unread: Vec<(PathBuf, io::Error)>,
}

impl Survey {
    /// Leaves out these entries and all further names of these files, and adds them to `unread`. Nothing remains of an
    /// object that is one file.
    pub fn leave_out(&mut self, failed: Vec<(u32, io::Error)>) {
        let failed: BTreeMap<u32, io::Error> = failed.into_iter().collect();
        let (mut kept, mut numbers) = (Vec::new(), BTreeMap::new());
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.snapshot);
        for (number, mut entry) in (0..).zip(self.layout.entries.iter().cloned()) {
            let first = entry.same_as();
            if let Some(why) = failed.get(&first.unwrap_or(number)) {
                hasher.update(&number.to_be_bytes());
                self.unread.push((self.path_of(&entry), self.without_path(&entry, first, why)));
                continue;
            }
            if let (Some(first), Some(more)) = (first, &mut entry.more) {
                more.same_as = numbers.get(&first).copied();
            }
            numbers.insert(number, kept.len() as u32);
            kept.push(entry);
        }
        self.length = length(&kept);
        self.snapshot = *hasher.finalize().as_bytes();
        self.layout = Arc::new(Layout { entries: kept, owners: self.layout.owners.clone() });
    }

    fn path_of(&self, entry: &LayoutEntry) -> PathBuf {
        let below = Path::new(OsStr::from_bytes(entry.path.as_bytes()));
        if entry.path.as_bytes().is_empty() { self.root.clone() } else { self.root.join(below) }
    }

    /// The error for an entry's file, without the file's first name, with which the message begins.
    fn without_path(&self, entry: &LayoutEntry, first: Option<u32>, why: &io::Error) -> io::Error {
        let read = first.and_then(|first| self.layout.entries.get(first as usize));
        let path = self.place.path(read.unwrap_or(entry).path.as_bytes());
        let (text, prefix) = (why.to_string(), format!("{}: ", path.escape_ascii()));
        io::Error::new(why.kind(), text.strip_prefix(&prefix).unwrap_or(&text).to_owned())
    }

    /// Whether the object is one file.
    pub fn is_file(&self) -> bool {
        matches!(&self.layout.entries[..], [LayoutEntry { kind: LayoutKind::File { .. }, .. }])
    }

    /// The number of files and directories with set-user-ID, set-group-ID or sticky bits, which receivers do not keep.
    pub fn count_special_bits(&self) -> u64 {
        let is_link = |kind: &LayoutKind| matches!(kind, LayoutKind::Symlink { .. });
        let has = |entry: &&LayoutEntry| entry.mode & 0o7000 != 0 && !is_link(&entry.kind);
        self.layout.entries.iter().filter(has).count() as u64
    }
}

/// Examines a file or directory without reading content. Symbolic links on the way to `path` are followed, those below
/// it are cast as links.
///
/// # Errors
/// [`SurveyError`].
pub fn survey(path: &Path, fidelity: Fidelity) -> Result<Survey, SurveyError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| SurveyError::Io { path, source }
    };
    let real = fs::canonicalize(path).map_err(failed(path))?;
    let name = real.file_name().ok_or_else(|| SurveyError::Name(path.to_owned()))?;
    let above = real.parent().ok_or_else(|| SurveyError::Name(path.to_owned()))?;
    let directory = Arc::new(open_directory(above).map_err(failed(above))?);
    let place = ObjectLocation { directory, name: name.as_bytes().to_vec() };
    // Each receiver decides whether it sets owners.
    let describer = Describer::new(fidelity.requested_fields(true).without(Keep::HOLES));
    let (found, passed_over, unread) = Default::default();
    let mut walk = Walk { root: real.clone(), fidelity, describer, found, passed_over, unread };
    walk.look(&real)?;
    if walk.found.is_empty() {
        return Err(SurveyError::Special(path.to_owned()));
    }
    let Walk { mut found, passed_over, unread, mut describer, .. } = walk;
    found.sort_by(|a, b| a.0.path.cmp(&b.0.path));
    if fidelity.hard_links {
        link(&mut found);
    }
    let mut hasher = blake3::Hasher::new();
    if fidelity != Fidelity::default() {
        // With another fidelity, the same files have another layout.
        let Fidelity { hard_links, xattrs, acls, owner, group, numeric_ids, set_id: _ } = fidelity;
        hasher.update(&[hard_links, xattrs, acls, owner, group, numeric_ids].map(u8::from));
    }
    for (entry, identity) in &found {
        hasher.update(&(entry.path.as_bytes().len() as u64).to_be_bytes());
        hasher.update(entry.path.as_bytes()).update(identity);
    }
    let entries: Vec<_> = found.into_iter().map(|(entry, _)| entry).collect();
    let length = length(&entries);
    let owners = describer.new_owners().unwrap_or_default();
    for (number, name) in owners.users.iter().chain(&owners.groups) {
        // A user's ID may change while no file does.
        hasher.update(&number.to_be_bytes()).update(name).update(&[0]);
    }
    let (layout, snapshot) = (Arc::new(Layout { entries, owners }), *hasher.finalize().as_bytes());
    Ok(Survey { place, root: real, layout, length, snapshot, passed_over, unread })
}

/// The bytes of all files.
fn length(entries: &[LayoutEntry]) -> u64 {
    let bytes = |entry: &LayoutEntry| match entry.kind {
        LayoutKind::File { length } => length,
        _ => 0,
    };
    entries.iter().map(bytes).fold(0, u64::saturating_add)
}

/// Marks further names of a file as hard links without bytes of their own.
fn link(found: &mut [(LayoutEntry, [u8; 48])]) {
    let mut known: BTreeMap<[u8; 16], u32> = BTreeMap::new();
    for (number, (entry, identity)) in (0..).zip(found) {
        let LayoutKind::File { length } = &mut entry.kind else { continue };
        // The device and the inode.
        let Some(file) = identity.first_chunk::<16>() else { continue };
        match known.get(file) {
            None => _ = known.insert(*file, number),
            Some(first) => {
                *length = 0;
                // All other metadata is taken from the first entry.
                let same_as = Some(*first);
                entry.more =
                    Some(Box::new(LayoutMetadata { same_as, ..LayoutMetadata::default() }));
            }
        }
    }
}

struct Walk {
    root: PathBuf,
    fidelity: Fidelity,
    describer: Describer,
    found: Vec<(LayoutEntry, [u8; 48])>,
    passed_over: Vec<PathBuf>,
    unread: Vec<(PathBuf, io::Error)>,
}

impl Walk {
    /// Examines the entries of a directory; leaves out those that cannot be read.
    fn look_below(&mut self, directory: &Path) -> Result<(), SurveyError> {
        let inside = fs::read_dir(directory).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let inside =
            inside.map_err(|source| SurveyError::Io { path: directory.to_owned(), source });
        let inside = match inside {
            // If the object itself cannot be listed, nothing remains.
            Err(SurveyError::Io { path, source }) if directory != self.root => {
                self.unread.push((path, source));
                return Ok(());
            }
            inside => inside?,
        };
        for entry in inside {
            match self.look(&entry.path()) {
                Err(SurveyError::Io { path, source }) => self.unread.push((path, source)),
                looked => looked?,
            }
        }
        Ok(())
    }

    fn look(&mut self, path: &Path) -> Result<(), SurveyError> {
        let is_own = path.file_name().is_some_and(|name| is_reserved(name.as_bytes()));
        if is_own && path != self.root {
            self.passed_over.push(path.to_owned());
            return Ok(());
        }
        let failed = |source| SurveyError::Io { path: path.to_owned(), source };
        let seen = fs::symlink_metadata(path).map_err(failed)?;
        let kind = match seen.file_type() {
            kind if kind.is_file() => {
                check_readable(path).map_err(failed)?;
                LayoutKind::File { length: seen.len() }
            }
            kind if kind.is_dir() => LayoutKind::Directory,
            kind if kind.is_symlink() => {
                let target = fs::read_link(path).map_err(failed)?;
                LayoutKind::Symlink { target: target.into_os_string().into_vec() }
            }
            _ => {
                self.passed_over.push(path.to_owned());
                return Ok(());
            }
        };
        if self.found.len() >= MAX_ENTRIES {
            return Err(SurveyError::Many(self.root.clone()));
        }
        let below = path.strip_prefix(&self.root).unwrap_or(Path::new(""));
        let below = FilePath::new(below.as_os_str().as_bytes().to_vec());
        let below = below.map_err(|e| failed(io::Error::new(io::ErrorKind::InvalidInput, e)))?;
        let is_directory = kind == LayoutKind::Directory;
        let mut entry = entry(below, kind, &seen);
        let Fidelity { owner, group, .. } = self.fidelity;
        if owner || group {
            let more = entry.more.get_or_insert_default();
            more.user = owner.then_some(seen.uid());
            more.group = group.then_some(seen.gid());
        }
        // Holes are not looked for: receivers find them as runs of zeros.
        let itself = || openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let described = self.describer.describe((&seen).into(), || None, itself);
        if let Some(more) = described.map_err(|e| failed(e.into()))? {
            entry.more.get_or_insert_default().more.xattrs = more.xattrs;
        }
        self.found.push((entry, identity(&seen)));
        if is_directory {
            self.look_below(path)?;
        }
        Ok(())
    }
}

/// Whether a file can be opened for reading. Does not block: a pipe may have replaced the file.
fn check_readable(path: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(openat(CWD, path, flags, Mode::empty()).map(drop)?)
}

fn nanos(seconds: i64, nanos: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

fn entry(path: FilePath, kind: LayoutKind, seen: &fs::Metadata) -> LayoutEntry {
    let mode = (seen.mode() & 0o7777) as u16;
    let modified = FileTime::from_stat(seen.mtime(), seen.mtime_nsec());
    let blocks = seen.blocks().saturating_mul(512);
    let is_sparse = seen.is_file() && blocks < seen.len().saturating_sub(4096);
    let holes = ExtraMetadata { holes: Some(Vec::new()), ..ExtraMetadata::default() };
    let more =
        is_sparse.then(|| Box::new(LayoutMetadata { more: holes, ..LayoutMetadata::default() }));
    LayoutEntry { path, kind, mode, modified, more }
}

fn identity(seen: &fs::Metadata) -> [u8; 48] {
    let modified = nanos(seen.mtime(), seen.mtime_nsec());
    let changed = nanos(seen.ctime(), seen.ctime_nsec());
    let numbers = [
        seen.dev(),
        seen.ino(),
        seen.len(),
        modified.cast_unsigned(),
        changed.cast_unsigned(),
        seen.mode().into(),
    ];
    let mut identity = [0; 48];
    for (place, number) in identity.as_chunks_mut::<8>().0.iter_mut().zip(numbers) {
        *place = number.to_be_bytes();
    }
    identity
}
