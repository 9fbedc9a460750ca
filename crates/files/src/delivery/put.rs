//! Stores batches of small files, links and directories durably: files are written under temporary names, synced
//! together and renamed, and then the names are synced.

use super::{
    Destination, Directory, Obstacle, TemporaryNames, UNFINISHED,
    compare::{may_be, room},
    creator,
    fidelity::{is_sparse, xattr_bytes},
    metadata_of,
};
use crate::{
    Requester,
    root::{failure, modified},
    store::{Inbox, xattr_error},
};
use parking_lot::Mutex;
use rustix::{
    fs::{
        AtFlags, FileType, Mode, OFlags, RenameFlags, Stat, fsync, futimens, mkdirat, openat,
        readlinkat, renameat, renameat_with, symlinkat, syncfs, unlinkat,
    },
    io::Errno,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs::File,
    io::{self, Read as _},
    os::{fd::AsFd as _, unix::ffi::OsStrExt as _},
    sync::{Arc, LazyLock},
};
use thalweg_base::space::on_disk;
use thalweg_part::{FileMetadata, Owner, StoredTimes, holes, syncs_as_a_whole};
use thalweg_units::ByteSize;
use thalweg_wire::object::{
    Delivery, DescribedEntry, Entry, FailedEntries, Failure, Keep, Kind, Rules,
};

/// The process's umask: mode bits that open(2) does not give to a new file.
static UMASK: LazyLock<u32> = LazyLock::new(thalweg_part::umask);

/// Batches of fewer files are synced file by file, since `syncfs` also waits for everything that others have written.
const MIN_TOGETHER: usize = 16;

/// Up to this many directories are synced one by one.
const MAX_SINGLE_SYNCS: usize = 4;

/// The most file systems of one delivery that are synced as a whole; each takes a descriptor. Beyond it, files are
/// synced one by one.
const MAX_DEVICES: usize = 8;

/// Free space that suffices for a small file. If less is free, a full file system lacks bytes and not inodes.
const SMALL_FILE: u64 = 64 << 10;

/// Allows one `syncfs` at a time. A delivery that waited for one usually finds its own bytes written.
static SYNCING: Mutex<()> = Mutex::new(());

/// A file under its temporary name.
struct TemporaryFile<'d> {
    number: u32,
    entry: &'d Entry,
    bytes: &'d [u8],
    /// Whether another file had its name.
    replaces: bool,
}

struct BatchWriter<'a, 'd> {
    destination: Destination<'a>,
    rules: Rules,
    names: &'a TemporaryNames,
    undone: FailedEntries,
    written: Vec<TemporaryFile<'d>>,
    /// Directories below `into` in which names were created.
    named: BTreeSet<Vec<u8>>,
    /// The first directory of each file system, opened before anything was written there (syncfs(2)).
    devices: BTreeMap<u64, Arc<Directory>>,
    times: StoredTimes,
    /// Whether the delivery has enough files to sync them together.
    together: bool,
    /// Files that were given their names.
    stored: Vec<u32>,
}

/// Stores a delivery. `bytes` are the contents of its files in order. Waits for the disk. Returns how many files were
/// stored that did not exist, and which entries failed.
///
/// # Errors
/// [`Failure::NotOffered`], or [`Failure::System`] if the lengths of files and bytes differ. In both cases nothing is
/// stored.
pub(crate) fn put(
    inbox: &Inbox,
    requester: &Requester,
    delivery: &Delivery,
    bytes: &[u8],
) -> Result<(u64, FailedEntries), Failure> {
    let Delivery { into, rules, entries, .. } = delivery;
    let destination = Destination::new(requester, into)?.with_rules(*rules);
    let files = entries.iter().filter(|DescribedEntry(entry)| size(entry).is_some()).count();
    let sum = entries.iter().filter_map(|DescribedEntry(entry)| size(entry));
    if sum.fold(0, u64::saturating_add) != bytes.len() as u64 {
        return Err(Failure::System(
            "the lengths of the files do not match the received bytes".into(),
        ));
    }
    let paths = entries.iter().filter(|DescribedEntry(entry)| entry.kind != Kind::Directory);
    let paths: Vec<_> =
        paths.map(|DescribedEntry(entry)| destination.path(entry.path.as_bytes())).collect();
    let _claim = inbox.claims.wait(destination.accepting_path()?, &paths);
    let mut writer = BatchWriter {
        destination,
        rules: *rules,
        names: &inbox.names,
        undone: FailedEntries::default(),
        written: Vec::new(),
        named: BTreeSet::new(),
        devices: BTreeMap::new(),
        times: StoredTimes::default(),
        together: files >= MIN_TOGETHER,
        stored: Vec::new(),
    };
    let mut rest = bytes;
    for (number, DescribedEntry(entry)) in (0..).zip(entries) {
        let content;
        (content, rest) = rest.split_at(size(entry).unwrap_or(0) as usize);
        let made = inbox.check_idle(&writer.destination.path(entry.path.as_bytes()));
        let made = made.and_then(|()| writer.make(number, entry, content));
        made.unwrap_or_else(|why| writer.undone.add(number, why));
    }
    writer.finish();
    Ok((writer.stored.len() as u64, writer.undone))
}

/// The size of a file entry; `None` for other kinds.
fn size(entry: &Entry) -> Option<u64> {
    match &entry.kind {
        Kind::File { snapshot } => Some(snapshot.size),
        _ => None,
    }
}

impl<'d> BatchWriter<'_, 'd> {
    fn make(&mut self, number: u32, entry: &'d Entry, bytes: &'d [u8]) -> Result<(), Failure> {
        let path = entry.path.as_bytes();
        if path.is_empty() && entry.kind == Kind::Directory {
            return self.destination.open(b"", Some(UNFINISHED)).map(drop);
        }
        let (above, name) = self.destination.split_path(path)?;
        if name.is_empty() {
            return Err(Failure::System("the file has no name".into()));
        }
        let directory = self.destination.create_directory(above)?;
        may_be(entry, &directory)?;
        match &entry.kind {
            Kind::Directory => {
                make_directory(self.destination.requester, &directory, name, self.rules)?;
                self.named.insert(above.to_vec());
            }
            Kind::Symlink { target } => {
                if self.make_link(entry, &directory, name, target)? {
                    self.named.insert(above.to_vec());
                }
            }
            _ => self.write(
                TemporaryFile { number, entry, bytes, replaces: false },
                &directory,
                name,
            )?,
        }
        self.devices.entry(directory.device).or_insert(directory);
        Ok(())
    }

    /// Creates a symbolic link, or replaces another item by it. Returns false if the same link exists already.
    fn make_link(
        &self,
        entry: &Entry,
        directory: &Directory,
        name: &[u8],
        target: &[u8],
    ) -> Result<bool, Failure> {
        let failed = |e| failure(name, e);
        let (target, named) = (OsStr::from_bytes(target), OsStr::from_bytes(name));
        let attributes = metadata_of(entry, self.rules, directory.may).attributes;
        let set_attributes = |name: &OsStr| attributes.put_on_link(directory, name);
        let found = directory.stat(name).map_err(failed)?;
        let known = found.as_ref().map(|_| readlinkat(directory, named, Vec::new()));
        if known.is_some_and(|known| known.is_ok_and(|known| known.as_bytes() == target.as_bytes()))
        {
            return Ok(false);
        }
        let charge = directory.room_for(found.as_ref(), target.len() as u64)?;
        match symlinkat(target, directory, named) {
            Ok(()) => {
                charge.keep();
                set_attributes(named);
                return Ok(true);
            }
            Err(Errno::EXIST) => {}
            Err(e) => return Err(failed(e)),
        }
        let known = readlinkat(directory, named, Vec::new());
        if known.is_ok_and(|known| known.as_bytes() == target.as_bytes()) {
            return Ok(false);
        }
        let Some(found) = directory.stat(name).map_err(failed)? else {
            return Err(failed(Errno::AGAIN));
        };
        let obstacle = Obstacle::new(directory, name, found);
        obstacle.check(self.rules)?;
        let temporary = &*self.names.temporary(name);
        _ = unlinkat(directory, temporary, AtFlags::empty());
        symlinkat(target, directory, temporary).map_err(failed)?;
        set_attributes(temporary);
        let renamed = obstacle.remove_directory(self.destination.requester, self.rules);
        let renamed =
            renamed.and_then(|()| renameat(directory, temporary, directory, named).map_err(failed));
        if let Err(e) = renamed {
            _ = unlinkat(directory, temporary, AtFlags::empty());
            return Err(e);
        }
        charge.keep();
        directory.quota.record_removal();
        Ok(true)
    }

    /// Writes a file under its temporary name, unless the same file exists already.
    fn write(
        &mut self,
        file: TemporaryFile<'d>,
        directory: &Arc<Directory>,
        name: &[u8],
    ) -> Result<(), Failure> {
        let found = directory.stat(name).map_err(|e| failure(name, e))?;
        if let Some(found) = found {
            if self.is_there(&file, directory, name, &found) {
                return Ok(());
            }
            Obstacle::new(directory, name, found).check(self.rules)?;
        }
        let bytes = on_disk(file.bytes.len() as u64, 1) + xattr_bytes(file.entry);
        let charge = directory.room_for(found.as_ref(), bytes)?;
        let is_known = self.devices.contains_key(&directory.device);
        let together = self.together
            && (is_known || self.devices.len() < MAX_DEVICES)
            && syncs_as_a_whole(directory);
        // The directory must be open before anything is written on its file system (syncfs(2)).
        self.devices.entry(directory.device).or_insert_with(|| Arc::clone(directory));
        let metadata = metadata_of(file.entry, self.rules, directory.may);
        if let Err(e) =
            make_file(&file, directory, &self.names.temporary(name), metadata, !together)?
        {
            self.undone.add(file.number, Failure::System(xattr_error(e)));
        }
        charge.keep();
        let replaces = found.is_some();
        self.written.push(TemporaryFile { replaces, ..file });
        Ok(())
    }

    /// Whether a file with the same time and content exists.
    fn is_there(
        &mut self,
        file: &TemporaryFile<'_>,
        directory: &Directory,
        name: &[u8],
        found: &Stat,
    ) -> bool {
        let is_file = FileType::from_raw_mode(found.st_mode).is_file();
        if !is_file || found.st_size != file.bytes.len() as i64 {
            return false;
        }
        let (device, wanted) = (directory.device, file.entry.modified);
        if !self.times.are_same(directory.as_fd(), device, wanted, modified(found)) {
            return false;
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(known) = openat(directory, OsStr::from_bytes(name), flags, Mode::empty()) else {
            return false;
        };
        let mut content = Vec::with_capacity(file.bytes.len());
        let most = file.bytes.len() as u64 + 1;
        File::from(known).take(most).read_to_end(&mut content).is_ok() && content == file.bytes
    }

    /// Syncs the written files, renames them, and syncs the names.
    fn finish(&mut self) {
        if self.together && !self.written.is_empty() {
            let synced = self.devices.values().try_for_each(sync_all_of);
            if let Err(e) = synced {
                return self.give_up(e);
            }
        }
        for file in std::mem::take(&mut self.written) {
            let number = file.number;
            match self.name(&file) {
                Ok(()) => self.stored.push(number),
                Err(why) => self.undone.add(number, why),
            }
        }
        let named = std::mem::take(&mut self.named);
        if let Err(e) = sync_names(&mut self.destination, named, &self.devices) {
            let why = format!("cannot sync its directory there: {}", io::Error::from(e));
            let why = Failure::System(why);
            std::mem::take(&mut self.stored)
                .into_iter()
                .for_each(|n| self.undone.add(n, why.clone()));
        }
    }

    /// Removes the written files after a failed sync, since they may not be on the disk.
    fn give_up(&mut self, e: Errno) {
        for file in std::mem::take(&mut self.written) {
            self.forget(&file);
            let why = format!("cannot sync it there: {}", io::Error::from(e));
            self.undone.add(file.number, Failure::System(why));
        }
    }

    fn forget(&mut self, file: &TemporaryFile<'_>) {
        let Ok((above, name)) = self.destination.split_path(file.entry.path.as_bytes()) else {
            return;
        };
        if let Ok(Some(directory)) = self.destination.directory(above, false) {
            _ = unlinkat(&directory, self.names.temporary(name), AtFlags::empty());
            directory.quota.record_removal();
        }
    }

    /// Gives a file its name.
    fn name(&mut self, file: &TemporaryFile<'_>) -> Result<(), Failure> {
        let (above, name) = self.destination.split_path(file.entry.path.as_bytes())?;
        let directory = self.destination.create_directory(above)?;
        let (temporary, named) = (&*self.names.temporary(name), OsStr::from_bytes(name));
        let rename = || match directory.may.replaces(self.rules) {
            true => renameat(&directory, temporary, &directory, named),
            false => rename_new(&directory, temporary, named),
        };
        let done = rename().or_else(|e| match e {
            // Renaming a file does not replace a directory.
            Errno::ISDIR if self.remove_directory(&directory, name) => rename(),
            e => Err(e),
        });
        if let Err(e) = done {
            let found = directory.stat(name).ok().flatten();
            _ = unlinkat(&directory, temporary, AtFlags::empty());
            directory.quota.record_removal();
            return match found {
                Some(found) if self.is_there(file, &directory, name, &found) => Ok(()),
                Some(found) if matches!(e, Errno::EXIST | Errno::ISDIR) => {
                    let why = Obstacle::new(&directory, name, found).check(self.rules);
                    why.and(Err(failure(name, e)))
                }
                _ => Err(failure(name, e)),
            };
        }
        if file.replaces {
            directory.quota.record_removal();
        }
        self.named.insert(above.to_vec());
        Ok(())
    }

    /// Removes a directory that has the name of a file, if the rules allow it. Returns whether it did.
    fn remove_directory(&self, directory: &Directory, name: &[u8]) -> bool {
        let found = directory.stat(name).ok().flatten();
        found.is_some_and(|found| {
            Obstacle::new(directory, name, found)
                .make_way(self.destination.requester, self.rules)
                .is_ok()
        })
    }
}

/// Makes new names durable: syncs the directories in `named`, or, if there are many, whole file systems.
pub(super) fn sync_names(
    destination: &mut Destination<'_>,
    named: BTreeSet<Vec<u8>>,
    devices: &BTreeMap<u64, Arc<Directory>>,
) -> Result<(), Errno> {
    let whole = named.len() > MAX_SINGLE_SYNCS && devices.values().all(syncs_as_a_whole);
    if whole {
        return devices.values().try_for_each(sync_all_of);
    }
    for below in named {
        // A directory that was removed needs no sync.
        let Ok(Some(directory)) = destination.directory(&below, false) else { continue };
        match fsync(&directory) {
            Ok(()) | Err(Errno::INVAL) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn sync_all_of(directory: &Arc<Directory>) -> Result<(), Errno> {
    if !syncs_as_a_whole(directory) {
        return Ok(());
    }
    let _turn = SYNCING.lock();
    syncfs(directory)
}

fn make_directory(
    requester: &Requester,
    above: &Directory,
    name: &[u8],
    rules: Rules,
) -> Result<(), Failure> {
    let failed = |e| failure(name, e);
    let is_directory = |found: &Stat| FileType::from_raw_mode(found.st_mode).is_dir();
    let found = above.stat(name).map_err(failed)?;
    if found.as_ref().is_some_and(is_directory) {
        return Ok(());
    }
    above.quota.check_depth(above.depth + 1)?;
    let charge = above.room_for(found.as_ref(), 0)?;
    let make = || {
        mkdirat(above, OsStr::from_bytes(name), Mode::from_raw_mode(UNFINISHED))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        creator::record(openat(above, OsStr::from_bytes(name), flags, Mode::empty())?, requester);
        Ok(())
    };
    match make() {
        Err(Errno::EXIST) => {}
        made => return made.map(|()| charge.keep()).map_err(failed),
    }
    match above.stat(name).map_err(failed)? {
        Some(found) if is_directory(&found) => Ok(()),
        Some(found) => {
            Obstacle::new(above, name, found).make_way(requester, rules)?;
            make().map(|()| charge.keep()).map_err(failed)
        }
        None => Err(failed(Errno::AGAIN)),
    }
}

/// Writes a whole file with its metadata under a temporary name. The inner result is that of the extended attributes
/// and access control lists, because a file without them is still complete.
fn make_file(
    file: &TemporaryFile<'_>,
    directory: &Directory,
    name: &OsStr,
    metadata: FileMetadata<'_>,
    sync: bool,
) -> Result<Result<(), Errno>, Failure> {
    let mode = u32::from(metadata.attributes.mode);
    let is_simple =
        metadata.keep == Keep::default() && metadata.attributes.owner == Owner::default();
    let as_made = is_simple && directory.is_plain && mode & *UMASK == 0 && mode & 0o200 != 0;
    let first = if as_made { mode } else { 0o600 };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let create = || openat(directory, name, flags, Mode::from_raw_mode(first));
    let made = match create() {
        // A leftover of a crash: this delivery has claimed the name.
        Err(Errno::EXIST) => unlinkat(directory, name, AtFlags::empty()).and_then(|()| create()),
        made => made,
    };
    let made = made.map(File::from).map_err(|e| not_created(directory, e))?;
    let written = holes::write_new(&made, file.bytes, is_sparse(file.entry));
    let done = written.map_err(|e| errno(&e)).and_then(|()| {
        let xattrs = match as_made {
            true => futimens(&made, &metadata.attributes.times()).map(Ok)?,
            false => metadata.put(&made)?,
        };
        if sync { fsync(&made).map(|()| xattrs) } else { Ok(xattrs) }
    });
    done.map_err(|e| {
        // Best effort: the first error is reported.
        _ = unlinkat(directory, name, AtFlags::empty());
        refused("write", e)
    })
}

/// Renames a file without replacing anything.
fn rename_new(directory: &Directory, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
    match renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE) {
        // The file system does not support the flag (rename(2)).
        Err(Errno::INVAL | Errno::NOSYS) => {
            rustix::fs::linkat(directory, from, directory, to, AtFlags::empty())?;
            unlinkat(directory, from, AtFlags::empty())
        }
        done => done,
    }
}

fn errno(e: &io::Error) -> Errno {
    Errno::from_io_error(e).unwrap_or(Errno::IO)
}

/// The error for a file that could not be created: a file system without free inodes reports the same error as a full
/// one.
fn not_created(directory: &Directory, e: Errno) -> Failure {
    match room(directory) {
        Some((bytes, 0)) if e == Errno::NOSPC && bytes >= SMALL_FILE => Failure::System(format!(
            "no inodes are left there: its file system takes no more files, though {} are free",
            ByteSize::from_bytes(bytes)
        )),
        _ => refused("create", e),
    }
}

fn refused(what: &str, e: Errno) -> Failure {
    Failure::System(match e {
        Errno::NOSPC | Errno::DQUOT => format!("cannot {what} it: the disk there is full"),
        e => format!("cannot {what} it there: {}", io::Error::from(e)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AcceptingDirectory, Files, Settings, delivery::clear, store::ReceivedPiece};
    use std::fs;
    use thalweg_base::log::Log;
    use thalweg_mesh::Membership;
    use thalweg_units::NodeId;
    use thalweg_wire::{
        mesh::{Member, MemberPattern},
        object::{FilePath, FileTime, Snapshot, SurplusRemoval, TransferHash},
    };

    fn entry(kind: Kind) -> Entry {
        let path = FilePath::new(b"f".to_vec()).unwrap();
        let modified = FileTime::from_nanos(1);
        Entry { root: 0, path, kind, mode: 0o644, owner: 0, group: 0, modified, more: None }
    }

    fn of_size(size: u64) -> Kind {
        let snapshot = Snapshot { device: 1, inode: 2, size, modified_ns: 1, changed_ns: 1 };
        Kind::File { snapshot }
    }

    #[test]
    fn replacements_and_removals_are_reported_to_the_quota() {
        let dir = tempfile::tempdir().unwrap();
        let [inbox, state] = ["inbox", "state"].map(|name| dir.path().join(name));
        [&inbox, &state].into_iter().for_each(|path| fs::create_dir(path).unwrap());
        let members = vec![MemberPattern::All];
        let (replace, remove, path) = (true, true, inbox.clone());
        let accept =
            AcceptingDirectory { path, members, replace, remove, ..AcceptingDirectory::default() };
        let settings = Settings { accept: vec![accept], ..Settings::default() };
        let id = NodeId::from_bytes([1; 32]);
        let (membership, log) = (Membership::new(id, None), Log::to_queue().0);
        let shared = Files::new(&settings, &state, id, membership, log).unwrap().0;
        let member = Member {
            name: "a".parse().unwrap(),
            node: None,
            client: id,
            addresses: Vec::new(),
            roles: [].into(),
            tags: [].into(),
        };
        let requester = Requester::new(&shared, member);
        let into = inbox.as_os_str().as_bytes().to_vec();
        let quota =
            Arc::clone(&requester.offers().writable(&requester.member, &into).unwrap().0.quota);
        let put = |kind: Kind, bytes: &[u8]| {
            let (rules, entries) = (Rules::REPLACE, vec![DescribedEntry(entry(kind))]);
            let delivery =
                Delivery { into: into.clone(), rules, entries, owners: Default::default() };
            let (_, undone) = put(&shared.inbox, &requester, &delivery, bytes).unwrap();
            assert_eq!(undone.failures().count(), 0, "{undone:?}");
            quota.take_removed()
        };
        let store = |bytes: &[u8]| {
            let (entry, check) = (entry(of_size(bytes.len() as u64)), blake3::hash(bytes));
            let (into, bytes, check) =
                (into.clone(), bytes.to_vec(), TransferHash(*check.as_bytes()));
            let piece = ReceivedPiece { into, entry, rules: Rules::REPLACE, from: 0, bytes, check };
            assert!(shared.inbox.store(&requester, &piece).unwrap().is_none());
            quota.take_removed()
        };
        let link = || Kind::Symlink { target: b"a".to_vec() };
        assert!(!put(of_size(1), b"1"), "a new file");
        assert!(put(of_size(2), b"22"), "a file");
        assert!(put(link(), b"") && !put(link(), b""), "a link, which then exists");
        assert!(put(Kind::Directory, b""), "a directory");
        assert!(store(b"333") && store(b"4444"), "a file in parts");
        let surplus = SurplusRemoval {
            into: into.clone(),
            directory: FilePath::new(Vec::new()).unwrap(),
            after: Vec::new(),
            to: Vec::new(),
            keep: Vec::new(),
            exclude: Vec::new(),
            remove: true,
        };
        let stop = tokio_util::sync::CancellationToken::new();
        assert_eq!(clear(&requester, &surplus, &stop).unwrap().count, 1);
        assert!(quota.take_removed());
        clear(&requester, &surplus, &stop).unwrap();
        assert!(!quota.take_removed(), "nothing was left");
    }
}
