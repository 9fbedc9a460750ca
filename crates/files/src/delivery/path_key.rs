//! Identities of paths. One directory may have several paths, because of links to an accepting directory and of bind
//! mounts.

use rustix::fs::{FileType, fstat, stat};
use std::{collections::BTreeMap, ffi::OsStr, os::fd::AsFd, os::unix::ffi::OsStrExt as _};

/// A directory's device and inode.
pub(crate) type DirectoryId = (u64, u64);

/// An existing directory, and a path below it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PathKey {
    pub directory: DirectoryId,
    pub rest: Vec<u8>,
}

impl PathKey {
    /// The key of a name in an open directory; `None` if the directory's status cannot be read.
    pub(crate) fn in_directory(directory: impl AsFd, name: &[u8]) -> Option<Self> {
        let found = fstat(directory).ok()?;
        Some(Self { directory: (found.st_dev, found.st_ino), rest: name.to_vec() })
    }

    /// The key of an absolute path; `None` if its directory does not exist.
    pub(crate) fn of(path: &[u8]) -> Option<Self> {
        let end = path.iter().rposition(|letter| *letter == b'/')?;
        let directory = directory_id(&path[..end])?;
        Some(Self { directory, rest: path[end + 1..].to_vec() })
    }

    /// The path from `above` to this one, if both start at the same directory and this one is below `above`.
    pub(crate) fn below(&self, above: &Self) -> Option<Vec<u8>> {
        let rest = self.rest.strip_prefix(above.rest.as_slice())?;
        let rest = if above.rest.is_empty() { rest } else { rest.strip_prefix(b"/")? };
        (self.directory == above.directory && !rest.is_empty()).then(|| rest.to_vec())
    }
}

/// The identity of the directory with this absolute path, if there is one.
pub(crate) fn directory_id(path: &[u8]) -> Option<DirectoryId> {
    let path = if path.is_empty() { b"/" } else { path };
    let found = stat(OsStr::from_bytes(path)).ok()?;
    let is_directory = FileType::from_raw_mode(found.st_mode).is_dir();
    is_directory.then_some((found.st_dev, found.st_ino))
}

/// The keys of paths, one for each existing directory above a path. Two paths of one file have a key in common, even if
/// directories are created between the two calls, since the directories above those existed before.
#[derive(Debug)]
pub(crate) struct Keys {
    /// The length of the path of the topmost directory for which keys are made.
    shortest: usize,
    /// For the path of a directory: the existing directories at and above it, with the lengths of their paths.
    known: BTreeMap<Vec<u8>, Vec<(DirectoryId, usize)>>,
}

impl Keys {
    /// Makes keys for directories up to `highest`, which must exist and contain all of the paths.
    pub(crate) fn up_to(highest: &[u8]) -> Self {
        Self { shortest: highest.len(), known: BTreeMap::new() }
    }

    pub(crate) fn of(&mut self, path: &[u8]) -> impl Iterator<Item = PathKey> {
        let end = path.iter().rposition(|letter| *letter == b'/').unwrap_or(0);
        let directory = &path[..end];
        if !self.known.contains_key(directory) {
            let found = self.directories(directory);
            self.known.insert(directory.to_vec(), found);
        }
        let found = self.known.get(directory).into_iter().flatten();
        found
            .map(|(directory, at)| PathKey { directory: *directory, rest: path[at + 1..].to_vec() })
    }

    fn directories(&self, path: &[u8]) -> Vec<(DirectoryId, usize)> {
        let slashes = path.iter().enumerate().filter(|(_, letter)| **letter == b'/');
        let ends = slashes.map(|(at, _)| at).chain([path.len()]);
        let ends = ends.filter(|at| *at >= self.shortest);
        ends.filter_map(|at| Some((directory_id(&path[..at])?, at))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeSet, fs, os::unix::fs::symlink, path::Path};

    fn keys(path: &Path, highest: &Path) -> BTreeSet<PathKey> {
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        Keys::up_to(&bytes(highest)).of(&bytes(path)).collect()
    }

    #[test]
    fn only_paths_of_the_same_file_have_a_key_in_common() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        fs::create_dir_all(dir.join("srv/b")).unwrap();
        symlink("srv", dir.join("alias")).unwrap();
        symlink("srv/b", dir.join("deep")).unwrap();
        let (srv, b, alias, deep) =
            (dir.join("srv"), dir.join("srv/b"), dir.join("alias"), dir.join("deep"));
        let before: Vec<_> =
            [(&srv, "b/new/x"), (&alias, "b/new/x"), (&b, "new/x"), (&deep, "new/x")]
                .map(|(place, path)| keys(&place.join(path), place))
                .into();
        fs::create_dir(dir.join("srv/b/new")).unwrap();
        let after: Vec<_> =
            [(&srv, "b/new/x"), (&alias, "b/new/x"), (&b, "new/x"), (&deep, "new/x")]
                .map(|(place, path)| keys(&place.join(path), place))
                .into();
        for one in before.iter().chain(&after) {
            for other in before.iter().chain(&after) {
                assert!(!one.is_disjoint(other), "{one:?} {other:?}");
            }
            for (place, path) in
                [(&srv, "b/new/y"), (&srv, "b/x"), (&alias, "x"), (&b, "x"), (&deep, "y")]
            {
                assert!(one.is_disjoint(&keys(&place.join(path), place)), "{path}");
            }
        }
    }
}
