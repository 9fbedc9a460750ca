//! Opens files below an offered directory. The kernel resolves the path and refuses to leave the directory
//! (openat2(2)), whatever links exist or are created meanwhile.

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2, statat},
    io::Errno,
};
use std::{
    ffi::OsStr,
    io,
    os::{
        fd::OwnedFd,
        unix::ffi::{OsStrExt as _, OsStringExt as _},
    },
};
use thalweg_wire::object::{Failure, FilePath, FileTime, Snapshot};

/// An open directory from which paths are resolved.
#[derive(Debug)]
pub(super) struct Root {
    descriptor: OwnedFd,
    /// The paths of an offered directory on this host: as configured, and without links. An absolute link to a path
    /// below one of these stays inside. Empty for other directories.
    names: Vec<Vec<u8>>,
}

/// Neither `..` nor links may leave the directory, and links in /proc are not followed.
const WITHIN: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// Opening a device or a FIFO must not block or have an effect.
const WITHOUT_EFFECTS: OFlags =
    OFlags::CLOEXEC.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::NOFOLLOW);

/// The most links that are followed for one path, as in the kernel (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// The most attempts while directories are being renamed. 100 renames in a row on one path do not happen in practice.
const MAX_TRIES: u32 = 100;

impl Root {
    /// Opens an offered directory; its configured path may contain links.
    pub fn open(path: &[u8]) -> Result<Self, Failure> {
        let named = path;
        let path = if path.is_empty() { b"/" } else { path };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(OsStr::from_bytes(path), flags, Mode::empty());
        let descriptor = opened.map_err(|e| failure(path, e))?;
        let real = std::fs::canonicalize(OsStr::from_bytes(path));
        let real = real.map(|real| real.into_os_string().into_vec());
        let mut names = vec![named.to_vec()];
        names.extend(real.ok().filter(|real| real != named));
        Ok(Self { descriptor, names })
    }

    /// Opens a directory below, following links that stay inside.
    pub fn directory(&self, path: &[u8]) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        self.within(path, flags).map(Self::unnamed)
    }

    fn unnamed(descriptor: OwnedFd) -> Self {
        Self { descriptor, names: Vec::new() }
    }

    /// Opens a path below, following links that stay inside. The kernel refuses every absolute link with `EXDEV`; the
    /// path is then resolved here and opened again without links.
    fn within(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        match within(&self.descriptor, path, flags, WITHIN) {
            Err(Errno::XDEV) if !self.names.is_empty() => {
                let plain = self.followed(path, !flags.contains(OFlags::NOFOLLOW))?;
                within(&self.descriptor, &plain, flags, WITHIN | ResolveFlags::NO_SYMLINKS)
            }
            done => done,
        }
    }

    /// Resolves the links of a path; with `last` also a link at its end. Changes to the directory meanwhile do no harm,
    /// since the resolved path is opened without following links.
    fn followed(&self, path: &[u8], last: bool) -> Result<Vec<u8>, Errno> {
        let mut left: Vec<Vec<u8>> = parts(path);
        let (mut done, mut links) = (Vec::<Vec<u8>>::new(), 0);
        while let Some(part) = left.pop() {
            if part == b".." {
                done.pop().ok_or(Errno::XDEV)?;
                continue;
            }
            let at = [&done[..], std::slice::from_ref(&part)].concat().join(&b'/');
            let is_last = left.is_empty() && !last;
            let target = if is_last { None } else { self.target(&at)? };
            let Some(target) = target else {
                done.push(part);
                continue;
            };
            links += 1;
            if links > MAX_LINKS {
                return Err(Errno::LOOP);
            }
            if target.starts_with(b"/") {
                let below = self.names.iter().find_map(|name| inside(name, &target));
                left.extend(parts(below.ok_or(Errno::XDEV)?));
                done.clear();
            } else {
                left.extend(parts(&target));
            }
        }
        Ok(done.join(&b'/'))
    }

    /// The target of the item at this path if it is a link; `None` for other items.
    fn target(&self, path: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let found = within(&self.descriptor, path, flags, WITHIN | ResolveFlags::NO_SYMLINKS)?;
        if FileType::from_raw_mode(fstat(&found)?.st_mode) != FileType::Symlink {
            return Ok(None);
        }
        Ok(Some(rustix::fs::readlinkat(found, "", Vec::new())?.into_bytes()))
    }

    /// Opens the directory with this name; a link is an error.
    pub fn open_subdirectory(&self, name: &[u8]) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        within(&self.descriptor, name, flags, WITHIN).map(Self::unnamed)
    }

    /// Opens a directory below for listing, without following links.
    pub fn entries(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let plain = WITHIN | ResolveFlags::NO_SYMLINKS;
        within(&self.descriptor, path, flags, plain)
    }

    /// Opens a regular file below for reading and returns its status. A link at the end of the path is not followed.
    pub fn file(&self, path: &[u8]) -> Result<(OwnedFd, Stat), Errno> {
        let file = self.within(path, OFlags::RDONLY | WITHOUT_EFFECTS)?;
        let found = fstat(&file)?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => Ok((file, found)),
            FileType::Directory => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        }
    }

    /// Returns the status of the item at a path. A link at the end of the path is not followed; links before it are if
    /// they stay inside.
    pub fn stat(&self, path: &[u8]) -> Result<Stat, Errno> {
        fstat(self.open_item(path)?)
    }

    /// Opens the item at a path with `O_PATH`. A link at the end of the path is not followed.
    pub fn open_item(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        self.within(path, OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW)
    }

    /// Returns the target of the link at this path.
    pub fn link(&self, path: &[u8]) -> Result<Vec<u8>, Errno> {
        Ok(rustix::fs::readlinkat(self.open_item(path)?, "", Vec::new())?.into_bytes())
    }

    /// The descriptor, for system calls that take a directory.
    pub fn as_fd(&self) -> &OwnedFd {
        &self.descriptor
    }
}

/// The components of a path, the last first.
fn parts(path: &[u8]) -> Vec<Vec<u8>> {
    let parts = path.rsplit(|letter| *letter == b'/');
    parts.filter(|part| !part.is_empty() && *part != b".").map(<[u8]>::to_vec).collect()
}

/// The part of an absolute path behind `directory`; `None` if the path is not in it.
fn inside<'a>(directory: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(directory)?;
    (rest.is_empty() || rest.starts_with(b"/")).then_some(rest)
}

/// Returns the status of the item with this name in an open directory; links are not followed.
pub(super) fn stat_in(directory: &OwnedFd, part: &std::ffi::CStr) -> Result<Stat, Errno> {
    statat(directory, part, AtFlags::SYMLINK_NOFOLLOW)
}

/// Opens a path below a directory, or for the empty path the directory itself. Retries on `EAGAIN`, which the kernel
/// may return while directories are being renamed.
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
            Err(Errno::AGAIN) if tries < MAX_TRIES => tries += 1,
            done => return done,
        }
    }
}

/// The identity of a file's content, from its status.
pub(super) fn snapshot(found: &Stat) -> Snapshot {
    Snapshot {
        device: found.st_dev,
        inode: found.st_ino,
        size: found.st_size.max(0) as u64,
        modified_ns: modified(found).as_nanos(),
        changed_ns: FileTime::from_stat(found.st_ctime, found.st_ctime_nsec).as_nanos(),
    }
}

/// The time of the last change of the content.
pub(super) fn modified(found: &Stat) -> FileTime {
    FileTime::from_stat(found.st_mtime, found.st_mtime_nsec)
}

/// The failure that is sent for a failed system call.
pub(super) fn failure(path: &[u8], e: Errno) -> Failure {
    let path = display_path(path);
    Failure::System(match e {
        Errno::XDEV => format!("{path}: a symbolic link leads out of the offered directory"),
        Errno::LOOP => format!("{path}: it is a symbolic link, or a loop of symbolic links"),
        Errno::ISDIR => format!("{path}: it is a directory"),
        Errno::INVAL => format!("{path}: it is not a regular file"),
        Errno::NOSYS => {
            "the node's kernel is older than Linux 5.6, which is needed to open files safely".into()
        }
        e => format!("{path}: {}", io::Error::from(e)),
    })
}

/// Formats a path for messages.
pub(super) fn display_path(path: &[u8]) -> String {
    // `FilePath` escapes paths, but cannot begin with `/`.
    let (first, rest) = match path {
        [b'/', rest @ ..] => ("/", rest),
        rest => ("", rest),
    };
    match FilePath::new(rest.to_vec()) {
        Ok(rest) => format!("{first}{rest}"),
        Err(_) => format!("{first}{}", rest.escape_ascii()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    #[test]
    fn links_are_followed_only_inside_the_offered_directory() {
        let dir = tempfile::tempdir().unwrap();
        let offer = fs::canonicalize(dir.path()).unwrap().join("offer");
        fs::create_dir_all(offer.join("releases/42")).unwrap();
        fs::write(offer.join("releases/42/app"), "v42").unwrap();
        fs::create_dir(dir.path().join("outside")).unwrap();
        fs::write(dir.path().join("outside/s"), "secret").unwrap();
        symlink(&offer, dir.path().join("named")).unwrap();
        let link = |to: &std::path::Path, name: &str| symlink(to, offer.join(name)).unwrap();
        link(&offer.join("releases/42"), "absolute");
        link("releases/42".as_ref(), "relative");
        link(&dir.path().join("named/releases"), "by_name");
        link(&offer.join("absolute"), "twice");
        link(&offer.join("releases/../relative"), "back");
        link("absolute".as_ref(), "mixed");
        link(&dir.path().join("outside"), "out");
        link(&offer.join("../outside"), "up");
        link(&offer.join("loop"), "loop");
        link(&dir.path().join("offering"), "prefix");
        let root = Root::open(dir.path().join("named").as_os_str().as_bytes()).unwrap();
        for (path, opens) in [
            ("absolute/app", Ok(())),
            ("relative/app", Ok(())),
            ("by_name/42/app", Ok(())),
            ("twice/app", Ok(())),
            ("back/app", Ok(())),
            ("mixed/app", Ok(())),
            ("out/s", Err(Errno::XDEV)),
            ("up/s", Err(Errno::XDEV)),
            ("loop/app", Err(Errno::LOOP)),
            ("prefix/app", Err(Errno::XDEV)),
            ("absolute", Err(Errno::LOOP)),
            ("absolute/none", Err(Errno::NOENT)),
        ] {
            assert_eq!(root.file(path.as_bytes()).map(drop), opens, "{path}");
        }
        assert!(root.directory(b"twice").is_ok());
        assert_eq!(root.directory(b"out").map(drop), Err(Errno::XDEV));
        assert!(
            root.stat(b"absolute")
                .is_ok_and(|found| { FileType::from_raw_mode(found.st_mode) == FileType::Symlink })
        );
    }
}
