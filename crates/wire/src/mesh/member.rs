//! Members of the mesh: names, keys, addresses, roles and tags.

use crate::Destination;
use serde::{Deserialize, Deserializer, Serialize, de};
use std::{collections::BTreeSet, fmt, str::FromStr};
use thalweg_units::NodeId;
use thiserror::Error;

/// The name of a member or a tag: 1 to 63 of `a-z`, `0-9`, `-`, `_`, `=`, `.`, beginning with a letter or digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Name(Box<str>);

/// A label that rules and routes refer to, e.g. `country=de`, `provider=x`, `guest`.
pub type Tag = Name;

/// The text is not a name; contains the text, escaped and truncated.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{0}` is not a valid name: use 1 to 63 of a-z, 0-9, `-`, `_`, `=` and `.`, beginning with a \
     letter or digit"
)]
pub struct NameError(String);

impl Name {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = NameError;
    fn from_str(s: &str) -> Result<Self, NameError> {
        let first = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let rest = |b: u8| first(b) || b"-_=.".contains(&b);
        let good = (1..=63).contains(&s.len())
            && s.bytes().next().is_some_and(first)
            && s.bytes().all(rest);
        if good {
            return Ok(Self(s.into()));
        }
        Err(NameError(s.chars().take(64).flat_map(char::escape_debug).collect()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(de::Error::custom)
    }
}

/// A role of a member in the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Uses the mesh: fetches through relays. Every member has this role.
    Client,
    /// Relays connections for members.
    Relay,
    /// Keeps the roster and serves the API.
    Oracle,
    /// May create tokens and revoke members.
    Admin,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Client => "client",
            Self::Relay => "relay",
            Self::Oracle => "oracle",
            Self::Admin => "admin",
        })
    }
}

impl FromStr for Role {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let all = [Self::Client, Self::Relay, Self::Oracle, Self::Admin];
        all.into_iter()
            .find(|role| role.to_string() == s)
            .ok_or_else(|| "a role is one of client, relay, oracle, admin".to_owned())
    }
}

/// A member of the mesh.
///
/// A member has up to two keys, so that a program started by a user never holds the daemon's key: `node` authenticates
/// the daemon, `client` the command line of the same host. Rules and quotas treat both as one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The name, unique in the mesh.
    pub name: Name,
    /// The daemon's key; none if the host runs no daemon.
    pub node: Option<NodeId>,
    /// The command line's key.
    pub client: NodeId,
    /// The daemon's addresses, the best first, and the relays through which it is reached
    /// ([`Member::reach_relays`]); at most [`Member::MAX_ADDRESSES`].
    pub addresses: Vec<Destination>,
    pub roles: BTreeSet<Role>,
    /// The tags that rules and routes refer to.
    pub tags: BTreeSet<Tag>,
}

impl Member {
    /// The maximum number of addresses of a member: two families on a few interfaces.
    pub const MAX_ADDRESSES: usize = 8;
    /// The maximum number of tags of a member.
    pub const MAX_TAGS: usize = 32;

    /// Whether `key` is one of the member's keys.
    pub fn holds(&self, key: &NodeId) -> bool {
        self.node.as_ref() == Some(key) || self.client == *key
    }

    /// Whether the member has this role.
    pub fn is(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// The key that identifies the member in quotas: the daemon's, or else the client's.
    pub fn principal(&self) -> NodeId {
        self.node.unwrap_or(self.client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_names_are_accepted() {
        for good in ["a", "fra-1", "country=de", "9x", &"a".repeat(63)] {
            assert_eq!(good.parse::<Name>().unwrap().as_str(), good);
        }
        for bad in ["", "-a", "=a", "A", "a b", "é", "a/b", "a:1", "a+b", &"a".repeat(64)] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }

    #[test]
    fn roles_round_trip() {
        for role in [Role::Client, Role::Relay, Role::Oracle, Role::Admin] {
            assert_eq!(role.to_string().parse(), Ok(role));
        }
        assert!("root".parse::<Role>().is_err());
    }
}
