//! `thalweg stream`: live media to many members.

mod publish;
mod status;
mod subscribe;

use super::here::Place;
use clap::ValueEnum;
use std::process::ExitCode;

const HELP: &str = "\
A publisher's node offers a stream; other members' nodes take it from there, or from each other, and hand it to
programs of their hosts. Each leg sends what its path takes in time: frames to which nothing refers are left out
first, then ends of groups of pictures, sound and tables last.

  encoder | thalweg stream publish stage
  thalweg stream subscribe stage --from studio | player
  thalweg stream status --watch

Exit codes: 0 the stream has ended, or was ended here; 1 other; 2 usage; 3 refused; 4 no node or no such stream;
5 input that is no stream; 130 interrupted.";

/// Arguments of `thalweg stream`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Publish a stream at this host's node
    Publish(publish::Args),
    /// Take a stream by this host's node
    Subscribe(subscribe::Args),
    /// List the streams at this host's node
    List(status::ListArgs),
    /// Show rates, frames left out and why, delays, and what justified each change
    Status(status::Args),
}

/// How frames lie in a stream of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// An MPEG transport stream, with H.264 or H.265
    Ts,
    /// Each frame with a head that says its class and time (docs/stream.md)
    Frames,
}

/// The node's socket for streams.
fn socket(place: &Place) -> anyhow::Result<std::path::PathBuf> {
    Ok(place.open()?.stream_socket())
}

/// Runs the command.
///
/// # Errors
/// When it cannot be done; the message says what to try.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Publish(args) => publish::run(args),
        What::Subscribe(args) => subscribe::run(args),
        What::List(args) => status::list(&args),
        What::Status(args) => status::run(&args),
    }
}
