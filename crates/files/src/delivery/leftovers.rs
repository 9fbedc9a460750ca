//! Temporary files of deliveries: their names, and the removal of files that a crash left behind.

use super::{Directory, PathClaims};
use rustix::fs::{AtFlags, Dir, unlinkat};
use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use thalweg_units::NodeId;

/// The prefix of temporary names.
const PREFIX: &str = ".thalweg-sent-";

/// Temporary files of other nodes that share the directory, or that no longer exist, are stale after this time. A
/// batch takes seconds; the margin covers slow disks and differing clocks.
const MAX_BATCH_TIME: Duration = Duration::from_secs(24 * 3600);

/// The temporary names of one node's deliveries.
#[derive(Clone, Debug)]
pub(crate) struct TemporaryNames {
    /// The prefix includes the node's identity, so that nodes that share a directory do not remove each other's files.
    prefix: String,
}

impl TemporaryNames {
    /// Creates the names of the node with this key.
    pub(crate) fn of(node: NodeId) -> Self {
        let hash = blake3::hash(node.as_bytes()).to_hex();
        Self { prefix: format!("{PREFIX}{}-", &hash.as_str()[..8]) }
    }

    /// The temporary name of a file. It depends only on node and final name, so that sending a file again after a
    /// crash replaces the old temporary file.
    pub(super) fn temporary(&self, name: &[u8]) -> OsString {
        let hash = blake3::hash(name).to_hex();
        format!("{}{}", self.prefix, &hash.as_str()[..24]).into()
    }

    fn is_own(&self, name: &[u8]) -> bool {
        name.starts_with(self.prefix.as_bytes())
    }
}

/// Removes stale temporary files of a directory: this node's own that are not claimed and were last changed before
/// this process started (`since`), and others' that were last changed more than [`MAX_BATCH_TIME`] ago. Errors are
/// ignored, because a temporary file that remains does no harm.
pub(super) fn remove(
    directory: &Directory,
    names: &TemporaryNames,
    claims: &PathClaims,
    since: SystemTime,
) {
    let Ok(entries) = Dir::read_from(directory) else { return };
    let found = entries.flatten().map(|entry| entry.file_name().to_bytes().to_vec());
    let found: Vec<Vec<u8>> = found.filter(|name| name.starts_with(PREFIX.as_bytes())).collect();
    if found.is_empty() {
        return;
    }
    let claimed: BTreeSet<OsString> =
        claims.names_in(&directory.path).iter().map(|name| names.temporary(name)).collect();
    let long_ago = SystemTime::now().checked_sub(MAX_BATCH_TIME).unwrap_or(UNIX_EPOCH);
    let (own, others) = (seconds(since), seconds(long_ago));
    for name in found {
        let cutoff = if names.is_own(&name) { own } else { others };
        let status = directory.stat(&name).ok().flatten();
        let is_stale = status.is_some_and(|status| status.st_ctime < cutoff);
        let name = OsStr::from_bytes(&name);
        if is_stale && !claimed.contains(name) {
            _ = unlinkat(directory, name, AtFlags::empty());
        }
    }
}

/// Unix time in seconds, rounded down.
fn seconds(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        offer::StoreRights,
        quota::{Limits, Quota},
    };
    use std::{fs, os::fd::OwnedFd, sync::Arc};

    #[test]
    fn only_own_stale_files_without_a_claim_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().as_os_str().as_bytes().to_vec();
        let directory = Directory {
            descriptor: OwnedFd::from(fs::File::open(dir.path()).unwrap()),
            path: path.clone(),
            place: path.clone(),
            depth: 0,
            may: StoreRights::default(),
            quota: Arc::new(Quota::new(path.clone(), Limits::default())),
            device: 0,
            is_plain: true,
            is_delivered: false,
        };
        let claims = PathClaims::default();
        let [own, other] = [1, 2].map(|n| TemporaryNames::of(NodeId::from_bytes([n; 32])));
        let names = [
            own.temporary(b"claimed"),
            own.temporary(b"left"),
            // A second node that runs and shares the directory.
            other.temporary(b"left"),
            // The form of earlier versions.
            format!("{PREFIX}0123").into(),
            "kept".into(),
        ];
        names.iter().for_each(|name| fs::write(dir.path().join(name), "").unwrap());
        let exist = || names.each_ref().map(|name| dir.path().join(name).exists());
        let _claim = claims.wait(&path, &[[&path[..], b"/claimed"].concat()]);
        remove(&directory, &own, &claims, UNIX_EPOCH);
        assert_eq!(exist(), [true; 5], "they are newer than this process");
        let later = SystemTime::now() + Duration::from_secs(5);
        remove(&directory, &own, &claims, later);
        assert_eq!(exist(), [true, false, true, true, true], "this node started after all of them");
        remove(&directory, &other, &claims, later);
        assert_eq!(exist(), [true, false, false, true, true]);
    }
}
