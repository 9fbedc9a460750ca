//! Moves bulk data between hosts faster than the default path does.
//!
//! This file is the map: one line per command, one file per command in `commands/`.

#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic: see thalweg_console")]

mod commands;

use clap::{Parser, Subcommand};
use std::{io::ErrorKind, process::ExitCode};
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
    /// Collect files from many members to this host, by a plan over all paths
    Gather(Box<commands::gather::Args>),
    /// Send files to another member, over several paths where that pays
    Send(Box<commands::send::Args>),
    /// Deliver a file or directory to many members at once, who hand it on to each other
    Cast(Box<commands::cast::Args>),
    /// Serve this host's programs as an HTTP and SOCKS5 proxy over the best paths known
    Proxy(commands::proxy::Args),
    /// Run a command whose traffic goes by a proxy of its own over the best paths known
    Run(commands::run_with::Args),
    /// Show this host's interfaces, why connections went where they went, and change that
    Bond(commands::bond::Args),
    /// Commit to files before a drop box's deadline, and bring their data
    Submit(commands::submit::Args),
    /// Check the receipts of submissions, without asking anybody
    Receipt(commands::receipt::Args),
    /// Show this node's drop boxes, and collect what was submitted to them
    DropBox(commands::drop_box::Args),
    /// Measure the path to another member with probe trains
    Measure(commands::measure::Args),
    /// Show what rides in probe trains, and nodes' overlay addresses
    Carrier(commands::carrier::Args),
    /// Show what is known of paths, which relays are tried and why, and where one more would help
    Paths(commands::paths::Args),
    /// Show what downloads remember of paths and relays, and forget it
    History(commands::history::Args),
    /// Found a mesh: this host becomes its oracle and first node
    Init(commands::init::Args),
    /// Make a token with which one host can join the mesh
    Token(commands::token::Args),
    /// Make this host a member of a mesh
    Join(commands::join::Args),
    /// Run the daemon: relay, measure, keep the roster; the oracle runs in it
    Node(commands::node::Args),
    /// Show how this host and its mesh are
    Status(commands::status::Args),
    /// List the members of the mesh
    Roster(commands::roster::Args),
    /// Put a member out of the mesh
    Revoke(commands::revoke::Args),
    /// Check the settings' file, or print one
    Config(commands::config::Args),
    /// Relay TCP connections for others (SOCKS5), without a mesh
    Relay(commands::relay::Args),
}

fn main() -> ExitCode {
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(usage) => return told_usage(&usage),
    };
    let result = match command {
        Command::Get(args) => commands::get::run(*args),
        Command::Gather(args) => commands::gather::run(*args),
        Command::Send(args) => commands::send::run(*args),
        Command::Cast(args) => commands::cast::run(*args),
        Command::Proxy(args) => commands::proxy::run(args),
        Command::Run(args) => commands::run_with::run(args),
        Command::Bond(args) => commands::bond::run(args),
        Command::Receipt(args) => commands::receipt::run(args),
        Command::DropBox(args) => commands::drop_box::run(args),
        Command::Submit(args) => commands::submit::run(args),
        Command::Measure(args) => commands::measure::run(args),
        Command::Carrier(args) => commands::carrier::run(args),
        Command::Paths(args) => commands::paths::run(args),
        Command::History(args) => commands::history::run(args),
        Command::Init(args) => commands::init::run(args),
        Command::Token(args) => commands::token::run(args),
        Command::Join(args) => commands::join::run(args),
        Command::Node(args) => commands::node::run(args),
        Command::Status(args) => commands::status::run(args),
        Command::Roster(args) => commands::roster::run(args),
        Command::Revoke(args) => commands::revoke::run(args),
        Command::Config(args) => commands::config::run(args),
        Command::Relay(args) => commands::relay::run(args),
    };
    result.unwrap_or_else(|error| {
        note!("thalweg: {}", thalweg_console::causes(error.as_ref()));
        ExitCode::FAILURE
    })
}

/// Help and versions are data, as all on standard output; mistakes are not.
fn told_usage(usage: &clap::Error) -> ExitCode {
    match usage.print() {
        Err(error) if !usage.use_stderr() && error.kind() != ErrorKind::BrokenPipe => {
            note!("thalweg: cannot write to standard output: {error}");
            return ExitCode::FAILURE;
        }
        // Nobody is left to be told.
        _ => {}
    }
    ExitCode::from(u8::try_from(usage.exit_code()).unwrap_or(2))
}
