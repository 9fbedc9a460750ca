//! Which symbols are on the disk for sure.

use std::{io, ops::Range, path::Path};
use thalweg_base::durable;
use thalweg_fountain::{Geometry, HaveSet};

/// The most that is read: 32 MiB of bits are the largest set; as ranges in text it is never longer
/// than this for the objects that are cast.
const MOST: usize = 256 << 20;

/// `count:u64 ‖ from, to:u64 each ‖ BLAKE3 of that`, big-endian. Replaced as a whole, after the
/// symbols are synced: it never claims more than the disk holds.
///
/// # Errors
/// The system's.
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

/// What was written; nothing if there is no file, or none that is whole.
///
/// # Errors
/// The system's.
pub fn read(file: &Path, geometry: &Geometry) -> io::Result<HaveSet> {
    let none = || HaveSet::empty(geometry);
    let Some(bytes) = durable::read(file, MOST)? else { return Ok(none()) };
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
    fn what_is_torn_claims_nothing() {
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
