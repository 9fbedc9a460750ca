//! What an earlier session left, told from what somebody planted under its name.
//!
//! In a directory that others may write to, the names of part and journal can be made to lead to
//! any file: by a link of either kind, or by a file that its owner goes on writing to.

use super::PartError;
use rustix::fs::OFlags;
use std::{
    fs::{self, File, Metadata, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

/// No link is followed, and a pipe is opened at once, to be refused.
const NO_TRICKS: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK);

/// What lies under a name.
pub(super) enum Leftover {
    Nothing,
    /// A regular file of this user, with no other name.
    Ours(File),
    /// Anything else, open if that was possible; never to be written to.
    Planted(Option<File>),
}

/// Opens what lies at `path`. Nothing is created.
///
/// # Errors
/// If it is ours and cannot be opened.
pub(super) fn open(path: &Path, options: &mut OpenOptions) -> Result<Leftover, PartError> {
    match options.custom_flags(NO_TRICKS.bits() as i32).open(path) {
        Ok(file) => {
            let found = file.metadata().map_err(PartError::io("look at", path))?;
            Ok(if is_ours(&found) { Leftover::Ours(file) } else { Leftover::Planted(Some(file)) })
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Leftover::Nothing),
        Err(e) => match fs::symlink_metadata(path) {
            Ok(found) if !is_ours(&found) => Ok(Leftover::Planted(None)),
            _ => Err(PartError::io("open", path)(e)),
        },
    }
}

/// One without any name was just removed; that it has none is seen later.
fn is_ours(found: &Metadata) -> bool {
    let user = rustix::process::geteuid().as_raw();
    found.is_file() && found.uid() == user && found.nlink() <= 1
}
