//! The users' commands of `thalweg`, which moves bulk data between hosts faster than the default path.
//!
//! The program reads arguments and the settings file, calls the crates below, prints text or JSON, and returns an exit
//! code.
//!
//! ```text
//! arguments ─► Cli ─► commands::NAME ─┬─► get, gather, cast, proxy, dropbox …  does it here
//! settings  ─► node::config ──────────┤
//!                                     ├─► node::daemon (`thalweg node`)         serves, with the oracle inside
//!                                     └─► local socket of a running daemon      asks it
//! results, events ─► standard output: data or JSON; standard error: messages ─► exit code
//! ```
//!
//! This file is the map: one line per command, one file per command in `commands/`.

#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic: see thalweg_console")]

mod commands;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use std::{fmt::Write as _, io::ErrorKind, os::unix::process::CommandExt as _, process::ExitCode};
use thalweg_console::note;

/// Moves bulk data between hosts faster than the Internet's default path does.
#[derive(Parser)]
#[command(name = "thalweg", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Download a URL over the best of several paths
    Get(Box<commands::get::Args>),
    /// Collect files from many members over the best paths
    Gather(Box<commands::gather::Args>),
    /// Send files to another member over the best paths
    Send(Box<commands::send::Args>),
    /// Deliver a file to many members, which pass it on to each other
    Cast(Box<commands::cast::Args>),
    /// Publish live media, or watch it as well as the path allows
    Stream(commands::stream::Args),
    /// Submit files to a drop box before its deadline
    Submit(commands::submit::Args),
    /// Verify the receipts of submissions, offline
    Receipt(commands::receipt::Args),
    /// Show this node's drop boxes and collect their submissions
    DropBox(commands::drop_box::Args),
    /// Run an HTTP and SOCKS5 proxy that uses the best paths
    Proxy(commands::proxy::Args),
    /// Run a command with a proxy of its own
    Run(commands::run_with::Args),
    /// Show and change how this host's interfaces are used
    #[command(alias = "bond")]
    Interfaces(commands::interfaces::Args),
    /// Show the network device whose packets ride in probe trains
    Carrier(commands::carrier::Args),
    /// Relay TCP connections for others (SOCKS5), without a mesh
    Relay(commands::relay::Args),
    /// Found or join a mesh and run this host's node, in one command
    Up(commands::up::Args),
    /// Create or join a mesh; list, invite and revoke its members
    Mesh(commands::mesh::Args),
    /// Run the daemon, which relays, measures and serves files
    Node(commands::node::Args),
    /// Show, pause, resume and cancel the transfers of this host's node
    Jobs(commands::jobs::Args),
    /// Check or print a settings file
    Config(commands::config::Args),
    /// Show the state of this host and its mesh
    Status(commands::status::Args),
    /// Find what is wrong with this host, and how to repair it
    Doctor(commands::doctor::Args),
    /// Print a link that opens the node's page in a browser
    Page(commands::page::Args),
    /// Show what is known of paths and which relays would be used
    Paths(commands::paths::Args),
    /// Measure the path to another member with probe trains
    Measure(commands::measure::Args),
    /// Show or clear what downloads remember of paths and relays
    History(commands::history::Args),
    /// Print a script with which a shell completes commands and options
    #[command(hide = true)]
    Completions(commands::completions::CompletionsArgs),
    /// Write the manual pages
    #[command(hide = true)]
    Man(commands::completions::ManArgs),
    /// Old name of `thalweg mesh init`
    #[command(hide = true)]
    Init(commands::init::Args),
    /// Old name of `thalweg mesh token`
    #[command(hide = true)]
    Token(commands::token::Args),
    /// Old name of `thalweg mesh join`
    #[command(hide = true)]
    Join(commands::join::Args),
    /// Old name of `thalweg mesh revoke`
    #[command(hide = true)]
    Revoke(commands::revoke::Args),
    /// Old name of `thalweg mesh members`
    #[command(hide = true)]
    Roster(commands::members::Args),
}

/// Old and new names of commands. The old names are removed in the next release.
const RENAMED: [(&str, &str); 6] = [
    ("init", "mesh init"),
    ("token", "mesh token"),
    ("join", "mesh join"),
    ("revoke", "mesh revoke"),
    ("roster", "mesh members"),
    ("bond", "interfaces"),
];

/// Commands of the harness. For one release they are passed on to `thalweg-bench`, if it is beside this program.
const HARNESS: [&str; 5] = ["lab", "experiment", "sim", "load", "demo"];

/// The commands as the help lists them.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Move data", &["get", "gather", "send", "cast", "stream", "submit", "receipt", "drop-box"]),
    ("Use paths", &["proxy", "run", "interfaces", "carrier", "relay"]),
    ("The mesh", &["up", "mesh", "node", "config"]),
    ("Look", &["status", "doctor", "page", "jobs", "paths", "measure", "history"]),
];

/// Replaces this process by `thalweg-bench`; returns if there is none beside this program.
fn pass_on_to_harness() {
    let Ok(here) = std::env::current_exe() else { return };
    let mut harness = std::process::Command::new(here.with_file_name("thalweg-bench"));
    _ = harness.args(std::env::args_os().skip(1)).exec();
}

fn main() -> ExitCode {
    if let Some(parent) =
        std::env::var(thalweg_jobs::JOB_VARIABLE).ok().and_then(|n| n.parse().ok())
    {
        // Without it the job would outlive a node that was killed, and be run twice.
        if !thalweg_jobs::end_with_parent(parent).unwrap_or(true) {
            return ExitCode::from(thalweg_console::INTERRUPTED);
        }
    }
    let matches = grouped().try_get_matches();
    let cli = matches.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let word = std::env::args_os().nth(1).unwrap_or_default();
    let word = word.to_string_lossy();
    let (command, matches) = match cli {
        Ok((cli, matches)) => (cli.command, matches),
        Err(usage) => {
            if HARNESS.contains(&&*word) {
                note!("thalweg: `{word}` is a command of the harness: `thalweg-bench {word}`");
                pass_on_to_harness();
            }
            return print_usage(&usage);
        }
    };
    if let Some((old, new)) = RENAMED.iter().find(|(old, _)| *old == word) {
        note!(
            "thalweg: `{old}` is now `thalweg {new}`; the old name will be removed in the next \
               release"
        );
    }
    let detached = matches.subcommand().and_then(|(_, command)| commands::jobs::detach(command));
    let listing = commands::jobs::JobListing::start(&matches);
    let result = match detached {
        Some(result) => result,
        None => run(command),
    };
    let code = result.unwrap_or_else(|error| {
        note!("thalweg: {}", thalweg_console::causes(error.as_ref()));
        ExitCode::FAILURE
    });
    listing.end(code);
    code
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Get(args) => commands::get::run(*args),
        Command::Gather(args) => commands::gather::run(*args),
        Command::Send(args) => commands::send::run(*args),
        Command::Cast(args) => commands::cast::run(*args),
        Command::Stream(args) => commands::stream::run(args),
        Command::Submit(args) => commands::submit::run(args),
        Command::Receipt(args) => commands::receipt::run(args),
        Command::DropBox(args) => commands::drop_box::run(args),
        Command::Proxy(args) => commands::proxy::run(args),
        Command::Run(args) => commands::run_with::run(args),
        Command::Interfaces(args) => commands::interfaces::run(args),
        Command::Carrier(args) => commands::carrier::run(args),
        Command::Relay(args) => commands::relay::run(args),
        Command::Up(args) => commands::up::run(args),
        Command::Mesh(args) => commands::mesh::run(args),
        Command::Jobs(args) => commands::jobs::run(args),
        Command::Node(args) => commands::node::run(args),
        Command::Config(args) => commands::config::run(args),
        Command::Status(args) => commands::status::run(args),
        Command::Doctor(args) => commands::doctor::run(args),
        Command::Page(args) => commands::page::run(args),
        Command::Paths(args) => commands::paths::run(args),
        Command::Measure(args) => commands::measure::run(args),
        Command::History(args) => commands::history::run(args),
        Command::Completions(args) => commands::completions::print_completions(&args, grouped()),
        Command::Man(args) => commands::completions::write_man_pages(&args, grouped(), &GROUPS),
        Command::Init(args) => commands::init::run(args),
        Command::Token(args) => commands::token::run(args),
        Command::Join(args) => commands::join::run(args),
        Command::Revoke(args) => commands::revoke::run(args),
        Command::Roster(args) => commands::members::run(args),
    }
}

/// The command line, whose help lists the commands in [`GROUPS`].
fn grouped() -> clap::Command {
    let command = Cli::command();
    let (header, literal) =
        (*command.get_styles().get_header(), *command.get_styles().get_literal());
    let mut text =
        "{about-with-newline}\n{usage-heading} {usage} (`thalweg COMMAND --help` describes it)\n"
            .to_owned();
    for (title, names) in GROUPS {
        _ = write!(text, "\n{header}{title}:{header:#}\n");
        for name in names {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            _ = writeln!(text, "  {literal}{name:<12}{literal:#}{about}");
        }
    }
    _ = write!(text, "\n{header}Options:{header:#}\n{{options}}");
    command.help_template(text)
}

/// Prints help and versions as data, on standard output, and mistakes on standard error.
fn print_usage(usage: &clap::Error) -> ExitCode {
    if usage.use_stderr() {
        // Errors of arguments begin like all others.
        let text =
            match thalweg_console::stderr_is_terminal() && std::env::var_os("NO_COLOR").is_none() {
                true => usage.render().ansi().to_string(),
                false => usage.render().to_string(),
            };
        thalweg_console::note_styled(text.replacen("error:", "thalweg:", 1).trim_end());
    } else if let Err(error) = usage.print()
        && error.kind() != ErrorKind::BrokenPipe
    {
        note!("thalweg: cannot write to standard output: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::from(u8::try_from(usage.exit_code()).unwrap_or(2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_help_lists_every_command_and_fits_a_screen() {
        let listed: BTreeSet<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let command = Cli::command();
        let shown = command.get_subcommands().filter(|c| !c.is_hide_set());
        assert_eq!(listed, shown.map(clap::Command::get_name).collect());
        let help = grouped().render_help().to_string();
        assert!(help.lines().count() <= 40, "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }

    #[test]
    fn old_names_still_work() {
        for line in ["init", "token", "join T", "revoke lap", "roster", "bond status"] {
            let words = ["thalweg"].into_iter().chain(line.split(' '));
            assert!(grouped().try_get_matches_from(words).is_ok(), "{line}");
        }
    }
}
