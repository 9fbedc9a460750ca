//! Events for the operator.

use std::fmt;
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::mesh::Name;

/// An event. It prints as one line without secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A new roster was published.
    Published {
        version: u64,
        /// The number of its members.
        members: usize,
        expiry: WallTime,
    },
    Joined {
        name: Name,
        /// Its principal.
        key: NodeId,
    },
    /// A request to join was refused.
    JoinRefused {
        /// The key that asked.
        key: NodeId,
        /// [`crate::Refusal::code`], or `storage`.
        code: &'static str,
    },
    /// A joining host listed addresses, but its token has neither the role relay nor oracle.
    AddressesDropped { name: Name },
    /// A member was revoked.
    Revoked {
        name: Name,
        /// The revoking member, or `local`.
        by: String,
    },
    /// A token was created.
    TokenMade {
        /// The creating member, or `local`.
        by: String,
    },
    /// The database was behind the signed copy, and was restored from it.
    Restored {
        /// The database's version.
        database: u64,
        /// The copy's version.
        copy: u64,
    },
    /// The copy of the roster is ignored, because it is another mesh's or altered. Holds the reason.
    CopyIgnored(String),
    /// The roster could not be renewed, refreshed or copied; the last one is still served. Holds the reason.
    Trouble(String),
    /// This oracle schedules from now on, in this term.
    Elected(u64),
    /// Another oracle schedules instead of this one, whose term this was.
    Deposed(u64),
    /// An event of the measurements.
    Measuring(crate::MeasureEvent),
    /// A member has a higher version than this oracle: the oracle's state was rolled back, or somebody has its key.
    Ahead {
        name: Name,
        /// The member's version.
        has: u64,
        /// The oracle's version.
        ours: u64,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Published { version, members, .. } => {
                write!(f, "roster version {version} published, {members} members")
            }
            Self::Joined { name, key } => write!(f, "{name} joined with key {key:?}"),
            Self::JoinRefused { key, code } => write!(f, "key {key:?} may not join: {code}"),
            Self::AddressesDropped { name } => write!(
                f,
                "the addresses of {name} are not listed, because its token does not have the role \
                 relay"
            ),
            Self::Revoked { name, by } => write!(f, "{name} revoked by {by}"),
            Self::TokenMade { by } => write!(f, "join token made by {by}"),
            Self::Restored { database, copy } => write!(
                f,
                "the database (version {database}) is older than the signed roster (version \
                 {copy}): the members are taken from the roster, and open tokens are void"
            ),
            Self::CopyIgnored(why) => write!(f, "the copy of the roster is not used: {why}"),
            Self::Trouble(why) => write!(f, "{why}; the last roster is still served"),
            Self::Elected(term) => write!(f, "elected to schedule, term {term}"),
            Self::Deposed(term) => write!(
                f,
                "no longer schedules measurements, term {term} has \
                                              ended"
            ),
            Self::Measuring(event) => event.fmt(f),
            Self::Ahead { name, has, ours } => write!(
                f,
                "{name} has roster version {has}, but this oracle has {ours}: if this oracle's state \
                 was restored from a backup, copy that member's `roster` file to the directory of \
                 oracle.db and restart the oracle; if not, somebody signs with a copy of mesh.key: \
                 run `thalweg mesh rekey`"
            ),
        }
    }
}
