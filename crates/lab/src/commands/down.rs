//! `thalweg lab down`: the end of a running network.

use anyhow::{Context, Result};
use std::process::ExitCode;
use thalweg_lab::{client::Lab, discover};

/// Arguments of `thalweg lab down`.
#[derive(clap::Args)]
pub struct Args {
    /// The lab's name; may be left out if only one runs
    name: Option<String>,
}

/// Ends it, with every process in its hosts.
pub fn run(args: Args) -> Result<ExitCode> {
    let socket = discover::find(args.name.as_deref())?;
    let name = discover::name_of(&socket);
    let lab = Lab::attach(&socket).with_context(|| format!("the lab `{name}`"))?;
    lab.stop()?;
    println!("{name} is down");
    Ok(ExitCode::SUCCESS)
}
