//! `thalweg revoke`: puts a member out of the mesh.

use super::here::{self, Place};
use serde_json::json;
use std::{process::ExitCode, time::Duration};
use thalweg_node::daemon::Control;
use thalweg_units::parse_duration;
use thalweg_wire::mesh::{RevokeReply, RevokeRequest, StatusReply};
use tokio::time::{Instant, sleep};

const HELP: &str = "\
A new roster without the member is signed and goes to all nodes at once; each cuts the
member's connections when it has it. A node that cannot reach the oracle goes on until
its roster expires. To wait until all nodes that can be reached have confirmed:

  thalweg revoke laptop --wait 10s

Exit codes: 0 revoked; 1 not; 3 revoked, and some had not confirmed in the time of --wait.";

/// Exit code: revoked, and not all have confirmed in time.
const UNCONFIRMED: u8 = 3;

/// Between two questions to the oracle: a revocation takes a round trip to each node.
const POLL: Duration = Duration::from_millis(100);

/// Arguments of `thalweg revoke`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The member's name, or one of its keys
    #[arg(value_name = "WHO")]
    member: String,
    /// Wait so long for the other members to confirm the new roster
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    wait: Option<Duration>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

/// How many of the nodes that the oracle has heard of have the new roster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Confirmed {
    have: usize,
    of: usize,
}

impl Confirmed {
    fn of(status: &StatusReply, version: u64) -> Self {
        let seen = status.members.iter().filter_map(|m| m.version);
        let (have, of) = (seen.clone().filter(|v| *v >= version).count(), seen.count());
        Self { have, of }
    }

    fn all(self) -> bool {
        self.have == self.of
    }
}

/// Runs the command.
///
/// # Errors
/// When it cannot be done; the message says what to try.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let state = args.place.open()?;
    here::block_on(async {
        let control = here::control(&state).await?;
        let request = RevokeRequest { member: args.member.clone() };
        let reply = control.revoke(request).await.map_err(here::refused)?;
        // It is done, whatever becomes of the question who knows it already.
        let confirmed = confirmed(&*control, reply.version, args.wait).await;
        if let Err(e) = &confirmed {
            eprintln!("thalweg: cannot tell who has confirmed: {e:#}");
        }
        let confirmed = confirmed.ok();
        print(&reply, confirmed, args.json);
        let short = args.wait.is_some() && !confirmed.is_some_and(Confirmed::all);
        Ok(if short { ExitCode::from(UNCONFIRMED) } else { ExitCode::SUCCESS })
    })
}

/// Asks until all have confirmed or the time is over; once if there is none.
async fn confirmed(
    control: &dyn Control,
    version: u64,
    wait: Option<Duration>,
) -> anyhow::Result<Confirmed> {
    let until = Instant::now() + wait.unwrap_or_default();
    loop {
        let status = control.status().await.map_err(here::refused)?;
        let confirmed = Confirmed::of(&status, version);
        if confirmed.all() || Instant::now() >= until {
            return Ok(confirmed);
        }
        sleep(POLL).await;
    }
}

fn print(reply: &RevokeReply, confirmed: Option<Confirmed>, as_json: bool) {
    let RevokeReply { name, version } = reply;
    if as_json {
        let (have, of) = (confirmed.map(|c| c.have), confirmed.map(|c| c.of));
        let line = json!({ "revoked": name, "version": version, "confirmed": have, "of": of });
        println!("{line}");
        return;
    }
    let known = match confirmed {
        Some(Confirmed { have, of }) => format!("; {have} of {of} nodes have it"),
        None => String::new(),
    };
    println!("{name} is revoked by roster version {version}{known}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_units::{NodeId, WallTime};
    use thalweg_wire::mesh::MemberStatus;

    #[test]
    fn only_nodes_that_were_heard_of_can_confirm() {
        let member =
            |name: &str, version| MemberStatus { name: name.parse().unwrap(), seen: None, version };
        let status = StatusReply {
            mesh: NodeId::from_bytes([1; 32]),
            version: 9,
            expiry: WallTime::from_unix_nanos(1),
            time: WallTime::from_unix_nanos(0),
            members: vec![member("a", Some(9)), member("b", Some(8)), member("c", None)],
        };
        assert_eq!(Confirmed::of(&status, 9), Confirmed { have: 1, of: 2 });
        assert!(Confirmed::of(&status, 8).all());
    }
}
