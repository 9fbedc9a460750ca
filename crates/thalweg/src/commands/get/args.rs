//! The arguments of `thalweg get`, and the request they make.

use super::{display::Style, mesh::Mesh, renewal::Renewal};
use crate::commands::here::Place;
use clap::ValueEnum;
use std::{io::IsTerminal, path::PathBuf, sync::Arc, time::Duration};
use thalweg_net::{DialOptions, Dialer, Route};
use thalweg_node::{
    budget::Budget,
    get::{Candidate, GetError, HttpUrl, Request, Target, Web, add_field},
    part::{Batch, Digest},
};
use thalweg_plan::selection::{Config, Ending};
use thalweg_units::parse_duration;
use thalweg_wire::mesh::{LegKind, Name, Tag, Terms};

const HELP: &str = "\
Downloads over the direct path and every relay at once for a moment, then over
the fastest of them alone. The file appears under its name when it is complete.
An interrupted download is continued by the same command.

A relay is a node of the mesh, by its name (`thalweg roster` lists them), or a plain SOCKS5
relay, as HOST:PORT. A chain of up to three is joined by `+`:

  thalweg get http://example.org/big.iso --via fra,nyc,fra+nyc
  thalweg get http://example.org/big.iso --path fra --legs open --sha256 9f86d0…

Without --via, the relays of the mesh are tried, 8 at most, if this host has joined one.

Over plain HTTP a relay, like anybody on the way, can read and alter the file.
--sha256 or --blake3, with a hash from a source you trust, protects against
alteration: a file that does not match never appears under its name.

Exit codes: 0 the file is there; 1 it is not; 2 wrong usage; 130 interrupted.";

/// Arguments of `thalweg get`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// What to download: an http:// URL
    url: String,

    /// Relays to try besides the direct path: names, HOST:PORTs, or chains of them
    #[arg(long, value_name = "RELAY[+RELAY…]", value_delimiter = ',')]
    via: Vec<String>,

    /// Try no relay that is not named by --via
    #[arg(long)]
    no_relays: bool,

    /// How legs to relays of the mesh are carried: `sealed` is TLS throughout; `open`, faster,
    /// is clear after the handshake, for what is encrypted or hashed already
    #[arg(long, value_name = "KIND", default_value = "sealed", value_parser = ["sealed", "open"])]
    legs: String,

    /// Go through no relay with this tag, e.g. country=xx
    #[arg(long, value_name = "TAG", value_delimiter = ',')]
    avoid: Vec<Tag>,

    /// Write to this file [default: the last part of the URL]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Name the file like the last part of the URL (the default; for curl's users)
    #[arg(short = 'O', long, conflicts_with = "output")]
    remote_name: bool,

    /// What the file must hash to, by SHA-256
    #[arg(long, value_name = "HEX")]
    sha256: Option<String>,

    /// What the file must hash to, by BLAKE3
    #[arg(long, value_name = "HEX")]
    blake3: Option<String>,

    /// Use this one path, without sampling: `direct`, a relay, or a chain
    #[arg(long, value_name = "direct|RELAY[+RELAY…]", conflicts_with = "via")]
    path: Option<String>,

    /// When sampling ends: at the first complete share, or the paper's way
    #[arg(long, value_enum, default_value_t = Sampling::Early)]
    sampling: Sampling,

    /// A further request field; only sent to the URL's own server
    #[arg(short = 'H', long, value_name = "NAME: VALUE")]
    header: Vec<String>,

    /// How long connecting may take, on each path
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    connect_timeout: Duration,

    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,

    /// Print events on standard output, one JSON object per line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: Place,
}

/// When sampling ends; see UKAIRO §3.2.1 and `thalweg_plan::selection::Ending`.
#[derive(Clone, Copy, ValueEnum)]
enum Sampling {
    /// When every path's share is complete or 5 s have passed
    Paper,
    /// When one path's share is complete or 5 s have passed
    Early,
}

impl Args {
    /// How progress is shown.
    pub(super) fn style(&self) -> Style {
        match (self.json, self.quiet) {
            (true, _) => Style::Json,
            (_, true) => Style::Quiet,
            _ if std::io::stderr().is_terminal() => Style::Bar,
            _ => Style::Lines,
        }
    }

    /// Whether a person reads standard error.
    pub(super) fn wants_last_line(&self) -> bool {
        !self.quiet && !self.json
    }

    /// A newer roster, if no daemon keeps it new and the mesh may be used.
    pub(super) fn renew(&self) -> Renewal {
        let named = self.path.iter().chain(&self.via);
        let names: Vec<&str> =
            named.flat_map(|path| path.split('+')).filter(|name| *name != "direct").collect();
        let unnamed = self.via.is_empty() && self.path.is_none() && !self.no_relays;
        match unnamed || names.iter().any(|name| !name.contains(':')) {
            true => Renewal::start(self.place.open(), &names),
            false => Renewal::none(),
        }
    }

    /// The request, if the arguments make one.
    pub(super) fn request(&self) -> Result<Request, anyhow::Error> {
        let url = HttpUrl::parse(&self.url)?;
        let target = match &self.output {
            Some(file) => file.clone(),
            None => PathBuf::from(
                url.file_name().map_err(|e| anyhow::anyhow!("{e}; give one with -o"))?,
            ),
        };
        let mut fields = Default::default();
        let added: Result<(), GetError> =
            self.header.iter().try_for_each(|text| add_field(&mut fields, text));
        added?;
        let ending = match self.sampling {
            Sampling::Paper => Ending::Paper,
            Sampling::Early => Ending::Early,
        };
        let mesh = self.mesh();
        let options = DialOptions { deadline: self.connect_timeout, ..DialOptions::default() };
        Ok(Request {
            url,
            target: Target::File(target),
            paths: self.paths(&mesh)?,
            fields,
            digests: self.digests()?,
            selection: Config { ending, ..Config::default() },
            priors: Vec::new(),
            web: Web {
                dialer: match mesh.identity() {
                    Some(identity) => Dialer::with_identity(options, identity.clone()),
                    None => Dialer::new(options),
                },
                ..Web::default()
            },
            limit: None,
            batch: Batch::default(),
            publisher: Arc::default(),
            kept: Arc::default(),
            budget: Arc::new(Budget::new()),
            patience: Duration::from_secs(30),
        })
    }

    /// The mesh, if this host is in one; that it cannot be used stops no direct download.
    fn mesh(&self) -> Mesh {
        let mesh = Mesh::open(self.place.open());
        let unnamed = self.via.is_empty() && self.path.is_none() && !self.no_relays;
        if let (true, false, Some(fault)) = (unnamed, self.quiet || self.json, mesh.fault()) {
            eprintln!("thalweg get: no relays are tried: {fault}");
        }
        if !self.quiet {
            let strange = mesh.strange_tags(&self.avoid);
            strange.iter().for_each(|line| eprintln!("thalweg get: {line}"));
        }
        mesh
    }

    /// What is asked of each relay of the mesh.
    fn terms(&self) -> Terms {
        let leg = if self.legs == "open" { LegKind::Open } else { LegKind::Sealed };
        Terms { leg, avoid: self.avoid.iter().cloned().collect() }
    }

    /// The direct path always runs, unless the user pins another.
    fn paths(&self, mesh: &Mesh) -> Result<Vec<Candidate>, anyhow::Error> {
        let terms = self.terms();
        let named = |name: &String| {
            let route = mesh.route(name, &terms)?;
            Ok::<_, anyhow::Error>(Candidate { name: name.clone(), route, mirror: None })
        };
        if let Some(path) = &self.path {
            return Ok(vec![named(path)?]);
        }
        let mut paths =
            vec![Candidate { name: "direct".to_owned(), route: Route::direct(), mirror: None }];
        for name in &self.via {
            let path = named(name)?;
            if paths.iter().any(|p| p.route == path.route) {
                anyhow::bail!("path {} is named twice in --via", path.name);
            }
            paths.push(path);
        }
        if self.via.is_empty() && !self.no_relays {
            let candidate = |(name, route): (Name, Route)| Candidate {
                name: name.to_string(),
                route,
                mirror: None,
            };
            paths.extend(mesh.candidates(&terms).into_iter().map(candidate));
        }
        Ok(paths)
    }

    fn digests(&self) -> Result<Vec<Digest>, anyhow::Error> {
        let named = |name: &str, hex: &Option<String>| {
            hex.as_ref().map(|hex| {
                let bad = |e| anyhow::anyhow!("--{name}: {e}");
                format!("{name}:{}", hex.trim()).parse::<Digest>().map_err(bad)
            })
        };
        [named("sha256", &self.sha256), named("blake3", &self.blake3)]
            .into_iter()
            .flatten()
            .collect()
    }
}
