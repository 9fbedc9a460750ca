//! The copy of the newest signed roster beside the database.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    process,
};
use thalweg_wire::{Signable as _, mesh::Roster};

/// The longest file that is read, bytes: the longest roster and its envelope.
const LONGEST: u64 = Roster::MAX_BYTES as u64 + 128;

/// Reads the copy; `None` if there is no file.
pub(crate) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let opened = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    opened.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Writes the copy to a temporary file, syncs and renames it, and syncs the directory. There is always a complete copy,
/// and a power failure does not bring back the older one.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension(format!("{}.tmp", process::id()));
    let done = fill(&beside, bytes)
        .and_then(|()| fs::rename(&beside, path))
        .and_then(|()| sync_above(path));
    if done.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&beside);
    }
    done
}

fn sync_above(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

fn fill(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut opened = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    opened.write_all(bytes)?;
    opened.sync_all()
}
