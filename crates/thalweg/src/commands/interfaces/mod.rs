//! `thalweg interfaces`: shows this host's interfaces and the reasons for recent choices, and changes the settings of
//! running processes.

mod changes;
mod show;

use super::{
    host::{self, StateDir},
    text::say,
    uplinks,
};
use anyhow::{Context as _, bail};
use changes::{AllowArgs, RuleArgs, ScheduleArgs, SetArgs};
use clap::Subcommand;
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};
use thalweg_console::note;
use thalweg_uplinks::interfaces::{Change, PolicyChange, Settings, Uplinks, ask, report};

const HELP: &str = "\
Changes apply to running thalweg processes (the daemon among them) until they end. Permanent ones
belong in the settings file, under [interfaces]: see `thalweg config example`.

  thalweg interfaces status                      # interfaces, programs, the last connections
  thalweg interfaces status --json | jq '.processes[].interfaces'
  thalweg interfaces schedule round-robin        # in all running processes, until they end
  thalweg interfaces allow lte0 --tier backup --cap '10 GB' --reset-day 5 --price '5 / GB'
  thalweg interfaces allow lte0 --rate-limit none
  thalweg interfaces rule --process 'zoom*' --only eth0
  thalweg interfaces rule --remove 1
  thalweg interfaces set --affinity '1 min' --near true

Exit codes: 0 done; 1 no thalweg process runs, or its state cannot be read; 2 wrong usage.";

/// Arguments of `thalweg interfaces`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(subcommand)]
    sub: InterfacesCommand,
}

#[derive(Subcommand)]
enum InterfacesCommand {
    /// Show the interfaces, the traffic of programs, and why recent connections used which interface
    Status(InterfaceStatusArgs),
    /// Change how running processes assign connections to interfaces
    Schedule(ScheduleArgs),
    /// Change how running processes may use an interface
    Allow(AllowArgs),
    /// Add or remove a rule for programs, ports or destinations in running processes
    Rule(RuleArgs),
    /// Change other interface settings of running processes
    Set(SetArgs),
}

/// What each subcommand has.
#[derive(clap::Args)]
pub struct InterfaceArgs {
    /// The history file, if the processes were started with --history
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,

    #[command(flatten)]
    state_dir: StateDir,
}

#[derive(clap::Args)]
struct InterfaceStatusArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,

    /// The settings file to use while no process runs [default: the user's own]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(flatten)]
    common: InterfaceArgs,
}

impl InterfaceArgs {
    /// The file of what is known about interfaces; the sockets of processes are beside it.
    fn file(&self, settings: &Settings) -> anyhow::Result<PathBuf> {
        uplinks::file(settings, self.history.as_deref(), &self.state_dir)
            .context("no directory for the records of interfaces: give --state DIR, or set HOME")
    }
}

/// Runs the command.
///
/// # Errors
/// If something cannot be read, or no process runs that could be changed.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match &args.sub {
        InterfacesCommand::Status(status) => {
            let settings = host::settings(status.config.as_deref())?.interfaces.settings();
            let file = status.common.file(&settings)?;
            let said = all_processes(settings, &file)?;
            say(&if status.json { format!("{said}\n") } else { show::text(&said) })?;
        }
        InterfacesCommand::Schedule(schedule) => change(&schedule.common, &schedule.change())?,
        InterfacesCommand::Allow(allow) => change(&allow.common, &allow.change()?)?,
        InterfacesCommand::Rule(rule) => change(&rule.common, &rule.change()?)?,
        InterfacesCommand::Set(set) => {
            set.changes().iter().try_for_each(|one| change(&set.common, one))?
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The document that `status --json` prints, for the daemon's API. Blocks.
///
/// # Errors
/// If it cannot be read.
pub fn document(settings: &Settings, state_dir: &StateDir) -> anyhow::Result<Value> {
    let common = InterfaceArgs { history: None, state_dir: state_dir.clone() };
    let file = common.file(settings)?;
    all_processes(settings.clone(), &file)
}

/// Makes a change in all running processes, for the daemon's API. Blocks. Returns each process's answer.
///
/// # Errors
/// If the processes cannot be found.
pub fn change_processes(
    settings: &Settings,
    state_dir: &StateDir,
    change: &Change,
) -> anyhow::Result<Vec<Value>> {
    let common = InterfaceArgs { history: None, state_dir: state_dir.clone() };
    answers(&common.file(settings)?, change)
}

/// Why processes refused a change; `None` if none did.
pub fn refusal(said: &[Value]) -> Option<String> {
    let failed = said.iter().filter(|said| said["error"].is_string());
    let why = |said: &Value| format!("process {}: {}", said["pid"], said["error"]);
    let failed: Vec<String> = failed.map(why).collect();
    (!failed.is_empty()).then(|| format!("not changed: {}", failed.join("; ")))
}

/// What all running processes say of their interfaces; without any, what is stored.
fn all_processes(settings: Settings, file: &Path) -> anyhow::Result<Value> {
    let processes = answers(file, &Change::Show)?;
    Ok(match processes.is_empty() {
        false => json!({ "processes": processes }),
        true => json!({ "processes": [], "kept": stored_report(settings, file)? }),
    })
}

fn answers(file: &Path, change: &Change) -> anyhow::Result<Vec<Value>> {
    let at = uplinks::sockets(file);
    host::block_on(async {
        ask(&at, change).await.with_context(|| format!("cannot read {}", at.display()))
    })
}

/// What is stored about interfaces, for when no process runs.
fn stored_report(settings: Settings, file: &Path) -> anyhow::Result<Value> {
    let stored = Uplinks::open(settings, Some(file.to_owned()));
    let stored = stored.with_context(|| format!("cannot read {}", file.display()))?;
    Ok(report(&stored))
}

fn change(common: &InterfaceArgs, change: &Change) -> anyhow::Result<()> {
    let file = common.file(&host::settings(None)?.interfaces.settings())?;
    let said = answers(&file, change)?;
    if said.is_empty() {
        bail!(
            "no running thalweg process to change; permanent changes belong in [interfaces] of \
             the settings (`thalweg config example`)"
        );
    }
    let changed: Vec<&Value> = said.iter().filter(|said| !said["error"].is_string()).collect();
    for said in &changed {
        let now = match change {
            Change::Policy(policy) => show::allowed(said, &policy.name),
            _ => None,
        };
        let now = now.map_or(String::new(), |now| format!("; {now}"));
        say(&format!("changed: {}{now}\n", show::process(said)))?;
    }
    if let Change::Policy(PolicyChange { name, .. }) = change
        && !changed.is_empty()
        && !changed.iter().any(|said| knows(said, name))
    {
        note!("no interface is named `{name}` now; the change applies once there is one");
    }
    if !changed.is_empty() {
        note!(
            "in effect until these processes end; permanent changes belong in [interfaces] of \
               the settings"
        );
    }
    match refusal(&said) {
        Some(why) => bail!(why),
        None => Ok(()),
    }
}

/// Whether a process has an interface of that name, used or not.
fn knows(said: &Value, name: &str) -> bool {
    let of = |list: &str| said[list].as_array().cloned().unwrap_or_default();
    of("interfaces").iter().chain(&of("unused")).any(|one| one["name"] == name)
}
