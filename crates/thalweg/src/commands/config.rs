//! `thalweg config`: the settings' file.

use super::text::say;
use anyhow::{Context as _, bail};
use std::{path::PathBuf, process::ExitCode};
use thalweg_node::config::{Config, config_file};

/// Arguments of `thalweg config`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Say all that is wrong in a settings' file, each with its line and column
    Check(Check),
    /// Print a file with all settings, each explained and with its default
    Example,
}

const HELP: &str = "\
Every value has its unit: \"5 s\", \"40 Mbit/s\", \"10 GB\". To begin with a file of all settings:

  thalweg config example > ~/.config/thalweg/config.toml

Exit codes: 0 all is right; 1 not.";

#[derive(clap::Args)]
#[command(after_help = HELP)]
struct Check {
    /// The file [default: $XDG_CONFIG_HOME/thalweg/config.toml]
    file: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// All that is wrong in the file.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Example => say(Config::example())?,
        Command::Check(Check { file }) => {
            let none = "there is no place for settings; give the file's path";
            let file = config_file(file.as_deref()).context(none)?;
            let config = Config::load(&file)?;
            let problems = config.check_here();
            if !problems.is_empty() {
                let line = |problem| format!("{}: {problem}", file.display());
                bail!("{}", problems.iter().map(line).collect::<Vec<_>>().join("\n"));
            }
            say(&format!("{}: all settings are right\n", file.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
