//! Fixtures: files created for a run.

use crate::{
    error::{ExperimentError, Result},
    plan::{Fixture, Plan, generator},
    template::{TextForm, Values},
};
use rand_core::Rng;
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufReader, BufWriter, Read, Write},
    path::Path,
};
use thalweg_units::ByteSize;

/// The seed of all fixtures, which therefore have the same bytes in every round and every run.
const SEED: u64 = 1;
/// Bytes processed at once.
const BLOCK: usize = 64 << 10;

/// Size and hash of a random file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixtureDigest {
    pub bytes: u64,
    pub blake3: String,
}

/// Creates the random files of a plan below `scratch`, unless `made` already has them with the size that `values` give;
/// the size may differ between cells.
///
/// # Errors
/// If a size is invalid or a file cannot be written.
pub fn make_random(
    plan: &Plan,
    scratch: &Path,
    values: &Values,
    made: &mut BTreeMap<String, FixtureDigest>,
) -> Result<()> {
    for file in &plan.file {
        let Some(size) = &file.size else { continue };
        let at = || format!("file {}", file.name);
        let size = values.render(size, TextForm::Real)?;
        let size: ByteSize = size.parse().map_err(|e| ExperimentError::value(at(), e))?;
        if made.get(&file.name).is_some_and(|made| made.bytes == size.as_bytes()) {
            continue;
        }
        let path = path_of(file, scratch)?;
        let fault = ExperimentError::file("write", &path);
        made.insert(file.name.clone(), write_random(&path, size.as_bytes()).map_err(fault)?);
    }
    Ok(())
}

/// Writes the text files of a plan with the values of this network.
///
/// # Errors
/// If a placeholder is unknown or a file cannot be written.
pub fn write_texts(plan: &Plan, scratch: &Path, values: &Values) -> Result<()> {
    for file in &plan.file {
        if let Some(content) = &file.content {
            let path = path_of(file, scratch)?;
            let text = values.render(content, TextForm::Real)?;
            fs::write(&path, text).map_err(ExperimentError::file("write", &path))?;
        }
    }
    Ok(())
}

/// Sets `{name}` of all fixtures, and `{name.bytes}` and `{name.blake3}` of random ones.
pub fn set_values(
    plan: &Plan,
    scratch: &Path,
    made: &BTreeMap<String, FixtureDigest>,
    values: &mut Values,
) {
    for file in &plan.file {
        let shown = format!("SCRATCH/{}", file.path);
        values.set_path(&file.name, &scratch.join(&file.path), shown);
        if let Some(made) = made.get(&file.name) {
            values.set(format!("{}.bytes", file.name), made.bytes.to_string());
            values.set(format!("{}.blake3", file.name), &made.blake3);
        }
    }
}

/// The path of a fixture below `scratch`, whose directory is created. Paths that would leave `scratch` are rejected.
fn path_of(file: &Fixture, scratch: &Path) -> Result<std::path::PathBuf> {
    let relative = Path::new(&file.path);
    let plain = relative.components().all(|c| matches!(c, std::path::Component::Normal(_)));
    if file.path.is_empty() || !plain {
        return Err(ExperimentError::value(
            format!("file {}", file.name),
            "its path must lie inside the scratch directory",
        ));
    }
    let path = scratch.join(relative);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(ExperimentError::file("create", parent))?;
    }
    Ok(path)
}

/// Writes incompressible bytes, so that no program on the path can gain from compression.
fn write_random(path: &Path, bytes: u64) -> std::io::Result<FixtureDigest> {
    let mut rng = generator("fixture", SEED);
    let mut hash = blake3::Hasher::new();
    let mut file = BufWriter::new(File::create(path)?);
    let mut block = vec![0; BLOCK];
    let mut left = bytes;
    while left > 0 {
        let n = left.min(BLOCK as u64) as usize;
        rng.fill_bytes(&mut block[..n]);
        hash.update(&block[..n]);
        file.write_all(&block[..n])?;
        left -= n as u64;
    }
    file.flush()?;
    Ok(FixtureDigest { bytes, blake3: hash.finalize().to_hex().to_string() })
}

/// Computes size and hash of a file.
///
/// # Errors
/// If it cannot be read.
pub fn measure(path: &Path) -> std::io::Result<FixtureDigest> {
    let mut file = BufReader::new(File::open(path)?);
    let mut hash = blake3::Hasher::new();
    let mut block = vec![0; BLOCK];
    let mut bytes = 0;
    loop {
        match file.read(&mut block)? {
            0 => return Ok(FixtureDigest { bytes, blake3: hash.finalize().to_hex().to_string() }),
            n => {
                hash.update(&block[..n]);
                bytes += n as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_file_has_the_returned_size_and_hash() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let made = write_random(&path, 200_001).unwrap();
        assert_eq!(made.bytes, 200_001);
        assert_eq!(measure(&path).unwrap(), made);
        assert_eq!(write_random(&dir.path().join("b"), 200_001).unwrap(), made);
        let mut bytes = fs::read(&path).unwrap();
        bytes[100_000] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert_ne!(measure(&path).unwrap().blake3, made.blake3);
    }

    #[test]
    fn fixtures_stay_in_the_scratch_directory() {
        for path in ["../x", "/etc/x", "", "a/../../x"] {
            let file = Fixture {
                name: "x".into(),
                path: path.into(),
                size: None,
                content: Some(String::new()),
            };
            assert!(path_of(&file, Path::new("/nowhere")).is_err(), "{path}");
        }
    }
}
