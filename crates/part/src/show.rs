//! The final name: given to the very file that was verified, and to no other.
//!
//! The lock is on the file, not on its name. Another process may have taken the name away and
//! given it to a file of its own; what lies there then is unfinished, or a stranger's.

use super::{
    Attributes, PartError, PartKey, adopt, mark, mode,
    place::{Place, is_name_of},
};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// Renames the synced `file` to the target. If its name was taken away, a copy of it is made and
/// renamed: all its bytes are here.
///
/// # Errors
/// If the system refuses, or another process is quicker twice: nothing of it stays under the
/// final name.
pub(super) fn show(
    place: &Place,
    file: &File,
    key: &PartKey,
    attributes: Option<&Attributes>,
) -> Result<(), PartError> {
    if is_name_of(&place.part, file)? {
        // Not earlier: a file that belongs to another owner is not resumed.
        put(attributes, file, &place.part)?;
        return rename(&place.part, file, &place.target);
    }
    let beside = fresh_name(&place.part)?;
    let copied = copy(file, &beside, &place.target, key);
    let shown = copied.and_then(|copy| {
        put(attributes, &copy, &beside)?;
        rename(&beside, &copy, &place.target)
    });
    if shown.is_err() {
        // Best effort: the first error is the one to tell.
        _ = fs::remove_file(&beside);
    }
    shown
}

/// The attributes that were asked for. What the filesystem does not have is not missed.
fn put(attributes: Option<&Attributes>, file: &File, path: &Path) -> Result<(), PartError> {
    let done = attributes.map_or(Ok(true), |attributes| attributes.put(file));
    done.map(drop).map_err(|e| PartError::io("set mode and time of", path)(e.into()))
}

/// A synced copy of `file`, under the new name `path`.
fn copy(file: &File, path: &Path, target: &Path, key: &PartKey) -> Result<File, PartError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let new = options.open(path).map_err(PartError::write(path, 0))?;
    let found = file.metadata().map_err(PartError::io("look at", path))?;
    adopt::copy(file, &new, 0..found.len(), path)?;
    mode::put(&new, target);
    mark::put(&new, key);
    new.sync_all().map_err(PartError::io("sync", path))?;
    Ok(new)
}

/// Renames `path`, which was just seen to be `file`. If another one came between the look and
/// the renaming it is given back.
fn rename(path: &Path, file: &File, target: &Path) -> Result<(), PartError> {
    fs::rename(path, target).map_err(PartError::io("rename to", target))?;
    if is_name_of(target, file)? {
        return Ok(());
    }
    // By now it may be this process's no more; it must not be there as a complete file.
    let back = renameat_with(CWD, target, CWD, path, RenameFlags::NOREPLACE);
    if back.is_err() {
        fs::rename(target, fresh_name(path)?).map_err(PartError::io("rename", target))?;
    }
    let why = io::Error::other("another process put a file of its own in its place; try again");
    Err(PartError::io("publish", target)(why))
}

/// A name beside `path` that nobody else has.
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

    /// What lies at `beside` when the renaming itself begins is another process's already.
    #[test]
    fn another_file_that_came_at_the_last_moment_is_given_back() {
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
