//! `thalweg-bench lab exec`: runs a command inside a host.

use super::LabSelection;
use crate::shell;
use anyhow::Result;
use std::{ffi::OsString, process::ExitCode};

/// Arguments of `thalweg-bench lab exec`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: LabSelection,
    /// The host
    host: String,
    /// The command
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Runs the command. Returns its exit code, or 128 + n if signal n ended it.
pub fn run(args: Args) -> Result<ExitCode> {
    shell::exec::run(&args.which.socket()?, &args.host, &args.command)
}
