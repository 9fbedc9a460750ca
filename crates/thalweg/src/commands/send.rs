//! `thalweg send`: runs the command, from arguments to exit code.

mod display;

use super::{
    bond_options::{self, BondOptions},
    exit::Code,
    gather::{self, GatherDisplay, leg_estimates, node_and_path},
    get::mesh::check_tags,
    host::StateDir,
    jobs::QueueOptions,
    local_files,
    metadata_options::MetadataOptions,
    screen::Style,
    signals::Signals,
    text::say,
    uplinks,
};
use anyhow::Context as _;
use std::{
    ffi::OsString, os::unix::ffi::OsStrExt as _, path::PathBuf, process::ExitCode, sync::Arc,
    time::Instant,
};
use thalweg_base::rate_timetable::RateTimetable;
use thalweg_gather::{
    EventSink, Totals,
    run::Via,
    send::{SendError, SendRequest, send},
};
use thalweg_mesh::State;
use thalweg_uplinks::interfaces::Direction;
use thalweg_wire::mesh::{LegKind, Name, Tag, Terms};
use tokio_util::sync::CancellationToken;

const HELP: &str = "\
Sends files to a directory of another member, over the direct path and, for large transfers, also
through relays, each with the share that it can carry. Directories are sent with their content,
including empty directories and symbolic links, and with modes and times. LINK is sent as a link,
LINK/ as the content of the directory that it points to. A file appears there under its name when
it is complete; each part is verified by its hash. The same command continues an interrupted
transfer.

  thalweg send results.tar fra:/inbox
  thalweg send run7 run8 fra:/inbox --via nyc,ber
  thalweg send run7/ fra:/inbox                    # its content, not the directory itself
  thalweg send a.bin fra:/inbox/b.bin              # under another name
  thalweg send run7 fra:/inbox --dry-run -v        # what would be sent, and what would fail

A node accepts files only if its settings allow it: `[files] accept`. Existing files there are
replaced only with --replace and removed only with --delete, if the settings allow that as well.
With both, a file also replaces a directory that is not empty.

Exit codes:
  0    everything was sent
  1    another failure
  2    wrong usage
  4    the node was not reached, or no connection to it lasted; what was sent is kept there
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

    /// The member and an absolute directory there; a single file may be given a new name instead
    #[arg(value_name = "NODE:DIR", required = true)]
    to: OsString,

    /// Leave out files that match, and directories with their content, as rsync does; `+ PATTERN`
    /// includes them
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<OsString>,

    /// Compare files of equal size by their whole content instead of time and samples
    #[arg(short, long)]
    checksum: bool,

    /// Replace other files of the same names, if the node's settings allow it
    #[arg(long)]
    replace: bool,

    /// Remove files and directories there that are not in the sent directories here, if the node's
    /// settings allow it
    #[arg(long)]
    delete: bool,

    /// Send nothing; show what would be sent, and what would fail
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// The target is the new name of a single file, not a directory
    #[arg(short = 'T', long)]
    no_target_directory: bool,

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
    bond_options: BondOptions,

    /// The most that this host sends, in bytes per second (500k, 2M), as "40 Mbit/s", or by time of day
    /// ("08:00,512k 19:00,10M 23:00,off")
    #[arg(long, value_name = "RATE")]
    bwlimit: Option<RateTimetable>,

    #[command(flatten)]
    state_dir: StateDir,
    #[command(flatten)]
    queue: QueueOptions,

    #[command(flatten)]
    metadata: MetadataOptions,

    /// Print nothing but errors
    #[arg(short, long, help_heading = "Messages")]
    quiet: bool,

    /// Report which paths are used, and when they change
    #[arg(short, long, help_heading = "Messages")]
    verbose: bool,

    /// Print events on standard output, one JSON object per line
    #[arg(long, help_heading = "Messages")]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// As [`gather::run`].
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let request = match args.request() {
        Ok(request) => request,
        Err(mistake) => {
            thalweg_console::note!("thalweg: {mistake:#}");
            return Ok(Code::Usage.into());
        }
    };
    let missing = local_files::missing(&args.files);
    if missing.len() == args.files.len() {
        let display = GatherDisplay::start(args.style(), args.verbose)?;
        display.failed(missing.join("; "), Code::Disk as u8);
        display.finish();
        return Ok(Code::Disk.into());
    }
    let state = args.state_dir.open()?;
    let runtime = gather::runtime()?;
    let display = Arc::new(GatherDisplay::start(args.style(), args.verbose)?);
    let ended = runtime.block_on(deliver(&args, state, request, display.clone()));
    runtime.shutdown_background();
    let code = match &ended {
        Ok(Ok(totals)) => display::code(totals),
        Ok(Err(error)) => Code::of_error(error),
        Err(_) => Code::Other,
    };
    if let Ok(Err(error)) = &ended {
        display.failed(error.to_string(), code as u8);
    }
    display.finish();
    let listed = display.listed();
    if args.dry_run && !listed.is_empty() {
        say(&listed)?;
    }
    ended.map(|_| code.into())
}

/// The code of a call that did not start.
impl From<&SendError> for Code {
    fn from(error: &SendError) -> Self {
        match error {
            SendError::Name(_)
            | SendError::Exclude(_)
            | SendError::NameClash(_)
            | SendError::NotOne => Self::Usage,
            SendError::Roster(_) | SendError::NotAccepted { .. } | SendError::Old(..) => {
                Self::Other
            }
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
            as_name: self.no_target_directory,
            exclude: self.exclude.iter().map(|p| p.as_bytes().to_vec()).collect(),
            fidelity: self.metadata.fidelity(false),
            checksum: self.checksum,
            replace: self.replace,
            delete: self.delete,
            dry_run: self.dry_run,
            list: self.json || (self.dry_run && self.verbose),
            via,
            terms: Terms { leg: LegKind::Open, avoid: self.avoid.iter().cloned().collect() },
            estimates: leg_estimates::from_file(self.rates.as_deref())?,
            limit: self.bwlimit.clone(),
        })
    }

    fn style(&self) -> Style {
        Style::choose(self.json, self.quiet)
    }
}

/// The outer error is a failure of this host; the inner one is a failure of the transfer.
async fn deliver(
    args: &Args,
    state: State,
    mut request: SendRequest,
    display: Arc<GatherDisplay>,
) -> anyhow::Result<Result<Totals, SendError>> {
    let stop = CancellationToken::new();
    let note_display = Arc::clone(&display);
    let signals = gather::stop_on_signals(Signals::watch()?, stop.clone(), move |text| {
        note_display.note(text)
    });
    let signals = tokio::spawn(signals);
    let note = |text: String| display.note(text);
    let ask = args.rates.is_none();
    let estimates =
        leg_estimates::ask(&state, &args.state_dir, &[request.node.as_str()], ask, &note).await;
    if ask {
        request.estimates = estimates;
    }
    let dialer = gather::bonding_dialer(&state, args.bond_options)?;
    if let Ok(roster) = dialer.roster() {
        check_tags(&roster, &args.avoid, &args.state_dir.argument())?;
    }
    let events: Arc<dyn EventSink> = match args.style() {
        Style::Json => display.clone(),
        _ => Arc::new(display::SendDisplay { display: display.clone(), dry_run: args.dry_run }),
    };
    let events = args.bond_options.begin(Direction::Up, events);
    let began = Instant::now();
    let ended = send(request, dialer, events, stop).await;
    bond_options::deadline_overrun(args.bond_options.within, began)
        .filter(|_| ended.is_ok())
        .map(note);
    uplinks::end();
    signals.abort();
    Ok(ended)
}
