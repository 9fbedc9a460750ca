//! Ends a landing: sets the modes and times of directories, deepest first, and syncs everything.

use super::{
    FailedItem,
    hard_links::{self, FirstName, LinkResult},
    lock::LandingLock,
    plan::{self, Directory, TreePlan},
    state::LandingState,
    step_error::error_text,
    survey::modified,
    tree::{DirectoryCache, OpenDirectory, give},
};
use rustix::{
    fs::{fstat, fsync, syncfs},
    io::Errno,
};
use std::collections::BTreeSet;
use thalweg_wire::object::Keep;

/// The result of the end.
pub(super) struct FinishResult {
    /// The number of directories that are equal to those at their sources.
    pub(super) directories: u64,
    /// The number of existing directories whose attributes changed.
    pub(super) changed: u64,
    pub(super) linked: LinkResult,
    /// Directories that could not be completed.
    pub(super) failed: Vec<FailedItem>,
}

/// Creates further names of files, except for `refused_files`, and completes directories. Removes the record if `over`
/// is given, because nothing is left to resume.
pub(super) fn end(
    shared: &LandingState,
    over: Option<&LandingLock>,
    refused_files: &BTreeSet<FirstName>,
) -> FinishResult {
    let mut failed = Vec::new();
    // Before the first directory gets its time, because removing the record changes that.
    if let Some(Err(error)) = over.map(LandingLock::delete_record) {
        failed.push(refused(&shared.plan, 0, "remove the job record in", error));
    }
    let mut holds = DirectoryCache::new(&shared.tree);
    let linked = hard_links::make(shared, &mut holds, refused_files);
    let (mut directories, mut changed) = (0, 0);
    for (i, directory) in shared.plan.directories.iter().enumerate().rev() {
        let wanted = directory.attributes.is_some() || directory.was.is_some();
        if !wanted || !directory.is_usable {
            continue;
        }
        let hold = holds.get(&shared.plan, i as u32);
        match hold.and_then(|hold| apply_directory_metadata(&hold, directory, shared.plan.keep)) {
            Ok(()) => {
                directories += u64::from(directory.attributes.is_some());
                changed += u64::from(directory.differs);
            }
            Err(error) => {
                failed.push(refused(&shared.plan, i as u32, "set mode and time of", error))
            }
        }
    }
    if let Err(error) = sync(shared, &mut holds) {
        shared.stop(shared.plan.end_of_all("sync", &error.into()));
    }
    FinishResult { directories, changed, linked, failed }
}

fn refused(plan: &TreePlan, number: u32, what: &str, error: Errno) -> FailedItem {
    let source = plan.directories.get(number as usize).map_or(0, |directory| directory.source);
    FailedItem { source, path: plan.below(number), why: error_text(what, error) }
}

fn apply_directory_metadata(
    hold: &OpenDirectory,
    directory: &Directory,
    keep: Keep,
) -> Result<(), Errno> {
    let Some(wanted) = &directory.attributes else {
        return directory.was.map_or(Ok(()), |mode| give(hold, mode.into()));
    };
    let metadata = plan::metadata_of(*wanted, directory.more.as_deref(), keep);
    metadata.put_xattrs(hold)?;
    let found = fstat(hold)?;
    if metadata.matches(&found, 0o7777) && modified(&found) == wanted.modified {
        return Ok(());
    }
    wanted.put(hold).map(drop)
}

fn sync(shared: &LandingState, holds: &mut DirectoryCache) -> Result<(), Errno> {
    if thalweg_part::syncs_as_a_whole(shared.tree.first()) {
        return syncfs(shared.tree.first());
    }
    for (number, _) in (0..).zip(&shared.plan.directories).filter(|(_, d)| d.is_usable) {
        let hold = holds.get(&shared.plan, number);
        match hold.and_then(fsync) {
            // A directory that its owner may no longer read is synced with its parent.
            Ok(()) | Err(Errno::INVAL | Errno::ACCESS) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
