//! The list of attacks.

use clap::ValueEnum;
use std::fmt;
use thalweg_net::channel::Protocol;

/// The attacker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Attacker {
    /// A member of the mesh without rights.
    Member,
    /// A host with a key that is not in the roster.
    Stranger,
}

/// The attacked part of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Entrance {
    /// The oracle's API.
    Api,
    Join,
    Relay,
    /// Measured flows.
    Measure,
    /// Files.
    Object,
    /// Drop boxes.
    Submit,
    Bond,
    Cast,
    /// Sessions of probe trains.
    Probe,
    /// Live media.
    Stream,
    /// Checks of a pair of members.
    Doctor,
    /// Standing channels of members that cannot be dialled.
    Reach,
    /// The TCP port before a handshake is complete.
    Handshake,
    /// The port of the metrics.
    Metrics,
    /// The UDP port of probe trains.
    Datagrams,
}

/// The kind of attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AttackKind {
    /// Connections that send nothing.
    Idle,
    /// A message whose bytes are sent one at a time, with pauses.
    Slow,
    /// The longest message, without its last byte.
    Largest,
    /// Complete messages that cost the node the most.
    Costliest,
    /// Random bytes.
    Random,
}

/// One attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attack {
    /// Who attacks.
    pub by: Attacker,
    /// The attacked part of the node.
    pub door: Entrance,
    pub kind: AttackKind,
}

impl Entrance {
    /// The protocol of its channels; `None` if it is attacked without channels.
    pub const fn protocol(self) -> Option<Protocol> {
        Some(match self {
            Self::Api => Protocol::Api,
            Self::Join => Protocol::Join,
            Self::Relay => Protocol::Relay,
            Self::Measure => Protocol::Measure,
            Self::Object => Protocol::Object,
            Self::Submit => Protocol::Submit,
            Self::Bond => Protocol::Bond,
            Self::Cast => Protocol::Cast,
            Self::Probe => Protocol::Probe,
            Self::Stream => Protocol::Stream,
            Self::Doctor => Protocol::Doctor,
            Self::Reach => Protocol::Reach,
            Self::Handshake | Self::Metrics | Self::Datagrams => return None,
        })
    }

    /// Whether a member's key makes a difference here; not where no key is asked for or any key is accepted.
    const fn knows_members(self) -> bool {
        !matches!(self, Self::Join | Self::Handshake | Self::Metrics)
    }

    /// Whether strangers are admitted or no key is asked for.
    const fn lets_strangers_in(self) -> bool {
        matches!(
            self,
            Self::Join | Self::Submit | Self::Handshake | Self::Metrics | Self::Datagrams
        )
    }
}

/// The short list: attacks that once stopped a node, and one of each kind.
const FEW: [&str; 11] = [
    "member_api_costliest",
    "member_relay_idle",
    "member_object_largest",
    "member_object_costliest",
    "member_bond_idle",
    "member_cast_random",
    "member_probe_costliest",
    "stranger_join_slow",
    "stranger_submit_largest",
    "stranger_handshake_costliest",
    "stranger_datagrams_random",
];

/// The attacks that a list names: `all`, `few`, or prefixes of names, separated by commas.
///
/// # Errors
/// When no attack matches.
pub fn list(wanted: &str) -> anyhow::Result<Vec<Attack>> {
    let mut found = all();
    match wanted {
        "all" => {}
        "few" => found.retain(|attack| FEW.contains(&&*attack.to_string())),
        names => {
            let names: Vec<&str> = names.split(',').collect();
            found.retain(|attack| names.iter().any(|name| attack.to_string().starts_with(name)));
        }
    }
    anyhow::ensure!(!found.is_empty(), "there is no attack `{wanted}`");
    Ok(found)
}

/// All attacks.
fn all() -> Vec<Attack> {
    let mut all = Vec::new();
    for by in [Attacker::Member, Attacker::Stranger] {
        for &door in Entrance::value_variants() {
            let comes = match by {
                Attacker::Member => door.knows_members(),
                Attacker::Stranger => door.lets_strangers_in(),
            };
            let kinds = AttackKind::value_variants().iter();
            let attacks = kinds.map(|&kind| Attack { by, door, kind });
            all.extend(attacks.filter(|attack| comes && attack.is_possible()));
        }
    }
    all
}

impl Attack {
    /// Whether the attack exists: those with datagrams are neither idle nor slow.
    fn is_possible(self) -> bool {
        self.door != Entrance::Datagrams
            || !matches!(self.kind, AttackKind::Idle | AttackKind::Slow)
    }
}

/// The name of a value as its command-line option spells it.
pub fn option_name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

impl fmt::Display for Attack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}_{}_{}",
            option_name(&self.by),
            option_name(&self.door),
            option_name(&self.kind)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_protocol_is_attacked_in_all_kinds() {
        let names: Vec<String> = all().iter().map(ToString::to_string).collect();
        for protocol in Protocol::ALL {
            let doors = Entrance::value_variants().iter();
            let door = doors.clone().find(|door| door.protocol() == Some(protocol)).unwrap();
            let of = all().iter().filter(|attack| attack.door == *door).count();
            assert!(of == 5 || of == 10, "{protocol:?}: {of}");
        }
        assert!(names.contains(&"stranger_metrics_idle".to_owned()), "{names:?}");
        assert!(!names.contains(&"stranger_datagrams_slow".to_owned()), "{names:?}");
    }

    #[test]
    fn a_list_has_the_attacks_that_it_names() {
        assert_eq!(list("few").unwrap().len(), FEW.len());
        assert_eq!(list("member_object,stranger_join_idle").unwrap().len(), 6);
        assert!(list("nobody").is_err());
    }
}
