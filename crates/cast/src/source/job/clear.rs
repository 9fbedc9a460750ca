//! Old jobs, and digests of objects that nobody casts any more.

use super::{End, Lock, Record, ending, stems};
use std::{
    fs, io,
    path::Path,
    time::{Duration, SystemTime},
};

/// Digests, and jobs that came to a good end, are kept so long after they were last used: the same
/// cast to others need not read the object again.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Jobs that did not: `thalweg cast status` shows that somebody lacks something.
const LONG: Duration = Duration::from_secs(31 * 24 * 3600);

/// A process that describes an object takes less than this.
const DESCRIBING: Duration = Duration::from_secs(3 * 24 * 3600);

/// Removes what is older than that. What somebody works at stays, and what cannot be looked at.
pub fn clear(directory: &Path) {
    clear_at(directory, SystemTime::now());
}

pub(super) fn clear_at(directory: &Path, now: SystemTime) {
    for stem in stems(directory, "job") {
        let is_well = |record: &Record| matches!(record.end, Some(End::Complete | End::GivenUp));
        let record = Record::read(&stem).ok().flatten();
        let kept = if record.as_ref().is_some_and(is_well) { KEPT } else { LONG };
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
            Some(other) if other.starts_with("new") => DESCRIBING,
            _ => continue,
        };
        // Who has it open reads on; after a crash the object is read once more.
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
        // It is tried again with the next cast.
        Err(e) if e.kind() != io::ErrorKind::NotFound => {}
        _ => {}
    }
}
