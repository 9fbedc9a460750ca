//! Prepares the target: creates directories, and updates the modes and times of existing items.

use super::{
    super::Changes,
    FailedItem, PassedOver,
    hard_links::FirstName,
    plan::{Target, TreePlan, is_temporary},
    step_error::{StepError, error_text},
    survey::{DirectoryState, Survey, TargetAction},
    tree::{DirectoryCache, OpenDirectory, Tree},
};
use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, mkdirat, openat, unlinkat},
    io::Errno,
};
use std::{collections::BTreeSet, ffi::OsStr, os::unix::ffi::OsStrExt};
use thalweg_base::job::Job;
use thalweg_files::land::LandError;
use thalweg_part::{Part, PartKey};
use thalweg_wire::object::Keep;

/// The suffix of the journals of parts.
const JOURNAL: &[u8] = b".thalweg-journal";

/// Items that were already here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ExistingItems {
    pub(super) files: u64,
    pub(super) bytes: u64,
    pub(super) links: u64,
    /// Files and links whose attributes differ.
    pub(super) differing: u64,
}

/// A plan reduced to the remaining work.
#[derive(Debug)]
pub(super) struct PreparedTarget {
    /// Its targets: first those to fetch, then those to create here.
    pub(super) plan: TreePlan,
    pub(super) actions: Vec<TargetAction>,
    /// The number of targets to fetch.
    pub(super) fetched: usize,
    pub(super) present: ExistingItems,
    /// Directories and attributes that were created or changed, or would be in a dry run.
    pub(super) changes: Changes,
    pub(super) failed: Vec<FailedItem>,
    /// The error after which no directory could be created, so that nothing more can be stored.
    pub(super) stopped: Option<LandError>,
    pub(super) passed_over: Vec<PassedOver>,
    /// Names of files that will not be here and that have further names.
    pub(super) refused: BTreeSet<FirstName>,
}

/// Sorts the plan as [`make`] does, without changing anything.
pub(super) fn pretend(plan: TreePlan, survey: Survey) -> PreparedTarget {
    let made =
        survey.directory_states.iter().filter(|place| **place == DirectoryState::Absent).count()
            as u64;
    let directories = survey.differing.len() as u64;
    let sorted = sort(plan, survey.actions, survey.failed);
    let changes =
        Changes { directories: made, attributes: directories + sorted.present.differing, links: 0 };
    PreparedTarget { changes, ..sorted }
}

/// Possible leftovers of earlier sessions.
pub(super) struct Leftovers<'a> {
    /// The tag of the last session's temporary files, if it was cut off; they are deleted.
    pub(super) tag: Option<u32>,
    /// The present job. Parts that earlier sessions of the same command kept of files that are no longer available are
    /// deleted too.
    pub(super) job: &'a Job,
    /// Nodes whose listings are incomplete.
    pub(super) unsure: BTreeSet<String>,
}

/// Creates directories, updates attributes of existing items, deletes useless leftovers, and sorts the plan.
pub(super) fn make(
    mut plan: TreePlan,
    mut survey: Survey,
    tree: &Tree,
    leftovers: &Leftovers<'_>,
) -> PreparedTarget {
    let mut preparer = Preparer {
        holds: DirectoryCache::new(tree),
        failed: Vec::new(),
        stopped: None,
        changes: Changes::default(),
    };
    for number in &survey.differing {
        if let Some(directory) = plan.directories.get_mut(*number as usize) {
            directory.differs = true;
        }
    }
    for number in 0..plan.directories.len() {
        let was_here = survey.directory_states.get(number) == Some(&DirectoryState::Here);
        preparer.directory(&mut plan, &mut survey.directory_states, number);
        if was_here && survey.directory_states.get(number) == Some(&DirectoryState::Here) {
            preparer.remove_leftovers(&plan, number as u32, leftovers);
        }
    }
    for (action, target) in survey.actions.iter_mut().zip(&plan.targets) {
        if survey.directory_states.get(target.directory as usize) == Some(&DirectoryState::Refused)
        {
            *action = TargetAction::Refused("its directory cannot be used".into());
        }
        let TargetAction::Keep { differs } = *action else { continue };
        if differs {
            preparer.update_metadata(&plan, target);
        }
        if leftovers.tag.is_some() && !target.is_small() {
            preparer.remove_journal(&plan, target);
        }
    }
    survey.failed.extend(preparer.failed);
    let (stopped, changes) = (preparer.stopped, preparer.changes);
    PreparedTarget { stopped, changes, ..sort(plan, survey.actions, survey.failed) }
}

fn sort(
    mut plan: TreePlan,
    actions: Vec<TargetAction>,
    mut failed: Vec<FailedItem>,
) -> PreparedTarget {
    let refused = plan.refused(&actions);
    let (mut fetched, mut made, mut present) = (Vec::new(), Vec::new(), ExistingItems::default());
    for (action, target) in actions.into_iter().zip(std::mem::take(&mut plan.targets)) {
        match action {
            TargetAction::Refused(why) => {
                failed.push(FailedItem { source: target.source, path: plan.path(&target), why });
            }
            TargetAction::Keep { differs } => {
                present.differing += u64::from(differs);
                match target.is_file() {
                    true => {
                        present.files += 1;
                        present.bytes += target.size();
                    }
                    false => present.links += 1,
                }
            }
            TargetAction::Make => made.push((action, target)),
            TargetAction::Fetch | TargetAction::Resume { .. } | TargetAction::Ask => {
                fetched.push((action, target))
            }
        }
    }
    let number = fetched.len();
    let (actions, targets) = fetched.into_iter().chain(made).unzip();
    plan.targets = targets;
    let (passed_over, stopped, changes) = (Vec::new(), None, Changes::default());
    let fetched = number;
    PreparedTarget {
        plan,
        actions,
        fetched,
        present,
        changes,
        failed,
        stopped,
        passed_over,
        refused,
    }
}

impl Leftovers<'_> {
    /// Whether a part was kept by the same command and its file is no longer listed in that version.
    fn are(&self, plan: &TreePlan, job: &Job, key: &PartKey) -> bool {
        let same = (job.kind, &job.source, &job.target)
            == (self.job.kind, &self.job.source, &self.job.target);
        let PartKey::Listed { node, .. } = key else { return false };
        let is_sure = plan.nodes.values().any(|n| n == node) && !self.unsure.contains(node);
        let mut listed = plan.targets.iter().filter_map(|target| plan.key(target));
        same && is_sure && !listed.any(|known| known == *key)
    }
}

struct Preparer {
    holds: DirectoryCache,
    failed: Vec<FailedItem>,
    stopped: Option<LandError>,
    changes: Changes,
}

impl Preparer {
    fn directory(
        &mut self,
        plan: &mut TreePlan,
        directory_states: &mut [DirectoryState],
        number: usize,
    ) {
        let Some(directory) = plan.directories.get(number) else { return };
        let above = directory_states.get(directory.parent as usize).copied();
        let done = match (above, directory_states.get(number)) {
            (Some(DirectoryState::Refused), _) | (_, Some(DirectoryState::Refused)) => Err(None),
            (_, Some(DirectoryState::Absent)) => {
                let made = self.make(plan, number);
                self.changes.directories += u64::from(made.is_ok());
                made
            }
            _ => Ok(()),
        };
        let place = if done.is_ok() { DirectoryState::Here } else { DirectoryState::Refused };
        if let Err(Some(why)) = done {
            let (source, path) = (directory.source, plan.below(number as u32));
            self.failed.push(FailedItem { source, path, why });
        }
        if let (Some(known), Some(directory)) =
            (directory_states.get_mut(number), plan.directories.get_mut(number))
        {
            (*known, directory.is_usable) = (place, place == DirectoryState::Here);
        }
    }

    /// Creates a directory that is closed to other users until it gets its mode at the end.
    fn make(&mut self, plan: &TreePlan, number: usize) -> Result<(), Option<String>> {
        let Some(directory) = plan.directories.get(number) else { return Err(None) };
        let mode = if directory.attributes.is_some() { 0o700 } else { 0o777 };
        let above = self.holds.get(plan, directory.parent);
        let made = above.and_then(|above| {
            let make = || mkdirat(&above, &directory.name, Mode::from_raw_mode(mode));
            match make() {
                Err(Errno::EXIST) => match unlinkat(&above, &directory.name, AtFlags::empty()) {
                    // Another process created a directory meanwhile (unlink(2)).
                    Err(Errno::ISDIR | Errno::PERM) => Ok(()),
                    // A directory replaces a file or link, as with rsync.
                    Ok(()) | Err(Errno::NOENT) => make(),
                    Err(e) => Err(e),
                },
                made => made,
            }
        });
        made.map_err(|e| match plan.classify_error("create", e) {
            StepError::One(why) => Some(why),
            // Its contents and all later directories would fail in the same way, so the error is reported once.
            StepError::All(error) => {
                self.stopped.get_or_insert(error);
                None
            }
        })
    }

    /// Deletes leftovers of earlier sessions.
    fn remove_leftovers(&mut self, plan: &TreePlan, number: u32, leftovers: &Leftovers<'_>) {
        let Ok(hold) = self.holds.get(plan, number) else { return };
        let Ok(entries) = Dir::read_from(&hold) else { return };
        for entry in entries.flatten() {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name.as_bytes().ends_with(JOURNAL) {
                let idle = |job: &Job, key: &PartKey| leftovers.are(plan, job, key);
                // A journal that cannot be read stays, as does one that another process uses.
                _ = Part::remove_if(&hold.own_path(), name, idle);
            }
            let is_temporary = leftovers.tag.is_some_and(|tag| is_temporary(tag, name));
            if is_temporary && entry.file_type() != FileType::Directory {
                // A file that remains does no harm.
                _ = unlinkat(&hold, name, AtFlags::empty());
            }
        }
    }

    /// Deletes the journal left by a session that was cut off just after a large file got its name.
    fn remove_journal(&mut self, plan: &TreePlan, target: &Target) {
        let Ok(hold) = self.holds.get(plan, target.directory) else { return };
        // A journal that remains does no harm.
        _ = Part::remove_leftovers(&hold.path(&target.name));
    }

    /// Updates mode, owner and time of an existing item.
    fn update_metadata(&mut self, plan: &TreePlan, target: &Target) {
        let hold = self.holds.get(plan, target.directory);
        let done = hold.and_then(|hold| match target.is_file() {
            true => apply_metadata(&hold, target, plan.keep),
            false => {
                target.attributes.put_on_link(&hold, &target.name);
                Ok(())
            }
        });
        self.changes.attributes += u64::from(done.is_ok());
        if let Err(error) = done {
            let (source, path) = (target.source, plan.path(target));
            self.failed.push(FailedItem {
                source,
                path,
                why: error_text("set mode and time of", error),
            });
        }
    }
}

/// Updates a file by its path alone, because its owner may have no permission to read or write it.
fn apply_metadata(hold: &OpenDirectory, target: &Target, keep: Keep) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(hold, &target.name, flags, Mode::empty())?;
    target.metadata(keep).put_by_path(file)
}
