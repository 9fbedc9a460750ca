//! Distinguishes the files of an earlier session from files that somebody planted under their names.
//!
//! In a directory that others may write to, the names of part and journal can lead to any file: through a symbolic or
//! hard link, or as a file that its owner keeps writing to.

use super::PartError;
use rustix::fs::OFlags;
use std::{
    fs::{self, File, Metadata, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

/// Flags that follow no link, and open a pipe without waiting, so that it can be refused.
const SAFE_FLAGS: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK);

/// The file under a name.
pub(super) enum Leftover {
    Nothing,
    /// A regular file of this user, with no other name.
    Ours(File),
    /// Any other file, open if possible. It must never be written to.
    Planted(Option<File>),
}

/// Opens the file at `path`, without creating one.
///
/// # Errors
/// If it is this user's and cannot be opened.
pub(super) fn open(path: &Path, options: &mut OpenOptions) -> Result<Leftover, PartError> {
    match options.custom_flags(SAFE_FLAGS.bits() as i32).open(path) {
        Ok(file) => {
            let found = file.metadata().map_err(PartError::io("stat", path))?;
            Ok(if is_ours(&found) { Leftover::Ours(file) } else { Leftover::Planted(Some(file)) })
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Leftover::Nothing),
        Err(e) => match fs::symlink_metadata(path) {
            Ok(found) if !is_ours(&found) => Ok(Leftover::Planted(None)),
            _ => Err(PartError::io("open", path)(e)),
        },
    }
}

/// A file without any name (`nlink` 0) was just removed, which the caller notices later.
fn is_ours(found: &Metadata) -> bool {
    let user = rustix::process::geteuid().as_raw();
    found.is_file() && found.uid() == user && found.nlink() <= 1
}
