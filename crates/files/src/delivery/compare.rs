//! Compares a delivery with the existing files at its target. Changes nothing.

use super::{
    BlockingItem, Destination, Directory, Obstacle, creator, fidelity::declined_rules,
    metadata::may_change, metadata_of, protected::is_of_other_service,
};
use crate::{
    Requester,
    offer::StoreRights,
    root::{failure, modified},
    sample,
    store::Inbox,
};
use rustix::fs::{FileType, Mode, OFlags, Stat, fstatvfs, openat, readlinkat};
use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs::File,
    os::{fd::AsFd as _, unix::ffi::OsStrExt as _},
    sync::Arc,
};
use thalweg_part::{StoredTimes, link_target};
use thalweg_wire::object::{
    Comparison, Delivery, DescribedEntry, Entry, Failure, FilePath, Kind, MAX_HASHED, PathState,
    Rules, TransferHash,
};
use tokio_util::sync::CancellationToken;

/// The most ranges of partially received files in one reply, 8 KiB. Further files are reported as missing.
const MAX_RANGES: usize = 512;

/// Shorter files are sent in one piece, so that no part of them is ever kept.
const MIN_PARTED: u64 = 256 << 10;

struct Comparer<'a> {
    inbox: &'a Inbox,
    destination: Destination<'a>,
    rules: Rules,
    reply: Comparison,
    ranges: usize,
    times: StoredTimes,
    stop: &'a CancellationToken,
    /// The total length of the files to hash completely.
    hashed: u64,
    /// Files to hash.
    checked: BTreeSet<&'a FilePath>,
}

/// Compares each entry with the existing item at its path. If hashes are given, compares the content as well. Blocks on
/// the disk; ends early on `stop`.
///
/// # Errors
/// [`Failure::NotOffered`] if the member may not write to the target.
pub(crate) fn compare(
    inbox: &Inbox,
    requester: &Requester,
    delivery: &Delivery,
    checks: &[TransferHash],
    stop: &CancellationToken,
) -> Result<Comparison, Failure> {
    let Delivery { into, rules, entries, .. } = delivery;
    let destination = Destination::new(requester, into)?.with_rules(*rules);
    let declined = declined_rules(*rules, destination.may()?);
    let reply = Comparison { declined, ..Comparison::default() };
    let mut comparer = Comparer {
        inbox,
        destination,
        rules: *rules,
        reply,
        ranges: MAX_RANGES,
        times: StoredTimes::read_only(),
        stop,
        hashed: 0,
        checked: BTreeSet::new(),
    };
    for (number, DescribedEntry(entry)) in entries.iter().enumerate() {
        let found = comparer.examine(entry, checks.get(number));
        let found = found.unwrap_or_else(|why| comparer.reply.refuse(why));
        comparer.reply.found.push(found);
    }
    let near = comparer.destination.nearest(b"").ok().flatten();
    comparer.reply.room = near.and_then(|near| room(&near));
    Ok(comparer.reply)
}

impl<'a> Comparer<'a> {
    fn examine(
        &mut self,
        entry: &'a Entry,
        check: Option<&TransferHash>,
    ) -> Result<PathState, Failure> {
        let path = entry.path.as_bytes();
        if path.is_empty() {
            return self.examine_at_target(entry);
        }
        let (above, name) = self.destination.split_path(path)?;
        let directory = match self.destination.directory(above, false) {
            Err(why) => return self.examine_behind_obstacle(entry, above, why),
            Ok(None) => return self.examine_at_missing(entry, above),
            Ok(Some(directory)) => directory,
        };
        may_be(entry, &directory)?;
        let found = directory.stat(name).map_err(|e| failure(name, e))?;
        let Some(found) = found else {
            directory.check_writable()?;
            return Ok(self.find_incomplete(entry));
        };
        match (&entry.kind, FileType::from_raw_mode(found.st_mode)) {
            (Kind::Directory, FileType::Directory) => {
                Ok(self.examine_at_directory(entry, &directory, name, &found))
            }
            (Kind::Symlink { target }, FileType::Symlink) => {
                let known = readlinkat(&directory, OsStr::from_bytes(name), Vec::new());
                let same = known.is_ok_and(|known| known.as_bytes() == target);
                match same {
                    true => Ok(PathState::Same),
                    false => self.conflict(entry, &directory, name, &found),
                }
            }
            (Kind::File { .. }, FileType::RegularFile) => {
                self.examine_at_file(entry, check, &directory, name, &found)
            }
            _ => self.conflict(entry, &directory, name, &found),
        }
    }

    /// Compares an entry whose parent directory cannot be opened, for the reason `why`. If the reason is that another
    /// item has its name, the sent directory may replace that item.
    fn examine_behind_obstacle(
        &mut self,
        entry: &Entry,
        above: &[u8],
        why: Failure,
    ) -> Result<PathState, Failure> {
        let Some(BlockingItem { directory, name, found }) = self.destination.obstacle(above)?
        else {
            return Err(why);
        };
        Obstacle::new(&directory, &name, found).check(self.rules)?;
        self.examine_below(entry, &directory)
    }

    /// Compares an existing directory: [`PathState::Undressed`] if it would get another mode or time.
    fn examine_at_directory(
        &mut self,
        entry: &Entry,
        above: &Directory,
        name: &[u8],
        found: &Stat,
    ) -> PathState {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let is_mine = || {
            let opened = openat(above, OsStr::from_bytes(name), flags, Mode::empty());
            opened.is_ok_and(|opened| creator::may_finish(opened, self.destination.requester))
        };
        let (wanted, is) = (entry.modified, modified(found));
        let has_time = self.times.are_same(above.as_fd(), above.device, wanted, is);
        let mode = u32::from(entry.mode & 0o777);
        let changes_mode = found.st_mode & 0o777 != mode
            && may_change(self.may_at(above, found), self.rules, found, mode, is_mine);
        if has_time && !changes_mode { PathState::Same } else { PathState::MetadataDiffers }
    }

    /// The member's rights to a directory that is `found` in `above`.
    fn may_at(&self, above: &Directory, found: &Stat) -> StoreRights {
        let is_protected =
            above.may.is_protected || is_of_other_service(self.destination.requester, found);
        StoreRights { is_protected, ..above.may }
    }

    /// Compares the target directory itself.
    fn examine_at_target(&mut self, entry: &Entry) -> Result<PathState, Failure> {
        if entry.kind != Kind::Directory {
            return Err(Failure::System("a file cannot replace the target directory".into()));
        }
        if self.destination.directory(b"", false)?.is_some() {
            return Ok(PathState::Same);
        }
        self.examine_at_missing(entry, b"")
    }

    fn examine_at_missing(&mut self, entry: &Entry, above: &[u8]) -> Result<PathState, Failure> {
        let Some(near) = self.destination.nearest(above)? else { return Ok(PathState::Nothing) };
        self.examine_below(entry, &near)
    }

    /// Checks an entry whose parent does not exist yet; `near` is its nearest existing ancestor.
    fn examine_below(&mut self, entry: &Entry, near: &Directory) -> Result<PathState, Failure> {
        let below = self.destination.path(entry.path.as_bytes());
        let parts = below.iter().filter(|letter| **letter == b'/').count();
        let known = near.path.iter().filter(|letter| **letter == b'/').count();
        let depth = near.depth + parts.saturating_sub(known + 1);
        may_be_at(entry, near, depth)?;
        near.check_writable()?;
        Ok(PathState::Nothing)
    }

    fn examine_at_file(
        &mut self,
        entry: &'a Entry,
        check: Option<&TransferHash>,
        directory: &Arc<Directory>,
        name: &[u8],
        found: &Stat,
    ) -> Result<PathState, Failure> {
        let Kind::File { snapshot } = &entry.kind else { return Ok(PathState::Nothing) };
        let whole = self.rules.has(Rules::WHOLE);
        let same_time = self.times.are_same(
            directory.as_fd(),
            directory.device,
            entry.modified,
            modified(found),
        );
        if found.st_size != snapshot.size as i64 || !(whole || same_time) {
            return self.conflict(entry, directory, name, found);
        }
        let Some(check) = check else { return Ok(PathState::SameSizeAndTime) };
        self.admit(&entry.path, if whole { snapshot.size } else { 0 })?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(directory, OsStr::from_bytes(name), flags, Mode::empty());
        let file = File::from(file.map_err(|e| failure(name, e))?);
        let known = sample::digest_until(&file, snapshot.size, whole, || self.stop.is_cancelled());
        let known = known
            .map_err(|e| Failure::System(format!("cannot read the existing file there: {e}")))?;
        if known != *check {
            return self.conflict(entry, directory, name, found);
        }
        let metadata = metadata_of(entry, self.rules, directory.may);
        let dressed = same_time && metadata.matches(found, 0o777) && !metadata.differs_from(&file);
        Ok(if dressed || !directory.may.replaces(self.rules) {
            PathState::Same
        } else {
            PathState::MetadataDiffers
        })
    }

    /// Checks that one more file may be hashed: the work of one request is bounded.
    fn admit(&mut self, path: &'a FilePath, bytes: u64) -> Result<(), Failure> {
        let refused = |why: &str| Err(Failure::System(why.to_owned()));
        if !self.checked.insert(path) {
            return refused("the request contains it twice");
        }
        if self.hashed > 0 && self.hashed.saturating_add(bytes) > MAX_HASHED {
            return refused(
                "the request needs more bytes to be hashed than allowed: request less at a time",
            );
        }
        self.hashed = self.hashed.saturating_add(bytes);
        Ok(())
    }

    /// Checks that an existing item of another kind or content may be replaced.
    fn conflict(
        &mut self,
        entry: &Entry,
        directory: &Arc<Directory>,
        name: &[u8],
        found: &Stat,
    ) -> Result<PathState, Failure> {
        let obstacle = Obstacle::new(directory, name, *found);
        obstacle.check(self.rules)?;
        obstacle.check_content(self.destination.requester)?;
        directory.check_writable()?;
        Ok(self.find_incomplete(entry))
    }

    /// Returns the kept bytes of a partially received large file.
    fn find_incomplete(&mut self, entry: &Entry) -> PathState {
        let Kind::File { snapshot } = &entry.kind else { return PathState::Nothing };
        if snapshot.size < MIN_PARTED || self.ranges == 0 {
            return PathState::Nothing;
        }
        let kept = self
            .inbox
            .incomplete_ranges(self.destination.requester, &self.destination.into, entry)
            .unwrap_or_default();
        if kept.is_empty() || kept.len() > self.ranges {
            return PathState::Nothing;
        }
        self.ranges -= kept.len();
        PathState::Part(kept)
    }
}

/// Checks that an entry of this kind may be stored in a directory.
pub(super) fn may_be(entry: &Entry, directory: &Directory) -> Result<(), Failure> {
    may_be_at(entry, directory, directory.depth)
}

/// Like [`may_be`], for a path that is `depth` levels below the accepting directory. `near` is its nearest existing
/// ancestor.
fn may_be_at(entry: &Entry, near: &Directory, depth: usize) -> Result<(), Failure> {
    let refused = |why: &str| Err(Failure::System(why.to_owned()));
    match &entry.kind {
        Kind::Symlink { target } if near.may.links && !target.is_empty() => Ok(()),
        Kind::Symlink { target } => link_target::check(target, &near.place, depth).or_else(|why| {
            let to = FilePath::new(target.clone()).map_or_else(
                |_| String::from_utf8_lossy(target).escape_default().to_string(),
                |to| to.to_string(),
            );
            refused(&format!("{why}: it points to {to}"))
        }),
        Kind::Special => refused("it is not a file, directory or symbolic link"),
        Kind::File { .. } | Kind::Directory => Ok(()),
    }
}

/// The bytes and files that the file system of a directory has room for; `None` if it cannot be asked.
pub(super) fn room(directory: &Directory) -> Option<(u64, u64)> {
    let found = fstatvfs(directory).ok()?;
    let is_root = rustix::process::geteuid().is_root();
    let (blocks, files) = match is_root {
        true => (found.f_bfree, found.f_ffree),
        false => (found.f_bavail, found.f_favail),
    };
    // A file system without an inode table reports 0 inodes.
    let files = if found.f_files == 0 { u64::MAX } else { files };
    Some((blocks.saturating_mul(found.f_frsize), files))
}
