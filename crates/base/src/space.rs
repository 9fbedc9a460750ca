//! Room on a file system: bytes, and the number of files.

use rustix::fs::{StatVfs, StatVfsMountFlags, fstatvfs, statvfs};
use std::{fmt, os::fd::AsFd, path::Path};
use thalweg_units::ByteSize;

/// What a file system still takes from this user (statvfs(3)). `None` where it does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes that are free.
    pub bytes: Option<u64>,
    /// Files, directories and links that may still be made: inodes.
    pub files: Option<u64>,
    /// Nothing may be written to it.
    pub is_read_only: bool,
}

impl Space {
    /// Of the file system that this is on.
    pub fn at(path: &Path) -> Self {
        statvfs(path).map(Self::of).unwrap_or_default()
    }

    /// The same, of what is open.
    pub fn beside(open: impl AsFd) -> Self {
        fstatvfs(open).map(Self::of).unwrap_or_default()
    }

    fn of(found: StatVfs) -> Self {
        let is_root = rustix::process::geteuid().is_root();
        let blocks = if is_root { found.f_bfree } else { found.f_bavail };
        let files = if is_root { found.f_ffree } else { found.f_favail };
        // Some of FUSE say 0 of 0; btrfs and others that make inodes as they need them say so too.
        Self {
            bytes: blocks.checked_mul(found.f_frsize).filter(|_| found.f_blocks > 0),
            files: Some(files).filter(|_| found.f_files > 0),
            is_read_only: found.f_flag.contains(StatVfsMountFlags::RDONLY),
        }
    }

    /// Why a write to it ended with `ENOSPC`.
    pub fn why_full(&self) -> WhyFull {
        match (self.files, self.bytes) {
            (Some(0), bytes) => WhyFull::Inodes { bytes },
            _ => WhyFull::Bytes,
        }
    }
}

/// What a full file system has none of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyFull {
    /// Bytes.
    Bytes,
    /// Inodes: it takes no more files, however many bytes are free.
    Inodes {
        /// Bytes that are free.
        bytes: Option<u64>,
    },
}

impl WhyFull {
    /// What the user should do.
    pub const fn advice(&self) -> &'static str {
        match self {
            Self::Bytes => "free some space",
            Self::Inodes { .. } => {
                "remove files there, or use a file system that takes more of them"
            }
        }
    }
}

impl fmt::Display for WhyFull {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_system_says_of_what() {
        let of = |bytes, files| Space { bytes, files, is_read_only: false }.why_full().to_string();
        assert_eq!(of(Some(0), Some(9)), "the disk is full");
        assert_eq!(of(None, None), "the disk is full");
        let said = of(Some(67_108_864), Some(0));
        assert!(said.contains("no inodes are left") && said.contains("67 MB are free"), "{said}");
        assert!(of(None, Some(0)).ends_with("takes no more files"));
        // Both: bytes would not help.
        assert!(of(Some(0), Some(0)).contains("inodes"));
    }

    #[test]
    fn the_place_of_a_test_has_room() {
        let dir = tempfile::tempdir().unwrap();
        let space = Space::at(dir.path());
        assert!(space.bytes.is_none_or(|bytes| bytes > 0) && !space.is_read_only);
        assert_eq!(Space::at(&dir.path().join("gone")), Space::default());
    }
}
