//! `thalweg-lab`: an emulated Internet for real processes on one machine.
//!
//! It sets up the network of a topology, runs programs in its hosts, and reports statistics of its links.
//!
//! ```text
//! run, up ─► topology ─► shell: namespaces, TUN devices, a clock ─► emu ─► links
//! exec, set, stats, pcap, down ── a Unix socket ─► a running lab
//! tool: traffic inside the hosts        probe: how accurate the emulation is
//! ```
//!
//! Each command has one line here and one file in `commands/`. `shell/` talks to the kernel; the emulation itself is
//! `emu` in the library.

#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic: see thalweg_console")]

mod commands;
mod probe;
mod shell;
mod tool;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use thalweg_console::note;

/// An emulated Internet for real processes on one machine.
#[derive(Parser)]
#[command(name = "thalweg-lab", bin_name = "thalweg-bench lab", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a network, run a command, and remove the network in any case
    Run(commands::run::Args),
    /// Start a network and leave it running
    Up(commands::up::Args),
    /// End a running network
    Down(commands::down::Args),
    /// List the running networks with their hosts and links
    List(commands::list::Args),
    /// Run a command inside a host
    Exec(commands::exec::Args),
    /// Change a link while packets flow
    Set(commands::set::Args),
    /// Show how accurate the emulation is, and the record of each link
    Stats(commands::stats::Args),
    /// Capture the packets that enter a link
    Pcap(commands::pcap::Args),
    /// Check a topology file and print what it expands to
    Show(commands::show::Args),
    /// Measure how accurate the lab is on this machine
    Check,
    /// Small programs that generate and measure traffic inside hosts
    Tool(tool::Args),
    /// Measure one aspect of the emulation's accuracy
    Probe(probe::Args),
    #[command(hide = true)]
    Serve(commands::serve::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(args) => commands::run::run(args),
        Command::Up(args) => commands::up::run(args),
        Command::Down(args) => commands::down::run(args),
        Command::List(args) => commands::list::run(args),
        Command::Exec(args) => commands::exec::run(args),
        Command::Set(args) => commands::set::run(args),
        Command::Stats(args) => commands::stats::run(args),
        Command::Pcap(args) => commands::pcap::run(args),
        Command::Show(args) => commands::show::run(args),
        // The front end `thalweg-bench` runs it as an experiment.
        Command::Check => Err(anyhow::anyhow!("use `thalweg-bench lab check` instead")),
        Command::Tool(args) => tool::run(args),
        Command::Probe(args) => probe::run(args),
        Command::Serve(args) => commands::serve::run(args),
    };
    result.unwrap_or_else(|error| {
        note!("thalweg-bench lab: {error:#}");
        ExitCode::FAILURE
    })
}
