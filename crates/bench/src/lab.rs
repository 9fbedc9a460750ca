//! `thalweg-bench lab`: the front end of the program `thalweg-lab`.
//!
//! The lab must be single-threaded when it starts (`unshare(NEWUSER)` fails in a threaded process), so it is a program
//! of its own, and this command replaces itself with it. Only `check` runs here, because it is an experiment.

use anyhow::Context;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// The experiment that measures the lab.
const FIDELITY: &str = "lab-fidelity";

/// Arguments of `thalweg-bench lab`.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// `run`, `up`, `down`, `list`, `exec`, `set`, `stats`, `pcap`, `show`, `tool`, `probe`: passed
    /// unchanged to `thalweg-lab` (see `thalweg-bench lab --help`); `check [--json] [--full]` measures
    /// the lab itself
    #[arg(value_name = "ARG", trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

/// What `thalweg-bench lab check` takes.
#[derive(clap::Parser)]
#[command(
    name = "thalweg-bench lab check",
    about = "Measure the lab against theory on this machine: rates, delays, losses, lateness"
)]
struct CheckArgs {
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Evaluate every check, in up to 20 minutes, instead of the quick ones within one minute
    #[arg(long)]
    full: bool,
}

/// Runs the command.
///
/// # Errors
/// When `thalweg-lab` is not found or cannot be started; for `check`, when the experiment cannot be run.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.rest.split_first() {
        Some((first, rest)) if first == OsStr::new("check") => check(rest),
        _ => become_lab(&args.rest),
    }
}

/// Replaces this process with `thalweg-lab`; returns only if that fails.
fn become_lab(args: &[OsString]) -> anyhow::Result<ExitCode> {
    let program = thalweg_lab::discover::find_program()?;
    let error = Command::new(&program).args(args).exec();
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}

/// Runs the `lab-fidelity` experiment.
fn check(args: &[OsString]) -> anyhow::Result<ExitCode> {
    let name = OsString::from("thalweg-bench lab check");
    let args = match <CheckArgs as clap::Parser>::try_parse_from([name].iter().chain(args)) {
        Ok(args) => args,
        Err(usage) => {
            // Help goes to standard output, an error to standard error.
            if usage.use_stderr() {
                thalweg_console::note!("{}", usage.render().to_string().trim_end());
            } else {
                thalweg_console::say(&usage.render().to_string())?;
            }
            return Ok(ExitCode::from(u8::try_from(usage.exit_code()).unwrap_or(2)));
        }
    };
    let plan = thalweg_experiment::library::find(FIDELITY)?;
    let code = thalweg_experiment::run_embedded(&plan.text, !args.full, args.json)?;
    Ok(ExitCode::from(code))
}
