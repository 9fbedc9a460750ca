//! The arguments of `thalweg get`, by topic.

mod effort;
mod habits;
mod naming;
mod paths;
mod proof;
mod sources;
mod web;

pub use effort::Effort;
pub use naming::{Naming, Output};
pub use paths::{Drawing, Interfaces, PathArgs};
pub use proof::Proof;
pub use sources::{Sources, is_metalink};
pub use web::WebArgs;

use super::display::Style;
use std::io::IsTerminal;

const HELP: &str = "\
Downloads over the direct path and every relay at once for a moment, then over the fastest of
them alone. A file appears under its name when it is complete. An interrupted download is
continued by the same command.

  thalweg get https://example.org/big.iso
  thalweg get -P isos -i urls.txt                       # a list, four at a time
  thalweg get https://example.org/a.tar -o - | tar x    # to standard output, in order
  thalweg get https://example.org/big.iso --mirror https://example.net/big.iso --sha256 9f86d0…
  thalweg get big.iso.meta4                             # names, mirrors and hashes of a Metalink

A relay is a node of the mesh, by its name (`thalweg roster` lists them), or a plain SOCKS5
relay, as HOST:PORT. A chain of up to three is joined by `+`:

  thalweg get https://example.org/big.iso --via fra,nyc,fra+nyc
  thalweg get https://example.org/big.iso --path fra

Without --via, relays of the mesh are tried if this host has joined one: of a small mesh all, else
5 drawn by the oracle's scores and this host's own experience, one to test, and two that were
fast to the same server before. `thalweg paths` shows them, --verbose which and why.

With https, relays carry what they cannot read. Over plain http a relay, like anybody on the way,
can read and alter the file; --sha256 or --blake3, with a hash from a source you trust, protects
against alteration: a file that does not match never appears under its name.

Exit codes, of several downloads the first failed one's:
  0    everything is there
  1    failed for a reason that is none of these
  2    wrong usage
  3    the server refuses it or does not have it (4xx)
  4    no path delivers it now: network, name, certificate, or a server in trouble (5xx)
  5    wrong bytes: another hash than expected, or a file that keeps changing
  6    the disk: full, no permission, a failed write
  7    another process is writing the same file
  8    not done within --max-time
  9    nobody reads standard output any more (-o -)
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
    pub proof: Proof,
    #[command(flatten)]
    pub paths: PathArgs,
    #[command(flatten)]
    pub web: WebArgs,
    #[command(flatten)]
    pub effort: Effort,
    #[command(flatten)]
    habits: habits::Habits,

    /// Print nothing but errors
    #[arg(short, long, help_heading = "What is shown")]
    quiet: bool,

    /// Say which relays are tried and why
    #[arg(short, long, help_heading = "What is shown")]
    pub verbose: bool,

    /// Print events on standard output, one JSON object per line
    #[arg(long, help_heading = "What is shown")]
    pub json: bool,
}

impl Args {
    /// How progress is shown.
    pub fn style(&self) -> Style {
        match (self.json, self.quiet) {
            (true, _) => Style::Json,
            (_, quiet) if quiet || self.habits.silent => Style::Quiet,
            _ if std::io::stderr().is_terminal() => Style::Bar,
            _ => Style::Lines,
        }
    }

    /// What the parts of the command line must agree on.
    ///
    /// # Errors
    /// What to write instead.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.json && self.naming.is_stdout() {
            anyhow::bail!("--json and `-o -` both need standard output; leave one of them out");
        }
        self.sources.check(self.naming.outputs(), &self.proof)?;
        self.naming.check()
    }
}
