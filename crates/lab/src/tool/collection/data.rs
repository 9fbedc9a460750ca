//! Writes the files of the sources: random bytes, which do not compress, determined by a seed.

use crate::tool::output;
use anyhow::Context;
use rand_core::Rng;
use serde_json::json;
use std::{
    fs,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};
use thalweg_sim::{
    collection::draw_amounts,
    random::{self, Stream},
};
use thalweg_units::ByteSize;

/// The number of sources, as in the paper.
const SOURCES: usize = 7;

/// Arguments of `collection data`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Seed of the random amounts and bytes
    #[arg(long)]
    seed: u64,
    /// Bytes of all sources together; each has 0.5 to 1.5 of the mean
    #[arg(long, value_name = "SIZE")]
    total: ByteSize,
    /// Files per source, all of equal size except the last
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    files: u32,
    /// Writes `s1/s1-0.bin` … `s7/…` below this directory
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
}

/// Writes the files and prints the bytes of each source.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let sizes = draw_amounts(args.seed, SOURCES + 1, args.total.as_bytes() as f64);
    let sizes: Vec<u64> = sizes.iter().take(SOURCES).map(|bytes| bytes.round() as u64).collect();
    for (at, bytes) in sizes.iter().enumerate() {
        let name = format!("s{}", at + 1);
        let directory = args.into.join(&name);
        fs::create_dir_all(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        let mut random = random::stream(args.seed, "data", at as u64);
        for (file, size) in shares(*bytes, args.files).into_iter().enumerate() {
            let path = directory.join(format!("{name}-{file}.bin"));
            write(&path, size, &mut random)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    output::print_line(&json!({ "bytes": sizes }))
}

/// Divides `bytes` into files of equal size; the last one gets the remainder.
fn shares(bytes: u64, files: u32) -> Vec<u64> {
    let (each, rest) = (bytes / u64::from(files), bytes % u64::from(files));
    let size = |file| each + if file + 1 == files { rest } else { 0 };
    (0..files).map(size).collect()
}

fn write(path: &Path, size: u64, random: &mut Stream) -> std::io::Result<()> {
    let mut out = BufWriter::new(fs::File::create(path)?);
    let mut left = size;
    while left > 0 {
        let word = random.next_u64().to_le_bytes();
        let n = left.min(word.len() as u64);
        out.write_all(&word[..n as usize])?;
        left -= n;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_add_up_to_the_total() {
        let dir = tempfile::tempdir().unwrap();
        let total = ByteSize::from_bytes(700_001);
        run(&Args { seed: 3, total, files: 3, into: dir.path().into() }).unwrap();
        let size = |s: usize, f: usize| {
            fs::metadata(dir.path().join(format!("s{s}/s{s}-{f}.bin"))).unwrap().len()
        };
        let sum: u64 = (1..=7).flat_map(|s| (0..3).map(move |f| size(s, f))).sum();
        assert!(sum.abs_diff(700_001) <= 7, "{sum}");
        assert!((1..=7).all(|s| (0..3).map(|f| size(s, f)).sum::<u64>() >= 50_000));
    }
}
