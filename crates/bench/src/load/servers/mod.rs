//! Servers that misbehave, for the experiment `servers`, which tests how downloaders cope with them.
//!
//! ```text
//!  kinds ──► answer (pure) ◄── request, site (counts)      run: each tool ──► the file? ──► tally
//!               │                                            │                  ▲
//!             serve ◄───────────────── HTTP ─────────────────┴─ tool            counts
//! ```
//!
//! A scripted server serves one file under `/KIND/DOWNLOAD/NAME` as the kind of [`kinds`] demands, and counts by
//! download. [`mod@run`] downloads from it, or from a real server, with each [`tool`] in turn, compares each file byte
//! by byte, and reads the server's counts.

mod answer;
mod counts;
mod kinds;
mod request;
mod run;
mod serve;
mod site;
mod tally;
mod tool;

use clap::{Subcommand, ValueEnum as _};
use thalweg_console::say_line;

/// Arguments of `thalweg-bench load servers`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    work: ServersCommand,
}

#[derive(Subcommand)]
enum ServersCommand {
    /// Serve one file under `/KIND/DOWNLOAD/NAME`, as a server of that kind does
    Serve(serve::Args),
    /// Download from each kind, or from a real server, with each tool in turn
    Run(Box<run::Args>),
    /// List the kinds: name, class, source, tolerance
    Kinds,
}

/// Serves, downloads or lists.
///
/// # Errors
/// When a server or a tool cannot be started.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.work {
        ServersCommand::Serve(args) => serve::run(args),
        ServersCommand::Run(args) => run::run(args),
        ServersCommand::Kinds => list(),
    }
}

fn list() -> anyhow::Result<()> {
    for kind in kinds::KINDS {
        let class = kind.class.to_possible_value();
        let class = class.as_ref().map_or("", |class| class.get_name());
        let tolerant = if kind.tolerant { "tolerant" } else { "-" };
        say_line(format!("{}\t{class}\t{tolerant}\t{}", kind.name, kind.source))?;
    }
    Ok(())
}
