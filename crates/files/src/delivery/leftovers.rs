//! Temporary files of deliveries that a crash cut off.

use super::{
    Claims, Directory,
    kept::{TEMPORARY, temporary},
};
use rustix::fs::{AtFlags, Dir, unlinkat};
use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Beyond this nobody writes a batch: another node may share the directory.
const LONGEST: Duration = Duration::from_secs(3600);

/// Removes those of a directory whose names nobody has claimed, and which were last touched before this process began
/// (`since`), or long ago. Best effort: one that stays is in nobody's way.
pub(super) fn remove(directory: &Directory, claims: &Claims, since: SystemTime) {
    let Ok(entries) = Dir::read_from(directory) else { return };
    let is_one = |name: &OsStr| name.as_bytes().starts_with(TEMPORARY.as_bytes());
    let names = entries.flatten().map(|entry| entry.file_name().to_bytes().to_vec());
    let names: Vec<Vec<u8>> = names.filter(|name| is_one(OsStr::from_bytes(name))).collect();
    if names.is_empty() {
        return;
    }
    let claimed: BTreeSet<OsString> =
        claims.names_in(&directory.path).iter().map(|name| temporary(name)).collect();
    let long_ago = SystemTime::now().checked_sub(LONGEST).unwrap_or(UNIX_EPOCH);
    let before = seconds(since.max(long_ago));
    for name in names.iter().map(|name| OsStr::from_bytes(name)) {
        let found = directory.look(name.as_bytes()).ok().flatten();
        let is_old = found.is_some_and(|found| found.st_ctime < before);
        if is_old && !claimed.contains(name) {
            _ = unlinkat(directory, name, AtFlags::empty());
        }
    }
}

/// Since 1970, rounded down.
fn seconds(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}
