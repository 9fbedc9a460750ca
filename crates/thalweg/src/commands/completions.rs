//! `thalweg completions` and `thalweg man`: files for shells and for `man`, made from the definitions of the options.

use super::{
    command_pages::{Page, command_pages},
    text::say,
};
use anyhow::{Context as _, bail};
use clap::Command;
use clap_complete::Shell;
use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};
use thalweg_console::note;

const COMPLETIONS_HELP: &str = "\
Prints a script with which a shell completes commands and options:

  thalweg completions bash > ~/.local/share/bash-completion/completions/thalweg
  thalweg completions zsh > ~/.zfunc/_thalweg          # with `fpath+=~/.zfunc` before `compinit`
  thalweg completions fish > ~/.config/fish/completions/thalweg.fish";

const MAN_HELP: &str = "\
Writes a page for each command:

  thalweg man ~/.local/share/man/man1
  man thalweg-get

With --markdown the pages are for the book in docs/; --check only compares them with the files there.";

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
    /// Write Markdown
    #[arg(long)]
    markdown: bool,
    /// Write nothing; fail if a file there differs or is missing
    #[arg(long, requires = "markdown")]
    check: bool,
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

/// Writes the pages, or compares them.
///
/// # Errors
/// If the directory cannot be created or written; with `--check`, if a page is out of date.
pub fn write_man_pages(
    args: &ManArgs,
    program: Command,
    groups: &[(&str, &[&str])],
) -> anyhow::Result<ExitCode> {
    let directory = &args.directory;
    let shown = directory.display();
    if args.check {
        check_pages(directory, &command_pages(program, groups))?;
        return Ok(ExitCode::SUCCESS);
    }
    fs::create_dir_all(directory).with_context(|| format!("cannot create {shown}"))?;
    if args.markdown {
        for page in command_pages(program, groups) {
            let file = directory.join(&page.file);
            fs::write(&file, page.text)
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        note!("the pages are in {shown}");
        return Ok(ExitCode::SUCCESS);
    }
    clap_mangen::generate_to(program, directory)
        .with_context(|| format!("cannot write the pages to {shown}"))?;
    note!("the pages are in {shown}; `man -l {shown}/thalweg.1` shows the first one");
    Ok(ExitCode::SUCCESS)
}

/// Fails with the names of the pages that are out of date, and of files there that are no page any more.
fn check_pages(directory: &Path, pages: &[Page]) -> anyhow::Result<()> {
    let differs = |page: &&Page| {
        fs::read_to_string(directory.join(&page.file)).ok().as_deref() != Some(&page.text)
    };
    let mut stale: Vec<String> =
        pages.iter().filter(differs).map(|page| page.file.clone()).collect();
    let there = fs::read_dir(directory)
        .with_context(|| format!("cannot read {}", directory.display()))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    stale.extend(there.filter(|name| pages.iter().all(|page| page.file != *name)));
    if !stale.is_empty() {
        let shown = directory.display();
        bail!("out of date in {shown}: {}; run `thalweg man --markdown {shown}`", stale.join(", "));
    }
    Ok(())
}
