//! `thalweg history`: shows, lifts and clears what downloads remember of paths and relays.

use super::{
    history_file,
    host::StateDir,
    text::{aligned, rough, say},
};
use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};
use thalweg_console::note;
use thalweg_paths::detours::Detours;
use thalweg_paths::history::{Bound, History, HistoryEntry, QuarantinedRelay};
use thalweg_units::{WallTime, likeness};

const HELP: &str = "\
A relay that altered bytes is quarantined for 7 days: `thalweg get` no longer chooses it for the
server concerned, and for no server once it has altered bytes of three unrelated ones. A relay
that --via or --path names is used all the same. Rates of paths to servers are remembered too:
they are used for a day and forgotten after 30.

  thalweg history                      # which relays are quarantined, and why
  thalweg history lift fra             # allow relay fra again
  thalweg history clear                # forget everything, rates too
  thalweg history --json | jq .paths   # what is remembered of each path

Exit codes: 0 done; 1 no such relay is quarantined, or the file cannot be used.";

/// Arguments of `thalweg history`.
#[derive(clap::Args)]
#[command(after_help = HELP, args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<HistoryCommand>,
    #[command(flatten)]
    which: HistoryArgs,
}

#[derive(clap::Subcommand)]
enum HistoryCommand {
    /// Show the quarantined relays and how much is remembered (the default)
    Show(HistoryArgs),
    /// Allow a quarantined relay again, for all servers
    Lift(Lift),
    /// Forget all quarantines and all rates
    Clear(HistoryArgs),
}

#[derive(clap::Args)]
struct Lift {
    /// The relay's name, as `thalweg history` shows it
    relay: String,
    #[command(flatten)]
    which: HistoryArgs,
}

/// Which history, and how to print it.
#[derive(clap::Args)]
struct HistoryArgs {
    /// The history file, as for `thalweg get --history` [default: history.json in the state
    /// directory, else in ~/.cache/thalweg]
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state_dir: StateDir,
}

/// Runs the command.
///
/// # Errors
/// If it fails; the message says what to try.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        None => show(&args.which),
        Some(HistoryCommand::Show(which)) => show(&which),
        Some(HistoryCommand::Lift(args)) => lift(&args),
        Some(HistoryCommand::Clear(which)) => clear(&which),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn show(which: &HistoryArgs) -> anyhow::Result<()> {
    let (file, history) = which.open()?;
    let all = HistoryReport::new(&history, history_file::now());
    if which.json {
        return say(&(serde_json::to_string_pretty(&all.json(&file))? + "\n"));
    }
    say(&all.table())?;
    note!("{}; {}", all.counts(), file.display());
    Ok(())
}

fn lift(args: &Lift) -> anyhow::Result<()> {
    let (file, mut history) = args.which.open()?;
    let (relay, now) = (&args.relay, history_file::now());
    let all = HistoryReport::new(&history, now);
    let origins = all.origins_of(relay);
    if origins.is_empty() {
        bail!("{}", all.no_such(relay, &file));
    }
    history.lift(relay, now);
    save(&mut history, &file)?;
    match args.which.json {
        true => say(&format!("{}\n", json!({ "lifted": relay, "origins": origins }))),
        false => {
            say(&format!("relay {relay} may be used again, also for {}\n", origins.join(", ")))
        }
    }
}

fn clear(which: &HistoryArgs) -> anyhow::Result<()> {
    let (file, mut history) = which.open()?;
    let now = history_file::now();
    let all = HistoryReport::new(&history, now);
    // Clears also what is too old to be shown; a missing file is not created.
    if file.exists() {
        history.clear(now);
        save(&mut history, &file)?;
    }
    clear_detours(&Detours::beside(&file))?;
    match which.json {
        true => {
            let (relays, paths) = (all.relays(), all.paths.len());
            say(&format!("{}\n", json!({ "cleared": file, "relays": relays, "paths": paths })))
        }
        false => say(&format!("forgotten: {}\n", all.counts())),
    }
}

/// Clears what was learnt about relays, too; the oracle's list will be fetched again.
fn clear_detours(file: &Path) -> anyhow::Result<()> {
    if !is_missing(file)? {
        let mut detours = Detours::open(file);
        detours.clear();
        detours.save().with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

impl HistoryArgs {
    /// Opens the history; its file may be missing.
    fn open(&self) -> anyhow::Result<(PathBuf, History)> {
        let file = history_file::file(self.history.as_deref(), &self.state_dir);
        let file = file.context(
            "no history file is known; name one with --history FILE, as for `thalweg get`",
        )?;
        // A file that the user named must exist.
        if self.history.is_some() && is_missing(&file)? {
            bail!("{} does not exist; `thalweg get --history FILE` creates it", file.display());
        }
        let history = History::open(&file);
        usable(&history)?;
        Ok((file, history))
    }
}

/// Whether the file is missing.
///
/// # Errors
/// If it cannot be examined.
fn is_missing(file: &Path) -> anyhow::Result<bool> {
    match fs::metadata(file) {
        Ok(_) => Ok(false),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(e) => Err(e).with_context(|| format!("cannot examine {}", file.display())),
    }
}

fn usable(history: &History) -> anyhow::Result<()> {
    history.problem().map_or(Ok(()), |problem| bail!("{problem}"))
}

fn save(history: &mut History, file: &Path) -> anyhow::Result<()> {
    match history.save() {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
            bail!("another process is writing {}; nothing is changed, try again", file.display())
        }
        saved => {
            saved
                .with_context(|| format!("nothing is changed: cannot write {}", file.display()))?;
        }
    }
    usable(history)
}

/// The remembered data at one time.
struct HistoryReport {
    now: WallTime,
    blames: Vec<QuarantinedRelay>,
    /// The relays that are excluded for all servers.
    shut_out: BTreeSet<String>,
    paths: Vec<HistoryEntry>,
}

impl HistoryReport {
    fn new(history: &History, now: WallTime) -> Self {
        let blames = history.quarantined(now);
        let names = blames.iter().map(|blame| blame.relay.clone());
        let shut_out = names.filter(|relay| history.is_quarantined(relay, None, now)).collect();
        Self { now, blames, shut_out, paths: history.entries(now) }
    }

    fn origins_of(&self, relay: &str) -> Vec<&str> {
        self.blames.iter().filter(|blame| blame.relay == relay).map(origin).collect()
    }

    fn relays(&self) -> BTreeSet<&str> {
        self.blames.iter().map(|blame| &*blame.relay).collect()
    }

    /// The relays in quarantine, one line per server whose bytes they altered.
    fn table(&self) -> String {
        if self.blames.is_empty() {
            return "no relay is in quarantine\n".to_owned();
        }
        let row = |blame: &QuarantinedRelay| {
            let out = match self.shut_out.contains(&blame.relay) {
                true => "all servers",
                false => "this server",
            };
            let found = format!("{} ago", rough(blame.age(self.now)));
            let left = rough(blame.left(self.now));
            [&*blame.relay, origin(blame), &*found, out, &*left, &*blame.why].map(str::to_owned)
        };
        let rows: Vec<_> = self.blames.iter().map(row).collect();
        aligned(["RELAY", "ALTERED BYTES OF", "FOUND", "LEFT OUT FOR", "STILL", "WHY"], &rows)
    }

    fn counts(&self) -> String {
        let origins: BTreeSet<_> = self.paths.iter().map(|path| &path.origin).collect();
        let used = self.paths.iter().filter(|path| path.is_valid).count();
        format!(
            "{} in quarantine, {} of them for all servers; {} to {}, {used} of them recent \
             enough to be used",
            counted(self.relays().len(), "relay", "relays"),
            self.shut_out.len(),
            counted(self.paths.len(), "path", "paths"),
            counted(origins.len(), "server", "servers"),
        )
    }

    fn json(&self, file: &Path) -> Value {
        let blame = |blame: &QuarantinedRelay| {
            json!({
                "relay": blame.relay,
                "origin": blame.origin,
                "why": blame.why,
                "found_unix_seconds": blame.since.as_unix_nanos() / 1_000_000_000,
                "left_seconds": blame.left(self.now).as_secs(),
                "all_servers": self.shut_out.contains(&blame.relay),
            })
        };
        let path = |path: &HistoryEntry| {
            json!({
                "origin": path.origin,
                "path": path.path,
                "rate_bps": path.rate.as_bps(),
                "at_least": path.bound == Bound::AtLeast,
                "setup_seconds": path.setup.map(|setup| setup.as_secs_f64()),
                "age_seconds": path.age.as_secs(),
                "used": path.is_valid,
            })
        };
        json!({
            "file": file,
            "quarantined": self.blames.iter().map(blame).collect::<Vec<_>>(),
            "paths": self.paths.iter().map(path).collect::<Vec<_>>(),
        })
    }

    /// The message that `relay` is not in quarantine, with those that are.
    fn no_such(&self, relay: &str, file: &Path) -> String {
        let known = self.relays();
        let mut text = format!("relay {relay} is not in quarantine in {}", file.display());
        if known.is_empty() {
            return text + "; no relay is";
        }
        // In a path's name, the interface and the mirror follow the relay.
        let bare = relay.split(['%', '@']).next().unwrap_or(relay);
        let nearest = known.get(bare).copied();
        if let Some(name) = nearest.or_else(|| likeness::nearest(relay, known.iter().copied())) {
            text += &format!("; did you mean {name}?");
        }
        text + &format!("\nin quarantine: {}", Vec::from_iter(known).join(", "))
    }
}

/// The server concerned; a file of an older version does not name it.
fn origin(blame: &QuarantinedRelay) -> &str {
    if blame.origin.is_empty() { "-" } else { &blame.origin }
}

fn counted(n: usize, one: &str, several: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { several })
}
