//! `thalweg mesh join`: makes this host a member of a mesh.

use super::{
    host::{self, StateDir},
    text::{next_steps, say},
};
use anyhow::{Context as _, bail};
use serde_json::json;
use std::{io, process::ExitCode};
use thalweg_base::clock::WallClock;
use thalweg_console::note;
use thalweg_mesh::{JoinError, JoinOptions, JoinResult, OracleError, State, join};
use thalweg_wire::{
    Destination,
    mesh::{Name, Role, Token},
};

const HELP: &str = "\
An admin creates the token with `thalweg mesh token`. It works once; the same host may repeat an
interrupted join. `-` reads the token from standard input, so that `ps` does not show it.

  thalweg mesh join thalweg-AbC… --name nyc --address nyc.example.org:7373
  thalweg mesh join - --no-daemon < token.txt

Exit codes: 0 joined; 1 failed; 2 wrong usage.";

/// Arguments of `thalweg mesh join`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The token, or `-` to read it from standard input
    token: String,
    /// This host's name in the mesh [default: the host's own]
    #[arg(long, value_name = "NAME")]
    name: Option<Name>,
    /// The addresses at which other hosts reach this one; required for relays
    #[arg(long = "address", value_name = "HOST:PORT", value_delimiter = ',')]
    addresses: Vec<Destination>,
    /// Join as a client only: no daemon will run here
    #[arg(long, conflicts_with = "addresses")]
    no_daemon: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state_dir: StateDir,
}

/// Runs the command.
///
/// # Errors
/// If it fails; the message says what to try.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let token = read(&args.token)?;
    let state = State::create(&args.state_dir.directory()?)?;
    let wish = JoinOptions {
        name: args.name.clone(),
        addresses: args.addresses.clone(),
        daemon: !args.no_daemon,
    };
    let joined = join_mesh(&state, &token, &wish)?;
    print(&joined, &state, &args)?;
    Ok(ExitCode::SUCCESS)
}

/// Joins, and prints nothing.
///
/// # Errors
/// Why this host has not joined, with a hint.
pub fn join_mesh(state: &State, token: &Token, wish: &JoinOptions) -> anyhow::Result<JoinResult> {
    host::block_on(async {
        join(state, token, wish, WallClock::default()).await.map_err(with_hint)
    })
}

/// The token in an argument, or on standard input if the argument is `-`.
///
/// # Errors
/// If it is not a token.
pub fn read(text: &str) -> anyhow::Result<Token> {
    let mut line = text.to_owned();
    if text == "-" {
        line.clear();
        io::stdin().read_line(&mut line).context("cannot read the token")?;
    }
    match line.trim() {
        "" => bail!("no token was given; make one with `thalweg mesh token` on an admin's host"),
        token => Ok(token.parse::<Token>()?),
    }
}

fn with_hint(error: JoinError) -> anyhow::Error {
    match &error {
        JoinError::Oracle(OracleError::Unreachable(_)) => anyhow::anyhow!(
            "{error}\nhint: is `thalweg node` running there, and is its port open to this host?"
        ),
        _ => error.into(),
    }
}

fn print(joined: &JoinResult, state: &State, args: &Args) -> anyhow::Result<()> {
    let (name, mesh) = (&joined.mesh.name, &joined.mesh.mesh);
    let member = joined.roster.by_name(name);
    let roles: Vec<Role> = member.iter().flat_map(|m| m.roles.iter().copied()).collect();
    if args.json {
        let version = joined.roster.version;
        let line = json!({ "name": name, "mesh": mesh, "roles": roles, "version": version });
        say(&format!("{line}\n"))?;
    } else {
        let roles: Vec<_> = roles.iter().map(Role::to_string).collect();
        say(&format!("joined as {name} ({})\n", roles.join(", ")))?;
        note!("The keys and the roster are in {}.", state.dir().display());
    }
    if !args.addresses.is_empty() && member.is_some_and(|m| m.addresses.is_empty()) {
        note!(
            "thalweg: --address is ignored: the token lacks the role relay, and only relays have \
             an address in the roster"
        );
    }
    if let Some(skew) = &joined.skew {
        note!("thalweg: {skew}");
    }
    if !args.json && !args.no_daemon {
        let state_arg = args.state_dir.argument();
        next_steps([
            (format!("thalweg node{state_arg}"), "keep the roster current, and relay for others"),
            (format!("thalweg get URL{state_arg}"), "download, also over the mesh's relays"),
        ]);
    }
    Ok(())
}
