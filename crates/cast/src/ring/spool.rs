//! A file without a name for repair symbols that wait until their block is solved.

use crate::store::Store;
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io,
    ops::Range,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::Path,
    sync::Arc,
};
use thalweg_fountain::{SymbolId, codec::SymbolStore};

/// The file, and the slot of each symbol in it. Freed slots are reused.
#[derive(Debug)]
pub struct Spool {
    file: File,
    symbol_bytes: u64,
    places: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    taken: BTreeMap<SymbolId, u64>,
    free: Vec<u64>,
    /// The first slot that was never used.
    next: u64,
}

impl Spool {
    /// Creates the file in `directory` and unlinks it, so that it disappears with the process.
    ///
    /// # Errors
    /// I/O errors.
    pub fn create(directory: &Path, symbol_bytes: u32) -> io::Result<Self> {
        let path = directory.join("spool");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(&path)?;
        fs::remove_file(&path)?;
        Ok(Self { file, symbol_bytes: symbol_bytes.into(), places: Mutex::default() })
    }

    fn write(&self, id: SymbolId, bytes: &[u8]) -> io::Result<()> {
        let place = {
            let mut places = self.places.lock();
            let free = places.free.pop();
            let place = free.unwrap_or(places.next);
            places.next += u64::from(free.is_none());
            places.taken.insert(id, place);
            place
        };
        self.file.write_all_at(bytes, place * self.symbol_bytes)
    }

    /// Reads a part of a symbol, from byte `from` on.
    fn read(&self, id: SymbolId, from: u64, bytes: &mut [u8]) -> io::Result<()> {
        let places = self.places.lock();
        let place = places.taken.get(&id).copied();
        drop(places);
        let place = place.ok_or(io::ErrorKind::NotFound)?;
        self.file.read_exact_at(bytes, place * self.symbol_bytes + from)
    }

    fn discard(&self, block: u32) {
        let mut places = self.places.lock();
        let first = SymbolId { block, esi: 0 };
        let last = SymbolId { block, esi: u32::MAX };
        let gone: Vec<SymbolId> = places.taken.range(first..=last).map(|(id, _)| *id).collect();
        for id in gone {
            let place = places.taken.remove(&id);
            places.free.extend(place);
        }
    }
}

/// An object's store, with a spool for its repair symbols.
#[derive(Clone, Debug)]
pub struct SpooledStore {
    pub store: Arc<Store>,
    pub spool: Arc<Spool>,
}

impl SpooledStore {
    fn read_from(&self, id: SymbolId, from: u64, bytes: &mut [u8]) -> io::Result<()> {
        let geometry = &self.store.known.geometry;
        match geometry.index(id).and_then(|index| geometry.bytes_at(index)) {
            Some(range) => self.store.files.read(range.start + from, bytes),
            None => self.spool.read(id, from, bytes),
        }
    }
}

impl SymbolStore for SpooledStore {
    type Error = io::Error;

    fn write(&mut self, id: SymbolId, bytes: &[u8]) -> io::Result<()> {
        match self.store.known.geometry.index(id) {
            Some(index) => self.store.put(index, bytes).map(drop),
            None => self.spool.write(id, bytes),
        }
    }

    fn read(&mut self, id: SymbolId, bytes: &mut [u8]) -> io::Result<()> {
        self.read_from(id, 0, bytes)
    }

    fn read_part(
        &mut self,
        id: SymbolId,
        _length: usize,
        part: Range<usize>,
        bytes: &mut Vec<u8>,
    ) -> io::Result<()> {
        let before = bytes.len();
        bytes.resize(before + part.len(), 0);
        self.read_from(id, part.start as u64, &mut bytes[before..])
    }

    fn discard(&mut self, block: u32) -> io::Result<()> {
        self.spool.discard(block);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_slots_are_reused() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::create(dir.path(), 4).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let id = |block, esi| SymbolId { block, esi };
        for (n, at) in [id(1, 70), id(2, 70), id(1, 71)].into_iter().enumerate() {
            spool.write(at, &[n as u8; 4]).unwrap();
        }
        spool.discard(1);
        assert!(spool.read(id(1, 70), 0, &mut [0; 4]).is_err());
        spool.write(id(3, 90), &[9; 4]).unwrap();
        spool.write(id(3, 91), &[8; 4]).unwrap();
        let mut found = [0; 4];
        spool.read(id(2, 70), 0, &mut found).unwrap();
        assert_eq!(found, [1; 4]);
        spool.read(id(3, 91), 0, &mut found).unwrap();
        spool.read(id(3, 90), 2, &mut found[..2]).unwrap();
        assert_eq!(found, [9, 9, 8, 8]);
        spool.read(id(3, 91), 0, &mut found).unwrap();
        assert_eq!((found, spool.file.metadata().unwrap().len()), ([8; 4], 12));
    }
}
