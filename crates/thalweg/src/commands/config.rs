//! `thalweg config`: checks the settings file and prints an example.

use super::text::say;
use anyhow::bail;
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};
use thalweg_node::config::{Config, config_file};

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

/// Runs the command.
///
/// # Errors
/// All mistakes in the file.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        ConfigCommand::Example => say(Config::example())?,
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
