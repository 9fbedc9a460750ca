//! The copy of the newest signed roster beside the database.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    process,
};
use thalweg_wire::{Signable as _, mesh::Roster};

/// The longest file that is read: the longest roster and its envelope.
const LONGEST: u64 = Roster::MAX_BYTES as u64 + 128;

/// The copy's bytes; none if there is no file.
pub(crate) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let opened = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    opened.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Written beside, synced and renamed, also in the directory: there is always a whole one,
/// and after a power failure it is not the older one.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension(format!("{}.tmp", process::id()));
    let done = fill(&beside, bytes)
        .and_then(|()| fs::rename(&beside, path))
        .and_then(|()| sync_above(path));
    if done.is_err() {
        // The error that counts is the first one.
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
