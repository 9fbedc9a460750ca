//! Tests that land trees in temporary directories.

mod metadata;
mod random;
mod refused;
mod resumed;
mod whole;

use super::*;
use std::{future::Future, os::unix::fs::MetadataExt, path::PathBuf};
use tempfile::TempDir;
use thalweg_base::job::Kind as JobKind;
use thalweg_wire::object::{Entry, FilePath, FileTime, Kind, Owners, Snapshot};

/// The modification time of test files, before all tests.
pub(super) const THEN: i64 = 1_600_000_000_123_456_789;

fn entry(path: &str, kind: Kind, mode: u16) -> Entry {
    let path = FilePath::new(path.into()).unwrap();
    let (owner, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Entry {
        root: 0,
        path,
        kind,
        mode,
        owner,
        group,
        modified: FileTime::from_nanos(THEN),
        more: None,
    }
}

/// A file of a source.
pub(super) fn file(path: &str, size: u64) -> Entry {
    let inode = path.bytes().fold(7, |sum, b| sum * 31 % 1_000_003 + u64::from(b));
    let snapshot = Snapshot { device: 1, inode, size, modified_ns: THEN, changed_ns: THEN };
    entry(path, Kind::File { snapshot }, 0o640)
}

pub(super) fn directory(path: &str) -> Entry {
    entry(path, Kind::Directory, 0o750)
}

pub(super) fn link(path: &str, target: &str) -> Entry {
    entry(path, Kind::Symlink { target: target.into() }, 0o777)
}

pub(super) fn listed(source: u32, node: &str, roots: &[&str], entries: Vec<Entry>) -> Listing {
    let roots = roots.iter().map(|root| root.as_bytes().to_vec()).collect();
    let (failed, owners) = (Vec::new(), Owners::default());
    Listing { source, node: node.parse().unwrap(), roots, entries, failed, owners }
}

fn options() -> Options {
    Options::new(Job::begin(JobKind::Gather, "a:/data/".into(), "here".into()))
}

/// Byte `i` of the file with this inode.
fn byte(inode: u64, i: u64) -> u8 {
    ((i / 8 + inode).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (8 * (i % 8))) as u8
}

fn content(wanted: &thalweg_files::inventory::MissingFile, range: std::ops::Range<u64>) -> Bytes {
    range.map(|i| byte(wanted.file.snapshot.inode, i)).collect()
}

fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap().block_on(work)
}

/// A directory to land in.
struct Arena {
    directory: TempDir,
}

impl Arena {
    fn new() -> Self {
        Self { directory: TempDir::new().unwrap() }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.directory.path().join("into").join(below)
    }

    fn open(&self, entries: Vec<Entry>) -> Result<(Landing, Inventory), OpenError> {
        self.open_with(entries, options())
    }

    fn open_with(
        &self,
        entries: Vec<Entry>,
        options: Options,
    ) -> Result<(Landing, Inventory), OpenError> {
        Landing::open(&self.path(""), vec![listed(0, "a", &["/data/"], entries)], options)
    }

    /// Opens the landing, sends everything, and finishes.
    fn land(&self, entries: Vec<Entry>) -> Report {
        self.land_with(entries, options()).1
    }

    fn land_with(&self, entries: Vec<Entry>, options: Options) -> (u64, Report) {
        let (landing, inventory) = self.open_with(entries, options).unwrap();
        wait(async {
            send_all(&landing, &inventory).await;
            (inventory.amounts(1)[0], landing.finish().await)
        })
    }

    /// Checks that a file has its content, mode and time.
    fn assert_file(&self, entry: &Entry) {
        let path = self.path(std::str::from_utf8(entry.path.as_bytes()).unwrap());
        let Kind::File { snapshot } = entry.kind else { panic!("{path:?} is no file") };
        let expected: Vec<u8> = (0..snapshot.size).map(|i| byte(snapshot.inode, i)).collect();
        assert!(std::fs::read(&path).unwrap() == expected, "{path:?} has other content");
        self.assert_attributes(entry);
    }

    fn assert_attributes(&self, entry: &Entry) {
        let path = self.path(std::str::from_utf8(entry.path.as_bytes()).unwrap());
        let found = std::fs::symlink_metadata(&path).unwrap();
        if !found.is_symlink() {
            assert_eq!(found.mode() & 0o7777, u32::from(entry.mode), "{path:?}");
        }
        let modified = FileTime::from_stat(found.mtime(), found.mtime_nsec());
        assert_eq!(modified, entry.modified, "{path:?}");
    }

    /// All names below the directory, sorted.
    fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut left = vec![self.path("")];
        while let Some(directory) = left.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                let below = path.strip_prefix(self.path("")).unwrap();
                names.push(below.to_str().unwrap().to_owned());
                if path.symlink_metadata().unwrap().is_dir() {
                    left.push(path);
                }
            }
        }
        names.sort();
        names
    }
}

async fn send(landing: &Landing, inventory: &Inventory, piece: thalweg_files::inventory::Piece) {
    let bytes = content(inventory.get(piece.file).unwrap(), piece.range.clone());
    landing.write(piece.file, piece.range.start, bytes).await.unwrap();
}

/// Sends the missing ranges, in pieces as executors do.
async fn send_all(landing: &Landing, inventory: &Inventory) {
    let mut work = crate::Work::new(inventory);
    let sources = inventory.files.iter().map(|f| f.source).max().map_or(0, |most| most + 1);
    for source in 0..sources {
        loop {
            let pieces = work.take(source, 1 << 20);
            if pieces.is_empty() {
                break;
            }
            for piece in pieces {
                send(landing, inventory, piece).await;
            }
        }
    }
}

/// The number of the file with this path.
fn number(inventory: &Inventory, path: &str) -> FileNo {
    let at = inventory.files.iter().position(|f| f.file.path.as_bytes() == path.as_bytes());
    FileNo(at.unwrap() as u32)
}
