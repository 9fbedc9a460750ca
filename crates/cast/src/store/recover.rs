//! Recovery of symbols that a killed process wrote and that the journal does not contain.

use super::Store;
use std::io;

/// Finds symbols on disk that the journal does not contain, by their digests. Returns their number.
///
/// Reads only blocks whose digests are known, so a new object costs no reads. Symbols that a crash of the host left
/// incomplete do not match their digests and are fetched again.
///
/// # Errors
/// I/O errors.
pub fn recover(store: &Store) -> io::Result<u64> {
    let before = store.have().count();
    for block in 0..store.known.geometry.blocks() {
        if store.have().holds_block(block) {
            continue;
        }
        recover_block(store, block)?;
    }
    Ok(store.have().count() - before)
}

fn recover_block(store: &Store, block: u32) -> io::Result<()> {
    let geometry = &store.known.geometry;
    let Some(page) = store.page(block)? else { return Ok(()) };
    let mut buffer = vec![0; geometry.symbol_bytes() as usize];
    for index in geometry.symbols_of(block) {
        let (Some(id), Some(bytes)) = (geometry.symbol(index), geometry.bytes_at(index)) else {
            break;
        };
        if store.have().contains(index) {
            continue;
        }
        let symbol = &mut buffer[..(bytes.end - bytes.start) as usize];
        store.files.read(bytes.start, symbol)?;
        // Unwritten ranges read as zeros. Hashing them would cost more than reading them.
        let is_written = symbol.iter().any(|byte| *byte != 0);
        if is_written && page.verify(geometry, id, symbol).is_ok() {
            store.have().insert(index);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::empty;

    const LENGTH: u64 = (9 << 20) + 5;

    #[test]
    fn symbols_missing_from_the_journal_are_recovered() {
        let dir = tempfile::tempdir().unwrap();
        let mut content = vec![0; LENGTH as usize];
        blake3::Hasher::new().update(b"content").finalize_xof().fill(&mut content);
        let store = empty(dir.path(), &content);
        let symbol = u64::from(store.known.geometry.symbol_bytes());
        assert_eq!(recover(&store).unwrap(), 0);
        let last = store.known.geometry.symbols() - 1;
        for index in [0, 7, last] {
            let bytes = store.known.geometry.bytes_at(index).unwrap();
            let bytes = &content[bytes.start as usize..bytes.end as usize];
            store.files.write(index * symbol, bytes).unwrap();
        }
        // Half of a symbol, and a symbol in the place of another.
        store.files.write(3 * symbol, &content[3 * symbol as usize..][..100]).unwrap();
        store.files.write(5 * symbol, &content[..symbol as usize]).unwrap();
        assert_eq!(recover(&store).unwrap(), 3);
        let found: Vec<_> = store.have().runs().collect();
        assert_eq!(found, [0..1, 7..8, last..last + 1]);
    }
}
