//! The programs that the harness starts.

use anyhow::Context as _;
use std::{env, path::PathBuf};
use thalweg_lab::discover;

/// The product, `thalweg`: beside this program, else in PATH.
///
/// # Errors
/// When it is not there.
pub fn product() -> anyhow::Result<PathBuf> {
    let found = discover::sibling("thalweg");
    found.context("the program `thalweg` is neither beside this one nor in PATH; build it first")
}

/// This program.
///
/// # Errors
/// When the system does not say which file it is.
pub fn own() -> anyhow::Result<PathBuf> {
    env::current_exe().context("cannot find this program")
}
