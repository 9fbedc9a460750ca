//! `thalweg lab pcap`: the packets that enter a link.

use super::Which;
use anyhow::{Context, Result, bail};
use std::{
    fs::File,
    io::{self, IsTerminal},
    os::fd::AsFd,
    path::PathBuf,
    process::ExitCode,
};

/// Arguments of `thalweg lab pcap`.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// The link (both halves), or one half: `core.fwd`, `core.rev`
    link: String,
    /// The file to write; else standard output, as for `… | tcpdump -r -`
    #[arg(short, long)]
    output: Option<PathBuf>,
}

/// Captures until interrupted, or until the lab or the reader is gone.
pub fn run(args: Args) -> Result<ExitCode> {
    let lab = args.which.attach()?;
    let file = match &args.output {
        Some(path) => {
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?
        }
        None if io::stdout().is_terminal() => {
            bail!("a capture is not for terminals; use -o FILE or `| tcpdump -n -r -`")
        }
        None => io::stdout().as_fd().try_clone_to_owned()?.into(),
    };
    let capture = lab.pcap(&args.link, &file)?;
    eprintln!("capturing {}; Ctrl-C ends it", args.link);
    drop(file);
    capture.wait();
    Ok(ExitCode::SUCCESS)
}
