//! The scratch directory: the file that is served, what was downloaded, logs.
//! It is removed with the value.

use anyhow::Context;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use thalweg_experiment::run::stop::Stop;

/// Bytes made, read and hashed at a time.
const BLOCK: usize = 1 << 20;

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
    /// The first bytes, and the right ones; the download was stopped.
    Beginning,
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

    /// Compares a downloaded file with the served one, by SHA-256: with the whole of
    /// it, or with as much of its beginning as there is.
    ///
    /// # Errors
    /// When either cannot be read.
    pub fn verify(&self, downloaded: &Path) -> anyhow::Result<Verdict> {
        let length = std::fs::metadata(downloaded)
            .with_context(|| format!("{} was not written", downloaded.display()))?
            .len();
        if length > self.size || hash(downloaded, length)? != hash(&self.served(), length)? {
            return Ok(Verdict::Wrong);
        }
        Ok(if length == self.size { Verdict::Whole } else { Verdict::Beginning })
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

/// The SHA-256 of a file's first `length` bytes.
fn hash(path: &Path, length: u64) -> anyhow::Result<[u8; 32]> {
    let mut file = File::open(path)?.take(length);
    let mut digest = Sha256::new();
    let mut block = vec![0; BLOCK];
    loop {
        let read = file.read(&mut block).with_context(|| format!("reading {}", path.display()))?;
        if read == 0 {
            return Ok(digest.finalize().into());
        }
        digest.update(&block[..read]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(scratch: &Scratch, bytes: &[u8]) -> Verdict {
        let file = scratch.path("download.bin");
        std::fs::write(&file, bytes).unwrap();
        scratch.verify(&file).unwrap()
    }

    #[test]
    fn only_the_right_bytes_are_right() {
        let scratch = Scratch::create(3 * BLOCK as u64 + 7, &Stop::default()).unwrap();
        let served = std::fs::read(scratch.served()).unwrap();
        assert_eq!(verdict(&scratch, &served), Verdict::Whole);
        assert_eq!(verdict(&scratch, &served[..BLOCK + 1]), Verdict::Beginning);
        assert_eq!(verdict(&scratch, &[]), Verdict::Beginning);
        let mut altered = served.clone();
        altered[2 * BLOCK] ^= 1;
        assert_eq!(verdict(&scratch, &altered), Verdict::Wrong);
        assert_eq!(verdict(&scratch, &[&served[..], b"x"].concat()), Verdict::Wrong);
        assert!(scratch.verify(&scratch.path("missing")).is_err());
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
