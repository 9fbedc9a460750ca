//! Moves bulk data between hosts faster than the default path does.
//!
//! This file is the map: one line per command, one file per command in `commands/`.

mod commands;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

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
    Get(commands::get::Args),
    /// Relay TCP connections for others (SOCKS5)
    Relay(commands::relay::Args),
    /// Emulate an Internet for real processes on this machine
    Lab(commands::lab::Args),
    /// List and run the project's experiments
    Experiment(commands::experiment::Args),
    /// Show a download by detour in an emulated Internet
    Demo(commands::demo::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Get(args) => commands::get::run(args),
        Command::Relay(args) => commands::relay::run(args),
        Command::Lab(args) => commands::lab::run(args),
        Command::Experiment(args) => commands::experiment::run(args),
        Command::Demo(args) => commands::demo::run(args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("thalweg: {error:#}");
        ExitCode::FAILURE
    })
}
