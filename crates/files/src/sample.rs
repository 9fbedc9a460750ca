//! Digests of a file's content that are cheap enough to compare every file that seems to exist at both ends.

use std::{fs::File, io, os::unix::fs::FileExt as _};
use thalweg_wire::object::TransferHash;

/// Content up to this length is hashed completely.
const WHOLE: u64 = 64 << 10;

/// The length of each of the samples at the beginning, in the middle and at the end of longer content: three reads.
const PIECE: u64 = 16 << 10;

/// Bytes that are read at once when the whole content is hashed.
const CHUNK: u64 = 256 << 10;

/// BLAKE3 over `size` and the whole content; without `whole` only over samples of content that is longer than 64 KiB.
/// Blocks.
///
/// # Errors
/// The system's errors; `UnexpectedEof` if the file is shorter than `size`.
pub fn digest(file: &File, size: u64, whole: bool) -> io::Result<TransferHash> {
    digest_until(file, size, whole, || false)
}

/// Like `digest`, but ends between two pieces once `stop` returns true.
///
/// # Errors
/// Like `digest`; `TimedOut` if it was stopped.
pub(crate) fn digest_until(
    file: &File,
    size: u64,
    whole: bool,
    stop: impl Fn() -> bool,
) -> io::Result<TransferHash> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&size.to_be_bytes());
    let mut buffer = Vec::new();
    for (from, to) in spans(size, whole) {
        let mut at = from;
        while at < to {
            if stop() {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "stopped, because the hash is no longer needed",
                ));
            }
            buffer.resize((to - at).min(CHUNK) as usize, 0);
            file.read_exact_at(&mut buffer, at)?;
            hasher.update(&buffer);
            at += buffer.len() as u64;
        }
    }
    Ok(TransferHash(*hasher.finalize().as_bytes()))
}

/// The ranges of the content that are hashed.
fn spans(size: u64, whole: bool) -> Vec<(u64, u64)> {
    if whole || size <= WHOLE {
        return vec![(0, size)];
    }
    let middle = size / 2 - PIECE / 2;
    [0, middle, size - PIECE].map(|from| (from, from + PIECE)).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_in_a_hashed_range_changes_the_digest() {
        let dir = tempfile::tempdir().unwrap();
        let of = |size: usize, changed: Option<usize>, whole| {
            let mut content = vec![1_u8; size];
            changed.into_iter().for_each(|at| content[at] = 2);
            let path = dir.path().join("file");
            std::fs::write(&path, content).unwrap();
            digest(&File::open(path).unwrap(), size as u64, whole).unwrap()
        };
        for (size, at, samples_show) in [
            (1, 0, true),
            (65_536, 65_535, true),
            (65_536, 40_000, true),
            (65_537, 0, true),
            (65_537, 65_536, true),
            (1_000_000, 500_000, true),
            (1_000_000, 999_999, true),
            (1_000_000, 250_000, false),
            (1_000_000, 16_384, false),
        ] {
            let differs = |whole| of(size, None, whole) != of(size, Some(at), whole);
            assert!(differs(true), "{size} {at}");
            assert_eq!(differs(false), samples_show, "{size} {at}");
        }
        assert_ne!(of(0, None, false), of(1, None, false));
        let pieces = std::cell::Cell::new(0);
        let stop = || {
            pieces.set(pieces.get() + 1);
            pieces.get() > 2
        };
        let path = dir.path().join("long");
        std::fs::write(&path, vec![1; 1_000_000]).unwrap();
        let stopped = digest_until(&File::open(path).unwrap(), 1_000_000, true, stop);
        assert_eq!(stopped.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(pieces.get(), 3, "no further piece is read");
        let path = dir.path().join("short");
        std::fs::write(&path, "1").unwrap();
        let short = digest(&File::open(path).unwrap(), 2, false).unwrap_err();
        assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof);
    }
}
