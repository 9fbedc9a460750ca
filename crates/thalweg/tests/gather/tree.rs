//! Creates, compares and changes directories of files.

use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// A directory with files of many sizes, modes and times, a symbolic link, and an empty directory.
pub struct Tree {
    root: PathBuf,
}

/// The sizes of the files, bytes: empty, small, several pieces.
const SIZES: &[usize] = &[0, 1, 700, 65_536, 300_000, 9_000_001];

impl Tree {
    pub fn make(root: &Path, seed: u8) -> Self {
        fs::create_dir_all(root.join("deep/er")).unwrap();
        fs::create_dir_all(root.join("empty")).unwrap();
        for (index, size) in SIZES.iter().enumerate() {
            let directory = ["", "deep", "deep/er"][index % 3];
            let path = root.join(directory).join(format!("file {index} \u{fc}"));
            fs::write(&path, content(seed, index, *size)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600 + index as u32)).unwrap();
            let age = Duration::from_secs(86_400 * (1 + index as u64) + 7);
            let file = fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
        }
        symlink("deep/nowhere", root.join("link")).unwrap();
        fs::set_permissions(root.join("deep"), fs::Permissions::from_mode(0o750)).unwrap();
        Self { root: root.to_owned() }
    }

    pub fn bytes(&self) -> u64 {
        files(&self.root).iter().map(|f| self.root.join(f).metadata().unwrap().len()).sum()
    }

    pub fn files(&self) -> u64 {
        files(&self.root).len() as u64
    }

    /// Changes a file's content, but not its size. Returns the size.
    pub fn change_one(&self) -> u64 {
        let path = self.root.join("deep/er/file 2 \u{fc}");
        let mut bytes = fs::read(&path).unwrap();
        bytes.reverse();
        fs::write(&path, &bytes).unwrap();
        bytes.len() as u64
    }

    /// Checks that the copy has everything, with contents, modes and times.
    pub fn assert_at(&self, copy: &Path) {
        assert_same(&self.root, copy);
    }
}

/// Checks that both directories have the same content.
pub fn assert_same(one: &Path, other: &Path) {
    let names = |path: &Path| {
        let mut names: Vec<_> =
            fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(one), names(other), "{} and {}", one.display(), other.display());
    for name in names(one) {
        let (one, other) = (one.join(&name), other.join(&name));
        let (a, b) = (one.symlink_metadata().unwrap(), other.symlink_metadata().unwrap());
        assert_eq!(a.file_type(), b.file_type(), "{}", other.display());
        if a.is_symlink() {
            assert_eq!(fs::read_link(&one).unwrap(), fs::read_link(&other).unwrap());
            continue;
        }
        assert_eq!(a.mode(), b.mode(), "{}", other.display());
        let time = |m: &fs::Metadata| (m.mtime(), m.mtime_nsec());
        assert_eq!(time(&a), time(&b), "the time of {}", other.display());
        match a.is_dir() {
            true => assert_same(&one, &other),
            false => assert!(fs::read(&one).unwrap() == fs::read(&other).unwrap(), "{name:?}"),
        }
    }
}

/// The paths of all files below a directory, relative to it.
pub fn files(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                left.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path().strip_prefix(root).unwrap().display().to_string());
            }
        }
    }
    found
}

/// Content that no other file has.
pub fn content(seed: u8, index: usize, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    let seed = u64::from(seed) << 32 | index as u64;
    Xoshiro256PlusPlus::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}
