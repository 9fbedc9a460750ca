//! `thalweg send`: from arguments to exit code.

mod told;

use super::{
    exit::Code,
    gather::{self, Display, known, node_and_path},
    get::{mesh::check_tags, rate::bytes_per_second},
    here::Place,
    screen::Style,
    signals::Signals,
    uplinks,
    within::{self, WithinArgs},
};
use anyhow::Context as _;
use std::{
    ffi::OsString, num::NonZeroU64, os::unix::ffi::OsStrExt as _, path::PathBuf, process::ExitCode,
    sync::Arc, time::Instant,
};
use thalweg_gather::{
    EventSink, Totals,
    run::Via,
    send::{SendError, SendRequest, send},
};
use thalweg_mesh::State;
use thalweg_uplinks::interfaces::Flow;
use thalweg_wire::mesh::{LegKind, Name, Tag, Terms};
use tokio_util::sync::CancellationToken;

const HELP: &str = "\
Sends files to a directory of another member, over the direct path and, for large transfers, also
through relays, each with the share that it can carry. A file appears under its name there when it
is complete, with its mode and time; each part is verified by its hash. The same command continues
an interrupted transfer. Links, pipes and devices below directories are reported and skipped.

  thalweg send results.tar fra:/inbox
  thalweg send run7 run8 fra:/inbox --via nyc,ber
  thalweg send run7/ fra:/inbox                    # its content, not the directory itself

A node accepts files only if its settings allow it: `[files] accept`.

Exit codes:
  0    everything was sent
  1    another failure
  2    wrong usage
  4    the node was not reached
  6    none of the files here can be read
  23   some files failed or cannot be read; the rest was sent
  130  interrupted; what was sent is kept";

/// Arguments of `thalweg send`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Files, or directories with their whole content
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// The member and an absolute directory there
    #[arg(value_name = "NODE:DIR", required = true)]
    to: OsString,

    /// Relays to use besides the direct path, by name, or `none`
    /// [default: the three relays of the mesh with the best rates]
    #[arg(long, value_name = "NAME[,NAME…]|none", value_delimiter = ',')]
    via: Vec<String>,

    /// Exclude relays with this tag, e.g. country=xx
    #[arg(long, value_name = "TAG", value_delimiter = ',')]
    avoid: Vec<Tag>,

    /// A file of rates between members (TOML or CSV) to use instead of the oracle's: docs/gather.md
    #[arg(long, value_name = "FILE")]
    rates: Option<PathBuf>,

    #[command(flatten)]
    within: WithinArgs,

    /// The most that this host sends, in bytes per second (500k, 2M) or as "40 Mbit/s"
    #[arg(long, value_name = "RATE", value_parser = bytes_per_second)]
    bwlimit: Option<NonZeroU64>,

    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,

    /// Report which paths are used, and when they change
    #[arg(short, long)]
    verbose: bool,

    /// Print events on standard output, one JSON object per line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: Place,
}

/// Runs the command.
///
/// # Errors
/// As [`gather::run`].
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let request = match args.request() {
        Ok(request) => request,
        Err(mistake) => {
            thalweg_console::note!("thalweg send: {mistake:#}");
            return Ok(Code::Usage.into());
        }
    };
    let state = args.place.open()?;
    let runtime = gather::runtime()?;
    let display = Arc::new(Display::start("send", args.style(), args.verbose)?);
    let ended = runtime.block_on(deliver(&args, state, request, display.clone()));
    runtime.shutdown_background();
    let code = match &ended {
        Ok(Ok(totals)) => Code::of(totals),
        Ok(Err(error)) => Code::of_error(error),
        Err(_) => Code::Other,
    };
    if let Ok(Err(error)) = &ended {
        display.failed(error.to_string(), code as u8);
    }
    display.finish();
    ended.map(|_| code.into())
}

/// Of a call that did not begin.
impl From<&SendError> for Code {
    fn from(error: &SendError) -> Self {
        match error {
            SendError::Name(_) => Self::Usage,
            SendError::Roster(_) | SendError::NotAccepted { .. } => Self::Other,
            SendError::Local(_) => Self::Disk,
            SendError::Unreached(_) => Self::Network,
        }
    }
}

impl Args {
    fn request(&self) -> anyhow::Result<SendRequest> {
        let (node, into) = node_and_path(self.to.as_bytes())
            .with_context(|| format!("`{}`", self.to.to_string_lossy()))?;
        let via = match &self.via[..] {
            [] => Via::Relays,
            [none] if none == "none" => Via::Named(Vec::new()),
            names => {
                let names: Result<Vec<Name>, _> = names.iter().map(|name| name.parse()).collect();
                Via::Named(names.context("--via")?)
            }
        };
        Ok(SendRequest {
            files: self.files.clone(),
            node,
            into,
            via,
            terms: Terms { leg: LegKind::Open, avoid: self.avoid.iter().cloned().collect() },
            estimates: known::from_file(self.rates.as_deref())?,
            limit: self.bwlimit,
        })
    }

    fn style(&self) -> Style {
        Style::of(self.json, self.quiet)
    }
}

/// The outer error is this host's own.
async fn deliver(
    args: &Args,
    state: State,
    mut request: SendRequest,
    display: Arc<Display>,
) -> anyhow::Result<Result<Totals, SendError>> {
    let stop = CancellationToken::new();
    let told = Arc::clone(&display);
    let signals = gather::listen(Signals::watch()?, stop.clone(), move |text| told.note(text));
    let signals = tokio::spawn(signals);
    let note = |text: String| display.note(text);
    let ask = args.rates.is_none();
    let estimates = known::ask(&state, &args.place, &[request.node.as_str()], ask, &note).await;
    if ask {
        request.estimates = estimates;
    }
    let reach = gather::reach_by_bonds(&state, args.within)?;
    if let Ok(roster) = reach.roster() {
        check_tags(&roster, &args.avoid, &args.place.argument())?;
    }
    let events: Arc<dyn EventSink> = match args.style() {
        Style::Json => display.clone(),
        _ => Arc::new(told::Told(display.clone())),
    };
    let events = args.within.begin(Flow::Up, events);
    let began = Instant::now();
    let ended = send(request, reach, events, stop).await;
    within::missed(args.within.within, began).filter(|_| ended.is_ok()).map(note);
    uplinks::end();
    signals.abort();
    Ok(ended)
}
