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
    /// List all errors in a settings file, each with its line and column
    Check(Check),
    /// Print a settings file with every setting, explained, at its default
    Example,
}

const HELP: &str = "\
Every value has a unit: \"5 s\", \"40 Mbit/s\", \"10 GB\". To start with a file of all settings:

  thalweg config example > ~/.config/thalweg/config.toml

Exit codes: 0 no errors; 1 errors.";

#[derive(clap::Args)]
#[command(after_help = HELP)]
struct Check {
    /// The settings file [default: $XDG_CONFIG_HOME/thalweg/config.toml]
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
    /// The same, as it was given before; goes with the next release.
    #[arg(hide = true)]
    file: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// All that is wrong in the file.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Example => say(Config::example())?,
        Command::Check(Check { config, file }) => {
            let none = "no settings file is known: neither XDG_CONFIG_HOME nor HOME is set; give --config FILE";
            let file = config_file(config.or(file).as_deref()).context(none)?;
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
