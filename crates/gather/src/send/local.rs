//! Files of this host, as they were when they were looked at.

use std::{
    fs::{self, File, Metadata},
    io,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{FileExt as _, MetadataExt as _},
    },
    path::{Path, PathBuf},
};
use thalweg_wire::object::{Entry, FilePath, Kind, PathError, Snapshot};
use thiserror::Error;

/// A file cannot be sent.
#[derive(Debug, Error)]
pub enum LocalError {
    /// The system's.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It has no name, or one that cannot be sent.
    #[error("{}: {why}", .path.display())]
    Name {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Neither a file nor a directory.
    #[error("{}: it is neither a file nor a directory", .0.display())]
    Special(PathBuf),
}

/// A file to send.
#[derive(Debug)]
pub(super) struct Local {
    /// Where it is.
    pub here: PathBuf,
    /// What it is called there, and its metadata.
    pub entry: Entry,
}

impl LocalError {
    /// What it is about, and why.
    pub(super) fn parts(&self) -> (&Path, String) {
        match self {
            Self::Io { path, source } => (path, source.to_string()),
            Self::Name { path, why } => (path, why.clone()),
            Self::Special(path) => (path, "it is neither a file nor a directory".to_owned()),
        }
    }
}

impl Local {
    /// Its length when it was looked at.
    pub fn size(&self) -> u64 {
        match &self.entry.kind {
            Kind::File { snapshot } => snapshot.size,
            _ => 0,
        }
    }

    /// Bytes of it, if it is still what it was. Blocks.
    pub fn read(&self, from: u64, bytes: u64) -> Result<Vec<u8>, String> {
        let read = || -> io::Result<Option<Vec<u8>>> {
            let file = File::open(&self.here)?;
            let mut content = vec![0; bytes as usize];
            let whole = self.is_same(&file.metadata()?)
                && file.read_exact_at(&mut content, from).map(|()| true)?;
            Ok((whole && self.is_same(&file.metadata()?)).then_some(content))
        };
        match read() {
            Ok(Some(content)) => Ok(content),
            Ok(None) => Err("it changed while it was sent".to_owned()),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                Err("it changed while it was sent".to_owned())
            }
            Err(e) => Err(e.to_string()),
        }
    }

    fn is_same(&self, now: &Metadata) -> bool {
        self.entry.kind == Kind::File { snapshot: snapshot(now) }
    }
}

/// What is to be sent.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The files.
    pub files: Vec<Local>,
    /// What cannot be read; the rest is sent.
    pub failed: Vec<LocalError>,
    /// What is neither a file nor a directory, below directories: it is passed over.
    pub passed: Vec<PathBuf>,
}

/// All files of these paths: of directories those below them, under the directory's name. Symbolic
/// links among the paths are followed; below directories they are passed over.
pub(super) fn find(paths: &[PathBuf]) -> Found {
    let mut found = Found::default();
    for path in paths {
        if let Err(why) = found.path(path) {
            found.failed.push(why);
        }
    }
    found
}

impl Found {
    /// What is at a path that was named.
    fn path(&mut self, path: &Path) -> Result<(), LocalError> {
        let metadata = fs::metadata(path).map_err(|e| failed(path, e))?;
        let slash = path.as_os_str().as_bytes().ends_with(b"/");
        let name = match (metadata.is_dir() && slash, path.file_name()) {
            // As with rsync: what is in it, not it.
            (true, _) => Vec::new(),
            (false, Some(name)) => name.as_bytes().to_vec(),
            (false, None) => {
                let why = "it has no name of its own: name it from outside, or end it with `/`";
                return Err(LocalError::Name { path: path.to_owned(), why: why.to_owned() });
            }
        };
        if !metadata.is_file() && !metadata.is_dir() {
            return Err(LocalError::Special(path.to_owned()));
        }
        self.add(path, name, &metadata);
        Ok(())
    }

    fn add(&mut self, path: &Path, name: Vec<u8>, metadata: &Metadata) {
        let added = match (metadata.is_file(), metadata.is_dir()) {
            (true, _) => local(path, name, metadata).map(|file| self.files.push(file)),
            (_, true) => self.below(path, &name),
            _ => {
                self.passed.push(path.to_owned());
                Ok(())
            }
        };
        self.failed.extend(added.err());
    }

    fn below(&mut self, path: &Path, name: &[u8]) -> Result<(), LocalError> {
        let entries = fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let mut entries = entries.map_err(|e| failed(path, e))?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let inside = entry.path();
            let below = if name.is_empty() { Vec::new() } else { [name, b"/"].concat() };
            let name = [&below[..], entry.file_name().as_bytes()].concat();
            match fs::symlink_metadata(&inside) {
                Ok(metadata) => self.add(&inside, name, &metadata),
                Err(why) => self.failed.push(failed(&inside, why)),
            }
        }
        Ok(())
    }
}

fn local(path: &Path, name: Vec<u8>, metadata: &Metadata) -> Result<Local, LocalError> {
    let name = FilePath::new(name)
        .map_err(|e: PathError| LocalError::Name { path: path.to_owned(), why: e.to_string() })?;
    let snapshot = snapshot(metadata);
    let entry = Entry {
        root: 0,
        path: name,
        kind: Kind::File { snapshot },
        mode: (metadata.mode() & 0o7777) as u16,
        owner: metadata.uid(),
        group: metadata.gid(),
        modified_ns: snapshot.modified_ns,
    };
    Ok(Local { here: path.to_owned(), entry })
}

fn snapshot(metadata: &Metadata) -> Snapshot {
    let ns = |s: i64, ns: i64| s.saturating_mul(1_000_000_000).saturating_add(ns);
    Snapshot {
        device: metadata.dev(),
        inode: metadata.ino(),
        size: metadata.size(),
        modified_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
        changed_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
    }
}

fn failed(path: &Path, source: io::Error) -> LocalError {
    LocalError::Io { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_sent_with_what_is_below_them() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("a")).unwrap();
        fs::write(tree.join("a/one"), "1").unwrap();
        fs::write(tree.join("two"), "22").unwrap();
        std::os::unix::fs::symlink("two", tree.join("link")).unwrap();
        let names = |path: PathBuf| {
            let found = find(&[path]);
            assert!(found.failed.is_empty(), "{found:?}");
            found.files.iter().map(|file| file.entry.path.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(tree.clone()), ["tree/a/one", "tree/two"]);
        assert_eq!(names(tree.join("")), ["a/one", "two"]);
        assert_eq!(names(tree.join("link")), ["link"]);
        let found = find(&[tree.join("gone"), tree.join("two"), "/dev/null".into()]);
        let failed: Vec<String> = found.failed.iter().map(ToString::to_string).collect();
        assert!(failed[0].contains("gone: No such file"), "{failed:?}");
        assert!(failed[1].contains("neither"), "{failed:?}");
        assert_eq!((found.files.len(), failed.len()), (1, 2), "the rest is sent");
        assert_eq!(find(std::slice::from_ref(&tree)).passed, [tree.join("link")]);
    }

    #[test]
    fn a_file_that_changes_is_not_read_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "before").unwrap();
        let file = find(std::slice::from_ref(&path)).files.remove(0);
        assert_eq!(file.read(2, 3).unwrap(), b"for");
        fs::write(&path, "later on").unwrap();
        assert_eq!(file.read(2, 3).unwrap_err(), "it changed while it was sent");
        fs::remove_file(&path).unwrap();
        assert!(file.read(2, 3).unwrap_err().contains("No such file"));
    }
}
