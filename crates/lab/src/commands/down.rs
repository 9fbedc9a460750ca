//! `thalweg-bench lab down`: ends a running network.

use anyhow::{Context, Result};
use std::{
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};
use thalweg_console::say_line;
use thalweg_lab::{client::Lab, discover};

/// The longest wait for the end of a lab. The kernel takes about 30 ms per device to remove a network of many hosts.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Arguments of `thalweg-bench lab down`.
#[derive(clap::Args)]
pub struct Args {
    /// The lab's name; optional if `lab up` started only one
    name: Option<String>,
}

/// Ends the network and every process in its hosts.
pub fn run(args: Args) -> Result<ExitCode> {
    let socket = discover::find(args.name.as_deref())?;
    let name = discover::lab_name(&socket);
    let lab = Lab::attach(&socket).with_context(|| format!("cannot end the lab `{name}`"))?;
    lab.stop()?;
    anyhow::ensure!(
        is_gone(&socket),
        "{name} is still shutting down after {TIMEOUT:?}; `thalweg-bench lab list` shows when it has ended"
    );
    say_line(format_args!("{name} is down"))?;
    Ok(ExitCode::SUCCESS)
}

/// Waits until the supervisor, the lab's last process to exit, has removed the socket.
fn is_gone(socket: &Path) -> bool {
    let began = Instant::now();
    while socket.exists() {
        if began.elapsed() > TIMEOUT {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}
