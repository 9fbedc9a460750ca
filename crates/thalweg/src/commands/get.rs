//! `thalweg get`.

use std::process::ExitCode;

/// Arguments of `thalweg get`.
#[derive(clap::Args)]
pub struct Args {}

/// Runs the command.
///
/// # Errors
/// When it cannot be done; the message says what to try.
pub fn run(_: Args) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not built yet")
}
