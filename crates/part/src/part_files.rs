//! The names of a part's files, their lock and their directory.

use super::{
    PartError,
    leftover::{self, Leftover},
};
use rustix::fs::{FlockOperation, OFlags, flock};
use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, FileType, Metadata, OpenOptions},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};
use thalweg_base::{locked_file::LockedFile, space::Space};

/// The target and the temporary files beside it, on the same filesystem, so that publication is a single rename.
#[derive(Clone, Debug)]
pub(super) struct PartFiles {
    pub(super) target: PathBuf,
    pub(super) part: PathBuf,
    pub(super) journal: PathBuf,
    /// False for a file without a name: there is nothing beside it, and nothing to remove.
    pub(super) named: bool,
}

impl PartFiles {
    /// Returns the names for `target`. If it is a symbolic link, its destination is created or replaced, not the link.
    ///
    /// # Errors
    /// If the target has no file name, is a directory or a device, or is a link into a missing directory.
    pub(super) fn resolve(target: &Path) -> Result<Self, PartError> {
        let not = |what| PartError::NotAFile { path: target.to_owned(), what };
        let mut found = fs::symlink_metadata(target).ok();
        let target = match &found {
            Some(m) if m.is_symlink() => {
                let led = follow(target).map_err(PartError::io("follow the link", target))?;
                found = fs::metadata(&led).ok();
                led
            }
            _ => target.to_owned(),
        };
        refuse(found.as_ref().map(Metadata::file_type)).map_err(not)?;
        Self::beside(target).ok_or_else(|| not("a path without a file name"))
    }

    /// Returns the names for `target`. A link is not followed but replaced itself.
    ///
    /// # Errors
    /// If the target has no file name, or is a directory or a device.
    pub(super) fn without_following(target: &Path) -> Result<Self, PartError> {
        let not = |what| PartError::NotAFile { path: target.to_owned(), what };
        let found = fs::symlink_metadata(target).ok().map(|m| m.file_type());
        refuse(found.filter(|kind| !kind.is_symlink())).map_err(not)?;
        Self::beside(target.to_owned()).ok_or_else(|| not("a path without a file name"))
    }

    /// Returns the names for a target that is not a link.
    fn beside(target: PathBuf) -> Option<Self> {
        let name = target.file_name()?;
        let short = short_name(name);
        let beside = |suffix: &str| {
            let mut hidden = OsString::from(".");
            hidden.push(short.as_deref().unwrap_or(name));
            hidden.push(suffix);
            target.with_file_name(hidden)
        };
        let (part, journal) = (beside(".thalweg-part"), beside(".thalweg-journal"));
        Some(Self { target, part, journal, named: true })
    }

    /// Returns the names for a journal's name in this directory; `None` if it is not one. The target stays unknown,
    /// because names may be shortened.
    pub(super) fn from_journal_name(directory: &Path, name: &OsStr) -> Option<Self> {
        let stem = name.as_bytes().strip_suffix(b".thalweg-journal")?;
        let part = OsStr::from_bytes(&[stem, b".thalweg-part"].concat()).to_owned();
        let named = stem.starts_with(b".") && stem.len() > 1;
        let journal = directory.join(name);
        let files = Self { target: journal.clone(), part: directory.join(part), journal, named };
        named.then_some(files)
    }

    /// Whether neither `target` nor its journal exists, by two lookups.
    pub(super) fn is_untouched(target: &Path) -> bool {
        let absent = |path: &Path| {
            fs::symlink_metadata(path).is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
        };
        absent(target) && Self::beside(target.to_owned()).is_some_and(|p| absent(&p.journal))
    }

    /// Creates a file without a name in `directory`, or else in the directory for temporary files.
    ///
    /// Filesystems without such files (overlayfs before Linux 6.3, NFS, FUSE) get one with a name that is removed at
    /// once.
    pub(super) fn unnamed(directory: Option<&Path>) -> Result<(Self, File), PartError> {
        let directory = directory.map_or_else(std::env::temp_dir, Path::to_owned);
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        let flags = OFlags::TMPFILE.bits() as i32;
        let file = match options.custom_flags(flags).open(&directory) {
            Err(e) if has_no_unnamed_files(&e) => create_and_unlink(&directory, &mut options),
            opened => opened,
        };
        let file = file.map_err(PartError::io("create a temporary file in", &directory))?;
        let part = directory.join("(a temporary file)");
        // A description instead of its own name, which would help nobody.
        let target = PathBuf::from("standard output");
        Ok((Self { target, journal: part.clone(), part, named: false }, file))
    }

    /// Opens the data file and locks it against other processes.
    ///
    /// The lock is on the file itself. Between opening and locking, its owner may have renamed it to the target; then
    /// the attempt is repeated. A planted file in its place is removed and never written to.
    ///
    /// # Errors
    /// [`PartError::Busy`] if another process has locked it.
    pub(super) fn lock(&self) -> Result<LockedFile, PartError> {
        loop {
            let (file, ours) = match self.open()? {
                Leftover::Ours(file) => (file, true),
                Leftover::Planted(Some(file)) => (file, false),
                Leftover::Planted(None) => {
                    remove(&self.part)?;
                    continue;
                }
                Leftover::Nothing => continue,
            };
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(e) if e == rustix::io::Errno::WOULDBLOCK => {
                    return Err(PartError::Busy(self.target.clone()));
                }
                done => done.map_err(|e| PartError::io("lock", &self.part)(e.into()))?,
            }
            match is_name_of(&self.part, &file)? {
                true if ours => return Ok(LockedFile::new(file)),
                true => remove(&self.part)?,
                false => {}
            }
        }
    }

    /// Creates a file that only the owner may read until it is published, or opens the existing one.
    fn open(&self) -> Result<Leftover, PartError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        match options.clone().create_new(true).mode(0o600).open(&self.part) {
            Ok(file) => Ok(Leftover::Ours(file)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                leftover::open(&self.part, &mut options)
            }
            Err(e) if e.kind() == io::ErrorKind::StorageFull => {
                Err(PartError::write(&self.part, 0)(e))
            }
            Err(e) => Err(PartError::io("create", &self.part)(e)),
        }
    }

    /// The bytes that this user may still write to the filesystem; `None` if it does not report them.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        space_beside(&self.part).bytes
    }

    /// Removes the temporary files of the locked `file`; missing ones are no error. If another file has taken its name,
    /// which is another process's, nothing is removed.
    ///
    /// The journal goes first: once the name of the locked file is free, another process may begin here.
    pub(super) fn remove(&self, file: &File) -> Result<(), PartError> {
        if !self.named || !is_name_of(&self.part, file)? {
            return Ok(());
        }
        remove(&super::journal::new_name(&self.journal))?;
        remove(&self.journal)?;
        remove(&self.part)
    }
}

/// The space that the filesystem of `file` still offers this user.
pub(super) fn space_beside(file: &Path) -> Space {
    let parent = file.parent().filter(|p| !p.as_os_str().is_empty());
    Space::at(parent.unwrap_or(Path::new(".")))
}

/// Returns the destination of a link. It need not exist: as with open(2), it is created then.
fn follow(link: &Path) -> io::Result<PathBuf> {
    /// The same limit as the kernel's.
    const MAX_LINKS: usize = 40;
    match fs::metadata(link) {
        // The kernel followed the link, so it is allowed here (`protected_symlinks`, proc_sys_fs(5)).
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        found => return found.and_then(|_| fs::canonicalize(link)),
    }
    let mut path = link.to_owned();
    for _ in 0..MAX_LINKS {
        let Some(name) = path.file_name().map(OsStr::to_owned) else { break };
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let directory = fs::canonicalize(parent)?;
        path = directory.join(name);
        match fs::read_link(&path) {
            Ok(to) => path = directory.join(to),
            // Nothing is there, or a file that was created just now; not a link in either case.
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("it does not lead to a file"))
}

/// Refuses anything but a file or nothing, because other things are not replaced.
fn refuse(found: Option<FileType>) -> Result<(), &'static str> {
    match found {
        Some(kind) if kind.is_dir() => Err("a directory"),
        Some(kind) if !kind.is_file() => Err("a device, pipe or socket"),
        _ => Ok(()),
    }
}

/// A short name to use instead of one that leaves no room for the suffixes: no filesystem allows more than 255 bytes
/// (statfs(2)).
fn short_name(name: &OsStr) -> Option<OsString> {
    const ROOM: usize = 255 - 1 - ".thalweg-journal.new".len();
    let long = name.len() > ROOM;
    long.then(|| blake3::hash(name.as_encoded_bytes()).to_hex()[..32].into())
}

/// Whether this is an error of open(2) when the kernel or the filesystem does not support `O_TMPFILE`.
fn has_no_unnamed_files(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    use rustix::io::Errno;
    matches!(code, Some(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT))
}

/// Creates a file in `directory` and removes its name.
fn create_and_unlink(directory: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let name = directory.join(format!(".{:016x}.thalweg-stream", u64::from_ne_bytes(random)));
    let file = options.custom_flags(0).create_new(true).open(&name)?;
    fs::remove_file(&name)?;
    Ok(file)
}

/// Whether `path` still leads to the open `file`. Anybody who may write to the directory may have removed or replaced
/// it.
pub(super) fn is_name_of(path: &Path, file: &File) -> Result<bool, PartError> {
    let ours = file.metadata().map_err(PartError::io("stat", path))?;
    let named = fs::symlink_metadata(path);
    Ok(named.is_ok_and(|named| (named.dev(), named.ino()) == (ours.dev(), ours.ino())))
}

pub(super) fn remove(path: &Path) -> Result<(), PartError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(PartError::io("remove", path)(e)),
        _ => Ok(()),
    }
}

/// Makes the names in the directory of `path` durable.
pub(super) fn sync_directory(path: &Path) -> Result<(), PartError> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match File::open(parent).and_then(|d| d.sync_all()) {
        // The error of network filesystems that do not support syncing a directory (fsync(2)).
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => Ok(()),
        done => done.map_err(PartError::io("sync the directory", parent)),
    }
}
