//! `thalweg mesh revoke`: removes a member from the mesh.

use super::{
    host::{self, StateDir},
    text::say,
};
use serde_json::json;
use std::{collections::BTreeSet, process::ExitCode, time::Duration};
use thalweg_console::note;
use thalweg_mesh::{State, service::Control};
use thalweg_units::parse_duration;
use thalweg_wire::mesh::{Name, RevokeReply, RevokeRequest, StatusReply};
use tokio::time::{Instant, sleep};

const HELP: &str = "\
Signs a new roster without the member and sends it to all nodes, which then cut the member's
connections. A node that cannot reach the oracle uses its old roster until that expires. To wait
until every node that the oracle has heard from within the last minute has confirmed:

  thalweg mesh revoke laptop --wait 10s

Exit codes: 0 revoked; 1 failed; 3 revoked, but some nodes did not confirm within --wait.";

/// Exit code: revoked, but not confirmed by all nodes in time.
const UNCONFIRMED: u8 = 3;

/// The interval of questions to the oracle: a revocation takes a round trip to each node.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Arguments of `thalweg mesh revoke`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The member's name, or one of its keys
    #[arg(value_name = "WHO")]
    member: String,
    /// Wait up to this long for the nodes to confirm the new roster
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    wait: Option<Duration>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state_dir: StateDir,
}

/// A node that was silent for this long is not connected: nodes ask at least every 20 s.
const MAX_SILENCE: Duration = Duration::from_secs(60);

/// How many nodes have the new roster, including the oracle's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Confirmations {
    have: usize,
    /// The number of nodes that the oracle hears of.
    of: usize,
    /// The number of nodes that the oracle no longer hears of.
    silent: usize,
}

impl Confirmations {
    /// `mute` are the members without a daemon: only their commands ask the oracle, now and then.
    fn count(status: &StatusReply, mute: &BTreeSet<Name>, version: u64) -> Self {
        let nodes = status.members.iter().filter(|m| !mute.contains(&m.name));
        let seen = nodes.filter_map(|m| Some((m.seen?, m.version?)));
        let (near, silent): (Vec<_>, Vec<_>) = seen.partition(|(seen, _)| *seen <= MAX_SILENCE);
        let have = near.iter().filter(|(_, v)| *v >= version).count();
        Self { have, of: near.len(), silent: silent.len() }
    }

    fn all(self) -> bool {
        self.have == self.of
    }
}

/// Runs the command.
///
/// # Errors
/// If it fails; the message says what to try.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let state = args.state_dir.open()?;
    host::block_on(async {
        let control = host::control(&state).await?;
        let request = RevokeRequest { member: args.member.clone() };
        let reply = control.revoke(request).await.map_err(host::api_error)?;
        // The member is revoked even if it is unknown which nodes have confirmed.
        let confirmed = wait_for_confirmations(
            &*control,
            &members_without_daemon(&state),
            reply.version,
            args.wait,
        )
        .await;
        if let Err(e) = &confirmed {
            note!("thalweg: cannot determine which nodes have confirmed: {e:#}");
        }
        let confirmed = confirmed.ok();
        print(&reply, confirmed, args.json)?;
        let short = args.wait.is_some() && !confirmed.is_some_and(Confirmations::all);
        Ok(if short { ExitCode::from(UNCONFIRMED) } else { ExitCode::SUCCESS })
    })
}

/// The members without a daemon, as far as this host knows.
fn members_without_daemon(state: &State) -> BTreeSet<Name> {
    let kept = state.membership().ok().and_then(|membership| membership.current());
    let Some(roster) = kept else { return BTreeSet::new() };
    let without = roster.members.iter().filter(|m| m.node.is_none());
    without.map(|m| m.name.clone()).collect()
}

/// Asks until all nodes have confirmed or the time is over; once if `wait` is `None`.
async fn wait_for_confirmations(
    control: &dyn Control,
    mute: &BTreeSet<Name>,
    version: u64,
    wait: Option<Duration>,
) -> anyhow::Result<Confirmations> {
    let until = Instant::now() + wait.unwrap_or_default();
    loop {
        let status = control.status().await.map_err(host::api_error)?;
        let confirmed = Confirmations::count(&status, mute, version);
        if confirmed.all() || Instant::now() >= until {
            return Ok(confirmed);
        }
        sleep(POLL_INTERVAL).await;
    }
}

fn print(
    reply: &RevokeReply,
    confirmed: Option<Confirmations>,
    as_json: bool,
) -> anyhow::Result<()> {
    let RevokeReply { name, version } = reply;
    if as_json {
        let (have, of) = (confirmed.map(|c| c.have), confirmed.map(|c| c.of));
        let silent = confirmed.map(|c| c.silent);
        let line = json!({
            "revoked": name, "version": version, "confirmed": have, "of": of, "silent": silent
        });
        return say(&format!("{line}\n"));
    }
    let known = confirmed.map(text).unwrap_or_default();
    say(&format!("{name} is revoked by roster version {version}{known}\n"))
}

fn text(confirmed: Confirmations) -> String {
    let Confirmations { have, of, silent } = confirmed;
    let mut text = match of {
        // At most the oracle's own node.
        0 | 1 => "; no other node is connected".to_owned(),
        _ => format!("; {have} of {of} nodes have it, the oracle's own among them"),
    };
    if silent > 0 {
        text += &format!("; {silent} more have not contacted the oracle for over a minute");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_units::{NodeId, WallTime};
    use thalweg_wire::mesh::MemberStatus;

    #[test]
    fn only_nodes_heard_of_recently_can_confirm() {
        let member = |name: &str, seen: Option<u64>, version| MemberStatus {
            name: name.parse().unwrap(),
            seen: seen.map(Duration::from_secs),
            version,
        };
        let status = StatusReply {
            mesh: NodeId::from_bytes([1; 32]),
            version: 9,
            expiry: WallTime::from_unix_nanos(1),
            time: WallTime::from_unix_nanos(0),
            members: vec![
                member("a", Some(0), Some(9)),
                member("b", Some(19), Some(8)),
                member("c", None, None),
                member("d", Some(61), Some(8)),
                member("e", Some(0), Some(8)),
            ],
        };
        let mute = BTreeSet::from(["e".parse().unwrap()]);
        let confirmed = Confirmations::count(&status, &mute, 9);
        assert_eq!(confirmed, Confirmations { have: 1, of: 2, silent: 1 });
        assert!(text(confirmed).contains("1 of 2 nodes have it") && !confirmed.all());
        assert!(text(confirmed).contains("1 more have not contacted"));
        assert!(Confirmations::count(&status, &mute, 8).all());
        let alone = Confirmations { have: 1, of: 1, silent: 0 };
        assert_eq!(text(alone), "; no other node is connected");
    }
}
