//! Compares a received file with the sent one.

use anyhow::{Context as _, ensure};
use std::{fs::File, io::Read as _, path::Path};

/// Bytes compared at a time.
const PIECE: usize = 1 << 20;

/// Compares two files and fails at the first difference.
///
/// # Errors
/// A file is missing, or they differ.
pub fn compare_files(wanted: &Path, came: &Path) -> anyhow::Result<()> {
    let open =
        |path: &Path| File::open(path).with_context(|| format!("cannot open {}", path.display()));
    let (mut one, mut other) = (open(wanted)?, open(came)?);
    let (a, b) = (one.metadata()?.len(), other.metadata()?.len());
    ensure!(a == b, "{} has {b} bytes instead of {a}", came.display());
    let (mut left, mut right) = (vec![0; PIECE], vec![0; PIECE]);
    let mut at = 0;
    while at < a {
        // At most the length of a piece.
        let n = (a - at).min(PIECE as u64) as usize;
        one.read_exact(&mut left[..n])?;
        other.read_exact(&mut right[..n])?;
        ensure!(left[..n] == right[..n], "{} differs after {at} bytes", came.display());
        at += n as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_short_and_missing_files_are_detected() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (dir.path().join("one"), dir.path().join("other"));
        let mut bytes = vec![7; PIECE + 9];
        std::fs::write(&one, &bytes).unwrap();
        assert!(compare_files(&one, &other).is_err());
        std::fs::write(&other, &bytes).unwrap();
        compare_files(&one, &other).unwrap();
        bytes[PIECE + 8] = 8;
        std::fs::write(&other, &bytes).unwrap();
        assert!(compare_files(&one, &other).unwrap_err().to_string().contains("differs"));
        std::fs::write(&other, &bytes[..9]).unwrap();
        assert!(compare_files(&one, &other).is_err());
    }
}
