//! The scratch directory: the served file, the download, the hosts' state directories, and logs. Dropping the value
//! removes the directory.

use anyhow::Context;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use thalweg_experiment::run::stop::StopFlag;

/// Bytes generated at a time.
const BLOCK: usize = 1 << 20;

/// Bytes of an unfinished file that are compared together.
const PAGE: usize = 4096;

/// The seed of the served bytes. Any value works; a fixed one makes runs alike.
const SEED: u64 = 40;

/// The temporary directory of one run.
pub struct Scratch {
    directory: TempDir,
    size: u64,
}

/// The result of comparing a downloaded file with the served one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All bytes, and they are right.
    Whole,
    /// Some of the bytes, and they are right; the download was stopped.
    Part,
    /// Bytes that differ from the served ones.
    Wrong,
}

impl Scratch {
    /// Creates the directory and in it `www/file.bin` with `size` random bytes.
    ///
    /// # Errors
    /// When a file cannot be written; on Ctrl-C.
    pub fn create(size: u64, stop: &StopFlag) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("thalweg-demo-")
            .tempdir()
            .context("cannot create a scratch directory; set TMPDIR to a writable directory")?;
        let scratch = Self { directory, size };
        std::fs::create_dir(scratch.www())?;
        let served = scratch.served();
        write_random(&served, size, stop).with_context(|| {
            format!(
                "cannot write {size} bytes to {}; set TMPDIR to a directory with room \
                     for twice as much",
                served.display()
            )
        })?;
        Ok(scratch)
    }

    /// The directory that is served.
    pub fn www(&self) -> PathBuf {
        self.path("www")
    }

    /// The served file.
    pub fn served(&self) -> PathBuf {
        self.www().join("file.bin")
    }

    /// A path in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The output file of a download; there is one download at a time.
    pub fn target(&self) -> PathBuf {
        self.path("download/file.bin")
    }

    /// Removes the output of the last download, complete or not.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn clear_target(&self) -> anyhow::Result<()> {
        let directory = self.path("download");
        if directory.exists() {
            std::fs::remove_dir_all(&directory)?;
        }
        Ok(std::fs::create_dir(directory)?)
    }

    /// Compares the download with the served file: a finished one by SHA-256; an unfinished one byte by byte where it
    /// has bytes. Returns the number of bytes present, too.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn verify_target(&self) -> anyhow::Result<(u64, Verdict)> {
        let (whole, part) = (self.target(), self.path("download/.file.bin.thalweg-part"));
        if whole.exists() {
            let length = std::fs::metadata(&whole)?.len();
            let right = length == self.size && hash(&whole)? == hash(&self.served())?;
            return Ok((length, if right { Verdict::Whole } else { Verdict::Wrong }));
        }
        // A download that is stopped before the first byte may not have created the file.
        let bytes = if part.exists() { parts_bytes(&part, &self.served())? } else { Some(0) };
        Ok(bytes.map_or((0, Verdict::Wrong), |bytes| (bytes, Verdict::Part)))
    }

    /// The last five lines of a log in this directory, for an error message.
    pub fn log_tail(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.path(name)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }
}

fn write_random(path: &Path, size: u64, stop: &StopFlag) -> anyhow::Result<()> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
    let mut file = File::create(path)?;
    let mut block = vec![0; BLOCK];
    let mut left = size;
    while left > 0 {
        stop.check()?;
        let part = left.min(BLOCK as u64);
        let bytes = &mut block[..usize::try_from(part).unwrap_or(BLOCK)];
        random.fill_bytes(bytes);
        file.write_all(bytes)?;
        left -= part;
    }
    Ok(())
}

/// The SHA-256 of a file.
fn hash(path: &Path) -> anyhow::Result<[u8; 32]> {
    let mut file = File::open(path)?;
    let mut digest = Sha256::new();
    std::io::copy(&mut file, &mut digest).with_context(|| format!("reading {}", path.display()))?;
    Ok(digest.finalize().into())
}

/// Counts the bytes of an unfinished file; returns `None` if one is wrong. Missing bytes read as zeros and the served
/// bytes are random, so a page of zeros is missing, and in a partly written page the zeros are missing.
fn parts_bytes(part: &Path, served: &Path) -> anyhow::Result<Option<u64>> {
    let (part, served) = (std::fs::read(part)?, std::fs::read(served)?);
    if part.len() > served.len() {
        return Ok(None);
    }
    let mut present = 0;
    for (part, served) in part.chunks(PAGE).zip(served.chunks(PAGE)) {
        if part == &served[..part.len()] {
            present += part.len();
            continue;
        }
        if part.iter().zip(served).any(|(part, served)| *part != 0 && part != served) {
            return Ok(None);
        }
        present += part.iter().filter(|byte| **byte != 0).count();
    }
    Ok(Some(present as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = 3 * BLOCK + 7;

    fn verdict(scratch: &Scratch, name: &str, bytes: &[u8]) -> (u64, Verdict) {
        scratch.clear_target().unwrap();
        std::fs::write(scratch.path("download").join(name), bytes).unwrap();
        scratch.verify_target().unwrap()
    }

    #[test]
    fn a_finished_file_is_whole_only_if_all_bytes_match() {
        let scratch = Scratch::create(SIZE as u64, &StopFlag::default()).unwrap();
        let served = std::fs::read(scratch.served()).unwrap();
        let whole = |bytes: &[u8]| verdict(&scratch, "file.bin", bytes).1;
        assert_eq!(whole(&served), Verdict::Whole);
        assert_eq!(whole(&served[..SIZE - 1]), Verdict::Wrong);
        assert_eq!(whole(&[&served[..], b"x"].concat()), Verdict::Wrong);
        let mut altered = served.clone();
        altered[2 * BLOCK] ^= 1;
        assert_eq!(whole(&altered), Verdict::Wrong);
    }

    #[test]
    fn present_bytes_of_an_unfinished_file_are_compared_and_counted() {
        let scratch = Scratch::create(SIZE as u64, &StopFlag::default()).unwrap();
        let served = std::fs::read(scratch.served()).unwrap();
        let part = |bytes: &[u8]| verdict(&scratch, ".file.bin.thalweg-part", bytes);
        let mut holes = vec![0; SIZE];
        assert_eq!(part(&holes), (0, Verdict::Part));
        holes[PAGE..2 * BLOCK].copy_from_slice(&served[PAGE..2 * BLOCK]);
        assert_eq!(part(&holes), ((2 * BLOCK - PAGE) as u64, Verdict::Part));
        assert_eq!(part(&holes[..2 * BLOCK]), ((2 * BLOCK - PAGE) as u64, Verdict::Part));
        holes[2 * PAGE] = served[2 * PAGE].wrapping_add(1).max(1);
        assert_eq!(part(&holes).1, Verdict::Wrong);
        scratch.clear_target().unwrap();
        assert_eq!(scratch.verify_target().unwrap(), (0, Verdict::Part));
    }

    #[test]
    fn the_directory_is_removed_on_drop() {
        let scratch = Scratch::create(1, &StopFlag::default()).unwrap();
        let path = scratch.path("");
        assert!(path.exists());
        drop(scratch);
        assert!(!path.exists());
    }
}
