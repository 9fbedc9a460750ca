//! The arguments of `thalweg cast`.

use super::display::Style;
use crate::commands::{get::duration::seconds, here::Place};
use std::{
    ffi::OsString, io::IsTerminal as _, os::unix::ffi::OsStringExt as _, path::PathBuf,
    time::Duration,
};
use thalweg_cast::source::{CastError, Forwarding};
use thalweg_fountain::RING_BYTES;
use thalweg_mesh::member_dialer::MemberDialer;
use thalweg_paths::estimates::Estimates;
use thalweg_units::{ByteSize, Rate};
use thalweg_wire::{
    cast::MAX_RING,
    mesh::{LegKind, Member, Name, Tag},
};

const HELP: &str = "\
Delivers one file, or a directory with all below it, to many members at once. Receivers hand on
to each other what they have already; a slow one slows no other. An interrupted cast is continued
by the same command, at the source and at each receiver; what is held is not sent again. This
command runs until all receivers have it, or those that are away were waited for.

  thalweg cast image.iso --to fra,nyc,ber
  thalweg cast dataset/ --to-all --tag lab --json
  thalweg cast image.iso --to fra,nyc --rates rates.csv    # the tree from a file of rates
  thalweg cast status                                     # what goes out, and what lands here
  thalweg cast forget image.iso                           # give it up

A node takes nothing until its settings say so: `[cast] inbox`; and the mesh must know where it
is: an `--address` and a token of the role relay at `thalweg join`. A file gets its name there
when it is complete, verified and synced. Each byte is proven before it is handed on.

Exit codes:
  0    all receivers have it
  1    failed for a reason that is none of these
  2    wrong usage, or a file of rates that cannot be used
  4    nobody has it
  6    the file cannot be read, or changed; or the state directory cannot be written
  7    this cast to the same receivers is running already
  23   some receivers have it, others do not
  130  interrupted; what came is kept";

const USAGE: &str = "\
thalweg cast [OPTIONS] <FILE|DIR> --to <NODE[,NODE…]>
       thalweg cast [OPTIONS] <FILE|DIR> --to-all [--tag <TAG>]
       thalweg cast <COMMAND>";

const STATUS_HELP: &str = "\
Without --all: what runs, what is not complete, and the last ten others; the newest first. A
column in which nothing stands is left out.

What goes out from here, each receiver below the parent that gives it most:
  STATE    waiting; receiving; lost: it was there, and is tried again; complete;
           refused: it does not take it, or cannot; away: not reached. Why stands below
  HELD     what it has
  RATE     over the last second or so; of a complete one, over all of the time it took
  PLANNED  what the plan expects it to get
  MIN-HOP  the slowest hop on the widest way to it: no plan gives it more
  EQ2,EQ3  with -v: what ROMA's formulas say of its way: the slowest hop by loss and round trip,
           and one connection over all hops (docs/cast.md)
  LEFT     the time until it has all, by its rate or the plan's
  MISSED   of rings: how many symbols came too late to be handed on, and were made up for
  RING     of rings: the most bytes that waited for its children at once
  FROM     its parents of now, and what each gives

What lands at this host's node: NAME; FROM, whose it is; STATE; HELD of OF; RATE, MIN-HOP, LEFT,
MISSED and RING as above; PARENTS, who give to it now; CHILDREN, whom it gives to; GIVEN, how much
it gave.";

/// Arguments of `thalweg cast`.
#[derive(clap::Args)]
#[command(after_help = HELP, override_usage = USAGE)]
pub struct Args {
    /// A file, or a directory with all below it
    #[arg(value_name = "FILE|DIR")]
    what: Vec<PathBuf>,

    /// The members who are to have it
    #[arg(long, value_name = "NODE[,NODE…]", value_delimiter = ',', value_parser = name)]
    pub to: Vec<Name>,

    /// All members that run a node and have an address, but this host
    #[arg(long, conflicts_with = "to")]
    to_all: bool,

    /// With --to-all: those with this tag alone, or any of several
    #[arg(long, value_name = "TAG", value_delimiter = ',')]
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

    /// Bytes that wait in a ring, at each node: 64 MiB at most [default: 1 MB]
    #[arg(long, value_name = "SIZE", value_parser = ring_bytes)]
    ring_bytes: Option<ByteSize>,

    /// Nodes that hand on by a ring and keep nothing: `[cast] relay = true` there
    #[arg(long, value_name = "NODE[,NODE…]", value_delimiter = ',', value_parser = name)]
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
#[command(after_help = STATUS_HELP)]
pub struct StatusArgs {
    /// Only casts of this name in the inboxes, or whose number begins so
    #[arg(value_name = "CAST")]
    pub cast: Option<String>,

    /// Also those that ended long ago
    #[arg(long)]
    pub all: bool,

    /// Say more: what the formulas expect
    #[arg(short, long)]
    pub verbose: bool,

    /// Print one JSON object, always with all of them
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
        _ => Err("it is sealed or open".to_owned()),
    }
}

impl Args {
    /// The command after the options, with those before it that are its own, too; with others it
    /// would leave out what was asked for.
    ///
    /// # Errors
    /// What is wrong.
    pub fn command(&mut self) -> Result<Option<Sub>, &'static str> {
        let Some(mut sub) = self.sub.take() else { return Ok(None) };
        if !self.what.is_empty() || self.to_all || !self.to.is_empty() {
            return Err("`status` and `forget` cast nothing: leave out the file and to whom, or \
                        write the file's name with `./` before it");
        }
        let (place, json) = match &mut sub {
            Sub::Status(args) => (&mut args.place, &mut args.json),
            Sub::Forget(args) => (&mut args.place, &mut args.json),
        };
        *place = place.clone().or(&self.place);
        *json |= self.json;
        if let Sub::Status(args) = &mut sub {
            args.verbose |= self.verbose;
        }
        Ok(Some(sub))
    }

    /// What is cast; and whether what was said goes together.
    ///
    /// # Errors
    /// What does not.
    pub fn path(&self) -> Result<PathBuf, String> {
        let what = match &self.what[..] {
            [what] => what.clone(),
            [] => return Err("what is to be cast? Name a file or a directory".to_owned()),
            [_, other, ..] => {
                let what = "one file or directory at a time: put them into a directory";
                return Err(format!("{}: {what}, or cast each by itself", other.display()));
            }
        };
        let is_ring = self.forward == Forward::Ring || !self.via.is_empty();
        let mistake = match () {
            () if !self.to_all && self.to.is_empty() => {
                "to whom? Name them with --to NODE,…, or write --to-all"
            }
            () if !self.to_all && !self.tag.is_empty() => {
                "--tag chooses among all members: it goes with --to-all, not with --to"
            }
            () if self.ring_bytes.is_some() && !is_ring => {
                "--ring-bytes without rings: add --forward ring, or nodes with --via"
            }
            () => return Ok(what),
        };
        Err(mistake.to_owned())
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
        let ring_bytes = self.ring_bytes.map_or(RING_BYTES as u64, ByteSize::as_bytes);
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

    /// Who is to have it; and who of all is left out, as nobody can tell where they are.
    ///
    /// # Errors
    /// Without a roster.
    pub fn receivers(&self, reach: &MemberDialer) -> anyhow::Result<(Vec<Name>, Vec<Name>)> {
        if !self.to_all {
            return Ok((self.to.clone(), Vec::new()));
        }
        let roster = reach.roster().map_err(anyhow::Error::msg)?;
        Ok(self.among(&roster.members, reach.me()))
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
            _ if std::io::stderr().is_terminal() => Style::Live,
            _ => Style::Lines,
        }
    }
}
