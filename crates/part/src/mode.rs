//! The mode of published files. Before publication only the owner may read them.

use std::{
    fs::{self, File, Metadata, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, fchown},
    path::Path,
    sync::LazyLock,
};

/// The mode of a new file, as open(2) would set it.
static NEW: LazyLock<u32> = LazyLock::new(|| 0o666 & !umask());

/// Sets on `file` the owner and mode of the file that it replaces at `target`, or else the mode of a new file. Best
/// effort: not every filesystem has modes, and a file that only its owner can read is safe.
pub(super) fn put(file: &File, target: &Path) {
    let replaced = fs::symlink_metadata(target).ok().filter(Metadata::is_file);
    let kept = replaced.filter(|old| keep_owner(file, old));
    // Without set-user-ID and set-group-ID bits, because the content comes from somebody else.
    let mode = kept.map_or(*NEW, |old| old.mode() & 0o777);
    _ = file.set_permissions(Permissions::from_mode(mode));
}

/// Returns false if the owner could not be kept, because the mode would then apply to other users.
fn keep_owner(file: &File, old: &Metadata) -> bool {
    let Ok(new) = file.metadata() else { return false };
    let same = (new.uid(), new.gid()) == (old.uid(), old.gid());
    same || fchown(file, Some(old.uid()), Some(old.gid())).is_ok()
}

/// The process's mask (proc_pid_status(5), Linux 4.7). umask(2) can only read it by changing it, which affects all
/// threads. If it cannot be read, everything but the owner's bits is masked.
pub fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("Umask:"));
    mask.and_then(|m| u32::from_str_radix(m.trim(), 8).ok()).unwrap_or(0o077)
}
