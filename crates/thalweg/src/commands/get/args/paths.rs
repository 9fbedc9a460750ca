//! Options of `thalweg get` about interfaces, relays and the selection of paths.

use crate::commands::host::StateDir;
use clap::{ValueEnum, builder::RangedU64ValueParser};
use std::path::PathBuf;
use thalweg_mesh::routes_in;
use thalweg_paths::detours::Draw;
use thalweg_plan::selection::{Config, Ending};
use thalweg_wire::mesh::{LegKind, Tag, Terms};

/// The most paths that carry the rest of a download together: more than any mix of interfaces and relays gained from in
/// measurements.
const MAX_LANES: u64 = 16;

/// Interfaces, relays, and how they are chosen among.
#[derive(clap::Args)]
#[command(next_help_heading = "Paths")]
pub struct PathArgs {
    /// Relays to try besides the direct path: names, HOST:PORTs, or chains of them
    #[arg(long, value_name = "RELAY[+RELAY…]", value_delimiter = ',')]
    pub via: Vec<String>,

    /// Use only this path, without sampling: `direct`, a relay, or a chain
    #[arg(long, value_name = "direct|RELAY[+RELAY…]", conflicts_with = "via")]
    pub path: Option<String>,

    /// Try only relays that --via names
    #[arg(long)]
    pub no_relays: bool,

    /// Exclude relays with this tag, e.g. country=xx
    #[arg(long, value_name = "TAG", value_delimiter = ',')]
    pub avoid: Vec<Tag>,

    /// The interfaces to use: names, `all`, or `none` to leave the choice to the kernel
    /// [default: all with a default route]
    #[arg(long, value_name = "NAME[,NAME…]|all|none", value_delimiter = ',')]
    interface: Vec<String>,

    /// After sampling, use up to K paths together if that is faster; other traffic of this host then
    /// gets less [default: the number of usable interfaces]
    #[arg(long, value_name = "K", hide_default_value = true)]
    #[arg(value_parser = RangedU64ValueParser::<u32>::new().range(1..=MAX_LANES))]
    paths: Option<u32>,

    /// The protection of connections to relays of the mesh: `sealed` is TLS throughout; `open` is
    /// faster, in the clear after the handshake; `auto` is open for https, which is encrypted anyway
    #[arg(long, value_name = "KIND", value_enum, default_value_t = Legs::Auto)]
    legs: Legs,

    /// When sampling ends
    #[arg(long, value_enum, default_value_t = Sampling::Clear)]
    sampling: Sampling,

    /// The file that remembers the rates of paths, or `none`
    /// [default: history.json in the state directory, else in ~/.cache/thalweg]
    #[arg(long, value_name = "FILE|none")]
    pub history: Option<PathBuf>,

    /// How relays are chosen from the list that `thalweg paths` shows
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Drawing::Proportional)]
    pub draw: Drawing,

    #[command(flatten)]
    pub state_dir: StateDir,
}

/// UKAIRO §3.2.2 says both; see `thalweg_plan::adaptive::Draw`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Drawing {
    /// At random, in proportion to their scores (UKAIRO's text)
    Proportional,
    /// Those with the highest scores (UKAIRO's Algorithm 2, line 6)
    Top,
}

impl From<Drawing> for Draw {
    fn from(drawing: Drawing) -> Self {
        match drawing {
            Drawing::Proportional => Self::Proportional,
            Drawing::Top => Self::Top,
        }
    }
}

/// How legs are carried.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Legs {
    /// Open for https, sealed for http
    Auto,
    /// TLS throughout
    Sealed,
    /// In the clear after the handshake
    Open,
}

/// When sampling ends; see UKAIRO §3.2.1 and `thalweg_plan::selection::Ending`.
#[derive(Clone, Copy, ValueEnum)]
enum Sampling {
    /// When every path's share is complete or 5 s have passed
    Paper,
    /// When one path is clearly the best, all have left slow start, or 5 s have passed
    Clear,
}

/// The interfaces that the user wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interfaces<'a> {
    /// All with a default route.
    Default,
    /// All that are up.
    All,
    /// The kernel's choice.
    None,
    Named(&'a [String]),
}

impl PathArgs {
    /// Whether relays of the mesh are tried without being named.
    pub fn tries_mesh(&self) -> bool {
        self.via.is_empty() && self.path.is_none() && !self.no_relays
    }

    /// The names of relays that the user gave.
    pub fn named(&self) -> Vec<&str> {
        let paths = self.path.iter().chain(&self.via);
        // A text that is no route is reported where the path is looked up.
        let routes = paths.flat_map(|path| routes_in(path).unwrap_or_default());
        let hops = routes.flat_map(|route| route.split('+'));
        hops.filter(|name| *name != "direct").collect()
    }

    /// The interfaces to use.
    ///
    /// # Errors
    /// If `all` or `none` is combined with other names.
    pub fn interfaces(&self) -> anyhow::Result<Interfaces<'_>> {
        match &self.interface[..] {
            [] => Ok(Interfaces::Default),
            [one] if one == "all" => Ok(Interfaces::All),
            [one] if one == "none" => Ok(Interfaces::None),
            names if names.iter().any(|name| name == "all" || name == "none") => {
                anyhow::bail!("--interface: `all` and `none` cannot be combined with others")
            }
            names => Ok(Interfaces::Named(names)),
        }
    }

    /// The conditions for relays of the mesh; `https`: only https URLs are fetched.
    pub fn terms(&self, https: bool) -> Terms {
        let leg = match (self.legs, https) {
            (Legs::Open, _) | (Legs::Auto, true) => LegKind::Open,
            (Legs::Sealed, _) | (Legs::Auto, false) => LegKind::Sealed,
        };
        Terms { leg, avoid: self.avoid.iter().cloned().collect() }
    }

    /// The configuration of the path selection on a host with this number of usable interfaces.
    pub fn selection(&self, interfaces: usize) -> Config {
        let usual = u32::try_from(interfaces).unwrap_or(u32::MAX).clamp(1, MAX_LANES as u32);
        let ours = Config { lanes: self.paths.unwrap_or(usual), ..Config::default() };
        match self.sampling {
            Sampling::Paper => Config { ending: Ending::Paper, ..ours },
            Sampling::Clear => ours,
        }
    }
}
