//! The arguments of `thalweg get`, by topic.

mod effort;
mod expected_hashes;
mod foreign_options;
mod naming;
mod paths;
mod sources;
mod web;

pub use effort::Effort;
pub use expected_hashes::ExpectedHashes;
pub use naming::{Naming, Output};
pub use paths::{Drawing, Interfaces, PathArgs};
pub use sources::{Sources, is_metalink};
pub use web::WebArgs;

use super::display::DisplayStyle;

const HELP: &str = "\
Samples the direct path and the relays at once for a moment, then downloads over the fastest. A
file appears under its name when it is complete. The same command continues an interrupted
download.

  thalweg get https://example.org/big.iso
  thalweg get -P isos -i urls.txt                       # a list, four at a time
  thalweg get https://example.org/a.tar -o - | tar x    # to standard output, in order
  thalweg get https://example.org/big.iso --mirror https://example.net/big.iso --sha256 9f86d0…
  thalweg get big.iso.meta4                             # names, mirrors and hashes from a Metalink

A relay is a node of the mesh, given by its name (`thalweg mesh members` lists them), or a SOCKS5
server, given as HOST:PORT. `+` joins up to three relays to a chain:

  thalweg get https://example.org/big.iso --via fra,nyc,fra+nyc
  thalweg get https://example.org/big.iso --path fra

Without --via, a member of a mesh tries relays of the mesh: all of a small mesh; else five chosen
by the oracle's scores and this host's experience, one more as a test, and two that were fast to
the same server before. `thalweg paths` shows them; --verbose reports which are tried and why.

Relays cannot read https traffic. Over plain http a relay, like anybody on the path, can read and
alter the file. --sha256 or --blake3 with a hash from a trusted source protects against alteration:
a file with another hash never appears under its name.

Exit codes (of several downloads, the one of the first that failed):
  0    everything was downloaded
  1    another failure
  2    wrong usage
  3    the server refuses the request or does not have the file (4xx)
  4    no path delivers it now: network, name, certificate, or a server error (5xx)
  5    wrong bytes: the hash differs, or the file keeps changing
  6    the disk: full, no permission, a failed write
  7    another process is writing the same file
  8    not finished within --max-time
  9    the reader of standard output is gone (-o -)
  130  interrupted";

/// Arguments of `thalweg get`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(flatten)]
    pub sources: Sources,
    #[command(flatten)]
    pub naming: Naming,
    #[command(flatten)]
    pub proof: ExpectedHashes,
    #[command(flatten)]
    pub paths: PathArgs,
    #[command(flatten)]
    pub web: WebArgs,
    #[command(flatten)]
    pub effort: Effort,
    #[command(flatten)]
    habits: foreign_options::ForeignOptions,
    #[command(flatten)]
    queue: crate::commands::jobs::QueueOptions,

    /// Print nothing but errors
    #[arg(short, long, help_heading = "Messages")]
    quiet: bool,

    /// Report which relays are tried and why, and what limited the download
    #[arg(short, long, help_heading = "Messages")]
    pub verbose: bool,

    /// Print events on standard output, one JSON object per line
    #[arg(long, help_heading = "Messages")]
    pub json: bool,
}

impl Args {
    /// How progress is shown.
    pub fn style(&self) -> DisplayStyle {
        match (self.json, self.quiet) {
            (true, _) => DisplayStyle::Json,
            (_, quiet) if quiet || self.habits.silent => DisplayStyle::Quiet,
            _ if thalweg_console::stderr_is_terminal() => DisplayStyle::Bar,
            _ => DisplayStyle::Lines,
        }
    }

    /// Checks that the arguments fit together.
    ///
    /// # Errors
    /// A message that says what to write instead.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.json && self.naming.is_stdout() {
            anyhow::bail!("--json and `-o -` both need standard output; leave one of them out");
        }
        self.sources.check(self.naming.outputs(), &self.proof)?;
        self.naming.check()
    }
}
