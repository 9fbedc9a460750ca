//! `thalweg mesh token`: creates a token with which one host can join.

use super::{
    host::{self, StateDir},
    text::{rough, say},
};
use serde_json::json;
use std::{process::ExitCode, time::Duration};
use thalweg_console::note;
use thalweg_units::parse_duration;
use thalweg_wire::mesh::{Name, Role, Tag, TokenReply, TokenRequest};

const HELP: &str = "\
The token alone is printed on standard output, so that it can be passed on:

  ssh newhost thalweg mesh join $(thalweg mesh token --role relay --tag country=de)

One host can join with it until it expires. Only admins can create tokens.";

/// Arguments of `thalweg mesh token`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// A role of the new host besides client: relay or admin
    #[arg(long = "role", value_name = "ROLE", value_delimiter = ',')]
    roles: Vec<Role>,
    /// A tag of the new host, for rules and options such as --avoid
    #[arg(long = "tag", value_name = "TAG", value_delimiter = ',')]
    tags: Vec<Tag>,
    /// The name that the host must take [default: it chooses one]
    #[arg(long, value_name = "NAME")]
    name: Option<Name>,
    /// How long the token is valid [default: `oracle.token_validity` of the settings, 1 h]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    valid: Option<Duration>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state_dir: StateDir,
}

impl Args {
    fn request(&self, valid: Duration) -> TokenRequest {
        let mut roles: std::collections::BTreeSet<_> = self.roles.iter().copied().collect();
        roles.insert(Role::Client);
        TokenRequest {
            roles,
            tags: self.tags.iter().cloned().collect(),
            name: self.name.clone(),
            valid,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// If it fails; the message says what to try.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let state = args.state_dir.open()?;
    let valid = match args.valid {
        Some(valid) => valid,
        None => host::settings(None)?.oracle.token_validity,
    };
    let reply = host::block_on(async {
        let control = host::control(&state).await?;
        control.token(args.request(valid)).await.map_err(host::api_error)
    })?;
    print(&reply, valid, args.json)?;
    Ok(ExitCode::SUCCESS)
}

fn print(reply: &TokenReply, valid: Duration, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        let expires = reply.expires.as_unix_nanos() / 1_000_000_000;
        let line = json!({ "token": reply.token, "expires_unix_s": expires });
        return say(&format!("{line}\n"));
    }
    say(&format!("{}\n", reply.token))?;
    note!("one host can join with it within {}: thalweg mesh join TOKEN", rough(valid));
    Ok(())
}
