//! `thalweg stream`: live media to many members.

mod arrivals;
mod endpoint;
mod hls;
mod publish;
mod sink;
mod status;
mod subscribe;

use super::{exit::Code, host::StateDir};
use clap::ValueEnum;
use std::process::ExitCode;
use thalweg_console::note;
use thalweg_mesh::StateError;

const HELP: &str = "\
A publisher's node offers a stream. Other members' nodes subscribe to it there or at a relay, and
pass it to programs on their hosts. Each leg sends what its path can deliver in time. It drops
disposable frames first, then the ends of groups of pictures, then key frames, and audio and
tables last.

  encoder | thalweg stream publish stage
  thalweg stream subscribe stage | player
  thalweg stream status --watch

Exit codes: 0 the stream ended; 1 other; 2 usage; 3 refused; 4 no mesh, no node or no such stream;
5 the input is not a stream; 6 the disk; 9 the reader of the output is gone; 130 interrupted.";

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
    /// Subscribe to a stream through this host's node
    Subscribe(subscribe::Args),
    /// List the streams at this host's node
    List(status::ListArgs),
    /// Show rates, dropped frames and reasons, delays, and the estimate behind each level
    Status(status::Args),
}

/// The format of frames in a byte stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// An MPEG transport stream with H.264 or H.265
    Ts,
    /// Each frame after a head with its class and time (docs/stream.md)
    Frames,
}

/// The path of the node's socket for streams.
fn socket(place: &StateDir) -> anyhow::Result<std::path::PathBuf> {
    Ok(place.open()?.stream_socket())
}

/// Runs the command.
///
/// # Errors
/// When the subcommand fails.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let ended = match args.what {
        What::Publish(args) => publish::run(args),
        What::Subscribe(args) => subscribe::run(args),
        What::List(args) => status::list(&args),
        What::Status(args) => status::run(&args),
    };
    ended.or_else(|why| match why.downcast_ref() {
        // No node can run without a mesh.
        Some(StateError::Absent(_) | StateError::NoMesh(_)) => {
            note!("thalweg: {why:#}");
            Ok(Code::Network.into())
        }
        _ => Err(why),
    })
}
