//! Files, directories and links of this host, as they were when they were listed.

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
};
use std::{
    collections::{BTreeMap, btree_map::Entry as Entries},
    fs::{self, File, Metadata},
    io,
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::{FileExt as _, MetadataExt as _},
    },
    path::{Path, PathBuf},
};
use thalweg_files::{Excludes, sample};
use thalweg_part::{Fidelity, describe::Describer};
use thalweg_wire::object::{
    Entry, FilePath, FileTime, Kind, Owners, PathError, Snapshot, TransferHash, is_reserved,
};
use thiserror::Error;

/// A file cannot be sent.
#[derive(Debug, Error)]
pub enum LocalError {
    /// A system call failed.
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    /// It has no name, or one that cannot be sent.
    #[error("{}: {why}", .path.display())]
    Name { path: PathBuf, why: String },
    /// Neither a file nor a directory.
    #[error("{}: it is neither a file nor a directory", .0.display())]
    Special(PathBuf),
}

/// An item to send.
#[derive(Debug)]
pub(super) struct LocalItem {
    /// Its path on this host.
    pub here: PathBuf,
    /// Its name at the receiver, and its metadata.
    pub entry: Entry,
}

impl LocalError {
    /// The path and the reason.
    pub(super) fn parts(&self) -> (&Path, String) {
        match self {
            Self::Io { path, source } => (path, source.to_string()),
            Self::Name { path, why } => (path, why.clone()),
            Self::Special(path) => (path, "it is neither a file nor a directory".to_owned()),
        }
    }
}

impl LocalItem {
    /// Its size when it was listed, bytes.
    pub fn size(&self) -> u64 {
        match &self.entry.kind {
            Kind::File { snapshot } => snapshot.size,
            _ => 0,
        }
    }

    pub fn is_directory(&self) -> bool {
        self.entry.kind == Kind::Directory
    }

    pub fn is_link(&self) -> bool {
        matches!(self.entry.kind, Kind::Symlink { .. })
    }

    /// Its holes; empty if it is not sparse.
    pub fn holes(&self) -> &[(u64, u64)] {
        self.entry.more.as_ref().and_then(|more| more.holes.as_deref()).unwrap_or_default()
    }

    pub fn is_file(&self) -> bool {
        matches!(self.entry.kind, Kind::File { .. })
    }

    /// Whether it is a file with another name at the receiver.
    pub fn has_another_name(&self) -> bool {
        let name = self.here.file_name().map(|name| name.as_bytes());
        self.is_file() && name.is_some_and(|name| !self.entry.path.as_bytes().ends_with(name))
    }

    /// Reads a range, if the file is unchanged since it was listed. Blocks.
    pub fn read(&self, from: u64, bytes: u64) -> Result<Vec<u8>, String> {
        let mut content = vec![0; bytes as usize];
        self.while_same(|file| file.read_exact_at(&mut content, from))?;
        Ok(content)
    }

    /// Appends its content to `content`, if the file is unchanged; otherwise appends nothing. Blocks.
    pub fn read_all(&self, content: &mut Vec<u8>) -> Result<(), String> {
        if !self.is_file() {
            return Ok(());
        }
        let before = content.len();
        content.resize(before + self.size() as usize, 0);
        let read = self.while_same(|file| file.read_exact_at(&mut content[before..], 0));
        if read.is_err() {
            content.truncate(before);
        }
        read
    }

    /// Hashes the whole content, or samples of it. Blocks.
    pub fn digest(&self, whole: bool) -> Result<TransferHash, String> {
        self.while_same(|file| sample::digest(file, self.size(), whole))
    }

    /// Checks that it can be opened. Blocks.
    pub fn try_open(&self) -> Result<(), String> {
        match &self.entry.kind {
            Kind::File { .. } => File::open(&self.here).map(drop).map_err(|e| e.to_string()),
            _ => Ok(()),
        }
    }

    fn while_same<T>(&self, read: impl FnOnce(&File) -> io::Result<T>) -> Result<T, String> {
        let changed = || "it changed while it was sent".to_owned();
        let read = || -> io::Result<Option<T>> {
            let file = File::open(&self.here)?;
            if !self.is_same(&file.metadata()?) {
                return Ok(None);
            }
            let done = read(&file)?;
            Ok(self.is_same(&file.metadata()?).then_some(done))
        };
        match read() {
            Ok(Some(done)) => Ok(done),
            Ok(None) => Err(changed()),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(changed()),
            Err(e) => Err(e.to_string()),
        }
    }

    fn is_same(&self, now: &Metadata) -> bool {
        self.entry.kind == Kind::File { snapshot: snapshot(now) }
    }
}

/// Two different items with the same name at the receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameClash {
    pub path: FilePath,
    pub one: PathBuf,
    pub other: PathBuf,
}

/// The items to send.
#[derive(Debug, Default)]
pub(super) struct SearchResult {
    /// Files, directories and links by their paths at the receiver, parents before their contents.
    pub items: Vec<LocalItem>,
    /// Items that cannot be read; the others are sent.
    pub failed: Vec<LocalError>,
    /// Items below directories that are neither files, directories nor links; they are left out.
    pub passed: Vec<PathBuf>,
    /// Thalweg's own files, e.g. of unfinished downloads; they are left out too.
    pub ours: Vec<PathBuf>,
    /// Names in directories that are neither sent nor removed at the receiver, by the directories' paths there.
    pub left: BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
    /// Different items with the same name.
    pub clashes: Vec<NameClash>,
    /// Hard links to items: the item's index, and the path of the link.
    pub links: Vec<(usize, FilePath)>,
    /// The names of the users and groups whose ids are in the entries.
    pub owners: Owners,
    /// Arguments that are symbolic links.
    pub named_links: Vec<PathBuf>,
}

/// Finds everything at and below these paths, except excluded items. As with rsync, symbolic links are sent as links,
/// including those among the arguments. A path that ends with `/`, `/.` or `..` stands for the directory's contents
/// without its name, even if it leads through a link.
pub(super) fn find(paths: &[PathBuf], excludes: &Excludes, fidelity: Fidelity) -> SearchResult {
    // The receiving node decides whether it sets owners.
    let describer = Describer::new(fidelity.requested_fields(true));
    let mut search = Search { found: SearchResult::default(), excludes, describer };
    for path in paths {
        if let Err(why) = search.path(path) {
            search.found.failed.push(why);
        }
    }
    let Search { mut found, mut describer, .. } = search;
    found.owners = describer.new_owners().unwrap_or_default();
    found.merge_directories();
    if fidelity.hard_links {
        found.extract_links();
    }
    found
}

impl SearchResult {
    /// The number of files and directories with set-user-ID, set-group-ID or sticky bits, which inboxes do not keep.
    pub fn count_special_bits(&self) -> u64 {
        let has = |item: &&LocalItem| !item.is_link() && item.entry.mode & 0o7000 != 0;
        self.items.iter().filter(has).count() as u64
    }

    /// Keeps one item per name. Directories are merged; the result has only the permissions that all of them have.
    fn merge_directories(&mut self) {
        let mut items = std::mem::take(&mut self.items);
        items.sort_by(|a, b| a.entry.path.cmp(&b.entry.path));
        for item in items {
            let Some(last) = self.items.last_mut() else {
                self.items.push(item);
                continue;
            };
            if last.entry.path != item.entry.path {
                self.items.push(item);
            } else if last.is_directory() && item.is_directory() {
                last.entry.mode &= item.entry.mode;
            } else if last.entry.kind != item.entry.kind {
                let (path, one) = (item.entry.path, last.here.clone());
                self.clashes.push(NameClash { path, one, other: item.here });
            }
        }
    }
}

impl SearchResult {
    /// Moves all but the first path of each file from the items to the hard links.
    fn extract_links(&mut self) {
        let mut known = BTreeMap::new();
        let mut items = Vec::new();
        for item in std::mem::take(&mut self.items) {
            let Kind::File { snapshot } = &item.entry.kind else {
                items.push(item);
                continue;
            };
            match known.entry((snapshot.device, snapshot.inode)) {
                Entries::Occupied(first) => self.links.push((*first.get(), item.entry.path)),
                Entries::Vacant(new) => {
                    new.insert(items.len());
                    items.push(item);
                }
            }
        }
        self.items = items;
    }
}

struct Search<'a> {
    found: SearchResult,
    excludes: &'a Excludes,
    describer: Describer,
}

impl Search<'_> {
    /// Adds the item at an argument's path.
    fn path(&mut self, path: &Path) -> Result<(), LocalError> {
        let name = last_name(path);
        let found = match name {
            Some(_) => fs::symlink_metadata(path),
            None => fs::metadata(path),
        };
        let metadata = found.map_err(|e| failed(path, e))?;
        let kind = metadata.file_type();
        if !(kind.is_file() || kind.is_dir() || kind.is_symlink()) {
            return Err(LocalError::Special(path.to_owned()));
        }
        let name = match name {
            Some(name) => name.to_vec(),
            None if kind.is_dir() => Vec::new(),
            None => return Err(failed(path, io::ErrorKind::NotADirectory.into())),
        };
        if kind.is_symlink() {
            self.found.named_links.push(path.to_owned());
        }
        if !self.excludes.leaves_out(&name, metadata.is_dir()) {
            self.add(path, name, &metadata);
        }
        Ok(())
    }

    fn add(&mut self, path: &Path, name: Vec<u8>, metadata: &Metadata) {
        let kind = metadata.file_type();
        if name.rsplit(|letter| *letter == b'/').next().is_some_and(is_reserved) {
            self.leave(&name);
            return self.found.ours.push(path.to_owned());
        }
        if !(kind.is_file() || kind.is_dir() || kind.is_symlink()) {
            self.leave(&name);
            return self.found.passed.push(path.to_owned());
        }
        match local(path, name, metadata) {
            Err(why) => self.found.failed.push(why),
            Ok(mut item) => {
                // If its metadata cannot be read, that is reported and the item is still sent.
                self.describe(path, metadata, &mut item);
                let below = kind.is_dir().then(|| item.entry.path.clone());
                self.found.items.push(item);
                let read = below.map_or(Ok(()), |name| self.below(path, name.as_bytes()));
                self.found.failed.extend(read.err());
            }
        }
    }

    /// Adds the requested optional fields to an entry.
    fn describe(&mut self, path: &Path, metadata: &Metadata, item: &mut LocalItem) {
        if item.is_link() {
            // For links this only looks up the names of its owner and group.
            _ = self.describer.describe(metadata.into(), || None, || Err(Errno::INVAL));
            return;
        }
        let read = || File::open(path).ok().map(Into::into);
        let itself = || openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        match self.describer.describe(metadata.into(), read, itself) {
            Ok(more) => item.entry.more = more,
            Err(e) => self.found.failed.push(failed(path, e.into())),
        }
    }

    /// Records a name that is not sent.
    fn leave(&mut self, path: &[u8]) {
        let (directory, name) = match path.iter().rposition(|letter| *letter == b'/') {
            Some(end) => (&path[..end], &path[end + 1..]),
            None => (&b""[..], path),
        };
        self.found.left.entry(directory.to_vec()).or_default().push(name.to_vec());
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
                Ok(metadata) if self.excludes.leaves_out(&name, metadata.is_dir()) => {
                    self.leave(&name);
                }
                Ok(metadata) => self.add(&inside, name, &metadata),
                Err(why) => self.found.failed.push(failed(&inside, why)),
            }
        }
        Ok(())
    }
}

/// The last component of a path; `None`: the directory's contents are meant. `Path` itself drops a final `/.`.
fn last_name(path: &Path) -> Option<&[u8]> {
    let path = path.as_os_str().as_bytes();
    let last = path.rsplit(|letter| *letter == b'/').next()?;
    (!matches!(last, b"" | b"." | b"..")).then_some(last)
}

fn local(path: &Path, name: Vec<u8>, metadata: &Metadata) -> Result<LocalItem, LocalError> {
    let name = FilePath::new(name)
        .map_err(|e: PathError| LocalError::Name { path: path.to_owned(), why: e.to_string() })?;
    let kind = if metadata.is_dir() {
        Kind::Directory
    } else if metadata.is_symlink() {
        let target = fs::read_link(path).map_err(|e| failed(path, e))?;
        Kind::Symlink { target: target.into_os_string().into_vec() }
    } else {
        Kind::File { snapshot: snapshot(metadata) }
    };
    let entry = Entry {
        root: 0,
        path: name,
        kind,
        mode: (metadata.mode() & 0o7777) as u16,
        owner: metadata.uid(),
        group: metadata.gid(),
        modified: FileTime::from_stat(metadata.mtime(), metadata.mtime_nsec()),
        more: None,
    };
    Ok(LocalItem { here: path.to_owned(), entry })
}

fn snapshot(metadata: &Metadata) -> Snapshot {
    let of = |seconds, nanos: i64| FileTime::from_stat(seconds, nanos).as_nanos();
    Snapshot {
        device: metadata.dev(),
        inode: metadata.ino(),
        size: metadata.size(),
        modified_ns: of(metadata.mtime(), metadata.mtime_nsec()),
        changed_ns: of(metadata.ctime(), metadata.ctime_nsec()),
    }
}

fn failed(path: &Path, source: io::Error) -> LocalError {
    LocalError::Io { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(paths: &[PathBuf]) -> SearchResult {
        find(paths, &Excludes::default(), Fidelity::default())
    }

    fn names(found: &SearchResult) -> Vec<String> {
        found.items.iter().map(|item| item.entry.path.to_string()).collect()
    }

    fn tree() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("a/empty")).unwrap();
        fs::write(tree.join("a/one"), "1").unwrap();
        fs::write(tree.join("two"), "22").unwrap();
        fs::write(tree.join(".two.thalweg-part"), "").unwrap();
        std::os::unix::fs::symlink("two", tree.join("link")).unwrap();
        (dir, tree)
    }

    #[test]
    fn a_path_selects_the_same_items_as_with_rsync() {
        let (_dir, tree) = tree();
        let whole = ["tree", "tree/a", "tree/a/empty", "tree/a/one", "tree/link", "tree/two"];
        let content = ["", "a", "a/empty", "a/one", "link", "two"];
        for (end, wanted) in [
            ("", &whole[..]),
            ("/", &content),
            ("//", &content),
            ("/.", &content),
            ("/./", &content),
            ("/a/..", &content),
            ("/two", &["two"]),
            ("/link", &["link"]),
            ("/./a/", &["", "empty", "one"]),
            ("/a/empty", &["empty"]),
        ] {
            let mut path = tree.clone().into_os_string();
            path.push(end);
            let found = all(&[path.into()]);
            assert_eq!(
                (names(&found), found.failed.len()),
                (wanted.iter().map(ToString::to_string).collect(), 0),
                "{end}"
            );
            let is_whole = wanted.len() > 3;
            assert_eq!(found.ours.len(), usize::from(is_whole), "{end}");
        }
        let found = all(&[tree.join("gone"), tree.join("two"), "/dev/null".into()]);
        let failed: Vec<String> = found.failed.iter().map(ToString::to_string).collect();
        assert!(failed[0].contains("gone: No such file"), "{failed:?}");
        assert!(failed[1].contains("neither"), "{failed:?}");
        assert_eq!((found.items.len(), failed.len()), (1, 2), "the rest is sent");
        assert!(all(&[tree.join("two/")]).failed[0].to_string().contains("ot a directory"));
    }

    #[test]
    fn a_link_among_the_arguments_is_sent_as_by_rsync() {
        let (dir, _) = tree();
        let link = |target: &str, name: &str| {
            std::os::unix::fs::symlink(target, dir.path().join(name)).unwrap();
        };
        link("tree", "to-tree");
        link("tree/two", "to-file");
        link("to-tree", "to-link");
        link("nowhere", "dangling");
        link("/dev/null", "to-device");
        let content = ["", "a", "a/empty", "a/one", "link", "two"];
        // The path, the sent names, whether it is a link, and how many paths fail.
        for (path, wanted, is_link, failed) in [
            ("to-tree", &["to-tree"][..], true, 0),
            ("to-file", &["to-file"], true, 0),
            ("to-link", &["to-link"], true, 0),
            ("dangling", &["dangling"], true, 0),
            ("to-device", &["to-device"], true, 0),
            ("to-tree/", &content, false, 0),
            ("to-tree/.", &content, false, 0),
            ("to-link/", &content, false, 0),
            ("to-tree/a", &["a", "a/empty", "a/one"], false, 0),
            ("to-tree/link", &["link"], true, 0),
            ("to-file/", &[], false, 1),
            ("dangling/", &[], false, 1),
        ] {
            let found = all(&[dir.path().join(path)]);
            assert_eq!(
                (names(&found), found.failed.len()),
                (wanted.iter().map(ToString::to_string).collect(), failed),
                "{path}"
            );
            let first_is_link = found.items.first().is_some_and(LocalItem::is_link);
            assert_eq!(
                (first_is_link, found.named_links.len()),
                (is_link, usize::from(is_link)),
                "{path}"
            );
            let to = tempfile::tempdir().unwrap();
            let mut rsync = std::process::Command::new("rsync");
            let ended =
                rsync.arg("-a").arg("--exclude=.*").arg(dir.path().join(path)).arg(to.path());
            let Ok(ended) = ended.output() else { continue };
            assert_eq!(ended.status.success(), failed == 0, "{path}: {ended:?}");
            let below: Vec<&&str> = wanted.iter().filter(|name| !name.is_empty()).collect();
            for name in below {
                let there = to.path().join(name).symlink_metadata();
                let there = there.unwrap_or_else(|_| panic!("{path}: rsync sends no {name}"));
                let is = found.items.iter().find(|item| item.entry.path.to_string() == **name);
                assert_eq!(is.map(LocalItem::is_link), Some(there.is_symlink()), "{path}: {name}");
            }
        }
    }

    #[test]
    fn excluded_items_are_left_out_with_their_contents() {
        let (_dir, tree) = tree();
        for (patterns, wanted, left) in [
            (&["a"][..], &["tree", "tree/link", "tree/two"][..], 2),
            (&["one", "link"], &["tree", "tree/a", "tree/a/empty", "tree/two"], 3),
            (&["/tree/a/*"], &["tree", "tree/a", "tree/link", "tree/two"], 3),
            (&["+ two", "*"], &[], 0),
            (&["+ tree", "+ two", "*"], &["tree", "tree/two"], 3),
            (
                &["two/", "/a"],
                &["tree", "tree/a", "tree/a/empty", "tree/a/one", "tree/link", "tree/two"],
                1,
            ),
        ] {
            let patterns: Vec<Vec<u8>> = patterns.iter().map(|p| p.as_bytes().to_vec()).collect();
            let excludes = Excludes::new(&patterns).unwrap();
            let found = find(std::slice::from_ref(&tree), &excludes, Fidelity::default());
            assert_eq!(names(&found), wanted, "{patterns:?}");
            assert_eq!(found.left.values().map(Vec::len).sum::<usize>(), left, "{patterns:?}");
        }
    }

    #[test]
    fn items_with_the_same_name_are_reported_and_directories_merged() {
        let dir = tempfile::tempdir().unwrap();
        let make = |path: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "x").unwrap();
            path
        };
        let (one, other) = (make("1/set/x"), make("2/set/y"));
        make("3/set/x");
        make("4/set");
        let path = |below: &str| dir.path().join(below);
        for (paths, clashes, items) in [
            (vec![path("1/set"), path("2/set")], 0, 3),
            (vec![path("1/set"), path("1/set")], 0, 2),
            (vec![one.clone(), other.clone()], 0, 2),
            (vec![one.clone(), one.clone()], 0, 1),
            (vec![one.clone(), path("3/set/x")], 1, 1),
            (vec![path("1/set"), path("3/set")], 1, 2),
            (vec![path("1/set"), path("4/set")], 1, 2),
            (vec![path("1/"), path("2/"), path("3/")], 1, 4),
        ] {
            let found = all(&paths);
            assert_eq!((found.clashes.len(), found.items.len()), (clashes, items), "{paths:?}");
        }
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(path("2/set"), fs::Permissions::from_mode(0o700)).unwrap();
        let found = all(&[path("1/set"), path("2/set")]);
        assert_eq!(found.items[0].entry.mode, 0o700, "shown to no more users than each");
    }

    #[test]
    fn a_changed_file_is_no_longer_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "before").unwrap();
        let file = all(std::slice::from_ref(&path)).items.remove(0);
        assert_eq!(file.read(2, 3).unwrap(), b"for");
        let mut content = b"- ".to_vec();
        file.read_all(&mut content).unwrap();
        assert_eq!(content, b"- before");
        fs::write(&path, "later on").unwrap();
        assert_eq!(file.read(2, 3).unwrap_err(), "it changed while it was sent");
        assert_eq!(file.read_all(&mut content).unwrap_err(), "it changed while it was sent");
        assert_eq!(content, b"- before");
        fs::remove_file(&path).unwrap();
        assert!(file.read(2, 3).unwrap_err().contains("No such file"));
    }
}
