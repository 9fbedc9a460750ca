//! The arguments of `thalweg gather`.

use crate::commands::{
    bond_options::BondOptions, get::duration::seconds, host::StateDir, jobs::QueueOptions,
    metadata_options::MetadataOptions, screen::Style,
};
use anyhow::{Context as _, bail};
use clap::builder::TypedValueParser;
use std::{
    ffi::OsString,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::PathBuf,
    time::Duration,
};
use thalweg_base::rate_timetable::RateTimetable;
use thalweg_gather::{
    MethodName,
    landing::{Fidelity, Layout},
    run::{SourceRequest, Via},
};
use thalweg_units::ByteSize;
use thalweg_wire::mesh::{LegKind, Name, Tag, Terms};

const HELP: &str = "\
Collects files from members of the mesh to this host, from all of them at once, over direct paths
and through relays. The plan uses the rates that the mesh has measured and is corrected by those
seen during the transfer. Files that are here already are not sent again; the same command
continues an interrupted collection.

  thalweg gather fra:/data/run7 nyc:/data/run7 --into run7
  thalweg gather 'fra:/var/log/*.gz' --into logs --exclude '*.tmp'
  thalweg gather fra:/data/ nyc:/data/ --into all --flat      # merged into one directory
  thalweg gather fra:/data nyc:/data --into d --dry-run       # the plan and its duration
  thalweg gather fra:/data --into d --deadline 30min --json

As with rsync, `NODE:/a/data` is stored in DIR/data and `NODE:/a/data/` in DIR itself. With several
nodes, each gets a directory of its name below DIR, unless --flat is given. Modes, times and
symbolic links are kept; owners and groups too, for root. A node offers files only if its settings allow it:
`[files] offer`.

Methods: fluid (the default) adapts to rates as they are; path-sync[=95], path-delay[=TIME] and
best-path follow a timetable, and all-at-once[=CONNECTIONS], one-by-one, spread-in-time=G,TIME and
concurrent=G use direct paths only, as in Cheng et al. (INFOCOM 2004).

Exit codes:
  0    everything is here
  1    another failure
  2    wrong usage
  4    no source was reached
  6    the disk: full, no permission, a failed write
  7    another collection into the same directory runs
  8    everything is here, but later than --deadline (with --dry-run: it would be later)
  23   some files or sources failed; the rest is here
  130  interrupted; what was received is kept";

/// Arguments of `thalweg gather`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// What to collect: a member's name and an absolute path there, with *, ?, […] and ** as wildcards
    #[arg(value_name = "NODE:PATH", required = true)]
    what: Vec<OsString>,

    /// The directory for the files; created if missing
    #[arg(long, value_name = "DIR", value_parser = into())]
    pub into: PathBuf,

    /// Leave out files that match, and directories with their content, as rsync does
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<OsString>,

    /// Put everything into the same directory: directories are merged; two files of one name are an error
    #[arg(long)]
    flat: bool,

    /// Create a directory for each node, even for a single one
    #[arg(long, conflicts_with = "flat")]
    by_node: bool,

    /// Compare files of equal size by content instead of by time
    #[arg(short, long)]
    pub checksum: bool,

    /// Fetch nothing; show the plan and how long it would take
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    #[command(flatten)]
    metadata: MetadataOptions,

    /// Keep the set-user and set-group bits and the capabilities of files whose owners and groups are kept.
    /// Programs then run with these rights on this host
    #[arg(long, help_heading = "Metadata")]
    set_id: bool,

    #[command(flatten)]
    plan: PlanArgs,

    /// Print nothing but errors
    #[arg(short, long, help_heading = "Messages")]
    quiet: bool,

    /// Report which paths are used, and when they change
    #[arg(short, long, help_heading = "Messages")]
    pub verbose: bool,

    /// Print events on standard output, one JSON object per line
    #[arg(long, help_heading = "Messages")]
    json: bool,

    #[command(flatten)]
    pub state_dir: StateDir,
    #[command(flatten)]
    queue: QueueOptions,
}

/// How it is carried out.
#[derive(clap::Args)]
#[command(next_help_heading = "Plan")]
struct PlanArgs {
    /// The planning method; see below
    #[arg(long, value_name = "METHOD", default_value = "fluid")]
    method: MethodName,

    /// Hosts that may forward the data, by name, or `none`
    /// [default: the 16 relays of the mesh with the best rates]
    #[arg(long, value_name = "NAME[,NAME…]|none", value_delimiter = ',')]
    via: Vec<String>,

    /// Exclude relays with this tag, e.g. country=xx
    #[arg(long, value_name = "TAG", value_delimiter = ',')]
    avoid: Vec<Tag>,

    /// A file of rates between members (TOML or CSV) to use instead of the oracle's: docs/gather.md
    #[arg(long, value_name = "FILE")]
    rates: Option<PathBuf>,

    /// A file of prices per gigabyte of each leg (TOML or CSV): docs/gather.md; --dry-run then also
    /// shows what other durations would cost
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,

    /// The most that the collection may cost, by --prices
    #[arg(long, value_name = "AMOUNT", requires = "prices", value_parser = amount)]
    max_cost: Option<f64>,

    /// The time within which everything should be here; a deadline that no plan meets is reported at
    /// once
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    deadline: Option<Duration>,

    #[command(flatten)]
    bond_options: BondOptions,

    /// The most that this host receives, in bytes per second (500k, 2M), as "40 Mbit/s", or by time of
    /// day ("08:00,512k 19:00,10M 23:00,off")
    #[arg(long, value_name = "RATE")]
    bwlimit: Option<RateTimetable>,

    /// The most paths per source at a time, for the fluid method; each is a connection that competes
    /// with other traffic
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=16))]
    ways: u8,

    /// The time slot of timetables (path-sync, path-delay, best-path); plain numbers are seconds
    /// [default: about 150 slots]
    #[arg(long, value_name = "TIME", value_parser = slot)]
    slot: Option<Duration>,

    /// The data unit of timetables [default: 64 KiB, less on slow legs]
    #[arg(long, value_name = "SIZE", value_parser = unit)]
    unit: Option<ByteSize>,
}

fn slot(text: &str) -> Result<Duration, String> {
    match seconds(text)? {
        slot if slot < Duration::from_millis(10) => Err("it must be at least 10 ms".to_owned()),
        slot => Ok(slot),
    }
}

/// A path that is not UTF-8 cannot be `NODE:/PATH`, so it is a local directory.
fn into() -> impl TypedValueParser<Value = PathBuf> {
    clap::builder::OsStringValueParser::new().try_map(|text| match text.to_str() {
        Some(text) => local_directory(text),
        None => Ok(text.into()),
    })
}

fn amount(text: &str) -> Result<f64, String> {
    let amount = text.parse::<f64>().ok().filter(|amount| (0.0..1e15).contains(amount));
    amount.ok_or_else(|| "it must be a number, at least 0, in the currency of --prices".to_owned())
}

fn unit(text: &str) -> Result<ByteSize, String> {
    match text.parse::<ByteSize>().map_err(|e| e.to_string())? {
        ByteSize::ZERO => Err("it must be at least 1 byte".to_owned()),
        unit => Ok(unit),
    }
}

impl Args {
    /// How progress is shown.
    pub fn style(&self) -> Style {
        Style::choose(self.json, self.quiet)
    }

    /// Whether standard output carries events.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Returns the paths to collect by node, in the order in which the nodes are first named.
    ///
    /// # Errors
    /// If an argument is not `NODE:/PATH`; the message says what to write instead.
    pub fn sources(&self) -> anyhow::Result<Vec<SourceRequest>> {
        let mut sources: Vec<SourceRequest> = Vec::new();
        for what in &self.what {
            let (node, path) = node_and_path(what.as_bytes())
                .with_context(|| format!("`{}`", what.to_string_lossy()))?;
            match sources.iter_mut().find(|source| source.node == node) {
                Some(source) => source.paths.push(path),
                None => sources.push(SourceRequest { node, paths: vec![path] }),
            }
        }
        Ok(sources)
    }

    /// The patterns of paths to leave out.
    pub fn excluded(&self) -> Vec<Vec<u8>> {
        self.exclude.iter().map(|pattern| pattern.clone().into_vec()).collect()
    }

    /// Which metadata is kept.
    pub fn fidelity(&self) -> Fidelity {
        Fidelity { set_id: self.set_id, ..self.metadata.fidelity(true) }
    }

    /// Where each node's files go, if an option says so.
    pub fn layout(&self) -> Option<Layout> {
        match (self.flat, self.by_node) {
            (true, _) => Some(Layout::Flat),
            (_, true) => Some(Layout::ByNode),
            _ => None,
        }
    }

    /// The planning method.
    pub fn method(&self) -> MethodName {
        self.plan.method
    }

    /// The hosts that may forward data.
    ///
    /// # Errors
    /// If a name is invalid.
    pub fn via(&self) -> anyhow::Result<Via> {
        match &self.plan.via[..] {
            [] => Ok(Via::Relays),
            [none] if none == "none" => Ok(Via::Named(Vec::new())),
            names => {
                let names: Result<Vec<Name>, _> = names.iter().map(|name| name.parse()).collect();
                Ok(Via::Named(names.context("--via")?))
            }
        }
    }

    /// The conditions for relays.
    pub fn terms(&self) -> Terms {
        Terms { leg: LegKind::Open, avoid: self.plan.avoid.iter().cloned().collect() }
    }

    /// The tags of relays to avoid.
    pub fn avoided(&self) -> &[Tag] {
        &self.plan.avoid
    }

    /// The file of rates.
    pub fn rates(&self) -> Option<&PathBuf> {
        self.plan.rates.as_ref()
    }

    /// The file of prices, and the maximum cost.
    pub fn cost(&self) -> (Option<&PathBuf>, Option<f64>) {
        (self.plan.prices.as_ref(), self.plan.max_cost)
    }

    /// The deadline to meet at the least cost.
    pub fn bond_options(&self) -> BondOptions {
        self.plan.bond_options
    }

    /// The deadline, the rate limit, the number of paths, the slot and the unit.
    pub fn bounds(&self) -> Bounds {
        let PlanArgs { deadline, bwlimit, ways, slot, unit, .. } = &self.plan;
        let ways = usize::from(*ways);
        Bounds { deadline: *deadline, limit: bwlimit.clone(), ways, slot: *slot, unit: *unit }
    }
}

/// The numeric limits of the plan.
pub struct Bounds {
    pub deadline: Option<Duration>,
    pub limit: Option<RateTimetable>,
    pub ways: usize,
    pub slot: Option<Duration>,
    pub unit: Option<ByteSize>,
}

/// Splits `NODE:/PATH`.
///
/// # Errors
/// If the text has another form; the message says what to write instead.
pub fn node_and_path(text: &[u8]) -> anyhow::Result<(Name, Vec<u8>)> {
    let Some(colon) = text.iter().position(|b| *b == b':') else {
        bail!("expected NODE:/PATH, a member and an absolute path there");
    };
    let (node, path) = (&text[..colon], &text[colon + 1..]);
    let node: Name = String::from_utf8_lossy(node).parse()?;
    if !path.starts_with(b"/") {
        let path = String::from_utf8_lossy(path);
        bail!("the path must be absolute on that node: {node}:/{path}");
    }
    Ok((node, normalized(path)))
}

/// Normalises a path: removes empty parts and `.`; a trailing `/` (or `/.`) stays, as with rsync.
fn normalized(path: &[u8]) -> Vec<u8> {
    let parts = path.split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != b".");
    let mut normalized: Vec<u8> = parts.flat_map(|part| [b"/", part].concat()).collect();
    if normalized.is_empty() || path.ends_with(b"/") || path.ends_with(b"/.") {
        normalized.push(b'/');
    }
    normalized
}

/// Parses a local directory. `NODE:/PATH` is refused, because it means a directory of another host.
fn local_directory(text: &str) -> Result<PathBuf, String> {
    match text.split_once(':') {
        Some((node, path)) if path.starts_with('/') && node.parse::<Name>().is_ok() => {
            Err(format!(
                "the directory must be on this host: `thalweg send` copies files to another host; \
                 for a local directory of this name write ./{text}"
            ))
        }
        _ => Ok(text.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_and_a_path_are_split_at_the_first_colon() {
        let (node, path) = node_and_path(b"fra:/a:b/\xff").unwrap();
        assert_eq!((node.as_str(), &path[..]), ("fra", &b"/a:b/\xff"[..]));
        for (text, says) in [
            ("fra", "NODE:/PATH"),
            ("/data/x", "NODE:/PATH"),
            ("fra:data", "fra:/data"),
            ("fra:", "absolute"),
            ("Fra:/x", "is not a valid name"),
            (":/x", "is not a valid name"),
        ] {
            let error = node_and_path(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn paths_are_normalized_as_by_rsync() {
        for (written, meant) in [
            ("a:/data//x", "/data/x"),
            ("a:/data/./x/.", "/data/x/"),
            ("a:/data/", "/data/"),
            ("a:///", "/"),
            ("a:/.", "/"),
            ("a:/.hidden/*.x", "/.hidden/*.x"),
        ] {
            let (_, path) = node_and_path(written.as_bytes()).unwrap();
            assert_eq!(String::from_utf8_lossy(&path), meant, "{written}");
        }
    }

    #[test]
    fn a_directory_of_another_host_is_refused_as_destination() {
        assert!(local_directory("b:/x").unwrap_err().contains("thalweg send"));
        for fine in ["b", "./b:/x", "B:/x", "b:x", "/a:/b"] {
            assert_eq!(local_directory(fine), Ok(fine.into()));
        }
    }
}
