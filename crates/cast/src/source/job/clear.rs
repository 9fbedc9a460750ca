//! Removes old jobs, and digests of objects that are no longer cast.

use super::{CastEnd, CastRecord, Lock, ending, stems};
use std::{
    fs, io,
    path::Path,
    time::{Duration, SystemTime},
};

/// How long digests and successful jobs are kept after their last use. Another cast of the same object need not read it
/// again.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long other jobs are kept. `thalweg cast status` shows which receivers lack the object.
const KEPT_UNFINISHED: Duration = Duration::from_secs(31 * 24 * 3600);

/// Describing an object takes less than this.
const MAX_DESCRIBING: Duration = Duration::from_secs(3 * 24 * 3600);

/// Removes files older than these limits. Jobs on which a process works, and files that cannot be read, stay.
pub fn clear(directory: &Path) {
    clear_at(directory, SystemTime::now());
}

pub(super) fn clear_at(directory: &Path, now: SystemTime) {
    for stem in stems(directory, "job") {
        let is_well =
            |record: &CastRecord| matches!(record.end, Some(CastEnd::Complete | CastEnd::GivenUp));
        let record = CastRecord::read(&stem).ok().flatten();
        let kept = if record.as_ref().is_some_and(is_well) { KEPT } else { KEPT_UNFINISHED };
        if is_older(&ending(&stem, "job"), now, kept)
            && let Ok(_lock) = Lock::take(&stem)
        {
            ["job", "progress", "progress-new", "lock"]
                .iter()
                .for_each(|one| remove(&ending(&stem, one)));
        }
    }
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let kept = match path.extension().and_then(|ending| ending.to_str()) {
            Some("pages" | "known") => KEPT,
            Some(other) if other.starts_with("new") => MAX_DESCRIBING,
            _ => continue,
        };
        // A process that has the file open can continue to read it; after a crash, the object is read once more.
        if is_older(&path, now, kept) {
            remove(&path);
        }
    }
}

fn is_older(path: &Path, now: SystemTime, than: Duration) -> bool {
    let changed = fs::metadata(path).and_then(|found| found.modified());
    changed.is_ok_and(|changed| now.duration_since(changed).is_ok_and(|age| age > than))
}

fn remove(path: &Path) {
    match fs::remove_file(path) {
        // The next cast tries again.
        Err(e) if e.kind() != io::ErrorKind::NotFound => {}
        _ => {}
    }
}
