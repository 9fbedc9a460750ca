//! Compares the plan with the existing files. Changes nothing, except that directories which their owner may not enter
//! get full owner rights until the end.

use super::{
    ChecksumSource, FailedItem, Listing, OpenError,
    plan::{Content, Directory, Target, TreePlan, metadata_of},
    step_error::{error_text, part_error_text},
    tree::{DirectoryCache, OpenDirectory, Tree, allow, give},
};
use rustix::{
    fs::{
        Access, AtFlags, Dir, FileType, Mode, OFlags, Stat, accessat, fstat, openat, readlinkat,
        statat,
    },
    io::Errno,
};
use std::{
    collections::BTreeMap, ffi::OsStr, fs::File, ops::Range, os::fd::AsFd as _, path::PathBuf,
};
use thalweg_base::space::Space;
use thalweg_part::{Part, StoredTimes};
use thalweg_units::ByteSize;
use thalweg_wire::object::{FileRef, FileTime, Keep};

/// The maximum number of hashes per request.
const ASKED: usize = 256;

/// The state of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DirectoryState {
    Here,
    Absent,
    /// It cannot be read, or another item in its place cannot be replaced.
    Refused,
}

/// The action for a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TargetAction {
    /// It is here; only mode, owner or time may need an update.
    Keep {
        differs: bool,
    },
    /// Create it here: an empty file or a link.
    Make,
    Fetch,
    /// Resume a large file; `missing` is what the journal of an earlier session lacks.
    Resume {
        missing: Vec<Range<u64>>,
    },
    /// The sizes are equal: the hash of the content decides.
    Ask,
    Refused(String),
}

/// The maximum number of empty directories named in warnings.
const CLEARED: usize = 10;

/// The result of the comparison, by the plan's indices.
#[derive(Debug)]
pub(super) struct Survey {
    pub(super) directory_states: Vec<DirectoryState>,
    pub(super) actions: Vec<TargetAction>,
    pub(super) failed: Vec<FailedItem>,
    /// Existing files, links and empty directories that other items will replace.
    replaced: u64,
    /// The first of these empty directories.
    cleared: Vec<PathBuf>,
    /// Directories that got full owner rights, with their original modes.
    pub(super) opened: Vec<(u32, u16)>,
    /// Existing directories whose attributes differ.
    pub(super) differing: Vec<u32>,
}

impl Survey {
    /// Compares everything; with `dry_run` without changing any mode. Without `tree` nothing exists yet.
    pub(super) fn compare(
        plan: &TreePlan,
        listed: &[Listing],
        tree: Option<&Tree>,
        sums: Option<&dyn ChecksumSource>,
        dry_run: bool,
    ) -> Self {
        let Some(tree) = tree else { return Self::nothing(plan, dry_run) };
        let mut surveyor = Surveyor {
            plan,
            holds: DirectoryCache::new(tree),
            directory_states: Vec::new(),
            failed: Vec::new(),
            opened: Vec::new(),
            differing: Vec::new(),
            times: if dry_run { StoredTimes::read_only() } else { StoredTimes::default() },
            by_sum: sums.is_some(),
            may_write: vec![None; plan.directories.len()],
            replaced: 0,
            cleared: Vec::new(),
            dry_run,
        };
        plan.directories.iter().enumerate().for_each(|(i, _)| surveyor.directory(i));
        let mut actions: Vec<TargetAction> =
            plan.targets.iter().map(|t| surveyor.target(t)).collect();
        if let Some(sums) = sums {
            surveyor.compare(listed, &mut actions, sums);
        }
        let Surveyor { directory_states, failed, replaced, cleared, opened, differing, .. } =
            surveyor;
        Self { directory_states, actions, failed, replaced, cleared, opened, differing }
    }

    fn nothing(plan: &TreePlan, dry_run: bool) -> Self {
        let directory_states = vec![DirectoryState::Absent; plan.directories.len()];
        let action = |target| if dry_run { predict(target, new(target)) } else { new(target) };
        let (actions, failed, opened) =
            (plan.targets.iter().map(action).collect(), Vec::new(), Vec::new());
        let (cleared, differing) = (Vec::new(), Vec::new());
        Self { directory_states, actions, failed, replaced: 0, cleared, opened, differing }
    }

    /// Warnings about empty directories that will be replaced.
    pub(super) fn remarks(&self) -> Vec<String> {
        let text = |path: &PathBuf| {
            format!(
                "{}: this empty directory will be replaced by the source's item of the same name",
                path.display()
            )
        };
        self.cleared.iter().map(text).collect()
    }

    /// Gives directories their original modes back, because the landing will not start.
    pub(super) fn undo(&self, plan: &TreePlan, tree: &Tree) {
        for (number, mode) in self.opened.iter().rev() {
            let opened = tree.below(&plan.below(*number));
            // A directory that is gone meanwhile has no mode.
            _ = opened.and_then(|hold| give(&*hold, (*mode).into()));
        }
    }

    /// Refuses now, rather than later, data that cannot fit: a single file that is larger than the free space, so that
    /// one source's file does not end the collection of the others; and the whole collection if the rest does not fit
    /// together.
    ///
    /// # Errors
    /// [`OpenError::DiskFull`].
    pub(super) fn make_room(&mut self, plan: &TreePlan, space: Space) -> Result<(), OpenError> {
        let Some(free) = space.bytes else { return Ok(()) };
        let mut needed: u64 = 0;
        for (action, target) in self.actions.iter_mut().zip(&plan.targets) {
            let alone = needed_by(action, target);
            if alone > free {
                *action = TargetAction::Refused(too_large(alone, free));
            } else {
                needed = needed.saturating_add(alone);
            }
        }
        if needed <= free {
            return Ok(());
        }
        let (needed, free) = (ByteSize::from_bytes(needed), ByteSize::from_bytes(free));
        Err(OpenError::DiskFull { into: plan.into.clone(), needed, free })
    }

    /// Checks that the filesystem has enough inodes for all new files, directories and links.
    ///
    /// # Errors
    /// [`OpenError::NoInodes`].
    pub(super) fn check_files(&self, plan: &TreePlan, space: Space) -> Result<(), OpenError> {
        let Some(free) = space.files else { return Ok(()) };
        let is_new =
            |action: &&TargetAction| matches!(action, TargetAction::Fetch | TargetAction::Make);
        let targets = self.actions.iter().filter(is_new).count() as u64;
        let directories =
            self.directory_states.iter().filter(|place| **place == DirectoryState::Absent).count();
        let needed = (targets + directories as u64).saturating_sub(self.replaced);
        match needed <= free {
            true => Ok(()),
            false => Err(OpenError::NoInodes { into: plan.into.clone(), needed, free }),
        }
    }
}

/// The space that the filesystem must have, bytes, in blocks of 4 KiB.
fn needed_by(action: &TargetAction, target: &Target) -> u64 {
    match action {
        TargetAction::Fetch => {
            let data: u64 = target.data().iter().map(|range| range.end - range.start).sum();
            data.checked_next_multiple_of(4096).unwrap_or(u64::MAX)
        }
        TargetAction::Resume { missing } => missing.iter().map(|r| r.end - r.start).sum(),
        _ => 0,
    }
}

fn too_large(needed: u64, free: u64) -> String {
    let (needed, free) = (ByteSize::from_bytes(needed), ByteSize::from_bytes(free));
    format!(
        "it needs {needed} here, and {free} are free; free some space and run the same command \
         again"
    )
}

/// The action for a target that is not here.
fn new(target: &Target) -> TargetAction {
    if target.size() == 0 { TargetAction::Make } else { TargetAction::Fetch }
}

/// The result that a dry run reports: a file that its source cannot read would fail.
fn predict(target: &Target, action: TargetAction) -> TargetAction {
    let needs_source =
        matches!(action, TargetAction::Fetch | TargetAction::Resume { .. } | TargetAction::Ask);
    match needs_source && target.is_unreadable() {
        true => TargetAction::Refused("the source node has no permission to read it".into()),
        false => action,
    }
}

struct Surveyor<'a> {
    plan: &'a TreePlan,
    holds: DirectoryCache,
    directory_states: Vec<DirectoryState>,
    failed: Vec<FailedItem>,
    opened: Vec<(u32, u16)>,
    differing: Vec<u32>,
    times: StoredTimes,
    by_sum: bool,
    /// By directory, once checked: whether items can be created in it.
    may_write: Vec<Option<Result<(), Errno>>>,
    replaced: u64,
    cleared: Vec<PathBuf>,
    dry_run: bool,
}

impl Surveyor<'_> {
    /// Whether items can be created in an existing directory. If this user owns it, it can be made writable.
    fn may_write(&mut self, number: u32) -> Result<(), Errno> {
        if let Some(Some(known)) = self.may_write.get(number as usize) {
            return *known;
        }
        let hold = self.holds.get(self.plan, number)?;
        let access = Access::WRITE_OK | Access::EXEC_OK;
        let may = match accessat(&hold, ".", access, AtFlags::EACCESS) {
            Err(Errno::ACCESS) if is_own(&hold) => Ok(()),
            may => may,
        };
        if let Some(known) = self.may_write.get_mut(number as usize) {
            *known = Some(may);
        }
        may
    }

    fn directory(&mut self, number: usize) {
        let place = match self.look(number) {
            Ok(place) => place,
            Err(why) => {
                if let Some(directory) = self.plan.directories.get(number) {
                    let (source, path) = (directory.source, self.plan.below(number as u32));
                    self.failed.push(FailedItem { source, path, why });
                }
                DirectoryState::Refused
            }
        };
        self.directory_states.push(place);
    }

    fn look(&mut self, number: usize) -> Result<DirectoryState, String> {
        let Some(directory) = self.plan.directories.get(number).filter(|_| number > 0) else {
            return Ok(DirectoryState::Here);
        };
        match self.directory_states.get(directory.parent as usize) {
            Some(DirectoryState::Here) => {}
            // The failure of the parent directory has already been reported.
            other => return Ok(other.copied().unwrap_or(DirectoryState::Refused)),
        }
        let above =
            self.holds.get(self.plan, directory.parent).map_err(|e| error_text("open", e))?;
        match statat(&above, &directory.name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => match self.may_write(directory.parent) {
                Ok(()) => Ok(DirectoryState::Absent),
                Err(why) => Err(error_text("create", why)),
            },
            // A real run would make the parent accessible.
            Err(Errno::ACCESS) if self.dry_run && is_own(&above) => Ok(DirectoryState::Absent),
            Err(other) => Err(error_text("stat", other)),
            Ok(found) => match FileType::from_raw_mode(found.st_mode) {
                FileType::Directory => {
                    if self.has_other_attributes(&above, directory, &found) {
                        self.differing.push(number as u32);
                    }
                    if found.st_mode & 0o700 != 0o700 && !self.dry_run {
                        self.open_up(&above, number as u32);
                    }
                    Ok(DirectoryState::Here)
                }
                // A directory replaces an item of another kind.
                _ => match self.may_write(directory.parent) {
                    Ok(()) => {
                        self.replaced += 1;
                        Ok(DirectoryState::Absent)
                    }
                    Err(why) => Err(error_text("replace", why)),
                },
            },
        }
    }

    /// Whether an existing directory differs from the listed one in mode, owner, time or kept extended attributes.
    fn has_other_attributes(
        &mut self,
        above: &OpenDirectory,
        directory: &Directory,
        found: &Stat,
    ) -> bool {
        let Some(wanted) = directory.attributes else { return false };
        let metadata = metadata_of(wanted, directory.more.as_deref(), self.plan.keep);
        let here = modified(found);
        if !metadata.matches(found, 0o7777)
            || !self.times.are_same(above.as_fd(), found.st_dev, wanted.modified, here)
        {
            return true;
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
        self.plan.keep != Keep::default()
            && openat(above, &directory.name, flags, Mode::empty())
                .is_ok_and(|itself| metadata.differs_from(itself))
    }

    /// Gives the owner full rights to a directory that it may not write to or enter, e.g. as an earlier collection left
    /// it.
    fn open_up(&mut self, above: &OpenDirectory, number: u32) {
        let Some(directory) = self.plan.directories.get(number as usize) else { return };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let itself = openat(above, &directory.name, flags, Mode::empty());
        // A missing permission shows when something is written.
        if let Ok(Some(mode)) = itself.and_then(allow) {
            self.opened.push((number, mode));
        }
    }

    /// Decides the action for a target, or the result that a dry run reports.
    fn target(&mut self, target: &Target) -> TargetAction {
        let action = self.decide(target);
        if self.dry_run { predict(target, action) } else { action }
    }

    fn decide(&mut self, target: &Target) -> TargetAction {
        match self.directory_states.get(target.directory as usize) {
            Some(DirectoryState::Here) => {}
            Some(DirectoryState::Absent) => return new(target),
            _ => return TargetAction::Refused("its directory cannot be used".into()),
        }
        let action = self.find(target).unwrap_or_else(TargetAction::Refused);
        let is_made = matches!(
            action,
            TargetAction::Make | TargetAction::Fetch | TargetAction::Resume { .. }
        );
        match self.may_write(target.directory) {
            Err(why) if is_made => TargetAction::Refused(error_text("create", why)),
            _ => action,
        }
    }

    fn find(&mut self, target: &Target) -> Result<TargetAction, String> {
        let hold = self
            .holds
            .get(self.plan, target.directory)
            .map_err(|e| error_text("open the directory of", e))?;
        let found = match statat(&hold, &target.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Some(found),
            Err(Errno::NOENT) => None,
            Err(Errno::ACCESS) if self.dry_run => return Ok(new(target)),
            Err(other) => return Err(error_text("stat", other)),
        };
        let kind = found.map(|found| FileType::from_raw_mode(found.st_mode));
        let action = self.compared(target, found, kind, &hold)?;
        let is_new = matches!(action, TargetAction::Make | TargetAction::Fetch);
        self.replaced += u64::from(found.is_some() && is_new);
        Ok(action)
    }

    /// Decides the action for a target by the existing item with its name.
    fn compared(
        &mut self,
        target: &Target,
        found: Option<Stat>,
        kind: Option<FileType>,
        hold: &OpenDirectory,
    ) -> Result<TargetAction, String> {
        match (kind, &target.content) {
            (Some(FileType::Directory), _) => match is_empty(hold, &target.name) {
                Ok(true) => {
                    if self.cleared.len() < CLEARED {
                        self.cleared.push(self.plan.path(target));
                    }
                    Ok(new(target))
                }
                Ok(false) => Err(
                    "a directory that is not empty has its name here; move it away or choose another directory"
                        .into(),
                ),
                Err(e) => Err(error_text("read the directory in place of", e)),
            },
            (Some(FileType::Symlink), Content::Link(to)) => {
                let here =
                    readlinkat(hold, &target.name, Vec::new()).map_err(|e| error_text("read", e))?;
                let differs = found.is_some_and(|found| {
                    differs(target, &found, true) || !self.has_time(hold, target, &found)
                });
                Ok(if here.as_bytes() == to { TargetAction::Keep { differs } } else { TargetAction::Make })
            }
            (Some(FileType::RegularFile), Content::File(_)) => self.same(hold, target, found),
            // A part is kept only beside a file or link.
            (Some(FileType::RegularFile | FileType::Symlink) | None, _) => self.fetch_or_resume(target),
            (Some(_), _) => Ok(new(target)),
        }
    }

    /// Decides the action for a file if a file has its name.
    fn same(
        &mut self,
        hold: &OpenDirectory,
        target: &Target,
        found: Option<Stat>,
    ) -> Result<TargetAction, String> {
        let Some(found) = found else { return self.fetch_or_resume(target) };
        let same_size = u64::try_from(found.st_size) == Ok(target.size());
        match (same_size, self.by_sum && target.size() > 0) {
            (true, true) => Ok(TargetAction::Ask),
            (true, false) if self.has_time(hold, target, &found) => {
                let differs = differs(target, &found, false) || self.metadata_differs(hold, target);
                Ok(TargetAction::Keep { differs })
            }
            _ => self.fetch_or_resume(target),
        }
    }

    /// Whether it has the listed time, as precisely as this filesystem stores times.
    fn has_time(&mut self, hold: &OpenDirectory, target: &Target, found: &Stat) -> bool {
        let (wanted, found) = (target.attributes.modified, modified(found));
        self.times.are_same(hold.as_fd(), hold.device, wanted, found)
    }

    /// Whether its kept extended attributes differ.
    fn metadata_differs(&self, hold: &OpenDirectory, target: &Target) -> bool {
        if self.plan.keep == Keep::default() {
            return false;
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(hold, &target.name, flags, Mode::empty());
        file.is_ok_and(|file| target.metadata(self.plan.keep).differs_from(file))
    }

    /// The action for a target whose content is not here, except perhaps a part of it.
    fn fetch_or_resume(&mut self, target: &Target) -> Result<TargetAction, String> {
        if !target.is_file() || target.is_small() {
            return Ok(new(target));
        }
        let hold = self
            .holds
            .get(self.plan, target.directory)
            .map_err(|e| error_text("open the directory of", e))?;
        let Some(key) = self.plan.key(target) else { return Ok(new(target)) };
        let kept = Part::journaled_ranges(&hold.path(&target.name), &key);
        let kept = kept.map_err(|e| part_error_text(&e))?;
        Ok(match kept {
            None => TargetAction::Fetch,
            Some(kept) => TargetAction::Resume { missing: target.missing(kept) },
        })
    }

    /// Decides the targets whose hashes must be compared.
    fn compare(
        &mut self,
        listed: &[Listing],
        actions: &mut [TargetAction],
        sums: &dyn ChecksumSource,
    ) {
        let mut asked: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (number, (action, target)) in actions.iter().zip(&self.plan.targets).enumerate() {
            if *action == TargetAction::Ask {
                asked.entry(target.source).or_default().push(number);
            }
        }
        for (source, numbers) in asked {
            for numbers in numbers.chunks(ASKED) {
                let files: Vec<FileRef> = numbers
                    .iter()
                    .filter_map(|n| reference(listed, self.plan.targets.get(*n)?))
                    .collect();
                let answers = sums.sums(source, &files);
                let mut answers = answers.into_iter();
                for number in numbers {
                    let there = answers.next().and_then(Result::ok).map(|check| check.0);
                    if let (Some(action), Some(target)) =
                        (actions.get_mut(*number), self.plan.targets.get(*number))
                    {
                        *action = self.judge(target, there);
                    }
                }
            }
        }
    }

    /// Decides by the hash. If the source does not report one, the file is fetched, and the source then reports why it
    /// fails.
    fn judge(&mut self, target: &Target, there: Option<[u8; 32]>) -> TargetAction {
        let Some(there) = there else {
            return self.fetch_or_resume(target).unwrap_or_else(TargetAction::Refused);
        };
        match self.sum(target) {
            Ok(here) if here == there => TargetAction::Keep { differs: self.may_differ(target) },
            Ok(_) => self.fetch_or_resume(target).unwrap_or_else(TargetAction::Refused),
            // Its mode denies reading even to its owner, so a new file replaces it.
            Err(why) if why.kind() == std::io::ErrorKind::PermissionDenied => TargetAction::Fetch,
            Err(why) => TargetAction::Refused(format!("cannot read it: {why}")),
        }
    }

    /// Whether a file with the right content has other attributes.
    fn may_differ(&mut self, target: &Target) -> bool {
        let Ok(hold) = self.holds.get(self.plan, target.directory) else { return true };
        let found = statat(&hold, &target.name, AtFlags::SYMLINK_NOFOLLOW);
        found.map_or(true, |found| {
            differs(target, &found, false)
                || !self.has_time(&hold, target, &found)
                || self.metadata_differs(&hold, target)
        })
    }

    fn sum(&mut self, target: &Target) -> std::io::Result<[u8; 32]> {
        let hold = self.holds.get(self.plan, target.directory)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(hold, &target.name, flags, Mode::empty())?);
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(file)?;
        Ok(hasher.finalize().into())
    }
}

/// The reference to a target at its source.
pub(super) fn reference(listed: &[Listing], target: &Target) -> Option<FileRef> {
    let Content::File(snapshot) = target.content else { return None };
    let of = listed.get(target.origin.listed as usize)?;
    let entry = of.entries.get(target.origin.entry as usize)?;
    let root = of.roots.get(entry.root as usize)?.clone();
    Some(FileRef { root, path: entry.path.clone(), snapshot })
}

/// The modification time of an item's content.
pub(super) fn modified(found: &Stat) -> FileTime {
    FileTime::from_stat(found.st_mtime, found.st_mtime_nsec)
}

/// Whether mode or owner differ. Links have no mode.
pub(super) fn differs(target: &Target, found: &Stat, is_link: bool) -> bool {
    let bits = if is_link { 0 } else { 0o7777 };
    !target.metadata(Keep::default()).matches(found, bits)
}

fn is_own(hold: &OpenDirectory) -> bool {
    fstat(hold).is_ok_and(|found| found.st_uid == rustix::process::geteuid().as_raw())
}

/// Whether a subdirectory is empty.
fn is_empty(hold: &OpenDirectory, name: &OsStr) -> Result<bool, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for entry in Dir::read_from(openat(hold, name, flags, Mode::empty())?)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}
