//! Files named on the command line, looked at before anybody else is asked.

use super::text::printable;
use std::{fs, path::PathBuf};

/// The files that are not there, each with the system's reason: `gone.pdf: No such file …`.
///
/// Only a first look, so that a mistyped name is reported before a mesh or a member is asked. Who
/// reads the files reports what else is wrong with them.
pub fn missing<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> Vec<String> {
    let why = |file: &PathBuf| {
        let error = fs::symlink_metadata(file).err()?;
        Some(format!("{}: {error}", printable(file)))
    };
    files.into_iter().filter_map(why).collect()
}
