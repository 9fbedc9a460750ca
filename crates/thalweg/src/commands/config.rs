//! `thalweg config`: checks the settings file, applies it to the running node, and prints an example.

use super::{
    host::{self, StateDir},
    text::say,
};
use anyhow::{Context as _, bail};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};
use thalweg_node::{
    config::{Applies, Change, Config, config_file},
    daemon::ReloadReply,
};

/// Arguments of `thalweg config`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(clap::Subcommand)]
enum ConfigCommand {
    /// List all errors in a settings file, each with its line and column
    Check(Check),
    /// Make the running node read its settings again
    Reload(ReloadArgs),
    /// Print a settings file with every setting, explained, at its default
    Example,
}

const HELP: &str = "\
Every value has a unit: \"5 s\", \"40 Mbit/s\", \"10 GB\". To start with a file of all settings:

  thalweg config example > ~/.config/thalweg/config.toml

Without a settings file all settings have their defaults.

Exit codes: 0 no errors, or no file and no --config; 1 errors, or the file given by --config cannot
be read.";

#[derive(clap::Args)]
#[command(after_help = HELP)]
struct Check {
    /// The settings file [default: $XDG_CONFIG_HOME/thalweg/config.toml]
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
    /// The same, as it was given before; will be removed in the next release.
    #[arg(hide = true)]
    file: Option<PathBuf>,
}

const RELOAD_HELP: &str = "\
The node reads its settings file again: all of it is checked before anything is changed. What can
change while the node runs applies to all that begins from then on; transfers and connections go
on. SIGHUP does the same (`systemctl reload thalweg-node`).

  thalweg config reload
  thalweg config reload --json | jq -r '.changes[] | select(.applies == \"restart\").key'

Exit codes: 0 done; 1 there are mistakes in the file and all former settings stay, or no node runs;
3 done, and some changed settings need a restart of the node.";

#[derive(clap::Args)]
#[command(after_help = RELOAD_HELP)]
struct ReloadArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state_dir: StateDir,
}

/// The exit code if changed settings wait for a restart.
const NEEDS_RESTART: u8 = 3;

fn reload(args: &ReloadArgs) -> anyhow::Result<ExitCode> {
    let state = args.state_dir.open()?;
    let reply = host::block_on(async {
        let daemon = host::daemon(&state).await?.context("no daemon runs; start `thalweg node`")?;
        Ok(daemon.reload().await?)
    })?;
    match args.json {
        true => say(&(serde_json::to_string(&reply)? + "\n"))?,
        false => say(&changes(&reply))?,
    }
    let waits = reply.changes.iter().any(|change| change.applies == Applies::Restart);
    Ok(if waits { ExitCode::from(NEEDS_RESTART) } else { ExitCode::SUCCESS })
}

/// One line for each changed setting.
fn changes(reply: &ReloadReply) -> String {
    if reply.changes.is_empty() {
        return "no setting was changed\n".to_owned();
    }
    let line = |change: &Change| match change.applies {
        Applies::Reload => format!("{}: applied\n", change.key),
        Applies::Restart => format!("{}: applies when the node is restarted\n", change.key),
    };
    reply.changes.iter().map(line).collect()
}

/// Runs the command.
///
/// # Errors
/// All mistakes in the file.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        ConfigCommand::Example => say(Config::example())?,
        ConfigCommand::Reload(args) => return reload(&args),
        ConfigCommand::Check(Check { config, file }) => say(&check(config.or(file).as_deref())?)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks the given settings file, which must exist, or the user's own, which may be missing.
fn check(given: Option<&Path>) -> anyhow::Result<String> {
    let Some(file) = config_file(given) else {
        return Ok("there is no settings file (neither XDG_CONFIG_HOME nor HOME is set): the \
                   defaults apply\n"
            .to_owned());
    };
    if given.is_none() && !file.try_exists().unwrap_or(true) {
        return Ok(format!("{} does not exist: the defaults apply\n", file.display()));
    }
    let problems = Config::load(&file)?.check_here();
    if !problems.is_empty() {
        let line = |problem| format!("{}: {problem}", file.display());
        bail!("{}", problems.iter().map(line).collect::<Vec<_>>().join("\n"));
    }
    Ok(format!("{}: no errors\n", file.display()))
}
