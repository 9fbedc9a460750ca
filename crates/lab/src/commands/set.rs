//! `thalweg-bench lab set`: changes a link while packets flow.

use super::LabSelection;
use anyhow::Result;
use std::process::ExitCode;
use thalweg_lab::topology::LinkChange;

/// Arguments of `thalweg-bench lab set`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: LabSelection,
    /// The link (both halves), or one half: `core.fwd`, `core.rev`
    link: String,
    /// rate=… delay=… loss=… queue=… reorder=… duplicate=… corrupt=… up | down
    #[arg(required = true)]
    changes: Vec<String>,
}

/// Makes the change.
pub fn run(args: Args) -> Result<ExitCode> {
    let change = LinkChange::parse(&args.changes)?;
    args.which.attach()?.set(&args.link, &change)?;
    Ok(ExitCode::SUCCESS)
}
