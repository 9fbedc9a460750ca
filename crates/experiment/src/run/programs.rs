//! Our own programs, as a run uses them.

use super::installed;
use crate::error::{ExperimentError, Result};
use std::{
    env, fs,
    path::{Path, PathBuf},
};

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
        let own = env::current_exe().map_err(ExperimentError::file("find", "/proc/self/exe"))?;
        let thalweg = copy(Path::new("/proc/self/exe"), "thalweg")?;
        // Without it the experiments on this machine still run, until one names it.
        let lab = match installed::beside(&own, "thalweg-lab") {
            Some(lab) => copy(&lab, "thalweg-lab")?,
            None => PathBuf::from("thalweg-lab"),
        };
        Ok(Self { thalweg, lab })
    }
}
