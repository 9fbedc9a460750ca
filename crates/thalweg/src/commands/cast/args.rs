//! The arguments of `thalweg cast`.

use super::display::Style;
use crate::commands::{
    get::duration::seconds, host::StateDir, jobs::QueueOptions, metadata_options::MetadataOptions,
};
use std::{ffi::OsString, os::unix::ffi::OsStringExt as _, path::PathBuf, time::Duration};
use thalweg_base::rate_timetable::RateTimetable;
use thalweg_cast::source::{CastError, Fidelity, Forwarding};
use thalweg_fountain::RING_BYTES;
use thalweg_mesh::member_dialer::MemberDialer;
use thalweg_paths::estimates::Estimates;
use thalweg_units::{ByteSize, Rate};
use thalweg_wire::{
    cast::MAX_RING,
    mesh::{LegKind, Member, Name, Tag},
};

const HELP: &str = "\
Delivers a file, or a directory with its content, to many members at once. Receivers pass on what
they have already; a slow receiver does not slow the others. The same command continues an
interrupted cast; receivers keep what they have. The command runs until all receivers have
everything, or until --wait has passed for those that cannot be reached.

  thalweg cast image.iso --to fra,nyc,ber
  thalweg cast dataset/ --to-all --tag lab --json
  thalweg cast image.iso --to fra,nyc --rates rates.csv    # plan the tree from these rates
  thalweg cast image.iso --to-all --dry-run               # which receivers would accept it
  thalweg cast status                                     # outgoing and incoming casts
  thalweg cast forget image.iso                           # abandon a cast

A node accepts casts only if its settings allow it (`[cast] inbox`), and must be reachable: it needs
`--address` and a token with the role relay when it joins the mesh. A file appears there under its
name when it is complete, verified and synced. Every byte is verified before it is passed on.

Exit codes:
  0    all receivers have all of it (with --dry-run: would accept it; likewise below)
  1    another failure
  2    wrong usage, or a file of rates that cannot be used
  4    no receiver has it
  6    FILE or DIR cannot be read, or a file changed; or the state directory cannot be written
  7    this cast to the same receivers is running already
  23   some receivers have it, others do not; or some files cannot be read, or links were refused
  130  interrupted; what was received is kept";

const USAGE: &str = "\
thalweg cast [OPTIONS] <FILE|DIR> --to <NODE[,NODE…]>
       thalweg cast [OPTIONS] <FILE|DIR> --to-all [--tag <TAG>]
       thalweg cast <COMMAND>";

const STATUS_HELP: &str = "\
Without --all: casts that run or are incomplete, and the last ten others, newest first. Empty
columns are left out.

Outgoing casts, each receiver below the parent that sends it most:
  STATE    waiting; receiving; lost: the connection was lost and is retried; complete; refused: does
           not or cannot accept it; away: not reached. The reason is given below the table
  HELD     what the receiver has
  RATE     over the last second or so; once complete, over the whole time
  PLANNED  the rate that the plan expects
  MIN-HOP  the slowest hop on the widest path to the receiver: no plan can exceed it
  EQ2,EQ3  with -v: ROMA's formulas for its path: the slowest hop by loss and round trip, and one
           connection over all hops (docs/cast.md)
  LEFT     the time until it is complete, at its rate or the planned one
  MISSED   with rings: symbols that arrived too late to be passed on, and were replaced
  RING     with rings: the most bytes that were buffered for its children at a time
  FROM     its parents now, and the rate of each

Casts to this host's node: NAME; FROM, the source; STATE; HELD of OF; RATE, MIN-HOP, LEFT, MISSED
and RING as above; PARENTS, which send to it now; CHILDREN, to which it sends; GIVEN, how much it
has sent.";

/// Arguments of `thalweg cast`.
#[derive(clap::Args)]
#[command(after_help = HELP, override_usage = USAGE)]
pub struct Args {
    /// A file, or a directory with its content
    #[arg(value_name = "FILE|DIR")]
    what: Vec<PathBuf>,

    /// The receivers
    #[arg(long, value_name = "NODE[,NODE…]", value_delimiter = ',', value_parser = name)]
    pub to: Vec<Name>,

    /// Deliver to all other members that run a node and have an address
    #[arg(long, conflicts_with = "to")]
    to_all: bool,

    /// With --to-all: only to members with this tag, or with any of several
    #[arg(long, value_name = "TAG", value_delimiter = ',')]
    tag: Vec<Tag>,

    /// The name in the inboxes [default: the file's own]
    #[arg(long, value_name = "NAME")]
    name: Option<OsString>,

    /// A file of rates between members (TOML or CSV) to use instead of the oracle's: docs/gather.md
    #[arg(long, value_name = "FILE")]
    pub rates: Option<PathBuf>,

    /// The number of members from which each receiver fetches at a time
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub parents: u32,

    /// "store": receivers serve what others ask for; "ring": they pass on at once what arrives, from a buffer in memory
    #[arg(long, value_name = "KIND", default_value = "store", value_parser = forward)]
    forward: Forward,

    /// The size of the ring buffer at each node, 64 MiB at most [default: 1 MB]
    #[arg(long, value_name = "SIZE", value_parser = ring_bytes)]
    ring_bytes: Option<ByteSize>,

    /// Nodes that pass data on without keeping it; their settings need `[cast] relay = true`
    #[arg(long, value_name = "NODE[,NODE…]", value_delimiter = ',', value_parser = name)]
    via: Vec<Name>,

    /// The highest total rate at which a node sends to others; several with commas
    #[arg(long, value_name = "NODE=RATE", value_delimiter = ',', value_parser = egress)]
    egress: Vec<(Name, Rate)>,

    /// Nodes with a lower sending rate, given or measured, do not pass data on
    #[arg(long, value_name = "RATE", value_parser = positive)]
    leaf_below: Option<Rate>,

    /// The most that this host sends to all receivers together, in bytes per second (500k, 2M), as
    /// "40 Mbit/s", or by time of day ("08:00,512k 19:00,10M 23:00,off")
    #[arg(long, value_name = "RATE")]
    pub bwlimit: Option<RateTimetable>,

    /// "sealed": TLS throughout; "open": authenticated, then in the clear, verified by hashes
    #[arg(long, value_name = "KIND", default_value = "sealed", value_parser = leg)]
    legs: LegKind,

    /// The size of a symbol: a power of two from 1 KiB to 64 KiB [default: by the length]
    #[arg(long, value_name = "SIZE", help_heading = "Coding")]
    symbol: Option<ByteSize>,

    /// The size of a block, in whole MiB [default: 8 MiB]
    #[arg(long, value_name = "SIZE", help_heading = "Coding")]
    block: Option<ByteSize>,

    /// How long to retry a receiver that cannot be reached or refuses for now
    #[arg(long, value_name = "TIME", default_value = "60 s", value_parser = seconds)]
    pub wait: Duration,

    /// Cast nothing: read the files, show the plan, and ask receivers whether they would accept them
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    #[command(flatten)]
    pub state_dir: StateDir,
    #[command(flatten)]
    queue: QueueOptions,

    #[command(flatten)]
    metadata: MetadataOptions,

    /// Print nothing but errors
    #[arg(short, long, help_heading = "Messages")]
    quiet: bool,

    /// Report more: changes of parents, retries of receivers
    #[arg(short, long, help_heading = "Messages")]
    pub verbose: bool,

    /// Print events on standard output, one JSON object per line
    #[arg(long, help_heading = "Messages")]
    json: bool,

    #[command(subcommand)]
    pub sub: Option<CastCommand>,
}

/// What else there is.
#[derive(clap::Subcommand)]
pub enum CastCommand {
    /// Show the casts of this host and those that its node receives
    Status(StatusArgs),
    /// Abandon a cast of this host; receivers without all of it delete what they have
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
    pub state_dir: StateDir,
}

/// Arguments of `thalweg cast status`.
#[derive(clap::Args)]
#[command(after_help = STATUS_HELP)]
pub struct StatusArgs {
    /// Only casts with this name in the inboxes, or whose number begins with it
    #[arg(value_name = "CAST")]
    pub cast: Option<String>,

    /// Include casts that ended long ago
    #[arg(long)]
    pub all: bool,

    /// Include the rates that ROMA's formulas predict
    #[arg(short, long)]
    pub verbose: bool,

    /// Print one JSON object with all casts
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub state_dir: StateDir,
}

/// How receivers forward. Not a `bool`, which clap would take for a flag without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forward {
    Store,
    Ring,
}

fn forward(text: &str) -> Result<Forward, String> {
    match text {
        "store" => Ok(Forward::Store),
        "ring" => Ok(Forward::Ring),
        _ => Err("expected store or ring".to_owned()),
    }
}

fn name(text: &str) -> Result<Name, String> {
    text.trim().parse::<Name>().map_err(|why| why.to_string())
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
    Ok((self::name(name)?, positive(rate)?))
}

fn leg(text: &str) -> Result<LegKind, String> {
    match text {
        "sealed" => Ok(LegKind::Sealed),
        "open" => Ok(LegKind::Open),
        _ => Err("expected sealed or open".to_owned()),
    }
}

impl Args {
    /// Returns the subcommand, with those options given before it that it shares with `cast`. Any other argument before
    /// the subcommand is refused, because it would be ignored.
    ///
    /// # Errors
    /// A message about the misplaced argument.
    pub fn command(&mut self) -> Result<Option<CastCommand>, &'static str> {
        let Some(mut sub) = self.sub.take() else { return Ok(None) };
        if !self.what.is_empty() || self.to_all || !self.to.is_empty() {
            return Err("`status` and `forget` take no file and no receivers; to cast a file of \
                        that name, write `./` before it");
        }
        let (state_dir, json) = match &mut sub {
            CastCommand::Status(args) => (&mut args.state_dir, &mut args.json),
            CastCommand::Forget(args) => (&mut args.state_dir, &mut args.json),
        };
        *state_dir = state_dir.clone().or(&self.state_dir);
        *json |= self.json;
        if let CastCommand::Status(args) = &mut sub {
            args.verbose |= self.verbose;
        }
        Ok(Some(sub))
    }

    /// Which metadata is cast besides content, modes, times and links.
    pub fn fidelity(&self) -> Fidelity {
        self.metadata.fidelity(false)
    }

    /// Returns the path to cast, and checks that the arguments fit together.
    ///
    /// # Errors
    /// A message about arguments that are missing or contradict each other.
    pub fn path(&self) -> Result<PathBuf, String> {
        let what = match &self.what[..] {
            [what] => what.clone(),
            [] => return Err("nothing to cast: name a file or a directory".to_owned()),
            [_, other, ..] => {
                let what = "one file or directory at a time: put them into a directory";
                return Err(format!("{}: {what}, or cast each by itself", other.display()));
            }
        };
        let is_ring = self.forward == Forward::Ring || !self.via.is_empty();
        let mistake = match () {
            () if !self.to_all && self.to.is_empty() => {
                "no receivers: name them with --to NODE,…, or give --to-all"
            }
            () if !self.to_all && !self.tag.is_empty() => {
                "--tag selects among all members: use it with --to-all, not with --to"
            }
            () if self.ring_bytes.is_some() && !is_ring => {
                "--ring-bytes needs rings: add --forward ring, or nodes with --via"
            }
            () => return Ok(what),
        };
        Err(mistake.to_owned())
    }

    /// The name in the inboxes, if `--name` gives one.
    pub fn name(&self) -> Option<Vec<u8>> {
        self.name.clone().map(OsString::into_vec)
    }

    /// Whether the legs may be open, i.e. authenticated but not encrypted.
    pub fn is_open(&self) -> bool {
        self.legs == LegKind::Open
    }

    /// How receivers forward data.
    pub fn forwarding(&self) -> Forwarding {
        let by_rings = self.forward == Forward::Ring;
        let ring_bytes = self.ring_bytes.map_or(RING_BYTES as u64, ByteSize::as_bytes);
        Forwarding { by_rings, ring_bytes, via: self.via.clone(), leaf_below: self.leaf_below }
    }

    /// Adds the rates of `--egress` to the estimates.
    ///
    /// # Errors
    /// [`CastError::NoPart`] if `--egress` names a host that is neither the source (`here`), a receiver nor a relay.
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

    /// The symbol size, bytes.
    pub fn symbol(&self) -> Option<u32> {
        self.symbol.map(|size| u32::try_from(size.as_bytes()).unwrap_or(u32::MAX))
    }

    /// The block size, bytes.
    pub fn block(&self) -> Option<u64> {
        self.block.map(ByteSize::as_bytes)
    }

    /// Returns the receivers, and with `--to-all` also the members that are left out because they have no address.
    ///
    /// # Errors
    /// If there is no roster.
    pub fn receivers(&self, dialer: &MemberDialer) -> anyhow::Result<(Vec<Name>, Vec<Name>)> {
        if !self.to_all {
            return Ok((self.to.clone(), Vec::new()));
        }
        let roster = dialer.roster().map_err(anyhow::Error::msg)?;
        Ok(self.among(&roster.members, dialer.me()))
    }

    fn among(&self, members: &[Member], me: &Name) -> (Vec<Name>, Vec<Name>) {
        let has_tag =
            |m: &&Member| self.tag.is_empty() || self.tag.iter().any(|tag| m.tags.contains(tag));
        let others = members.iter().filter(|m| m.node.is_some() && m.name != *me).filter(has_tag);
        let (reached, out): (Vec<&Member>, Vec<&Member>) =
            others.partition(|m| !m.addresses.is_empty());
        let names = |of: Vec<&Member>| of.into_iter().map(|m| m.name.clone()).collect();
        (names(reached), names(out))
    }

    /// How events are shown.
    pub fn style(&self) -> Style {
        match (self.json, self.quiet) {
            (true, _) => Style::Json,
            (_, true) => Style::Quiet,
            _ if thalweg_console::stderr_is_terminal() => Style::Live,
            _ => Style::Lines,
        }
    }
}
