//! Who may read a published file. Until then only its owner may.

use std::{
    fs::{self, File, Metadata, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, fchown},
    path::Path,
    sync::LazyLock,
};

/// The mode of a new file, as open(2) would give it.
static NEW: LazyLock<u32> = LazyLock::new(|| 0o666 & !umask());

/// Gives `file` the owner and the mode of the file that it replaces at `target`, else the mode of
/// a new file. Best effort: not every filesystem has modes, and a file that only its owner reads
/// is safe.
pub(super) fn put(file: &File, target: &Path) {
    let replaced = fs::symlink_metadata(target).ok().filter(Metadata::is_file);
    let kept = replaced.filter(|old| keep_owner(file, old));
    // No bits that give somebody's rights to whoever runs it: the content is another's.
    let mode = kept.map_or(*NEW, |old| old.mode() & 0o777);
    _ = file.set_permissions(Permissions::from_mode(mode));
}

/// False if it could not be kept: then the mode would speak of others than it meant.
fn keep_owner(file: &File, old: &Metadata) -> bool {
    let Ok(new) = file.metadata() else { return false };
    let same = (new.uid(), new.gid()) == (old.uid(), old.gid());
    same || fchown(file, Some(old.uid()), Some(old.gid())).is_ok()
}

/// The process's mask (proc_pid_status(5), Linux 4.7). umask(2) can only be read by changing
/// it, under the eyes of all threads. If it cannot be read all is masked but the owner's.
pub fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("Umask:"));
    mask.and_then(|m| u32::from_str_radix(m.trim(), 8).ok()).unwrap_or(0o077)
}
