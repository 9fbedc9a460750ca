//! Our own programs, as a run uses them.

use crate::error::{ExperimentError, Result};
use std::{
    fs,
    path::{Path, PathBuf},
};
use thalweg_lab::discover;

/// Our own programs, as they were when the run began: a build beside a long
/// run replaces the files it was started from.
pub struct Programs {
    /// The product.
    pub thalweg: PathBuf,
    /// This program: the harness.
    pub bench: PathBuf,
    /// The lab's.
    pub lab: PathBuf,
}

impl Programs {
    /// Copies them below `scratch`.
    ///
    /// # Errors
    /// When one cannot be read or written.
    pub fn copy_to(scratch: &Path) -> Result<Self> {
        let bin = scratch.join("bin");
        fs::create_dir_all(&bin).map_err(ExperimentError::file("create", &bin))?;
        let copy = |from: &Path, name: &str| {
            let to = bin.join(name);
            fs::copy(from, &to).map_err(ExperimentError::file("copy", from))?;
            Ok::<_, ExperimentError>(to)
        };
        let bench = copy(Path::new("/proc/self/exe"), "thalweg-bench")?;
        // An experiment that does not use a program runs without it.
        let if_there = |found: Option<PathBuf>, name: &str| match found {
            Some(program) => copy(&program, name),
            None => Ok(PathBuf::from(name)),
        };
        let thalweg = if_there(discover::beside("thalweg"), "thalweg")?;
        let lab = if_there(discover::program().ok(), "thalweg-lab")?;
        Ok(Self { thalweg, bench, lab })
    }
}
