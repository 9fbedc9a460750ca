//! Prepares the target: creates directories, and updates the modes and times of existing items.

use super::{
    super::Changes,
    Failed, PassedOver,
    hard_links::Place as NamePlace,
    plan::{Plan, Target, is_temporary},
    survey::{Fate, Place, Survey},
    tree::{Hold, Holds, Tree},
    trouble::{Trouble, said},
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
pub(super) struct Present {
    pub(super) files: u64,
    pub(super) bytes: u64,
    pub(super) links: u64,
    /// Files and links whose attributes differ.
    pub(super) differing: u64,
}

/// A plan reduced to the remaining work.
#[derive(Debug)]
pub(super) struct Made {
    /// Its targets: first those to fetch, then those to create here.
    pub(super) plan: Plan,
    /// By target.
    pub(super) fates: Vec<Fate>,
    /// The number of targets to fetch.
    pub(super) fetched: usize,
    pub(super) present: Present,
    /// Directories and attributes that were created or changed, or would be in a dry run.
    pub(super) changes: Changes,
    pub(super) failed: Vec<Failed>,
    /// The error after which no directory could be created, so that nothing more can be stored.
    pub(super) stopped: Option<LandError>,
    pub(super) passed_over: Vec<PassedOver>,
    /// Names of files that will not be here and that have further names.
    pub(super) refused: BTreeSet<NamePlace>,
}

/// Sorts the plan as [`make`] does, without changing anything.
pub(super) fn pretend(plan: Plan, survey: Survey) -> Made {
    let made = survey.places.iter().filter(|place| **place == Place::Absent).count() as u64;
    let directories = survey.differing.len() as u64;
    let sorted = sort(plan, survey.fates, survey.failed);
    let changes =
        Changes { directories: made, attributes: directories + sorted.present.differing, links: 0 };
    Made { changes, ..sorted }
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
    mut plan: Plan,
    mut survey: Survey,
    tree: &Tree,
    leftovers: &Leftovers<'_>,
) -> Made {
    let mut maker = Maker {
        holds: Holds::of(tree),
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
        let was_here = survey.places.get(number) == Some(&Place::Here);
        maker.directory(&mut plan, &mut survey.places, number);
        if was_here && survey.places.get(number) == Some(&Place::Here) {
            maker.clean(&plan, number as u32, leftovers);
        }
    }
    for (fate, target) in survey.fates.iter_mut().zip(&plan.targets) {
        if survey.places.get(target.directory as usize) == Some(&Place::Refused) {
            *fate = Fate::Refused("its directory cannot be used".into());
        }
        let Fate::Keep { differs } = *fate else { continue };
        if differs {
            maker.dress(&plan, target);
        }
        if leftovers.tag.is_some() && !target.is_small() {
            maker.tidy(&plan, target);
        }
    }
    survey.failed.extend(maker.failed);
    let (stopped, changes) = (maker.stopped, maker.changes);
    Made { stopped, changes, ..sort(plan, survey.fates, survey.failed) }
}

fn sort(mut plan: Plan, fates: Vec<Fate>, mut failed: Vec<Failed>) -> Made {
    let refused = plan.refused(&fates);
    let (mut fetched, mut made, mut present) = (Vec::new(), Vec::new(), Present::default());
    for (fate, target) in fates.into_iter().zip(std::mem::take(&mut plan.targets)) {
        match fate {
            Fate::Refused(why) => {
                failed.push(Failed { source: target.source, path: plan.path(&target), why });
            }
            Fate::Keep { differs } => {
                present.differing += u64::from(differs);
                match target.is_file() {
                    true => {
                        present.files += 1;
                        present.bytes += target.size();
                    }
                    false => present.links += 1,
                }
            }
            Fate::Make => made.push((fate, target)),
            Fate::Fetch | Fate::GoOn { .. } | Fate::Ask => fetched.push((fate, target)),
        }
    }
    let number = fetched.len();
    let (fates, targets) = fetched.into_iter().chain(made).unzip();
    plan.targets = targets;
    let (passed_over, stopped, changes) = (Vec::new(), None, Changes::default());
    let fetched = number;
    Made { plan, fates, fetched, present, changes, failed, stopped, passed_over, refused }
}

impl Leftovers<'_> {
    /// Whether a part was kept by the same command and its file is no longer listed in that version.
    fn are(&self, plan: &Plan, job: &Job, key: &PartKey) -> bool {
        let same = (job.kind, &job.source, &job.target)
            == (self.job.kind, &self.job.source, &self.job.target);
        let PartKey::Listed { node, .. } = key else { return false };
        let is_sure = plan.nodes.values().any(|n| n == node) && !self.unsure.contains(node);
        let mut listed = plan.targets.iter().filter_map(|target| plan.key(target));
        same && is_sure && !listed.any(|known| known == *key)
    }
}

struct Maker {
    holds: Holds,
    failed: Vec<Failed>,
    stopped: Option<LandError>,
    changes: Changes,
}

impl Maker {
    fn directory(&mut self, plan: &mut Plan, places: &mut [Place], number: usize) {
        let Some(directory) = plan.directories.get(number) else { return };
        let above = places.get(directory.parent as usize).copied();
        let done = match (above, places.get(number)) {
            (Some(Place::Refused), _) | (_, Some(Place::Refused)) => Err(None),
            (_, Some(Place::Absent)) => {
                let made = self.make(plan, number);
                self.changes.directories += u64::from(made.is_ok());
                made
            }
            _ => Ok(()),
        };
        let place = if done.is_ok() { Place::Here } else { Place::Refused };
        if let Err(Some(why)) = done {
            let (source, path) = (directory.source, plan.below(number as u32));
            self.failed.push(Failed { source, path, why });
        }
        if let (Some(known), Some(directory)) =
            (places.get_mut(number), plan.directories.get_mut(number))
        {
            (*known, directory.is_usable) = (place, place == Place::Here);
        }
    }

    /// Creates a directory that is closed to other users until it gets its mode at the end.
    fn make(&mut self, plan: &Plan, number: usize) -> Result<(), Option<String>> {
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
        made.map_err(|e| match plan.trouble("create", e) {
            Trouble::One(why) => Some(why),
            // Its contents and all later directories would fail in the same way, so the error is reported once.
            Trouble::All(error) => {
                self.stopped.get_or_insert(error);
                None
            }
        })
    }

    /// Deletes leftovers of earlier sessions.
    fn clean(&mut self, plan: &Plan, number: u32, leftovers: &Leftovers<'_>) {
        let Ok(hold) = self.holds.get(plan, number) else { return };
        let Ok(entries) = Dir::read_from(&hold) else { return };
        for entry in entries.flatten() {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name.as_bytes().ends_with(JOURNAL) {
                let idle = |job: &Job, key: &PartKey| leftovers.are(plan, job, key);
                // A journal that cannot be read stays, as does one that another process uses.
                _ = Part::remove_if(&hold.itself(), name, idle);
            }
            let is_temporary = leftovers.tag.is_some_and(|tag| is_temporary(tag, name));
            if is_temporary && entry.file_type() != FileType::Directory {
                // A file that remains does no harm.
                _ = unlinkat(&hold, name, AtFlags::empty());
            }
        }
    }

    /// Deletes the journal left by a session that was cut off just after a large file got its name.
    fn tidy(&mut self, plan: &Plan, target: &Target) {
        let Ok(hold) = self.holds.get(plan, target.directory) else { return };
        // A journal that remains does no harm.
        _ = Part::remove_leftovers(&hold.path(&target.name));
    }

    /// Updates mode, owner and time of an existing item.
    fn dress(&mut self, plan: &Plan, target: &Target) {
        let hold = self.holds.get(plan, target.directory);
        let done = hold.and_then(|hold| match target.is_file() {
            true => dress_file(&hold, target, plan.keep),
            false => {
                target.attributes.put_on_link(&hold, &target.name);
                Ok(())
            }
        });
        self.changes.attributes += u64::from(done.is_ok());
        if let Err(error) = done {
            let (source, path) = (target.source, plan.path(target));
            self.failed.push(Failed { source, path, why: said("set mode and time of", error) });
        }
    }
}

/// Updates a file by its path alone, because its owner may have no permission to read or write it.
fn dress_file(hold: &Hold, target: &Target, keep: Keep) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(hold, &target.name, flags, Mode::empty())?;
    target.dress(keep).put_by_path(file)
}
