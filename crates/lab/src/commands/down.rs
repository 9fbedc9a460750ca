//! `thalweg-bench lab down`: the end of a running network.

use anyhow::{Context, Result};
use std::{
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};
use thalweg_console::say_line;
use thalweg_lab::{client::Lab, discover};

/// The kernel takes about 30 ms a device to end a network of many hosts.
const PATIENCE: Duration = Duration::from_secs(30);

/// Arguments of `thalweg-bench lab down`.
#[derive(clap::Args)]
pub struct Args {
    /// The lab's name; may be left out if `lab up` started only one
    name: Option<String>,
}

/// Ends it, with every process in its hosts.
pub fn run(args: Args) -> Result<ExitCode> {
    let socket = discover::find(args.name.as_deref())?;
    let name = discover::name_of(&socket);
    let lab = Lab::attach(&socket).with_context(|| format!("the lab `{name}`"))?;
    lab.stop()?;
    anyhow::ensure!(
        gone(&socket),
        "{name} was told to end, but is still ending after {PATIENCE:?}; `thalweg-bench lab list` shows when it is gone"
    );
    say_line(format_args!("{name} is down"))?;
    Ok(ExitCode::SUCCESS)
}

/// Waits until the supervisor, which outlives every process of the lab, has removed the socket.
fn gone(socket: &Path) -> bool {
    let began = Instant::now();
    while socket.exists() {
        if began.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}
