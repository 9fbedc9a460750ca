//! `thalweg completions` and `thalweg man`: files for shells and for `man`, made from the definitions of the options.

use super::text::say;
use anyhow::Context as _;
use clap::Command;
use clap_complete::Shell;
use std::{fs, path::PathBuf, process::ExitCode};
use thalweg_console::note;

const COMPLETIONS_HELP: &str = "\
Prints a script with which a shell completes commands and options:

  thalweg completions bash > ~/.local/share/bash-completion/completions/thalweg
  thalweg completions zsh > ~/.zfunc/_thalweg          # with `fpath+=~/.zfunc` before `compinit`
  thalweg completions fish > ~/.config/fish/completions/thalweg.fish";

const MAN_HELP: &str = "\
Writes a page for each command:

  thalweg man ~/.local/share/man/man1
  man thalweg-get";

/// Arguments of `thalweg completions`.
#[derive(clap::Args)]
#[command(after_help = COMPLETIONS_HELP)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Arguments of `thalweg man`.
#[derive(clap::Args)]
#[command(after_help = MAN_HELP)]
pub struct ManArgs {
    /// The directory for the pages; it is created if it is missing
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Prints the script.
///
/// # Errors
/// If standard output cannot be written.
pub fn print_completions(args: &CompletionsArgs, mut program: Command) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, "thalweg", &mut script);
    say(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the pages.
///
/// # Errors
/// If the directory cannot be created or written.
pub fn write_man_pages(args: &ManArgs, program: Command) -> anyhow::Result<ExitCode> {
    let directory = &args.directory;
    let shown = directory.display();
    fs::create_dir_all(directory).with_context(|| format!("cannot create {shown}"))?;
    clap_mangen::generate_to(program, directory)
        .with_context(|| format!("cannot write the pages to {shown}"))?;
    note!("the pages are in {shown}; `man -l {shown}/thalweg.1` shows the first one");
    Ok(ExitCode::SUCCESS)
}
