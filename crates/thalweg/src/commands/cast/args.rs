//! The arguments of `thalweg cast`.

use super::display::Style;
use crate::commands::{get::duration::seconds, here::Place};
use anyhow::Context as _;
use std::{
    ffi::OsString, io::IsTerminal as _, os::unix::ffi::OsStringExt as _, path::PathBuf,
    time::Duration,
};
use thalweg_node::{
    cast::source::{CastError, Forwarding},
    gather::{Estimates, Reach},
};
use thalweg_units::{ByteSize, Rate};
use thalweg_wire::{
    cast::MAX_RING,
    mesh::{LegKind, Name, Tag},
};

const HELP: &str = "\
Delivers one file, or a directory with all below it, to many members at once. Receivers hand on to
each other what they have already; a slow one slows no other. An interrupted cast is continued by the
same command, at the source and at each receiver; what is held is not sent again. This command runs
until all receivers have it, or those that are away were waited for.

  thalweg cast image.iso --to fra,nyc,ber
  thalweg cast dataset/ --to-all --tag lab --json
  thalweg cast image.iso --to fra,nyc --rates rates.csv    # the tree from a file of rates
  thalweg cast status                                     # what goes out, and what lands here
  thalweg cast forget image.iso                           # give it up

A node takes nothing until its settings say so: `[cast] inbox`. A file gets its name there when it is
complete, verified and synced. Each byte is proven before it is handed on.

Exit codes:
  0    all receivers have it
  1    failed for a reason that is none of these
  2    wrong usage
  4    no receiver was reached
  6    the file cannot be read, or changed
  7    this cast to the same receivers is running already
  23   some receivers have it, others do not
  130  interrupted; what came is kept";

/// Arguments of `thalweg cast`.
#[derive(clap::Args)]
#[command(after_help = HELP, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    /// A file, or a directory with all below it
    #[arg(value_name = "FILE|DIR", required = true)]
    what: Option<PathBuf>,

    /// The members who are to have it
    #[arg(
        long,
        value_name = "NODE[,NODE…]",
        value_delimiter = ',',
        required_unless_present = "to_all"
    )]
    pub to: Vec<Name>,

    /// All members that run a node, but this host
    #[arg(long, conflicts_with = "to")]
    to_all: bool,

    /// With --to-all: those with this tag alone, or any of several
    #[arg(long, value_name = "TAG", value_delimiter = ',', requires = "to_all")]
    tag: Vec<Tag>,

    /// Its name in the inboxes
    #[arg(long, value_name = "NAME")]
    name: Option<OsString>,

    /// Rates between members, as TOML or CSV, instead of the oracle's: docs/gather.md
    #[arg(long, value_name = "FILE")]
    pub rates: Option<PathBuf>,

    /// How many parents a receiver has at a time
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub parents: u32,

    /// "store": receivers give others what these ask for; "ring": they hand on what comes as it comes
    #[arg(long, value_name = "KIND", default_value = "store", value_parser = forward)]
    forward: Forward,

    /// Bytes that wait in a ring, at each node: 64 MiB at most
    #[arg(long, value_name = "SIZE", default_value = "1 MB", value_parser = ring_bytes)]
    ring_bytes: ByteSize,

    /// Nodes that hand on by a ring and keep nothing: `[cast] relay = true` there
    #[arg(long, value_name = "NODE[,NODE…]", value_delimiter = ',')]
    via: Vec<Name>,

    /// What nodes send at most, over all legs at once; several with commas
    #[arg(long, value_name = "NODE=RATE", value_delimiter = ',', value_parser = egress)]
    egress: Vec<(Name, Rate)>,

    /// Nodes that send less, as said or measured, hand nothing on
    #[arg(long, value_name = "RATE", value_parser = positive)]
    leaf_below: Option<Rate>,

    /// "sealed", or "open": authenticated, then in the clear (what passes is proven by hashes)
    #[arg(long, value_name = "KIND", default_value = "sealed", value_parser = leg)]
    legs: LegKind,

    /// Bytes of a symbol: 1 KiB to 64 KiB, a power of two [default: by the length]
    #[arg(long, value_name = "SIZE", help_heading = "How it is cut")]
    symbol: Option<ByteSize>,

    /// Bytes of a block: whole MiB [default: 8 MiB]
    #[arg(long, value_name = "SIZE", help_heading = "How it is cut")]
    block: Option<ByteSize>,

    /// So long a receiver that is away, or refuses for now, is tried again
    #[arg(long, value_name = "TIME", default_value = "60 s", value_parser = seconds)]
    pub wait: Duration,

    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,

    /// Say more: parents that are left, receivers that are tried again
    #[arg(short, long)]
    pub verbose: bool,

    /// Print events on standard output, one JSON object per line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pub place: Place,

    #[command(subcommand)]
    pub sub: Option<Sub>,
}

/// What else there is.
#[derive(clap::Subcommand)]
pub enum Sub {
    /// Show what this host casts, and what is cast to its node
    Status(StatusArgs),
    /// Give up a cast of this host: receivers that do not have all of it throw away what came
    Forget(ForgetArgs),
}

/// Arguments of `thalweg cast forget`.
#[derive(clap::Args)]
pub struct ForgetArgs {
    /// The cast's name in the inboxes, or the first digits of its number: see `thalweg cast status`
    #[arg(value_name = "CAST")]
    pub cast: String,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub place: Place,
}

/// Arguments of `thalweg cast status`.
#[derive(clap::Args)]
pub struct StatusArgs {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub place: Place,
}

/// How receivers hand on. No `bool`: clap takes that for a flag without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forward {
    Store,
    Ring,
}

fn forward(text: &str) -> Result<Forward, String> {
    match text {
        "store" => Ok(Forward::Store),
        "ring" => Ok(Forward::Ring),
        _ => Err("it is store or ring".to_owned()),
    }
}

fn ring_bytes(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse().map_err(|e| format!("{e}"))?;
    match size.as_bytes() {
        ..=MAX_RING => Ok(size),
        _ => Err(format!("a ring has at most {} MiB", MAX_RING >> 20)),
    }
}

fn positive(text: &str) -> Result<Rate, String> {
    match text.parse::<Rate>() {
        Ok(Rate::ZERO) => Err("a rate above 0 is needed".to_owned()),
        Ok(rate) => Ok(rate),
        Err(why) => Err(why.to_string()),
    }
}

fn egress(text: &str) -> Result<(Name, Rate), String> {
    let (name, rate) = text.split_once('=').ok_or("write it as NODE=RATE: fra=100Mbit/s")?;
    Ok((name.trim().parse::<Name>().map_err(|why| why.to_string())?, positive(rate)?))
}

fn leg(text: &str) -> Result<LegKind, String> {
    match text {
        "sealed" => Ok(LegKind::Sealed),
        "open" => Ok(LegKind::Open),
        _ => Err("it is sealed or open".to_owned()),
    }
}

impl Args {
    /// What is cast.
    ///
    /// # Errors
    /// If nothing is.
    pub fn path(&self) -> anyhow::Result<PathBuf> {
        self.what.clone().context("a file or directory is needed")
    }

    /// Its name, if it is to have another than its own.
    pub fn name(&self) -> Option<Vec<u8>> {
        self.name.clone().map(OsString::into_vec)
    }

    /// Whether legs may be open.
    pub fn is_open(&self) -> bool {
        self.legs == LegKind::Open
    }

    /// How receivers hand on what comes to them.
    pub fn forwarding(&self) -> Forwarding {
        let by_rings = self.forward == Forward::Ring;
        let ring_bytes = self.ring_bytes.as_bytes();
        Forwarding { by_rings, ring_bytes, via: self.via.clone(), leaf_below: self.leaf_below }
    }

    /// What is known of legs, with what was said of hosts beside it.
    ///
    /// # Errors
    /// If something was said of a host that has no part: `here` is the source.
    pub fn stated(
        &self,
        mut estimates: Estimates,
        here: &Name,
        to: &[Name],
    ) -> Result<Estimates, CastError> {
        for (name, rate) in &self.egress {
            if name != here && !to.contains(name) && !self.via.contains(name) {
                return Err(CastError::NoPart(name.clone()));
            }
            estimates.state_egress(name.clone(), *rate);
        }
        Ok(estimates)
    }

    /// Bytes of a symbol.
    pub fn symbol(&self) -> Option<u32> {
        self.symbol.map(|size| u32::try_from(size.as_bytes()).unwrap_or(u32::MAX))
    }

    /// Bytes of a block.
    pub fn block(&self) -> Option<u64> {
        self.block.map(ByteSize::as_bytes)
    }

    /// Who is to have it.
    ///
    /// # Errors
    /// Without a roster.
    pub fn receivers(&self, reach: &Reach) -> anyhow::Result<Vec<Name>> {
        if !self.to_all {
            return Ok(self.to.clone());
        }
        let roster = reach.roster().map_err(anyhow::Error::msg)?;
        let has_tag = |tags: &std::collections::BTreeSet<Tag>| {
            self.tag.is_empty() || self.tag.iter().any(|tag| tags.contains(tag))
        };
        let others = roster.members.iter().filter(|m| m.node.is_some() && m.name != *reach.me());
        Ok(others.filter(|m| has_tag(&m.tags)).map(|m| m.name.clone()).collect())
    }

    /// How events are shown.
    pub fn style(&self) -> Style {
        match (self.json, self.quiet) {
            (true, _) => Style::Json,
            (_, true) => Style::Quiet,
            _ if std::io::stderr().is_terminal() => Style::Live,
            _ => Style::Lines,
        }
    }
}
