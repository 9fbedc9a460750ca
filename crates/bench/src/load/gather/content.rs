//! Compares the collected files with those of the sources.

use anyhow::{Context as _, ensure};
use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
};

/// The number of sources, `s1` to `s7`.
pub const SOURCES: usize = 7;

/// Compares every file of the sources byte by byte and returns the bytes of each source.
///
/// # Errors
/// When a file is missing or differs.
pub fn compare(data: &Path, into: &Path) -> anyhow::Result<Vec<u64>> {
    let mut amounts = Vec::with_capacity(SOURCES);
    for source in 1..=SOURCES {
        let name = format!("s{source}");
        let mut bytes = 0;
        for file in files(&data.join(&name))? {
            let own = into.join(file.strip_prefix(data)?);
            ensure!(
                equal(&file, &own)?,
                "{} differs from the file of source {name}",
                own.display()
            );
            bytes += fs::metadata(&file)?.len();
        }
        amounts.push(bytes);
    }
    Ok(amounts)
}

fn files(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries =
        fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() { found.extend(files(&path)?) } else { found.push(path) }
    }
    Ok(found)
}

fn equal(one: &Path, other: &Path) -> anyhow::Result<bool> {
    let open = |path: &Path| -> anyhow::Result<BufReader<File>> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        Ok(BufReader::with_capacity(1 << 20, file))
    };
    let (mut one, mut other) = (open(one)?, open(other)?);
    loop {
        let (a, b) = (one.fill_buf()?, other.fill_buf()?);
        let n = a.len().min(b.len());
        if a[..n] != b[..n] || (n == 0 && a.len() != b.len()) {
            return Ok(false);
        }
        if n == 0 {
            return Ok(true);
        }
        one.consume(n);
        other.consume(n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_or_missing_file_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let (data, into) = (dir.path().join("data"), dir.path().join("into"));
        for root in [&data, &into] {
            for source in 1..=SOURCES {
                fs::create_dir_all(root.join(format!("s{source}/deep"))).unwrap();
                fs::write(root.join(format!("s{source}/deep/x")), vec![7; source]).unwrap();
            }
        }
        assert_eq!(compare(&data, &into).unwrap(), [1, 2, 3, 4, 5, 6, 7]);
        fs::write(into.join("s3/deep/x"), [7, 7, 8]).unwrap();
        assert!(compare(&data, &into).unwrap_err().to_string().contains("s3/deep/x"));
        fs::write(into.join("s3/deep/x"), [7, 7, 7, 7]).unwrap();
        assert!(compare(&data, &into).is_err());
        fs::remove_file(into.join("s3/deep/x")).unwrap();
        assert!(compare(&data, &into).unwrap_err().to_string().contains("cannot open"));
    }
}
