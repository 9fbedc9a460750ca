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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offer::May;
    use std::{fs, os::fd::OwnedFd};

    #[test]
    fn what_nobody_is_at_work_on_goes_once_it_is_old() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().as_os_str().as_bytes().to_vec();
        let directory = Directory {
            descriptor: OwnedFd::from(fs::File::open(dir.path()).unwrap()),
            path: path.clone(),
            place: path.clone(),
            depth: 0,
            may: May::default(),
            device: 0,
            is_plain: true,
        };
        let claims = Claims::default();
        let names = [temporary(b"claimed"), temporary(b"left"), "kept".into()];
        names.iter().for_each(|name| fs::write(dir.path().join(name), "").unwrap());
        let there = || names.each_ref().map(|name| dir.path().join(name).exists());
        let _claim = claims.wait(vec![[&path[..], b"/claimed"].concat()]);
        remove(&directory, &claims, UNIX_EPOCH);
        assert_eq!(there(), [true; 3], "they are young, and this process is old");
        remove(&directory, &claims, SystemTime::now() + Duration::from_secs(5));
        assert_eq!(there(), [true, false, true]);
    }
}
