//! Creates the files of a layout, and sets their modes, times and links at the end.
//!
//! A directory stays writable for its owner until the object has its final name: Linux cannot move a directory that is
//! not writable to another parent, because its `..` changes.

use super::{
    files::{ObjectLocation, path_in},
    open::below,
};
use rustix::{
    fs::{
        AtFlags, CWD, FileType, Mode, OFlags, Stat, chmodat, fstat, linkat, mkdirat, readlinkat,
        statat, symlinkat, unlinkat,
    },
    io::Errno,
};
use std::{
    ffi::OsStr,
    fs::File,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
};
use thalweg_base::descriptors::path_of;
use thalweg_part::{
    Attributes, FileMetadata, Owner, StoredTimes, gives_away, link_target, names::IdMap,
    xattr::AttributeOrigin,
};
use thalweg_wire::{
    cast::{InboxRules, Layout, LayoutEntry, LayoutKind, LinkRule},
    object::{FileTime, Keep},
};

/// More files than this are synced by syncing the whole file system.
const MAX_SINGLE_SYNCS: usize = 16;

/// Creates directories, and files of the right lengths without content. Links are created later, so that nothing is
/// ever written through one. Existing entries stay and are made writable for their owner, because an interrupted
/// attempt may already have set their modes.
///
/// # Errors
/// I/O errors, with the path.
pub fn make(place: &ObjectLocation, layout: &Layout) -> io::Result<()> {
    for entry in &layout.entries {
        let path = place.path(entry.path.as_bytes());
        let made = match entry.kind {
            LayoutKind::Directory => make_directory(place, &path),
            LayoutKind::File { .. } if entry.same_as().is_some() => Ok(()),
            LayoutKind::File { length } => make_file(place, &path, length),
            LayoutKind::Symlink { .. } => Ok(()),
        };
        made.map_err(|e| named(&path, &e))?;
    }
    Ok(())
}

pub(super) fn make_directory(place: &ObjectLocation, path: &[u8]) -> io::Result<()> {
    let (above, name) = above(place, path)?;
    match mkdirat(above.as_fd(), OsStr::from_bytes(name), Mode::RWXU) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) => allow(place, path, FileType::Directory),
        Err(e) => Err(e.into()),
    }
}

fn make_file(place: &ObjectLocation, path: &[u8], length: u64) -> io::Result<()> {
    let open = || below(&place.directory, path, OFlags::RDWR | OFlags::CREATE);
    let opened = match open() {
        Err(Errno::ACCESS) => {
            allow(place, path, FileType::RegularFile)?;
            open()
        }
        opened => opened,
    };
    File::from(opened?).set_len(length)
}

/// Gives the owner of an entry all rights to it, if it has the expected kind.
pub(super) fn allow(place: &ObjectLocation, path: &[u8], kind: FileType) -> io::Result<()> {
    let found = below(&place.directory, path, OFlags::PATH)?;
    let seen = fstat(&found)?;
    if FileType::from_raw_mode(seen.st_mode) != kind {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let wanted = if kind == FileType::Directory { Mode::RWXU } else { Mode::RUSR | Mode::WUSR };
    let mode = Mode::from_raw_mode(seen.st_mode);
    if mode.contains(wanted) {
        return Ok(());
    }
    // A descriptor opened with `O_PATH` can change its mode only through its name in /proc (open(2)).
    Ok(chmodat(CWD, path_of(&found), mode | wanted, AtFlags::empty())?)
}

/// The parent directory of a path, opened, and the last component.
pub(super) fn above<'a>(place: &ObjectLocation, path: &'a [u8]) -> io::Result<(OwnedFd, &'a [u8])> {
    let (above, name) = match path.iter().rposition(|b| *b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&b"."[..], path),
    };
    Ok((below(&place.directory, above, OFlags::PATH | OFlags::DIRECTORY)?, name))
}

/// Creates links, sets modes and times of files, and syncs everything. Called before the object gets its name.
///
/// Set-user-ID, set-group-ID and sticky bits are never set: another host must not choose them.
///
/// # Errors
/// I/O errors, with the path.
pub fn settle(place: &ObjectLocation, layout: &Layout, policy: &InboxPolicy) -> io::Result<()> {
    let metadata = MetadataWriter::new(layout, policy.owners);
    each(place, layout, |entry, path, sync| match &entry.kind {
        _ if policy.check_link(entry, path).is_err() => Ok(()),
        LayoutKind::Symlink { target } => make_link(place, &metadata, entry, path, target),
        LayoutKind::File { .. } if entry.same_as().is_some() => {
            make_name(place, path, &place.path(layout.first_of(entry).path.as_bytes()))
        }
        LayoutKind::File { .. } => metadata.put(place, entry, path, OFlags::RDONLY, sync),
        LayoutKind::Directory => Ok(()),
    })
}

/// Sets modes and times of directories, the deepest first, and syncs them. Called once the object has its name; may be
/// repeated after an interruption.
///
/// # Errors
/// I/O errors, with the path.
pub fn seal(place: &ObjectLocation, layout: &Layout, owners: OwnerPolicy) -> io::Result<()> {
    let metadata = MetadataWriter::new(layout, owners);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let seal = || {
        each(place, layout, |entry, path, sync| match entry.kind {
            LayoutKind::Directory => metadata.put(place, entry, path, flags, sync),
            _ => Ok(()),
        })
    };
    match seal() {
        // A directory already has its final mode, which denies its owner access: open all of them and start again.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            let is_directory = |entry: &&LayoutEntry| entry.kind == LayoutKind::Directory;
            for entry in layout.entries.iter().filter(is_directory) {
                let path = place.path(entry.path.as_bytes());
                allow(place, &path, FileType::Directory).map_err(|e| named(&path, &e))?;
            }
            seal()
        }
        sealed => sealed,
    }
}

/// Visits all entries in reverse order, so that a directory follows its content.
fn each(
    place: &ObjectLocation,
    layout: &Layout,
    step: impl Fn(&LayoutEntry, &[u8], bool) -> io::Result<()>,
) -> io::Result<()> {
    let singly = layout.entries.len() <= MAX_SINGLE_SYNCS;
    for entry in layout.entries.iter().rev() {
        let path = place.path(entry.path.as_bytes());
        step(entry, &path, singly).map_err(|e| named(&path, &e))?;
    }
    if !singly {
        rustix::fs::syncfs(&*place.directory)?;
    }
    Ok(())
}

/// Creates a hard link.
fn make_name(place: &ObjectLocation, path: &[u8], first: &[u8]) -> io::Result<()> {
    let (from, first) = above(place, first)?;
    let (to, name) = above(place, path)?;
    let (first, name) = (OsStr::from_bytes(first), OsStr::from_bytes(name));
    let link = || linkat(&from, first, &to, name, AtFlags::empty());
    match link() {
        // Left by an earlier attempt, or a name of an older file.
        Err(Errno::EXIST) => {
            unlinkat(&to, name, AtFlags::empty())?;
            Ok(link()?)
        }
        made => Ok(made?),
    }
}

fn make_link(
    place: &ObjectLocation,
    metadata: &MetadataWriter,
    entry: &LayoutEntry,
    path: &[u8],
    target: &[u8],
) -> io::Result<()> {
    let (above, name) = above(place, path)?;
    let name = OsStr::from_bytes(name);
    match symlinkat(OsStr::from_bytes(target), above.as_fd(), name) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e.into()),
    }
    metadata.attributes(entry).put_on_link(&above, name);
    Ok(())
}

/// Whether owners and groups of a layout are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerPolicy {
    /// Files belong to the user of this process.
    Ignore,
    /// Sets owners and groups if this process is root.
    Apply,
}

/// What the source of a cast may set in an inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxPolicy {
    /// Owners and groups of files.
    pub owners: OwnerPolicy,
    /// The inbox, without a final `/`, that symbolic links must not point out of; `None`: links may point anywhere.
    pub links_within: Option<Vec<u8>>,
}

impl InboxPolicy {
    /// The rules that sources are told.
    pub fn rules(&self) -> InboxRules {
        let hash = |inbox: &Vec<u8>| *blake3::hash(inbox).as_bytes();
        let within = |inbox| LinkRule::Within(hash(inbox));
        InboxRules {
            sets_owners: self.owners == OwnerPolicy::Apply && gives_away(),
            links: self.links_within.as_ref().map_or(LinkRule::Anywhere, within),
        }
    }

    /// The policy of a receiver with these rules, as far as it concerns the links in this layout. Owners are never set.
    pub fn of_receiver(links: LinkRule, layout: &Layout) -> Self {
        let links_within = match links {
            LinkRule::Anywhere => None,
            // If no target names the inbox, its path does not matter. No path contains a NUL byte.
            LinkRule::Within(hash) => Some(inbox_in_targets(&hash, layout).unwrap_or(vec![0])),
        };
        Self { owners: OwnerPolicy::Ignore, links_within }
    }

    /// Checks whether an entry may be created; `path` is its path below the inbox.
    ///
    /// # Errors
    /// The reason: the entry is a link that could lead out of the inbox.
    pub(super) fn check_link(&self, entry: &LayoutEntry, path: &[u8]) -> Result<(), &'static str> {
        let (LayoutKind::Symlink { target }, Some(inbox)) = (&entry.kind, &self.links_within)
        else {
            return Ok(());
        };
        let depth = path.iter().filter(|letter| **letter == b'/').count();
        link_target::check(target, inbox, depth)
    }
}

/// The path with this hash, if an absolute link points to it or below it.
fn inbox_in_targets(hash: &[u8; 32], layout: &Layout) -> Option<Vec<u8>> {
    let target = |entry: &LayoutEntry| match &entry.kind {
        LayoutKind::Symlink { target } if target.starts_with(b"/") => Some(target.clone()),
        _ => None,
    };
    layout.entries.iter().filter_map(target).find_map(|target| {
        let is_end = |at: &usize| target.get(*at).is_none_or(|letter| *letter == b'/');
        let is_inbox = |at: &usize| blake3::hash(&target[..*at]) == *hash;
        let end = (0..=target.len()).filter(is_end).find(is_inbox)?;
        Some(target[..end].to_vec())
    })
}

/// The links that the policy refuses for an object with this name: their number, and a description of the first.
pub fn refused_links(name: &[u8], layout: &Layout, policy: &InboxPolicy) -> Option<(u64, String)> {
    let check = |entry: &LayoutEntry| {
        let path = path_in(name, entry.path.as_bytes());
        let why = policy.check_link(entry, &path).err()?;
        let LayoutKind::Symlink { target } = &entry.kind else { return None };
        let (path, target) = (path.escape_ascii(), target.escape_ascii());
        Some(format!("{path}: {why}: it points to {target}"))
    };
    let mut refused = layout.entries.iter().filter_map(check);
    let first = refused.next()?;
    Some((1 + refused.count() as u64, first))
}

/// The number of entries whose owners or groups are not applied here.
pub fn count_ignored_owners(layout: &Layout, owners: OwnerPolicy) -> u64 {
    if owners == OwnerPolicy::Apply && gives_away() {
        return 0;
    }
    layout.entries.iter().filter(|entry| entry.owner() != (None, None)).count() as u64
}

/// Sets the metadata of entries.
struct MetadataWriter {
    numbers: IdMap,
    /// Whether owners and groups are set.
    sets_owners: bool,
}

impl MetadataWriter {
    fn new(layout: &Layout, owners: OwnerPolicy) -> Self {
        let sets_owners = owners == OwnerPolicy::Apply && gives_away();
        Self { numbers: IdMap::from_owners(&layout.owners), sets_owners }
    }

    fn attributes(&self, entry: &LayoutEntry) -> Attributes {
        let (user, group) = if self.sets_owners { entry.owner() } else { (None, None) };
        let owner = Owner {
            user: user.map(|id| self.numbers.user(id)),
            group: group.map(|id| self.numbers.group(id)),
        };
        Attributes { owner, mode: entry.mode & 0o777, modified: entry.modified }
    }

    fn put(
        &self,
        place: &ObjectLocation,
        entry: &LayoutEntry,
        path: &[u8],
        flags: OFlags,
        sync: bool,
    ) -> io::Result<()> {
        let made = below(&place.directory, path, flags)?;
        let mut xattrs = entry.xattrs().to_vec();
        self.numbers.localize_xattrs(&mut xattrs);
        // If the source sends no extended attributes, an existing copy keeps its own.
        let all = Keep::XATTRS.and(Keep::ACLS);
        let keep = if xattrs.is_empty() { Keep::default() } else { all };
        let attributes = self.attributes(entry);
        let dress =
            FileMetadata { attributes, xattrs: &xattrs, keep, origin: AttributeOrigin::Guest };
        match dress.put(&made)? {
            // The file system has no extended attributes, or this process may not set them.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::PERM) => {}
            Err(e) => return Err(e.into()),
        }
        if sync { Ok(rustix::fs::fsync(&made)?) } else { Ok(()) }
    }
}

/// Whether all entries are as [`settle`] leaves them: kinds, lengths and times of files, targets of links. Content is
/// not read.
pub fn is_as_made(place: &ObjectLocation, layout: &Layout, policy: &InboxPolicy) -> bool {
    has_shape(place, layout, policy, true)
}

/// Like [`is_as_made`], but ignores modification times and missing links: an earlier cast may have left links out, and
/// [`settle`] creates them.
pub fn may_be(place: &ObjectLocation, layout: &Layout, policy: &InboxPolicy) -> bool {
    has_shape(place, layout, policy, false)
}

fn has_shape(
    place: &ObjectLocation,
    layout: &Layout,
    policy: &InboxPolicy,
    with_times: bool,
) -> bool {
    let mut times = with_times.then(StoredTimes::default);
    let is_same = |entry: &LayoutEntry| match entry.same_as() {
        // Refused links are not created.
        _ if policy.check_link(entry, &place.path(entry.path.as_bytes())).is_err() => true,
        None => is_same(place, entry, times.as_mut()).unwrap_or_else(|why| {
            let is_link = matches!(entry.kind, LayoutKind::Symlink { .. });
            !with_times && is_link && why.kind() == io::ErrorKind::NotFound
        }),
        Some(_) => is_name(place, entry, layout.first_of(entry)).unwrap_or(false),
    };
    layout.entries.iter().all(is_same)
}

/// Whether both entries are names of the same file.
pub(super) fn is_name(
    place: &ObjectLocation,
    entry: &LayoutEntry,
    first: &LayoutEntry,
) -> io::Result<bool> {
    let found = [entry, first].map(|entry| look(place, entry).map(|(_, found)| found));
    let [one, other] = found;
    let (one, other) = (one?, other?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

pub(super) fn look(place: &ObjectLocation, entry: &LayoutEntry) -> io::Result<(OwnedFd, Stat)> {
    let path = place.path(entry.path.as_bytes());
    let (above, name) = above(place, &path)?;
    let found = statat(&above, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW)?;
    Ok((above, found))
}

pub(super) fn is_same(
    place: &ObjectLocation,
    entry: &LayoutEntry,
    times: Option<&mut StoredTimes>,
) -> io::Result<bool> {
    let (above, found) = look(place, entry)?;
    let path = place.path(entry.path.as_bytes());
    let name = OsStr::from_bytes(path.rsplit(|b| *b == b'/').next().unwrap_or_default());
    let kind = FileType::from_raw_mode(found.st_mode);
    Ok(match &entry.kind {
        LayoutKind::Directory => kind == FileType::Directory,
        LayoutKind::Symlink { target } => {
            kind == FileType::Symlink && readlinkat(&above, name, [])?.as_bytes() == target
        }
        LayoutKind::File { length } => {
            let modified = FileTime::from_stat(found.st_mtime, found.st_mtime_nsec);
            kind == FileType::RegularFile
                && u64::try_from(found.st_size) == Ok(*length)
                && times.is_none_or(|times| {
                    times.are_same(above.as_fd(), found.st_dev, entry.modified, modified)
                })
        }
    })
}

pub(super) fn named(path: &[u8], why: &io::Error) -> io::Error {
    io::Error::new(why.kind(), format!("{}: {why}", path.escape_ascii()))
}
