//! The end: directories get their modes and times, deepest first, and all is synced.

use super::{
    Failed,
    lock::Lock,
    plan::Plan,
    shared::Shared,
    survey::modified,
    tree::{Hold, Holds},
    trouble::said,
};
use rustix::{
    fs::{fstat, fsync, syncfs},
    io::Errno,
};
use thalweg_part::Attributes;

/// Returns how many directories are as they are at their sources, and which could not be. The
/// record is removed if it is given: nothing is to be gone on with.
pub(super) fn end(shared: &Shared, over: Option<&Lock>) -> (u64, Vec<Failed>) {
    let mut failed = Vec::new();
    // Before the first directory gets its time.
    if let Some(Err(error)) = over.map(Lock::forget) {
        failed.push(refused(&shared.plan, 0, "remove the record of", error));
    }
    let mut holds = Holds::of(&shared.tree);
    let mut number = 0;
    for (i, directory) in shared.plan.directories.iter().enumerate().rev() {
        let attributes = directory.attributes.as_ref().filter(|_| directory.is_usable);
        let Some(attributes) = attributes else { continue };
        match holds.get(&shared.plan, i as u32).and_then(|hold| dress(&hold, attributes)) {
            Ok(()) => number += 1,
            Err(error) => {
                failed.push(refused(&shared.plan, i as u32, "set mode and time of", error))
            }
        }
    }
    if let Err(error) = sync(shared, &mut holds) {
        shared.stop(shared.plan.end_of_all("sync", &error.into()));
    }
    (number, failed)
}

fn refused(plan: &Plan, number: u32, what: &str, error: Errno) -> Failed {
    let source = plan.directories.get(number as usize).map_or(0, |directory| directory.source);
    Failed { source, path: plan.below(number), why: said(what, error) }
}

fn dress(hold: &Hold, wanted: &Attributes) -> Result<(), Errno> {
    let found = fstat(hold)?;
    let mode = found.st_mode & 0o7777 == u32::from(wanted.mode);
    let owner = wanted.owner.is_none_or(|owner| owner == (found.st_uid, found.st_gid));
    if mode && owner && modified(&found) == wanted.modified() {
        return Ok(());
    }
    wanted.put(hold).map(drop)
}

fn sync(shared: &Shared, holds: &mut Holds) -> Result<(), Errno> {
    if thalweg_part::syncs_as_a_whole(shared.tree.first()) {
        return syncfs(shared.tree.first());
    }
    for (number, _) in (0..).zip(&shared.plan.directories).filter(|(_, d)| d.is_usable) {
        let hold = holds.get(&shared.plan, number);
        match hold.and_then(fsync) {
            // One that its owner may not read any more is synced with its parent's.
            Ok(()) | Err(Errno::INVAL | Errno::ACCESS) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
