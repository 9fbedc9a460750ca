//! `thalweg mesh members`: lists the members of the mesh.

use super::{
    host::{self, StateDir},
    renewal,
    text::{aligned, listed, rough, say},
};
use std::process::ExitCode;
use thalweg_console::note;
use thalweg_mesh::State;
use thalweg_net::DialOptions;
use thalweg_node::daemon::roster_status;
use thalweg_wire::mesh::{Member, Roster};

const HELP: &str = "\
Shows the signed list of members (the roster) that this host uses: the daemon's; if no daemon
runs, the oracle's; if the oracle does not answer, the copy on disk.

  thalweg mesh members --json | jq -r '.members[].name'";

/// Arguments of `thalweg mesh members`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
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
    let roster = host::block_on(find(&state))?;
    if args.json {
        say(&(serde_json::to_string_pretty(&json(&roster)?)? + "\n"))?;
    } else {
        say(&table(&roster))?;
        note_validity(&state)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn find(state: &State) -> anyhow::Result<Roster> {
    if let Some(daemon) = host::daemon(state).await? {
        return Ok(daemon.roster().await?);
    }
    let membership = state.membership()?;
    match renewal::renew(state, &membership, DialOptions::default(), renewal::PATIENCE).await {
        Ok(()) => {}
        Err(refused) if renewal::is_refusal(&refused) => return Err(refused),
        Err(failed) => note!("thalweg: showing the stored roster: {failed:#}"),
    }
    let kept = membership.current();
    let kept = kept.ok_or_else(|| {
        anyhow::anyhow!("this host has no roster yet; start `thalweg node`, which fetches it")
    })?;
    Ok((*kept).clone())
}

/// The roster, with the relays of members that cannot be dialled apart from addresses.
fn json(roster: &Roster) -> anyhow::Result<serde_json::Value> {
    let mut shown = serde_json::to_value(roster)?;
    for (at, member) in roster.members.iter().enumerate() {
        shown["members"][at]["addresses"] =
            serde_json::to_value(member.dialled_addresses().collect::<Vec<_>>())?;
        shown["members"][at]["relays"] =
            serde_json::to_value(member.reach_relays().collect::<Vec<_>>())?;
    }
    Ok(shown)
}

/// The member's addresses, and the relays through which it is reached.
fn reached(member: &Member) -> String {
    let addresses: Vec<_> = member.dialled_addresses().map(ToString::to_string).collect();
    let relays: Vec<_> = member.reach_relays().map(|relay| relay.to_string()).collect();
    match (&addresses[..], &relays[..]) {
        ([], []) => "-".to_owned(),
        (addresses, []) => addresses.join(","),
        ([], relays) => format!("through {}", relays.join(",")),
        (addresses, relays) => format!("{} or through {}", addresses.join(","), relays.join(",")),
    }
}

fn table(roster: &Roster) -> String {
    let key = |m: &Member| format!("{:?}", m.principal());
    let row =
        |m: &Member| [m.name.to_string(), listed(&m.roles), listed(&m.tags), reached(m), key(m)];
    let rows: Vec<_> = roster.members.iter().map(row).collect();
    aligned(["NAME", "ROLES", "TAGS", "ADDRESSES", "KEY"], &rows)
}

/// Prints for people what the table does not show: the roster's version and how long it is valid.
fn note_validity(state: &State) -> anyhow::Result<()> {
    let Some(status) = roster_status(&state.membership()?) else { return Ok(()) };
    let holds = match (status.left, status.fault) {
        (Some(left), _) => format!("valid for {}", rough(left)),
        (None, fault) => fault.unwrap_or_default(),
    };
    note!("version {}; {holds}", status.version);
    Ok(())
}
