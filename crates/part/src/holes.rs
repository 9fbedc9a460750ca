//! Finds holes of sparse files (lseek(2), `SEEK_HOLE`) and creates them (fallocate(2), `FALLOC_FL_PUNCH_HOLE`).

use rustix::fs::{FallocateFlags, SeekFrom, Stat, fallocate, seek};
use std::{fs::File, io, os::fd::AsFd, os::unix::fs::FileExt as _};
use thalweg_wire::object::MAX_HOLES;

/// The block size of most file systems. Shorter runs of zeros occupy as much space as other bytes.
const BLOCK: u64 = 4096;

/// The most holes that are looked for. A file with more is badly fragmented: its further holes are sent like data, and
/// become holes again because they are zeros.
const MAX_LOOKED_AT: usize = 16 * MAX_HOLES;

/// Whether a file has fewer blocks than bytes.
pub fn is_sparse(found: &Stat) -> bool {
    let bytes = u64::try_from(found.st_size).unwrap_or(0);
    has_fewer_blocks(bytes, u64::try_from(found.st_blocks).unwrap_or(0))
}

/// Whether a file of this length that occupies `blocks` blocks of 512 bytes has holes.
pub fn has_fewer_blocks(bytes: u64, blocks: u64) -> bool {
    blocks.saturating_mul(512) < bytes.saturating_sub(BLOCK)
}

/// The largest holes of a file of this size, as start and end, ascending; at most [`MAX_HOLES`]. Empty if the file
/// system does not report holes.
pub fn of(file: impl AsFd, size: u64) -> Vec<(u64, u64)> {
    let (mut all, mut at) = (Vec::new(), 0);
    while at < size && all.len() < MAX_LOOKED_AT {
        let Ok(from) = seek(&file, SeekFrom::Hole(at)) else { break };
        if from >= size {
            break;
        }
        // Without further data the hole extends to the end.
        let to = seek(&file, SeekFrom::Data(from)).unwrap_or(size).min(size);
        all.push((from, to));
        at = to.max(from + 1);
    }
    if all.len() > MAX_HOLES {
        all.sort_by_key(|(from, to)| from.wrapping_sub(*to));
        all.truncate(MAX_HOLES);
        all.sort_unstable();
    }
    all
}

/// Writes all bytes of a new file. If it `is_sparse`, blocks of zeros become holes.
///
/// # Errors
/// The system's error.
pub fn write_new(file: &File, bytes: &[u8], is_sparse: bool) -> io::Result<()> {
    if !is_sparse {
        return file.write_all_at(bytes, 0);
    }
    file.set_len(bytes.len() as u64)?;
    write(file, 0, bytes)
}

/// Writes bytes of a file that already has its full length; whole blocks of zeros become holes. Partial blocks of
/// zeros are skipped where the file already contains zeros, so that holes survive pieces that are not aligned to
/// blocks. This requires a file that is also open for reading.
///
/// # Errors
/// The system's error.
pub fn write(file: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
    let head = (at.next_multiple_of(BLOCK) - at).min(bytes.len() as u64);
    let (head, rest) = bytes.split_at(head as usize);
    let (whole, tail) = rest.split_at(rest.len() - rest.len() % BLOCK as usize);
    write_edge(file, at, head)?;
    write_edge(file, at + (head.len() + whole.len()) as u64, tail)?;
    write_blocks(file, at + head.len() as u64, whole)
}

/// Writes a partial block, unless it would replace zeros by zeros.
fn write_edge(file: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
    let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    let mut current = [0; BLOCK as usize];
    let current = &mut current[..bytes.len()];
    let is_same = is_zero(bytes) && file.read_exact_at(current, at).is_ok() && is_zero(current);
    if is_same { Ok(()) } else { file.write_all_at(bytes, at) }
}

/// Writes whole blocks; blocks of zeros become holes.
fn write_blocks(file: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
    for (from, part, is_hole) in runs(at, bytes) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let punched = is_hole && fallocate(file, flags, from, part.len() as u64).is_ok();
        if !punched {
            file.write_all_at(part, from)?;
        }
    }
    Ok(())
}

/// Splits bytes into runs, each with its offset and whether it consists of whole blocks of zeros.
fn runs(at: u64, bytes: &[u8]) -> Vec<(u64, &[u8], bool)> {
    let mut runs: Vec<(u64, &[u8], bool)> = Vec::new();
    let (mut begin, mut next) = (0, 0);
    let mut last = None;
    while next < bytes.len() {
        let from = at + next as u64;
        let end = bytes.len().min(next + (BLOCK - from % BLOCK) as usize);
        let is_whole = from.is_multiple_of(BLOCK) && (end - next) as u64 == BLOCK;
        let is_hole = is_whole && bytes[next..end].iter().all(|byte| *byte == 0);
        if last.is_some_and(|last| last != is_hole) {
            runs.push((at + begin as u64, &bytes[begin..next], !is_hole));
            begin = next;
        }
        (last, next) = (Some(is_hole), end);
    }
    if let Some(is_hole) = last {
        runs.push((at + begin as u64, &bytes[begin..], is_hole));
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn runs_are_whole_blocks_of_zeros_and_the_rest() {
        let mut bytes = vec![0; 20_000];
        bytes[9000] = 1;
        let found: Vec<_> =
            runs(1000, &bytes).into_iter().map(|(at, part, hole)| (at, part.len(), hole)).collect();
        // Zeros before the first block boundary are no whole block; the byte at 10,000 is in the block from 8192 on.
        let expected = [
            (1000, 3096, false),
            (4096, 4096, true),
            (8192, 4096, false),
            (12_288, 8192, true),
            (20_480, 520, false),
        ];
        assert_eq!(found, expected);
        assert!(runs(5, b"").is_empty());
    }

    #[test]
    fn a_file_with_holes_reads_the_same_and_occupies_less() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sparse");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        let mut bytes = vec![0_u8; 1 << 20];
        bytes[500_000..500_100].fill(7);
        file.write_all_at(&vec![9; 1 << 20], 0).unwrap();
        write(&file, 0, &bytes).unwrap();
        assert!(std::fs::read(&path).unwrap() == bytes);
        if file.metadata().unwrap().blocks() * 512 >= 1 << 20 {
            return eprintln!("SKIPPED: {} has no holes", dir.path().display());
        }
        // Unaligned pieces occupy no more blocks.
        let at = dir.path().join("pieces");
        let pieces = File::options().read(true).write(true).create_new(true).open(at).unwrap();
        pieces.set_len(1 << 20).unwrap();
        for (number, piece) in bytes.chunks(10_001).enumerate() {
            write(&pieces, number as u64 * 10_001, piece).unwrap();
        }
        assert!(std::fs::read(dir.path().join("pieces")).unwrap() == bytes);
        let blocks = |file: &File| file.metadata().unwrap().blocks();
        assert_eq!(blocks(&pieces), blocks(&file));
        // Zeros overwrite data.
        write(&pieces, 500_001, &[0; 90]).unwrap();
        let mut found = [9; 100];
        pieces.read_exact_at(&mut found, 500_000).unwrap();
        assert_eq!(found.iter().filter(|byte| **byte != 0).count(), 10, "{found:?}");
        let holes = of(&file, 1 << 20);
        let hole: u64 = holes.iter().map(|(from, to)| to - from).sum();
        assert!(
            hole > 1_000_000
                && holes.iter().all(|(from, to)| {
                    bytes[*from as usize..*to as usize].iter().all(|byte| *byte == 0)
                }),
            "{holes:?}"
        );
        assert!(is_sparse(&rustix::fs::fstat(&file).unwrap()));
    }
}
