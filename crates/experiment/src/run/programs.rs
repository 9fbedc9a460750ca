//! Copies of our own programs for a run.

use crate::error::{ExperimentError, Result};
use std::{
    fs,
    path::{Path, PathBuf},
};
use thalweg_lab::discover;

/// Our own programs as they were when the run began. A build during a long run would replace the original files.
pub struct Programs {
    pub thalweg: PathBuf,
    /// The harness, which is this program.
    pub bench: PathBuf,
    pub lab: PathBuf,
}

impl Programs {
    /// Copies the programs below `scratch`. A missing product or lab is replaced by its name.
    ///
    /// # Errors
    /// If a program cannot be read or written.
    pub fn copy_to(scratch: &Path) -> Result<Self> {
        let bin = scratch.join("bin");
        fs::create_dir_all(&bin).map_err(ExperimentError::file("create", &bin))?;
        let copy = |from: &Path, name: &str| {
            let to = bin.join(name);
            fs::copy(from, &to).map_err(ExperimentError::file("copy", from))?;
            Ok::<_, ExperimentError>(to)
        };
        let bench = copy(Path::new("/proc/self/exe"), "thalweg-bench")?;
        // An experiment that does not use a program can run without it.
        let if_found = |found: Option<PathBuf>, name: &str| match found {
            Some(program) => copy(&program, name),
            None => Ok(PathBuf::from(name)),
        };
        let thalweg = if_found(discover::find_beside("thalweg"), "thalweg")?;
        let lab = if_found(discover::find_program().ok(), "thalweg-lab")?;
        Ok(Self { thalweg, bench, lab })
    }
}
