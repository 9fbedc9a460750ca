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
    /// This program.
    pub thalweg: PathBuf,
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
        let thalweg = copy(Path::new("/proc/self/exe"), "thalweg")?;
        // Without it the experiments on this machine still run, until one names it.
        let lab = match discover::program() {
            Ok(lab) => copy(&lab, "thalweg-lab")?,
            Err(_) => PathBuf::from("thalweg-lab"),
        };
        Ok(Self { thalweg, lab })
    }
}
