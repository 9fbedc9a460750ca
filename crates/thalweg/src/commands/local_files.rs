//! Checks files named on the command line before any host is asked.

use super::text::printable;
use std::{fs, path::PathBuf};

/// Returns the files that do not exist, each with the system's reason: `gone.pdf: No such file …`.
///
/// This is only a first check, so that a mistyped name is reported before the mesh or a member is asked. The code that
/// reads the files reports all other faults.
pub fn missing<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> Vec<String> {
    let why = |file: &PathBuf| {
        let error = fs::symlink_metadata(file).err()?;
        Some(format!("{}: {error}", printable(file)))
    };
    files.into_iter().filter_map(why).collect()
}
