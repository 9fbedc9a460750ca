//! `thalweg mesh address`: changes the addresses at which other hosts reach this one.

use super::{
    host::{self, StateDir},
    text::{listed, say},
};
use serde_json::json;
use std::process::ExitCode;
use thalweg_console::note;
use thalweg_wire::{Destination, mesh::AddressesRequest};

const HELP: &str = "\
Replaces all addresses of this host in the list of members. The oracle signs and sends the new list
at once; transfers that run go on over the connections that they have. Only relays have addresses.

  thalweg mesh address nyc.example.org:7373
  thalweg mesh address 203.0.113.7:7373 [2001:db8::7]:7373

Exit codes: 0 changed, or as before; 1 failed, and the former addresses stay; 2 wrong usage.";

/// Arguments of `thalweg mesh address`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The addresses, the best first
    #[arg(required = true, value_name = "HOST:PORT", value_delimiter = ',')]
    addresses: Vec<Destination>,
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
    let state = args.state_dir.open()?;
    let reply = host::block_on(async {
        let control = host::control(&state).await?;
        let request = AddressesRequest { addresses: args.addresses };
        control.set_addresses(request).await.map_err(host::api_error)
    })?;
    if args.json {
        let (name, addresses) = (&reply.name, &reply.addresses);
        let line = json!({ "name": name, "addresses": addresses, "version": reply.version });
        say(&format!("{line}\n"))?;
    } else {
        say(&format!("{} is at {}\n", reply.name, listed(&reply.addresses)))?;
        note!(
            "roster version {}; `thalweg up` checks whether another member reaches it",
            reply.version
        );
    }
    Ok(ExitCode::SUCCESS)
}
