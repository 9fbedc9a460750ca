//! The programs that the harness starts.

use anyhow::Context as _;
use std::{env, path::PathBuf};
use thalweg_lab::discover;

/// The product, `thalweg`, next to this program: never an installed one, which may be of another commit.
///
/// # Errors
/// When it is not there.
pub fn product() -> anyhow::Result<PathBuf> {
    let found = discover::find_beside("thalweg");
    found.context(
        "cannot find the program `thalweg` in this program's directory; build both \
         (`cargo build --release --workspace --bins`)",
    )
}

/// The path of this program.
///
/// # Errors
/// When the system does not tell the path.
pub fn own() -> anyhow::Result<PathBuf> {
    env::current_exe().context("cannot find the path of this program")
}
