//! What goes wrong, for people and for programs.

use crate::{Place, StoreError, UrlError};
use std::{io, path::PathBuf, time::Duration};
use thalweg_net::KeyError;
use thalweg_units::NodeId;
use thalweg_wire::mesh::{Name, Role};
use thiserror::Error;

/// The oracle cannot start, or not do what it was asked.
#[derive(Debug, Error)]
pub enum OracleError {
    /// There is one already.
    #[error("{0} holds an oracle already; it is not replaced")]
    Exists(PathBuf),
    /// There is none.
    #[error(
        "{0} holds no oracle: found a mesh with `thalweg mesh init`, or restore a backup; on one more \
         host of a shared database it needs mesh.key of the first (docs/oracle.md)"
    )]
    Missing(PathBuf),
    /// The mesh's key.
    #[error("the mesh's key: {0}")]
    Key(#[from] KeyError),
    /// A file.
    #[error("{file}: {source}")]
    File {
        /// Which.
        file: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The database was made with another mesh's key.
    #[error(
        "{place} belongs to mesh {found}, the oracle's mesh.key to another: restore both \
         together, or give the database that belongs to the key"
    )]
    OtherMesh {
        /// The database.
        place: Place,
        /// The mesh it is of.
        found: String,
    },
    /// The database was founded by another.
    #[error(
        "{0} holds a mesh already; it is not replaced. To found another give an empty database; to \
         let this host be another oracle of that mesh, join it: see docs/oracle.md"
    )]
    Taken(Place),
    /// There is nothing to begin from.
    #[error(
        "{0} holds no mesh: found one with `thalweg mesh init` under these settings, or give the URL of \
         the database that has it. To move an oracle's state there, see docs/oracle.md"
    )]
    Empty(Place),
    /// The settings name another kind of database than the one that this oracle has.
    #[error(
        "the oracle of {dir} keeps its state in {place}, and the settings have no `database` in \
         [oracle]: give its URL there (`--config FILE`). To go back to a file for good, with the \
         members of the newest roster, remove {marker} first"
    )]
    Elsewhere {
        /// The oracle's directory.
        dir: PathBuf,
        /// Where the state is.
        place: String,
        /// What says so.
        marker: PathBuf,
    },
    /// The mesh does not know the node that the oracle is to run in.
    #[error(
        "the mesh of {dir} has no node with this host's key {node:?}; restore node.key, \
         client.key, mesh.json and oracle/ of the state directory together, from one copy"
    )]
    OtherNode {
        /// The oracle's directory.
        dir: PathBuf,
        /// The key that was given.
        node: NodeId,
    },
    /// The roster that would come out is none that members accept.
    #[error("no roster can be made of it: {0}")]
    Roster(#[from] thalweg_wire::SignedError),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The database's URL.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// Refused; nothing was changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The system gives no random bytes.
    #[error("no random bytes: {0}")]
    Random(#[source] io::Error),
}

impl OracleError {
    /// For programs; [`Refusal::code`] of refusals.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.code(),
            Self::Store(_) => "storage",
            _ => "oracle",
        }
    }
}

/// Why a request is refused. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Not readable, or beyond a bound.
    #[error("{0}")]
    Bad(String),
    /// The body is beyond its bound.
    #[error("the request's body is longer than {0} bytes")]
    TooLarge(usize),
    /// The body did not come in time.
    #[error("the request's body did not come within {}", about(*.0))]
    Slow(Duration),
    /// No such request.
    #[error("there is no such request; see the oracle's version")]
    NoRoute,
    /// Another method.
    #[error("not with this method")]
    Method,
    /// A stranger or a revoked member asks.
    #[error("only members may ask this: join first, or this host was revoked")]
    NotMember,
    /// A member without the role asks.
    #[error("only members with the role admin may ask this; ask one of them: {0}")]
    NotAdmin(String),
    /// Too many requests to join.
    #[error("too many requests to join; try again in {}", about(*.0))]
    RateLimited(Duration),
    /// Too many waiting requests.
    #[error("too many requests of {0} are waiting for a roster; try again")]
    Waiting(&'static str),
    /// Too many connections.
    #[error("too many connections at once; try again")]
    Crowded,
    /// The keys in a request to join do not fit.
    #[error("the keys do not fit: {0}")]
    Keys(&'static str),
    /// No such token.
    #[error("this oracle has no such token: it was made by another mesh's, or long ago")]
    TokenUnknown,
    /// Another host joined with it.
    #[error(
        "the token was used by another host or key; a token lets one host join, ask for another"
    )]
    TokenUsed,
    /// Its time is over.
    #[error("the token expired {} ago, by the oracle's clock; ask for another{skew}", about(*.ago))]
    TokenExpired {
        /// How long ago.
        ago: Duration,
        /// How the joiner's clock differs; empty if by a minute at most.
        skew: String,
    },
    /// Who made it was revoked.
    #[error(
        "the token is void, since whoever made it is no admin of the mesh any more; ask an admin \
         for another"
    )]
    TokenVoid,
    /// It is for another name.
    #[error("the token is for the name {0}: join with `--name {0}`")]
    TokenName(Name),
    /// A member has the name.
    #[error("the name {0} is taken; choose another with `--name`")]
    NameTaken(Name),
    /// A member has the key.
    #[error("this host's key is that of member {0} already")]
    KeyTaken(Name),
    /// The key was a revoked member's.
    #[error("this host's key was revoked as {0}: move its key files away to join with new ones")]
    KeyRevoked(Name),
    /// An address cannot be the host's.
    #[error("address {address}: {why}")]
    Address {
        /// Which.
        address: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The role needs more.
    #[error("the role {role} needs {what}")]
    Role {
        /// Which.
        role: Role,
        /// What is missing.
        what: &'static str,
    },
    /// The roster or the list of open tokens is full.
    #[error("{0}")]
    Full(String),
    /// No such member.
    #[error("no member has the name or key `{0}`; see `thalweg mesh members`")]
    UnknownMember(String),
    /// It was revoked before.
    #[error("{name} was revoked {} ago", about(*.ago))]
    AlreadyRevoked {
        /// Who.
        name: Name,
        /// How long ago.
        ago: Duration,
    },
    /// The asking member itself.
    #[error("{0} cannot revoke itself; let another admin do it")]
    Yourself(Name),
    /// The mesh would have nobody with the role.
    #[error(
        "{name} is the last {role} of the mesh: without one nobody could ever be added or revoked"
    )]
    Last {
        /// Who.
        name: Name,
        /// The role.
        role: Role,
    },
    /// The oracle itself is not in the roster.
    #[error("this oracle's key {0:?} is no member's: tokens would lead nowhere")]
    NotListed(NodeId),
    /// Another oracle of the mesh schedules measurements.
    #[error("this oracle does not schedule measurements: {0} is elected to; ask and tell that one")]
    NotElected(String),
    /// It ends.
    #[error("the oracle is stopping; try again")]
    Stopping,
}

impl Refusal {
    /// For programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Bad(_) => "bad_request",
            Self::TooLarge(_) => "too_large",
            Self::Slow(_) => "too_slow",
            Self::NoRoute => "not_found",
            Self::Method => "method",
            Self::NotMember => "not_member",
            Self::NotAdmin(_) => "not_admin",
            Self::RateLimited(_) => "rate_limited",
            Self::Waiting(_) => "too_many_waiting",
            Self::Crowded => "too_many_connections",
            Self::Keys(_) => "keys",
            Self::TokenUnknown => "token_unknown",
            Self::TokenUsed => "token_used",
            Self::TokenExpired { .. } => "token_expired",
            Self::TokenVoid => "token_void",
            Self::TokenName(_) => "token_name",
            Self::NameTaken(_) => "name_taken",
            Self::KeyTaken(_) => "key_taken",
            Self::KeyRevoked(_) => "key_revoked",
            Self::Address { .. } => "address",
            Self::Role { .. } => "role",
            Self::Full(_) => "full",
            Self::UnknownMember(_) => "unknown_member",
            Self::AlreadyRevoked { .. } => "already_revoked",
            Self::Yourself(_) => "yourself",
            Self::Last { .. } => "last",
            Self::NotListed(_) => "not_listed",
            Self::NotElected(_) => "not_elected",
            Self::Stopping => "stopping",
        }
    }
}

/// A duration for people: in the largest unit of which there are two.
pub(crate) fn about(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let units = [(24 * 3600, "days"), (3600, "h"), (60, "min")];
    let (unit, name) = units.into_iter().find(|(unit, _)| seconds >= 2 * unit).unwrap_or((1, "s"));
    format!("{} {name}", (seconds + unit / 2) / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_told_as_people_do() {
        let told = [0, 90, 120, 7199, 7200, 9100, 48 * 3600, 30 * 24 * 3600]
            .map(|seconds| about(Duration::from_secs(seconds)));
        let expected = ["0 s", "90 s", "2 min", "120 min", "2 h", "3 h", "2 days", "30 days"];
        assert_eq!(told, expected);
    }
}
