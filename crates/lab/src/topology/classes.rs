//! Traffic classes, whose bytes the ground truth counts separately.

use super::TopologyError;
use serde::{Deserialize, Serialize};

/// `[[class]]`: packets of one protocol and port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassSpec {
    /// The name in the ground truth.
    pub name: String,
    /// The protocol; absent: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// The source or destination port; absent: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// A protocol above IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    Tcp,
    Udp,
    /// ICMP and ICMPv6.
    Icmp,
}

/// A class of the resolved network. A packet belongs to the first class that matches.
pub type ClassPlan = ClassSpec;

/// The most classes: the ground truth has a counter per class and time bin.
const CLASSES_MAX: usize = 64;
/// The name of the class of packets that no other class matches.
pub(crate) const OTHER: &str = "other";
/// The name of the class of cross traffic.
pub(crate) const CROSS: &str = "cross";

impl Protocol {
    /// Whether this is the protocol with that IANA number.
    pub const fn is(self, number: u8) -> bool {
        match self {
            Self::Tcp => number == 6,
            Self::Udp => number == 17,
            Self::Icmp => number == 1 || number == 58,
        }
    }
}

impl ClassSpec {
    /// Whether a packet with this protocol number and these ports belongs to the class.
    pub fn matches(&self, protocol: u8, source: u16, destination: u16) -> bool {
        self.protocol.is_none_or(|p| p.is(protocol))
            && self.port.is_none_or(|p| p == source || p == destination)
    }
}

pub(super) fn check(classes: &[ClassSpec]) -> Result<(), TopologyError> {
    if classes.len() > CLASSES_MAX {
        let why = format!("at most {CLASSES_MAX}");
        return Err(TopologyError::value("class", classes.len(), why));
    }
    for (i, class) in classes.iter().enumerate() {
        let key = format!("class {}.name", i + 1);
        if [OTHER, CROSS, ""].contains(&class.name.as_str()) {
            let why = "is reserved for unclassified packets or for the cross traffic";
            return Err(TopologyError::value(key, &class.name, why));
        }
        if classes[..i].iter().any(|c| c.name == class.name) {
            return Err(TopologyError::value(key, &class.name, "is used twice"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(name: &str, protocol: Option<Protocol>, port: Option<u16>) -> ClassSpec {
        ClassSpec { name: name.into(), protocol, port }
    }

    #[test]
    fn a_class_matches_by_protocol_and_either_port() {
        let probe = class("probe", Some(Protocol::Udp), Some(9000));
        assert!(probe.matches(17, 9000, 5) && probe.matches(17, 5, 9000));
        assert!(!probe.matches(6, 9000, 5) && !probe.matches(17, 1, 2));
        assert!(class("ping", Some(Protocol::Icmp), None).matches(58, 0, 0));
        assert!(class("all", None, None).matches(132, 0, 0));
    }

    #[test]
    fn reserved_and_duplicate_names_are_rejected() {
        assert!(check(&[class("a", None, None), class("b", None, None)]).is_ok());
        assert!(check(&[class("a", None, None), class("a", None, None)]).is_err());
        assert!(check(&[class("cross", None, None)]).is_err());
    }
}
