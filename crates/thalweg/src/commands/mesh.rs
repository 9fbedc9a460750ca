//! `thalweg mesh`: the commands about membership.

use super::{address, backup, init, join, members, rekey, restore, revoke, token};
use std::process::ExitCode;

/// Arguments of `thalweg mesh`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: MeshCommand,
}

#[derive(clap::Subcommand)]
enum MeshCommand {
    /// Create a mesh: this host becomes its oracle and first node
    Init(init::Args),
    /// Create a token with which one host can join
    Token(token::Args),
    /// Make this host a member
    Join(join::Args),
    /// List the members
    Members(members::Args),
    /// Change the addresses at which other hosts reach this one
    Address(address::Args),
    /// Remove a member and cut its connections
    Revoke(revoke::Args),
    /// Replace the key that signs the list of members
    Rekey(rekey::Args),
    /// Write what a lost oracle's host needs into one file
    Backup(backup::Args),
    /// Make this host the oracle again, from a backup and a member's roster
    Restore(restore::Args),
}

/// Runs the command.
///
/// # Errors
/// If it fails; the message says what to try.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        MeshCommand::Init(args) => init::run(args),
        MeshCommand::Token(args) => token::run(args),
        MeshCommand::Join(args) => join::run(args),
        MeshCommand::Members(args) => members::run(args),
        MeshCommand::Address(args) => address::run(args),
        MeshCommand::Revoke(args) => revoke::run(args),
        MeshCommand::Rekey(args) => rekey::run(args),
        MeshCommand::Backup(args) => backup::run(args),
        MeshCommand::Restore(args) => restore::run(args),
    }
}
