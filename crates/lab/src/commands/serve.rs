//! The hidden command `serve`: the lab process behind `thalweg-bench lab up` and the Rust API.

use crate::shell::supervise::{LabSetup, RunningLab, supervise};
use anyhow::Result;
use std::{
    io::{self, BufRead, Read, Write},
    path::PathBuf,
    process::ExitCode,
    thread,
};
use thalweg_lab::client::StartMessage;

/// Arguments of the hidden `serve`.
#[derive(clap::Args)]
pub struct Args {
    /// Keep running after standard input ends, with the topology of this file
    #[arg(long)]
    detached: Option<PathBuf>,
    /// The lab's name
    #[arg(long)]
    name: Option<String>,
}

/// Sets up the network, reports that on standard output, and runs until asked to stop.
///
/// Without `--detached`, the first line of standard input is the topology as a JSON string, and end of file on standard
/// input ends the lab.
pub fn run(args: Args) -> Result<ExitCode> {
    let attached = args.detached.is_none();
    let setup = match prepare_setup(&args) {
        Ok(setup) => setup,
        Err(e) => return report_failure(&e),
    };
    let served = supervise(
        setup,
        true,
        |lab| serve(lab, attached),
        |error| {
            let _reader_gone = print_message(&StartMessage::Error(format!("{error:#}")));
        },
    );
    served.or_else(|e| report_failure(&e))
}

fn report_failure(error: &anyhow::Error) -> Result<ExitCode> {
    print_message(&StartMessage::Error(format!("{error:#}")))?;
    Ok(ExitCode::FAILURE)
}

fn prepare_setup(args: &Args) -> Result<LabSetup> {
    let text = match &args.detached {
        Some(path) => super::read_topology(path)?,
        None => {
            let mut line = String::new();
            io::stdin().lock().read_line(&mut line)?;
            serde_json::from_str(&line)?
        }
    };
    LabSetup::new(&text, args.name.as_deref())
}

fn print_message(started: &StartMessage) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(started)?)?;
    Ok(out.flush()?)
}

fn serve(lab: &RunningLab, attached: bool) -> Result<u8> {
    print_message(&StartMessage::Ready { socket: lab.socket.clone(), setup_s: lab.setup_s })?;
    if attached {
        let mut rest = Vec::new();
        io::stdin().lock().read_to_end(&mut rest)?;
        return Ok(0);
    }
    loop {
        thread::park(); // until a client asks for the end, or a signal arrives
    }
}
