//! `thalweg-bench lab pcap`: captures the packets that enter a link.

use super::LabSelection;
use crate::shell::sys::{self, Signals};
use anyhow::{Context, Result, bail};
use std::{
    fs::File,
    io::{self, IsTerminal},
    os::fd::AsFd,
    path::PathBuf,
    process::ExitCode,
};
use thalweg_console::note;

/// Arguments of `thalweg-bench lab pcap`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: LabSelection,
    /// The link (both halves), or one half: `core.fwd`, `core.rev`
    link: String,
    /// The file to write (default: standard output, for `… | tcpdump -r -`)
    #[arg(short, long)]
    output: Option<PathBuf>,
}

/// Waits for SIGINT or SIGTERM, or until the lab or the reader of the capture ends.
fn until_interrupted(capture: thalweg_lab::client::Capture) -> Result<()> {
    let signals = Signals::block(&[libc::SIGINT, libc::SIGTERM])?;
    let (ended, why) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let _received = ended.send(capture.wait());
        if let Some(own) = rustix::process::Pid::from_raw(std::process::id().cast_signed()) {
            sys::kill(own, libc::SIGTERM);
        }
    });
    signals.next()?;
    match why.try_recv() {
        Ok(Err(error)) => Err(error.into()),
        _ => Ok(()),
    }
}

/// Captures until interrupted, or until the lab or the reader of the capture ends.
pub fn run(args: Args) -> Result<ExitCode> {
    let lab = args.which.attach()?;
    let file = match &args.output {
        Some(path) => {
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?
        }
        None if io::stdout().is_terminal() => {
            bail!(
                "a capture is binary and is not written to a terminal; use -o FILE or `| tcpdump -n -r -`"
            )
        }
        None => io::stdout().as_fd().try_clone_to_owned()?.into(),
    };
    let capture = lab.pcap(&args.link, &file)?;
    note!("capturing {}; Ctrl-C ends it", args.link);
    drop(file);
    until_interrupted(capture)?;
    let missed = lab.stats(false).map_or(0, |stats| stats.capture_missed);
    if missed > 0 {
        note!("this lab's captures missed {missed} packets: the file was written too slowly");
    }
    Ok(ExitCode::SUCCESS)
}
