//! Opening files so that nothing leads out of what is offered, whatever links are there or come
//! to be there meanwhile: the kernel resolves the path and refuses to leave (openat2(2)).

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2, statat},
    io::Errno,
};
use std::{
    ffi::OsStr,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
};
use thalweg_wire::object::{Failure, FilePath, Snapshot};

/// A directory, and the way back to its path for messages.
#[derive(Debug)]
pub(super) struct Root(OwnedFd);

/// Neither `..` nor links lead out, nor those of /proc; the last part is no link at all.
const WITHIN: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// A device or a fifo must not make anybody wait or do anything.
const CALM: OFlags =
    OFlags::CLOEXEC.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::NOFOLLOW);

/// Renames come one after the other; 100 of them all in our way do not happen.
const TRIES: u32 = 100;

impl Root {
    /// An offered directory; the operator may have named it by a link.
    pub fn open(path: &[u8]) -> Result<Self, Failure> {
        let path = if path.is_empty() { b"/" } else { path };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(OsStr::from_bytes(path), flags, Mode::empty());
        opened.map(Self).map_err(|e| failure(path, e))
    }

    /// A directory below, by links that stay inside.
    pub fn directory(&self, path: &[u8]) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        within(&self.0, path, flags, WITHIN).map(Self)
    }

    /// The directory of this name in this one; no link.
    pub fn plain(&self, name: &[u8]) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        within(&self.0, name, flags, WITHIN).map(Self)
    }

    /// The entries of a directory below, by no link at all.
    pub fn entries(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let plain = WITHIN | ResolveFlags::NO_SYMLINKS;
        within(&self.0, path, flags, plain)
    }

    /// A file below for reading, with what it is; the last part is not followed.
    pub fn file(&self, path: &[u8]) -> Result<(OwnedFd, Stat), Errno> {
        let file = within(&self.0, path, OFlags::RDONLY | CALM, WITHIN)?;
        let found = fstat(&file)?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => Ok((file, found)),
            FileType::Directory => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        }
    }

    /// What is there, links themselves; the part before the last by links that stay inside.
    pub fn look(&self, path: &[u8]) -> Result<Stat, Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        fstat(within(&self.0, path, flags, WITHIN)?)
    }

    /// Where the link at this path points.
    pub fn link(&self, path: &[u8]) -> Result<Vec<u8>, Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let link = within(&self.0, path, flags, WITHIN)?;
        Ok(rustix::fs::readlinkat(link, "", Vec::new())?.into_bytes())
    }

    /// For system calls that take a directory.
    pub fn as_fd(&self) -> &OwnedFd {
        &self.0
    }
}

/// What is in an open directory under this name, links themselves.
pub(super) fn look_in(directory: &OwnedFd, part: &std::ffi::CStr) -> Result<Stat, Errno> {
    statat(directory, part, AtFlags::SYMLINK_NOFOLLOW)
}

/// Opens what is below, or the directory itself. The kernel may ask to try again while
/// directories are being renamed.
fn within(
    directory: &OwnedFd,
    path: &[u8],
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let path = OsStr::from_bytes(if path.is_empty() { b"." } else { path });
    let mut tries = 0;
    loop {
        match openat2(directory, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) if tries < TRIES => tries += 1,
            done => return done,
        }
    }
}

/// The identity of a file's content.
pub(super) fn snapshot(found: &Stat) -> Snapshot {
    Snapshot {
        device: found.st_dev,
        inode: found.st_ino,
        size: found.st_size.max(0) as u64,
        modified_ns: nanos(found.st_mtime, found.st_mtime_nsec),
        changed_ns: nanos(found.st_ctime, found.st_ctime_nsec),
    }
}

/// When the content last changed, ns since 1970.
pub(super) fn modified(found: &Stat) -> i64 {
    nanos(found.st_mtime, found.st_mtime_nsec)
}

/// Years 1677 to 2262; what is beyond is moved to the end.
fn nanos(seconds: i64, nanos: impl TryInto<i64>) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos.try_into().unwrap_or(0))
}

/// What is said of a failed system call.
pub(super) fn failure(path: &[u8], e: Errno) -> Failure {
    let path = shown(path);
    Failure::System(match e {
        Errno::XDEV => format!("{path}: a symbolic link leads out of what is offered"),
        Errno::LOOP => format!("{path}: it is a symbolic link, or a loop of them"),
        Errno::ISDIR => format!("{path}: it is a directory"),
        Errno::INVAL => format!("{path}: it is no regular file"),
        Errno::NOSYS => "its kernel is older than Linux 5.6, which can open files safely".into(),
        e => format!("{path}: {}", io::Error::from(e)),
    })
}

/// A path for people.
pub(super) fn shown(path: &[u8]) -> String {
    // `FilePath` knows how to escape; it cannot begin with `/`.
    let (first, rest) = match path {
        [b'/', rest @ ..] => ("/", rest),
        rest => ("", rest),
    };
    match FilePath::new(rest.to_vec()) {
        Ok(rest) => format!("{first}{rest}"),
        Err(_) => format!("{first}{}", rest.escape_ascii()),
    }
}
