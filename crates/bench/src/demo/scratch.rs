//! The scratch directory: the file that is served, what was downloaded, the hosts' state
//! directories, logs. It is removed with the value.

use anyhow::Context;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use thalweg_experiment::run::stop::Stop;

/// Bytes made at a time.
const BLOCK: usize = 1 << 20;

/// Bytes of an unfinished file that are looked at together.
const PAGE: usize = 4096;

/// The seed of the served bytes; any will do, a fixed one makes runs alike.
const SEED: u64 = 40;

/// A directory of this run alone.
pub struct Scratch {
    directory: TempDir,
    size: u64,
}

/// What a downloaded file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All bytes, and the right ones.
    Whole,
    /// Some of the bytes, and the right ones; the download was stopped.
    Part,
    /// Not what was served.
    Wrong,
}

impl Scratch {
    /// Makes the directory and in it `www/file.bin` of `size` random bytes.
    ///
    /// # Errors
    /// When the disk refuses, or on Ctrl-C.
    pub fn create(size: u64, stop: &Stop) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("thalweg-demo-")
            .tempdir()
            .context("cannot make a scratch directory; set TMPDIR to one that can be written")?;
        let scratch = Self { directory, size };
        std::fs::create_dir(scratch.www())?;
        let served = scratch.served();
        write_random(&served, size, stop).with_context(|| {
            format!(
                "cannot write {size} bytes to {}; TMPDIR may name a directory with room \
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

    /// Where downloads go, one at a time.
    pub fn target(&self) -> PathBuf {
        self.path("download/file.bin")
    }

    /// Removes what the last download left, whole or not.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn clear_target(&self) -> anyhow::Result<()> {
        let directory = self.path("download");
        if directory.exists() {
            std::fs::remove_dir_all(&directory)?;
        }
        Ok(std::fs::create_dir(directory)?)
    }

    /// Compares what was downloaded with the served file: the whole by SHA-256, what
    /// `thalweg get` has not finished byte for byte where there are bytes. Also says how many
    /// there are.
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
        // Stopped before the first byte, it may not have made the file.
        let bytes = if part.exists() { parts_bytes(&part, &self.served())? } else { Some(0) };
        Ok(bytes.map_or((0, Verdict::Wrong), |bytes| (bytes, Verdict::Part)))
    }

    /// The last lines of a log of this directory, for an error message.
    pub fn log_tail(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.path(name)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }
}

fn write_random(path: &Path, size: u64, stop: &Stop) -> anyhow::Result<()> {
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

/// How many bytes of an unfinished file are there; `None` if one of them is wrong. What is
/// missing reads as zeros, and the served bytes are random: a page of zeros is missing, and
/// of a page that is there in part the zeros are.
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
    fn only_the_right_bytes_are_right() {
        let scratch = Scratch::create(SIZE as u64, &Stop::default()).unwrap();
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
    fn what_there_is_of_a_part_is_compared_and_counted() {
        let scratch = Scratch::create(SIZE as u64, &Stop::default()).unwrap();
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
    fn nothing_stays_behind() {
        let scratch = Scratch::create(1, &Stop::default()).unwrap();
        let path = scratch.path("");
        assert!(path.exists());
        drop(scratch);
        assert!(!path.exists());
    }
}
