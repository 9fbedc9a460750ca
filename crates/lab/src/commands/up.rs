//! `thalweg-bench lab up`: starts a network that keeps running after the command.

use anyhow::{Context, Result, bail};
use std::{
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
};
use thalweg_console::say_line;
use thalweg_lab::{client::StartMessage, discover};

/// Arguments of `thalweg-bench lab up`.
#[derive(clap::Args)]
pub struct Args {
    /// The topology file
    topology: PathBuf,
    /// The lab's name, for `--lab`
    #[arg(long, default_value = "lab")]
    name: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Starts the network in the background and returns when it is set up.
pub fn run(args: Args) -> Result<ExitCode> {
    let topology = args
        .topology
        .canonicalize()
        .with_context(|| format!("cannot read the topology {}", args.topology.display()))?;
    let mut child = Command::new(std::env::current_exe()?)
        .args(["serve", "--name", &args.name, "--detached"])
        .arg(topology)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line)?;
    }
    match serde_json::from_str(&line).context("the lab ended before its network was set up")? {
        StartMessage::Error(message) => bail!("{message}"),
        StartMessage::Ready { socket, setup_s } => {
            let name = discover::lab_name(&socket);
            if args.json {
                let object =
                    serde_json::json!({"name": name, "socket": socket, "setup_s": setup_s});
                say_line(object)?;
            } else {
                say_line(format_args!(
                    "{name} is up after {setup_s:.3} s; end it with `thalweg-bench lab down {name}`"
                ))?;
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}
