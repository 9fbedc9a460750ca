//! The end of a reception: checks the object, syncs it, and moves it to its final name.

use super::{reception::Reception, run::refusal};
use crate::{disk, store::Store};
use rustix::{
    fs::{RenameFlags, fsync, renameat_with},
    io::Errno,
};
use std::{ffi::OsStr, io, os::unix::ffi::OsStrExt as _, thread};
use thalweg_fountain::digest::{ObjectHasher, SourcePage};
use thalweg_wire::{
    cast::{Layout, Refusal},
    manifest::CHUNK_BYTES,
};

/// Checks everything that was written, and moves a correct object to its final name. Returns `false` if wrong symbols
/// were found; they are marked as missing.
///
/// # Errors
/// Why the object cannot get its name.
pub fn finish(reception: &Reception, store: &Store) -> Result<bool, Refusal> {
    if !check(store).map_err(refusal)? {
        return Ok(false);
    }
    store.files.sync().map_err(refusal)?;
    let name = store.known.offer.name.as_bytes();
    let made = reception.home.unfinished_location(name).map_err(refusal)?;
    disk::settle(&made, store.files.layout(), &reception.home.policy).map_err(refusal)?;
    reception.home.mark_landing().map_err(refusal)?;
    let landed = reception.home.final_location(name).map_err(refusal)?;
    let name = OsStr::from_bytes(name);
    match renameat_with(&*made.directory, name, &*landed.directory, name, RenameFlags::NOREPLACE) {
        Err(Errno::EXIST) => complete_copy(reception, store, &made, &landed)?,
        renamed => renamed.map_err(|e| refusal(e.into()))?,
    }
    fsync(&*landed.directory).map_err(|e| refusal(e.into()))?;
    store.files.mark_present(landed.clone());
    seal(reception, store, &landed).map_err(refusal)?;
    prove(reception, store, &landed).map_err(refusal)?;
    Ok(true)
}

/// Completes an existing copy, if everything that it contains of the object is correct.
fn complete_copy(
    reception: &Reception,
    store: &Store,
    made: &disk::ObjectLocation,
    landed: &disk::ObjectLocation,
) -> Result<(), Refusal> {
    let (layout, policy) = (store.files.layout(), &reception.home.policy);
    if !disk::complete(made, landed, layout, policy).map_err(refusal)? {
        return Err(Refusal::Exists(store.known.offer.name.to_string()));
    }
    disk::settle(landed, layout, policy).map_err(refusal)?;
    reception.home.remove_made(&made.name).map_err(refusal)
}

/// Copies the files that an existing copy has of the object, and marks correct blocks as received, so that they need
/// not be transferred again.
///
/// # Errors
/// I/O errors.
pub fn take_over(store: &Store, landed: &disk::ObjectLocation) -> io::Result<()> {
    store.files.copy_from(landed)?;
    each_page(store, |page| store.add_block(page).map(|_| true)).map(drop)
}

/// Stores a fingerprint of the delivered files just after they were read. While it matches they need not be read again.
///
/// # Errors
/// I/O errors.
pub fn prove(
    reception: &Reception,
    store: &Store,
    landed: &disk::ObjectLocation,
) -> io::Result<()> {
    let found = disk::fingerprint(landed, store.files.layout())?;
    // Waits for the clock tick, so that a later change has a time other than the stored ones.
    thread::sleep(found.tick);
    reception.home.keep_proof(&found.hash)
}

/// Whether the delivered files are unchanged since they were read.
pub fn is_proven(reception: &Reception, landed: &disk::ObjectLocation, layout: &Layout) -> bool {
    let proof = reception.home.proof();
    let found = || disk::fingerprint(landed, layout).ok().map(|found| found.hash);
    proof.is_some() && proof == found()
}

/// Reads existing files block by block. Correct blocks become available at once, with their digests. Returns whether
/// all blocks are correct.
///
/// # Errors
/// I/O errors.
pub fn read_through(store: &Store) -> io::Result<bool> {
    let is_right = each_page(store, |page| Ok(store.add_block(page)?.is_ok()))?;
    if is_right { store.pages.sync().map(|()| true) } else { Ok(false) }
}

/// Reads the object from the disk and passes the digests of each block to `take`, until that returns false or an error.
/// Returns whether all blocks were passed.
fn each_page(
    store: &Store,
    mut take: impl FnMut(SourcePage) -> io::Result<bool>,
) -> io::Result<bool> {
    let length = store.known.offer.length;
    let mut hasher = ObjectHasher::new(store.known.geometry);
    let mut goes_on = Ok(true);
    let mut take = |page: SourcePage| {
        if matches!(goes_on, Ok(true)) {
            goes_on = take(page);
        }
        matches!(goes_on, Ok(true))
    };
    let (mut buffer, mut at, mut is_wanted) = (vec![0; CHUNK_BYTES as usize], 0, true);
    while at < length && is_wanted {
        let piece = &mut buffer[..(length - at).min(CHUNK_BYTES) as usize];
        store.files.read(at, piece)?;
        hasher.update(piece, &mut |page| is_wanted = take(page));
        at += piece.len() as u64;
    }
    if length > 0 && is_wanted {
        hasher.finish(&mut |page| _ = take(page));
    }
    goes_on
}

/// Sets the directories' modes after the object has got its name, and marks the cast as done. After a crash this is
/// repeated.
///
/// # Errors
/// I/O errors.
pub fn seal(reception: &Reception, store: &Store, landed: &disk::ObjectLocation) -> io::Result<()> {
    disk::seal(landed, store.files.layout(), reception.home.policy.owners)?;
    reception.home.mark_done()
}

/// Reads the whole object back, and marks symbols of wrong chunks as missing. Returns whether all chunks are correct.
///
/// # Errors
/// I/O errors.
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
