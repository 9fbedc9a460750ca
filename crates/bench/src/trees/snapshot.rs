//! Reads all that can be observed of a tree.

use anyhow::Context as _;
use rustix::fs::{SeekFrom, lgetxattr, llistxattr, seek};
use sha2::{Digest as _, Sha256};
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs::{self, File, Metadata},
    io::{self, Read as _},
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::{FileTypeExt as _, MetadataExt as _},
    },
    path::Path,
};

/// The maximum size of a value and of the list of extended attributes (linux/limits.h `XATTR_SIZE_MAX`).
const XATTR_MAX: usize = 65_536;

/// A tree: entries by relative path; the root has the empty path.
pub type TreeSnapshot = BTreeMap<Vec<u8>, SnapshotEntry>;

/// An entry.
#[derive(Clone, Debug, PartialEq)]
pub struct SnapshotEntry {
    /// The kind of the entry.
    pub kind: SnapshotKind,
    /// Permissions with set-ID and sticky bits.
    pub mode: u32,
    /// The user id.
    pub owner: u32,
    /// The group id.
    pub group: u32,
    /// Seconds since 1970, and nanoseconds.
    pub modified: (i64, i64),
    /// Extended attributes by name, including ACLs.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first path of the same inode, if it is another one.
    pub same_as: Option<Vec<u8>>,
}

/// The kind of an entry.
#[derive(Clone, Debug, PartialEq)]
pub enum SnapshotKind {
    Directory,
    File {
        /// The length in bytes.
        length: u64,
        /// SHA-256 of its content.
        digest: Vec<u8>,
        /// The number of bytes that it occupies on the disk.
        occupied: u64,
        /// The number of bytes in holes, according to `SEEK_HOLE`.
        holes: u64,
    },
    /// A symbolic link with this text.
    Link(Vec<u8>),
    /// A pipe.
    Fifo,
    Socket,
    /// A device with this number.
    Device(u64),
}

impl SnapshotKind {
    /// The name of the kind.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::File { .. } => "file",
            Self::Link(_) => "link",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::Device(_) => "device",
        }
    }

    /// Whether it is neither a file nor a directory nor a link.
    pub const fn is_special(&self) -> bool {
        matches!(self, Self::Fifo | Self::Socket | Self::Device(_))
    }
}

/// Reads the whole tree at `root`. Files and directories that this user may not read need root.
///
/// # Errors
/// When an entry cannot be read; the error has its path.
pub fn read_tree(root: &Path) -> anyhow::Result<TreeSnapshot> {
    let mut walk = TreeWalk { snapshot: TreeSnapshot::new(), inodes: BTreeMap::new() };
    walk.entry(root, Vec::new())?;
    Ok(walk.snapshot)
}

struct TreeWalk {
    snapshot: TreeSnapshot,
    /// The first path of each inode with several names, by device and inode.
    inodes: BTreeMap<(u64, u64), Vec<u8>>,
}

impl TreeWalk {
    fn entry(&mut self, at: &Path, path: Vec<u8>) -> anyhow::Result<()> {
        let failed = || format!("cannot inspect {}", at.display());
        let about = fs::symlink_metadata(at).with_context(failed)?;
        let kind = kind(at, &about).with_context(failed)?;
        let is_directory = kind == SnapshotKind::Directory;
        let entry = SnapshotEntry {
            kind,
            mode: about.mode() & 0o7777,
            owner: about.uid(),
            group: about.gid(),
            modified: (about.mtime(), about.mtime_nsec()),
            xattrs: xattrs(at).with_context(failed)?,
            same_as: self.same_as(&about, &path),
        };
        self.snapshot.insert(path.clone(), entry);
        if is_directory {
            for name in names(at).with_context(failed)? {
                let mut inner = path.clone();
                if !inner.is_empty() {
                    inner.push(b'/');
                }
                inner.extend_from_slice(name.as_bytes());
                self.entry(&at.join(name), inner)?;
            }
        }
        Ok(())
    }

    fn same_as(&mut self, about: &Metadata, path: &[u8]) -> Option<Vec<u8>> {
        if about.is_dir() || about.nlink() < 2 {
            return None;
        }
        let inode = (about.dev(), about.ino());
        let first = self.inodes.entry(inode).or_insert_with(|| path.to_vec());
        (first != path).then(|| first.clone())
    }
}

/// Names sorted by their bytes, so that the first name of an inode is the same in every copy.
fn names(directory: &Path) -> io::Result<Vec<OsString>> {
    let names: io::Result<Vec<_>> =
        fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name())).collect();
    let mut names = names?;
    names.sort();
    Ok(names)
}

fn kind(at: &Path, about: &Metadata) -> io::Result<SnapshotKind> {
    let kind = about.file_type();
    Ok(match () {
        () if kind.is_dir() => SnapshotKind::Directory,
        () if kind.is_symlink() => {
            SnapshotKind::Link(fs::read_link(at)?.into_os_string().into_vec())
        }
        () if kind.is_fifo() => SnapshotKind::Fifo,
        () if kind.is_socket() => SnapshotKind::Socket,
        () if !kind.is_file() => SnapshotKind::Device(about.rdev()),
        () => {
            let mut file = File::open(at)?;
            let holes = holes(&file, about.len())?;
            let digest = digest(&mut file)?;
            SnapshotKind::File {
                length: about.len(),
                digest,
                occupied: about.blocks() * 512,
                holes,
            }
        }
    })
}

fn digest(file: &mut File) -> io::Result<Vec<u8>> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 256 * 1024];
    seek(&*file, SeekFrom::Start(0))?;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finalize().to_vec()),
            n => hasher.update(&buffer[..n]),
        }
    }
}

/// The number of the file's bytes that lie in holes.
fn holes(file: &File, length: u64) -> io::Result<u64> {
    let mut sum = 0;
    let mut at = 0;
    while at < length {
        let hole = seek(file, SeekFrom::Hole(at))?;
        let data = match seek(file, SeekFrom::Data(hole)) {
            Ok(data) => data,
            // There is only a hole until the end.
            Err(rustix::io::Errno::NXIO) => length,
            Err(error) => return Err(error.into()),
        };
        sum += data.min(length) - hole.min(length);
        at = data.max(at + 1);
    }
    Ok(sum)
}

fn xattrs(at: &Path) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut list = vec![0; XATTR_MAX];
    let n = match llistxattr(at, &mut list[..]) {
        Ok(n) => n,
        // The file system does not support attributes.
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        Err(error) => return Err(error.into()),
    };
    let mut all = BTreeMap::new();
    for name in list[..n].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; XATTR_MAX];
        let n = lgetxattr(at, OsStr::from_bytes(name), &mut value[..])?;
        value.truncate(n);
        all.insert(name.to_vec(), value);
    }
    Ok(all)
}
