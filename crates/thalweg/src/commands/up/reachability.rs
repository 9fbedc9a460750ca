//! Whether another member reaches this host at the address that the roster lists.
//!
//! This host asks a relay to connect to it, and opens a channel to its own node through that connection. So the whole way
//! is tested, from the relay to the key of the node, and no new service is needed for it.

use serde_json::{Value, json};
use std::{fmt, time::Duration};
use thalweg_mesh::{
    State,
    member_dialer::{DialMemberError, MemberDialer},
};
use thalweg_net::{
    DialOptions, Step,
    channel::{Connector, Protocol},
};
use thalweg_wire::mesh::{Member, Name, Role, Roster};
use tokio::time::{Instant, sleep};

/// The most relays that are asked if some cannot be reached.
const MOST_ASKED: usize = 3;

/// How long a relay that does not know this host yet is asked again: it gets the roster within a second.
const PATIENCE: Duration = Duration::from_secs(10);

/// The pause between two such requests.
const PAUSE: Duration = Duration::from_millis(300);

/// What is known of the way from other members to this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reachability {
    /// It has no address in the roster: no member connects to it.
    NoAddress,
    /// There is no other relay, or none that this host reaches.
    Unknown {
        why: String,
    },
    Reached {
        by: Name,
        address: String,
    },
    /// This relay does not reach this host.
    Unreached {
        by: Name,
        address: String,
        why: String,
    },
}

impl Reachability {
    /// Whether nothing is known to be wrong.
    pub fn is_well(&self) -> bool {
        !matches!(self, Self::Unreached { .. })
    }

    /// The event of `--json`.
    pub fn json(&self) -> Value {
        let event = "reachability";
        match self {
            Self::NoAddress => json!({ "event": event, "state": "no_address" }),
            Self::Unknown { why } => json!({ "event": event, "state": "unknown", "why": why }),
            Self::Reached { by, address } => {
                json!({ "event": event, "state": "reached", "by": by, "address": address })
            }
            Self::Unreached { by, address, why } => json!({
                "event": event, "state": "unreached", "by": by, "address": address, "why": why,
            }),
        }
    }
}

impl fmt::Display for Reachability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAddress => f.write_str(
                "no address of this host is in the roster: other members reach it through relays, once \
                 `thalweg status` shows one",
            ),
            Self::Unknown { why } => write!(f, "reachable: not known yet, {why}"),
            Self::Reached { by, address } => write!(f, "reachable: {by} reached {address}"),
            Self::Unreached { by, address, why } => write!(
                f,
                "not reachable: {by} did not reach {address}: {why}; open this TCP port, and the same \
                 UDP port, in the firewall, forward them if this host is behind NAT, or change the \
                 address"
            ),
        }
    }
}

/// Asks a relay of the roster to reach this host, which is `own`.
///
/// # Errors
/// If the state cannot be read.
pub async fn check(state: &State, own: &Member, roster: &Roster) -> anyhow::Result<Reachability> {
    let Some(address) = own.dialled_addresses().next().map(ToString::to_string) else {
        return Ok(Reachability::NoAddress);
    };
    let others = roster.members.iter().filter(|m| m.name != own.name && is_relay(m));
    let others: Vec<&Name> = others.map(|m| &m.name).take(MOST_ASKED).collect();
    let identity = Connector::new(&state.client_key()?)?;
    let dialer =
        MemberDialer::new(own.name.clone(), state.membership()?, identity, DialOptions::default());
    let mut last = "no other member relays yet; run `thalweg up` again when one does".to_owned();
    for by in others {
        match reach_through(&dialer, &own.name, by).await {
            Ok(()) => return Ok(Reachability::Reached { by: by.clone(), address }),
            Err(why) if is_of_relay(&why) => last = thalweg_console::causes(&why),
            Err(why) => {
                let why = thalweg_console::causes(&why);
                return Ok(Reachability::Unreached { by: by.clone(), address, why });
            }
        }
    }
    Ok(Reachability::Unknown { why: last })
}

fn is_relay(member: &Member) -> bool {
    member.is(Role::Relay) && member.node.is_some() && member.is_dialled()
}

/// Opens a channel to `own` through the relay `by`. A relay that does not have the newest roster yet refuses; it is asked
/// again for a while.
async fn reach_through(
    dialer: &MemberDialer,
    own: &Name,
    by: &Name,
) -> Result<(), DialMemberError> {
    let until = Instant::now() + PATIENCE;
    loop {
        let opened = dialer.channel(own, std::slice::from_ref(by), Protocol::Object).await;
        match opened {
            Err(why) if !is_of_relay(&why) && Instant::now() < until => sleep(PAUSE).await,
            done => return done.map(drop),
        }
    }
}

/// Whether the relay itself was not reached, which says nothing of this host.
fn is_of_relay(error: &DialMemberError) -> bool {
    match error {
        DialMemberError::Dial { why, .. } => {
            matches!(why.step, Step::Reach { is_relay: true, .. })
        }
        DialMemberError::Relayed { .. } => false,
        DialMemberError::Name(_)
        | DialMemberError::Unrelayed(_)
        | DialMemberError::OnlyRelayed(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unreached_host_is_a_failure() {
        let (by, address): (Name, _) = ("fra".parse().unwrap(), "192.0.2.1:7373".to_owned());
        let reached = Reachability::Reached { by: by.clone(), address: address.clone() };
        assert_eq!(reached.to_string(), "reachable: fra reached 192.0.2.1:7373");
        let unreached = Reachability::Unreached { by, address, why: "no answer".to_owned() };
        assert!(unreached.to_string().contains("did not reach 192.0.2.1:7373: no answer; open"));
        assert_eq!(unreached.json()["state"], "unreached");
        let unknown = Reachability::Unknown { why: "x".to_owned() };
        let well = [Reachability::NoAddress, unknown, reached, unreached].map(|r| r.is_well());
        assert_eq!(well, [true, true, true, false]);
    }
}
