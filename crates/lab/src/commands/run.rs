//! `thalweg-bench lab run`: sets up a network for the duration of one command.

use super::read_topology;
use crate::shell::supervise::{LabSetup, run_program, supervise};
use anyhow::{Context, Result};
use std::{
    ffi::OsString,
    path::PathBuf,
    process::{Command, ExitCode},
};
use thalweg_console::note;
use thalweg_lab::discover::LAB_VARIABLE;

/// Arguments of `thalweg-bench lab run`.
#[derive(clap::Args)]
pub struct Args {
    /// The topology file (`-`: standard input)
    topology: PathBuf,
    /// Run the command inside this host instead of outside the network
    #[arg(long)]
    host: Option<String>,
    /// The command; outside the network it reaches hosts with `thalweg-bench lab exec HOST -- …`
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Runs the command and returns its exit code.
pub fn run(args: Args) -> Result<ExitCode> {
    let setup = LabSetup::new(&read_topology(&args.topology)?, None)?;
    supervise(
        setup,
        false,
        |lab| {
            let mut command = command(&args)?;
            command.env(LAB_VARIABLE, &lab.socket);
            let code = run_program(&mut command)?;
            lab.warn_if_late();
            Ok(code)
        },
        |error| note!("thalweg-bench lab: {error:#}"),
    )
}

fn command(args: &Args) -> Result<Command> {
    let (program, rest) = args.command.split_first().context("no command is given")?;
    let mut command = match &args.host {
        None => Command::new(program),
        Some(host) => {
            let mut exec = Command::new(std::env::current_exe()?);
            exec.arg("exec").arg(host).arg("--").arg(program);
            exec
        }
    };
    command.args(rest);
    Ok(command)
}
