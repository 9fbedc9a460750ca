//! The copy of the newest signed roster beside the database.

use crate::{
    Event, Oracle,
    oracle::{Newest, file},
};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    process,
    sync::Arc,
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

impl Oracle {
    /// Keeps the copy, unless a newer one is there. The database has it already, so
    /// that a failure is worth an event and no more.
    pub(crate) async fn keep_copy(&self, newest: &Arc<Newest>) {
        let mut copied = self.inner.copied.lock().await;
        if *copied >= newest.roster.version {
            return;
        }
        let (path, kept) = (self.path(file::COPY), newest.clone());
        let done = tokio::task::spawn_blocking(move || write(&path, &kept.bytes)).await;
        match done.map_err(io::Error::other).and_then(|done| done) {
            Ok(()) => *copied = newest.roster.version,
            Err(error) => self.tell(&Event::Trouble(format!("no copy of the roster: {error}"))),
        }
    }
}
