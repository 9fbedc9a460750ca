//! The journal: which symbols are known to be on disk.

use std::{io, ops::Range, path::Path};
use thalweg_base::durable;
use thalweg_fountain::{Geometry, HaveSet};

/// The maximum size of a journal that is read. The largest set of symbols is 32 MiB as bits; as ranges, sets of real
/// casts stay below this limit.
const MAX_BYTES: usize = 256 << 20;

/// Writes the journal as `count:u64 ‖ from, to:u64 each ‖ BLAKE3 of that`, big-endian. It is replaced as a whole, after
/// the symbols are synced, so it never claims symbols that are not on the disk.
///
/// # Errors
/// I/O errors.
pub fn write(file: &Path, runs: &[Range<u64>]) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(8 + 16 * runs.len() + 32);
    bytes.extend((runs.len() as u64).to_be_bytes());
    for run in runs {
        bytes.extend(run.start.to_be_bytes());
        bytes.extend(run.end.to_be_bytes());
    }
    let check = blake3::hash(&bytes);
    bytes.extend(check.as_bytes());
    durable::replace(file, &bytes)
}

/// Reads the journal. Returns an empty set if the file is missing or invalid.
///
/// # Errors
/// I/O errors.
pub fn read(file: &Path, geometry: &Geometry) -> io::Result<HaveSet> {
    let none = || HaveSet::empty(geometry);
    let Some(bytes) = durable::read(file, MAX_BYTES)? else { return Ok(none()) };
    let Some((body, check)) = bytes.split_last_chunk::<32>() else { return Ok(none()) };
    if blake3::hash(body).as_bytes() != check {
        return Ok(none());
    }
    let (numbers, _) = body.get(8..).unwrap_or_default().as_chunks::<8>();
    let numbers: Vec<u64> = numbers.iter().map(|n| u64::from_be_bytes(*n)).collect();
    let (runs, _) = numbers.as_chunks::<2>();
    let runs = runs.iter().map(|[from, to]| *from..*to);
    Ok(HaveSet::from_ranges(geometry, runs).unwrap_or_else(|_| none()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_truncated_or_invalid_journal_reads_as_empty() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("have");
        let geometry = Geometry::for_length(10 << 20).unwrap();
        assert_eq!(read(&file, &geometry).unwrap().count(), 0);
        write(&file, &[3..9, 20..21]).unwrap();
        let found = read(&file, &geometry).unwrap();
        assert_eq!(found.runs().collect::<Vec<_>>(), [3..9, 20..21]);
        let whole = std::fs::read(&file).unwrap();
        std::fs::write(&file, &whole[..whole.len() - 1]).unwrap();
        assert_eq!(read(&file, &geometry).unwrap().count(), 0);
        write(&file, std::slice::from_ref(&(0..u64::MAX))).unwrap();
        assert_eq!(read(&file, &geometry).unwrap().count(), 0);
    }
}
