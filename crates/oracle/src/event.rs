//! What an operator should know of.

use std::fmt;
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::mesh::Name;

/// Something that happened; prints as one line without secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A new roster is out.
    Published {
        /// Its version.
        version: u64,
        /// Its members.
        members: usize,
        /// When it expires.
        expiry: WallTime,
    },
    /// A host joined.
    Joined {
        /// Its name.
        name: Name,
        /// The key that stands for it.
        key: NodeId,
    },
    /// A request to join was refused.
    JoinRefused {
        /// The key that asked.
        key: NodeId,
        /// [`crate::Refusal::code`], or `storage`.
        code: &'static str,
    },
    /// A host listed addresses, and its token has neither the role relay nor oracle.
    AddressesDropped {
        /// Its name.
        name: Name,
    },
    /// A member was revoked.
    Revoked {
        /// Its name.
        name: Name,
        /// By whom.
        by: String,
    },
    /// A token was made.
    TokenMade {
        /// By whom.
        by: String,
    },
    /// The database was behind the signed copy, which is believed.
    Restored {
        /// The database's version.
        database: u64,
        /// The copy's.
        copy: u64,
    },
    /// The copy of the roster is not used: another mesh's, or altered.
    CopyIgnored(String),
    /// The roster could not be renewed, refreshed or copied; what is there is served on.
    Trouble(String),
    /// This oracle schedules from now on, under this number.
    Elected(u64),
    /// Another oracle schedules instead of this one, which had this number.
    Deposed(u64),
    /// Of measuring.
    Measuring(crate::MeasureEvent),
    /// A member has a higher version than ours: our state was rolled back.
    Ahead {
        /// Who.
        name: Name,
        /// Its version.
        has: u64,
        /// Ours.
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
                "the addresses of {name} are not listed: its token has not the role relay"
            ),
            Self::Revoked { name, by } => write!(f, "{name} revoked by {by}"),
            Self::TokenMade { by } => write!(f, "join token made by {by}"),
            Self::Restored { database, copy } => write!(
                f,
                "the database (version {database}) is behind the signed roster (version {copy}): \
                 its members are taken from that, open tokens are void"
            ),
            Self::CopyIgnored(why) => write!(f, "the copy of the roster is not used: {why}"),
            Self::Trouble(why) => write!(f, "{why}; the last roster is served on"),
            Self::Elected(term) => write!(f, "elected to schedule, term {term}"),
            Self::Deposed(term) => write!(f, "schedules no more, term {term} is over"),
            Self::Measuring(event) => event.fmt(f),
            Self::Ahead { name, has, ours } => write!(
                f,
                "{name} has roster version {has}, ours is {ours}: this oracle's state was \
                 rolled back; copy that member's `roster` file beside oracle.db and start again"
            ),
        }
    }
}
