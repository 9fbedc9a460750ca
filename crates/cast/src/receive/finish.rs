//! The end of a reception: checked, synced, named.

use super::{reception::Reception, run::refusal};
use crate::{disk, store::Store};
use rustix::{
    fs::{RenameFlags, fsync, renameat_with},
    io::Errno,
};
use std::{ffi::OsStr, io, os::unix::ffi::OsStrExt as _};
use thalweg_wire::{cast::Refusal, manifest::CHUNK_BYTES};

/// Checks all that was written; if it is right, gives it its name. `false`: what is wrong is
/// missing again.
///
/// # Errors
/// Why it cannot get its name.
pub fn finish(reception: &Reception, store: &Store) -> Result<bool, Refusal> {
    if !check(store).map_err(refusal)? {
        return Ok(false);
    }
    store.files.sync().map_err(refusal)?;
    let name = store.known.offer.name.as_bytes();
    let made = reception.home.made(name).map_err(refusal)?;
    disk::settle(&made, store.files.layout()).map_err(refusal)?;
    reception.home.mark_landing().map_err(refusal)?;
    let landed = reception.home.landed(name).map_err(refusal)?;
    let name = OsStr::from_bytes(name);
    match renameat_with(&*made.directory, name, &*landed.directory, name, RenameFlags::NOREPLACE) {
        Err(Errno::EXIST) => return Err(Refusal::Exists(store.known.offer.name.to_string())),
        renamed => renamed.map_err(|e| refusal(e.into()))?,
    }
    fsync(&*landed.directory).map_err(|e| refusal(e.into()))?;
    store.files.moved(landed.clone());
    seal(reception, store, &landed).map_err(refusal)?;
    Ok(true)
}

/// It has its name: directories get their modes, and it is noted that all is done. Who is killed before
/// does this again.
///
/// # Errors
/// The system's.
pub fn seal(reception: &Reception, store: &Store, landed: &disk::Place) -> io::Result<()> {
    disk::seal(landed, store.files.layout())?;
    reception.home.mark_done()
}

/// Reads all of it back; forgets symbols of chunks that are wrong. Whether none is.
///
/// # Errors
/// The system's.
pub fn check(store: &Store) -> io::Result<bool> {
    let manifest = &store.known.manifest;
    let per_chunk = CHUNK_BYTES / u64::from(store.known.geometry.symbol_bytes());
    let mut buffer = vec![0; CHUNK_BYTES as usize];
    let mut is_right = true;
    for chunk in 0..manifest.chunks() {
        let Some(range) = manifest.range(chunk) else { break };
        let bytes = &mut buffer[..(range.end - range.start) as usize];
        store.files.read(range.start, bytes)?;
        if manifest.verify(chunk, bytes).is_err() {
            is_right = false;
            let first = chunk as u64 * per_chunk;
            store.forget(first..first + per_chunk);
        }
    }
    Ok(is_right)
}
