//! Reaching members that cannot be dialled (decision 0117).
//!
//! ```text
//! member X → relay   STAND                        one channel of protocol `reach`, kept open
//! client   → relay   CONNECT X.member.invalid     a channel of protocol `relay`, next hop: X's key
//! relay    → X       WANTED number                on the standing channel
//! X        → relay   TAKE number                  another channel of protocol `reach`
//! relay    → X       GO                           and X answers GO-ACK: TLS ends on this leg
//! client   ↔ X       TLS, spliced by the relay
//! ```
//!
//! Messages are encoded by postcard with a length of four bytes before them, as those of files.

use super::{Member, Name, PORT};
use crate::{Destination, Host};
use serde::{Deserialize, Serialize};

/// The end of the host name by which a roster says that a member is reached through a relay: `fra.relay.invalid`.
const RELAY_SUFFIX: &str = ".relay.invalid";

/// The end of the host name by which a client asks a relay for a member: `lap.member.invalid`.
const MEMBER_SUFFIX: &str = ".member.invalid";

/// The most relays that a member announces.
pub const MAX_REACH_RELAYS: usize = 2;

/// The longest message, bytes.
pub const MAX_REACH_MESSAGE: usize = 256;

/// The number of a request for a reverse connection; random, so that no other member can take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestNumber(pub [u8; 16]);

/// The first message on a channel of protocol `reach`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReachOpening {
    /// This channel stands: others may ask for the member.
    Stand,
    /// This connection is the one that was asked for.
    Take(RequestNumber),
    /// The relay is to dial back to the member's listed addresses.
    DialBack,
}

/// The relay's answer to an opening. There is none to [`ReachOpening::Take`]: GO, or the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReachAnswer {
    /// The channel stands.
    Stands,
    /// Whether the dial back reached the member.
    DialledBack(bool),
    Refused(ReachRefusal),
}

/// Why a relay refuses an opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum ReachRefusal {
    /// The node does not relay.
    #[error("it does not relay: it needs the role relay, and `[relay] enabled` in its settings")]
    NoRelay,
    /// All places for standing channels or dial-backs are taken.
    #[error(
        "it has reached its limit of standing channels or of tests; another relay may have room"
    )]
    Full,
    /// The member lists no address.
    #[error("the roster has no address of this member")]
    NoAddress,
    /// The relay's settings deny the member's addresses.
    #[error("its settings deny the addresses of this member")]
    Denied,
}

/// The relay's messages on a standing channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RelaySignal {
    /// The answer to [`MemberSignal::Ping`].
    Pong,
    /// A client wants the member: it is to open a connection and to show this number.
    Wanted(RequestNumber),
}

/// The member's messages on a standing channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberSignal {
    /// The relay is to answer.
    Ping,
    /// The member opens no connection for this number: it has too many.
    Declined(RequestNumber),
}

/// A member's statement to the oracle: the relays through which it is reached, the best first; empty: it is dialled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReachRequest {
    pub relays: Vec<Name>,
}

/// The answer to a [`ReachRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReachReply {
    /// The version of a roster that has the relays.
    pub version: u64,
}

/// The entry of a roster's addresses that names a relay; `None` if the name is too long for a host's.
pub fn relay_entry(relay: &Name) -> Option<Destination> {
    Destination::new(&format!("{relay}{RELAY_SUFFIX}"), PORT).ok()
}

/// The relay that an entry of a roster's addresses names; `None` if the entry is an address.
pub fn entry_relay(entry: &Destination) -> Option<Name> {
    named(entry, RELAY_SUFFIX)
}

/// The destination by which a client asks a relay for a member.
pub fn member_destination(member: &Name) -> Option<Destination> {
    Destination::new(&format!("{member}{MEMBER_SUFFIX}"), PORT).ok()
}

/// Whether a client asks for a member by this destination. Which one, the key of its next hop says.
pub fn is_member_destination(to: &Destination) -> bool {
    named(to, MEMBER_SUFFIX).is_some()
}

fn named(at: &Destination, suffix: &str) -> Option<Name> {
    match &at.host {
        Host::Name(name) => name.strip_suffix(suffix)?.parse().ok(),
        Host::Ip(_) => None,
    }
}

/// How others reach the member.
impl Member {
    /// The addresses at which others dial the member, the best first.
    pub fn dialled_addresses(&self) -> impl Iterator<Item = &Destination> {
        self.addresses.iter().filter(|at| entry_relay(at).is_none())
    }

    /// Whether others can dial the member: it has an address.
    pub fn is_dialled(&self) -> bool {
        self.dialled_addresses().next().is_some()
    }

    /// The relays through which others reach the member, the best first.
    pub fn reach_relays(&self) -> impl Iterator<Item = Name> {
        self.addresses.iter().filter_map(entry_relay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_units::NodeId;

    #[test]
    fn relays_among_addresses_are_no_addresses() {
        let fra: Name = "fra".parse().unwrap();
        let entry = relay_entry(&fra).unwrap();
        assert_eq!(entry.to_string(), "fra.relay.invalid:7373");
        let member = Member {
            name: "lap".parse().unwrap(),
            node: Some(NodeId::from_bytes([1; 32])),
            client: NodeId::from_bytes([2; 32]),
            addresses: vec!["192.0.2.1:7373".parse().unwrap(), entry],
            roles: [].into(),
            tags: [].into(),
        };
        assert_eq!(member.dialled_addresses().count(), 1);
        assert_eq!(member.reach_relays().collect::<Vec<_>>(), [fra]);
        assert!(!is_member_destination(&member.addresses[0]));
        assert!(is_member_destination(&member_destination(&member.name).unwrap()));
        for other in ["fra.example:1", "relay.invalid:1", ".relay.invalid:1", "A.relay.invalid:1"] {
            assert_eq!(entry_relay(&other.parse().unwrap()), None, "{other}");
        }
    }
}
