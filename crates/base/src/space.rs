//! Free space on a file system: bytes and inodes, and how much of both must stay free.

use rustix::fs::{StatVfs, StatVfsMountFlags, fstatvfs, statvfs};
use std::{fmt, os::fd::AsFd, path::Path};
use thalweg_units::ByteSize;

/// The space that a file system still offers this user (statvfs(3)); `None` where it does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Free bytes.
    pub bytes: Option<u64>,
    /// Free inodes: the number of files, directories and links that may still be created.
    pub files: Option<u64>,
    /// The file system is read-only.
    pub is_read_only: bool,
}

impl Space {
    /// The space of the file system of this path.
    pub fn at(path: &Path) -> Self {
        statvfs(path).map(Self::of).unwrap_or_default()
    }

    /// The space of the file system of an open file.
    pub fn of_file(open: impl AsFd) -> Self {
        fstatvfs(open).map(Self::of).unwrap_or_default()
    }

    fn of(found: StatVfs) -> Self {
        let is_root = rustix::process::geteuid().is_root();
        let blocks = if is_root { found.f_bfree } else { found.f_bavail };
        let files = if is_root { found.f_ffree } else { found.f_favail };
        // Some FUSE file systems report 0 of 0, as do btrfs and others that create inodes on demand.
        Self {
            bytes: blocks.checked_mul(found.f_frsize).filter(|_| found.f_blocks > 0),
            files: Some(files).filter(|_| found.f_files > 0),
            is_read_only: found.f_flag.contains(StatVfsMountFlags::RDONLY),
        }
    }

    /// The resource that was lacking when a write failed with `ENOSPC`.
    pub fn why_full(&self) -> FullCause {
        match (self.files, self.bytes) {
            (Some(0), bytes) => FullCause::Inodes { bytes },
            _ => FullCause::Bytes,
        }
    }
}

/// The resource that a full file system lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullCause {
    Bytes,
    /// Inodes: no more files can be created, however many bytes are free.
    Inodes {
        /// Free bytes.
        bytes: Option<u64>,
    },
}

impl FullCause {
    /// The advice to the user.
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Bytes => "free some space",
            Self::Inodes { .. } => "remove files there, or use a file system with more inodes",
        }
    }
}

impl fmt::Display for FullCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes => write!(f, "the disk is full"),
            Self::Inodes { bytes } => {
                write!(f, "no inodes are left: the file system takes no more files")?;
                let free = bytes.map(|bytes| ByteSize::from_bytes(bytes / 1_000_000 * 1_000_000));
                free.map_or(Ok(()), |free| write!(f, ", though {free} are free"))
            }
        }
    }
}

/// The blocks in which content is assumed to be stored. `f_frsize` may be far larger than what a small file takes: on
/// NFS it is the size of a transfer.
pub const BLOCK: u64 = 4096;

/// The space that content takes on a disk: whole blocks, and at least one for each new file, directory or link.
pub const fn on_disk(bytes: u64, entries: u64) -> u64 {
    let (content, least) = (bytes.div_ceil(BLOCK), entries);
    let blocks = if content > least { content } else { least };
    blocks.saturating_mul(BLOCK)
}

/// Free space that must remain on a file system. Inodes have a separate bound: without inodes no file can be created,
/// however many bytes are free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepFree {
    /// 1 GiB or 5 %, whichever is less; of inodes 100,000 or 5 %.
    #[default]
    Usual,
    /// This number of bytes, and the default number of inodes; 0 bytes disables both bounds.
    Bytes(ByteSize),
}

/// The most bytes that are kept free by default: enough for a database, a log and system updates.
const USUAL_BYTES: u64 = 1 << 30;
const USUAL_FILES: u64 = 100_000;
const USUAL_FRACTION: u64 = 20;

impl KeepFree {
    /// What the file system of a path lacks for this many more bytes and files; `None` if there is room.
    pub fn shortage_at(self, path: &Path, bytes: u64, files: u64) -> Option<Shortage> {
        statvfs(path).ok().and_then(|found| self.shortage_in(&found, bytes, files))
    }

    /// The same for a file system with this result of statvfs(3).
    pub fn shortage_in(self, found: &StatVfs, bytes: u64, files: u64) -> Option<Shortage> {
        let total = found.f_blocks.saturating_mul(found.f_frsize);
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        let kept = match self {
            Self::Usual => USUAL_BYTES.min(total / USUAL_FRACTION),
            Self::Bytes(bytes) if bytes.as_bytes() == 0 => return None,
            Self::Bytes(bytes) => bytes.as_bytes(),
        };
        // Many small files, directories and links fill a disk as well.
        let bytes = on_disk(bytes, files);
        // Some FUSE file systems report 0 of 0 inodes.
        if total > 0 && bytes > 0 && free.saturating_sub(bytes) < kept {
            return Some(Shortage::Bytes {
                free: ByteSize::from_bytes(free),
                kept: ByteSize::from_bytes(kept),
            });
        }
        let kept = USUAL_FILES.min(found.f_files / USUAL_FRACTION);
        let free = found.f_favail;
        let is_short = found.f_files > 0 && files > 0 && free.saturating_sub(files) < kept;
        is_short.then_some(Shortage::Files { free, kept })
    }
}

/// The resource that a file system lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    Bytes {
        free: ByteSize,
        /// Bytes that must stay free.
        kept: ByteSize,
    },
    /// Inodes.
    Files {
        /// Inodes that are free.
        free: u64,
        /// Inodes that must stay free.
        kept: u64,
    },
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes { free, kept } => write!(f, "{free} are free, and {kept} must stay free"),
            Self::Files { free, kept } => {
                write!(f, "{free} inodes are free, and {kept} must stay free")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_to_keep_free_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let all = statvfs(dir.path()).unwrap();
        let found = |bavail, favail| StatVfs {
            f_frsize: 4096,
            f_blocks: 1_000_000,
            f_bavail: bavail,
            f_files: 1_000,
            f_favail: favail,
            ..all
        };
        let usual = |bavail, favail, bytes, files| {
            KeepFree::Usual.shortage_in(&found(bavail, favail), bytes, files)
        };
        assert_eq!(usual(50_001, 1_000, 4096, 1), None);
        assert!(matches!(usual(50_000, 1_000, 4096, 1), Some(Shortage::Bytes { .. })));
        // An empty file takes a block.
        assert_eq!((usual(50_001, 51, 0, 1), usual(0, 0, 0, 0)), (None, None));
        assert!(matches!(usual(50_000, 51, 0, 1), Some(Shortage::Bytes { .. })));
        assert_eq!(usual(50_001, 50, 0, 1), Some(Shortage::Files { free: 50, kept: 50 }));
        let own = |kept, bytes| {
            KeepFree::Bytes(ByteSize::from_bytes(kept)).shortage_in(&found(100, 1_000), bytes, 1)
        };
        assert_eq!((own(0, 1 << 40), own(400_000, 8_192)), (None, None));
        let said = own(400_000, 8_193).unwrap().to_string();
        assert!(said.contains("stay free"), "{said}");
        let large = StatVfs { f_blocks: 1 << 40, f_bavail: 1 << 18, ..all };
        let large = StatVfs { f_frsize: 4096, ..large };
        assert!(
            matches!(KeepFree::Usual.shortage_in(&large, 1, 0), Some(Shortage::Bytes { kept, .. })
            if kept.as_bytes() == USUAL_BYTES)
        );
    }

    #[test]
    fn a_full_file_system_reports_what_it_lacks() {
        let of = |bytes, files| Space { bytes, files, is_read_only: false }.why_full().to_string();
        assert_eq!(of(Some(0), Some(9)), "the disk is full");
        assert_eq!(of(None, None), "the disk is full");
        let said = of(Some(67_108_864), Some(0));
        assert!(said.contains("no inodes are left") && said.contains("67 MB are free"), "{said}");
        assert!(of(None, Some(0)).ends_with("takes no more files"));
        // If both are lacking, free bytes would not help.
        assert!(of(Some(0), Some(0)).contains("inodes"));
    }

    #[test]
    fn the_directory_of_a_test_has_room() {
        let dir = tempfile::tempdir().unwrap();
        let space = Space::at(dir.path());
        assert!(space.bytes.is_none_or(|bytes| bytes > 0) && !space.is_read_only);
        assert_eq!(Space::at(&dir.path().join("gone")), Space::default());
    }
}
