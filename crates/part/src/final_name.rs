//! Gives the final name to the verified file, and to no other.
//!
//! The lock is on the file, not on its name. Another process may have taken the name away and given it to a file of its
//! own, which is unfinished or a stranger's.

use crate::{
    Attributes, PartError, PartKey, mark, mode, part,
    part_files::{PartFiles, is_name_of},
};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// Renames the synced `file` to the target. If its name was taken away, a copy is made and renamed, because all bytes
/// are available here.
///
/// # Errors
/// If the system refuses, or another process interferes twice. Its file does not stay under the final name.
pub(super) fn rename_to_target(
    files: &PartFiles,
    file: &File,
    key: &PartKey,
    attributes: Option<&Attributes>,
) -> Result<(), PartError> {
    if is_name_of(&files.part, file)? {
        // Not earlier, because a file that belongs to another owner is not resumed.
        put(attributes, file, &files.part)?;
        return rename(&files.part, file, &files.target);
    }
    let beside = fresh_name(&files.part)?;
    let copied = copy(file, &beside, &files.target, key);
    let shown = copied.and_then(|copy| {
        put(attributes, &copy, &beside)?;
        rename(&beside, &copy, &files.target)
    });
    if shown.is_err() {
        // Best effort: the first error is the one to report.
        _ = fs::remove_file(&beside);
    }
    shown
}

/// Sets the requested attributes. Attributes that the filesystem does not support are no error.
fn put(attributes: Option<&Attributes>, file: &File, path: &Path) -> Result<(), PartError> {
    let done = attributes.map_or(Ok(true), |attributes| attributes.put(file));
    done.map(drop).map_err(|e| PartError::io("set mode and time of", path)(e.into()))
}

/// Creates a synced copy of `file` under the new name `path`.
fn copy(file: &File, path: &Path, target: &Path, key: &PartKey) -> Result<File, PartError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let new = options.open(path).map_err(PartError::write(path, 0))?;
    let found = file.metadata().map_err(PartError::io("stat", path))?;
    part::copy(file, &new, 0..found.len(), path)?;
    mode::put(&new, target);
    mark::put(&new, key);
    new.sync_all().map_err(PartError::io("sync", path))?;
    Ok(new)
}

/// Renames `path`, which was `file` a moment ago. If another file took its place before the renaming, it is renamed
/// back.
fn rename(path: &Path, file: &File, target: &Path) -> Result<(), PartError> {
    fs::rename(path, target).map_err(PartError::io("rename to", target))?;
    if is_name_of(target, file)? {
        return Ok(());
    }
    // Another process may use the name again, so renaming back can fail; but the file must not stay there as a complete
    // one.
    let back = renameat_with(CWD, target, CWD, path, RenameFlags::NOREPLACE);
    if back.is_err() {
        fs::rename(target, fresh_name(path)?).map_err(PartError::io("rename", target))?;
    }
    let why = io::Error::other("another process replaced it with another file; try again");
    Err(PartError::io("publish", target)(why))
}

/// A random name beside `path`.
fn fresh_name(path: &Path) -> Result<PathBuf, PartError> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(io::Error::other).map_err(PartError::io("name", path))?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!("-{:016x}", u64::from_ne_bytes(random)));
    Ok(path.with_file_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    /// When the renaming begins, `beside` is already another process's file.
    #[test]
    fn another_file_that_appears_at_the_last_moment_is_renamed_back() {
        let dir = TempDir::new().unwrap();
        let (beside, target) = (dir.path().join("beside"), dir.path().join("a"));
        let ours = File::create(dir.path().join("ours")).unwrap();
        fs::write(&beside, "unfinished").unwrap();
        let error = rename(&beside, &ours, &target).unwrap_err().to_string();
        assert!(error.contains("another process") && error.contains("try again"), "{error}");
        assert!(!target.exists());
        assert_eq!(fs::read(&beside).unwrap(), b"unfinished");
        rename(&dir.path().join("ours"), &ours, &target).unwrap();
        assert!(target.exists());
    }
}
