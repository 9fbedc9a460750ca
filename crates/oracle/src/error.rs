//! Errors of the oracle, for people and programs.

use crate::{DatabaseName, StoreError, UrlError};
use std::{io, path::PathBuf, time::Duration};
use thalweg_net::KeyError;
use thalweg_units::NodeId;
use thalweg_wire::mesh::{Name, Role};
use thiserror::Error;

/// The oracle cannot start or cannot do what was requested.
#[derive(Debug, Error)]
pub enum OracleError {
    /// The directory already holds an oracle.
    #[error("{0} already holds an oracle, which was not replaced")]
    Exists(PathBuf),
    /// The directory holds no oracle.
    #[error(
        "{0} holds no oracle: create a mesh with `thalweg mesh init`, or restore a backup; a \
         further oracle of a shared database needs mesh.key of the first one (docs/oracle.md)"
    )]
    Missing(PathBuf),
    /// The mesh's key cannot be read or written.
    #[error("cannot use the mesh's key: {0}")]
    Key(#[from] KeyError),
    /// The second line of `mesh.key` is not the endorsement of the key in the first.
    #[error(
        "{} is damaged: its second line does not endorse the key in its first line; restore it \
         from a copy", .0.display()
    )]
    Endorsement(PathBuf),
    /// Another signing key has replaced that of this oracle.
    #[error(
        "mesh.key of this oracle has the number {own}, but number {newest} has replaced it \
         (`thalweg mesh rekey`): copy mesh.key from the oracle that has it and restart this node, or \
         run `thalweg mesh rekey` here if the file is an old copy"
    )]
    ReplacedKey {
        /// The number of the key in `mesh.key`.
        own: u64,
        /// The number of the key that signed the newest roster.
        newest: u64,
    },
    /// The root key is on another host.
    #[error(
        "{} does not exist; give the file to which you moved the mesh's root key: --root FILE",
        .0.display()
    )]
    NoRoot(PathBuf),
    /// The given key is not the mesh's root key.
    #[error("the given file holds the key {found:?}, not the root key {mesh:?} of this mesh")]
    OtherRoot {
        /// The key in the file.
        found: NodeId,
        /// The mesh's root key.
        mesh: NodeId,
    },
    /// A file cannot be read or written.
    #[error("cannot read or write {file}: {source}")]
    File { file: PathBuf, source: io::Error },
    /// The database belongs to another mesh.
    #[error(
        "{place} belongs to mesh {found}, but the oracle's mesh.key belongs to another mesh: \
         restore both from one backup, or give the database that belongs to the key"
    )]
    OtherMesh {
        place: DatabaseName,
        /// The mesh that the database belongs to.
        found: String,
    },
    /// The database already holds a mesh.
    #[error(
        "{0} already holds a mesh, which was not replaced. To create another mesh, give an empty \
         database; to make this host a further oracle of that mesh, join the mesh: see \
         docs/oracle.md"
    )]
    Taken(DatabaseName),
    /// The database holds no mesh.
    #[error(
        "{0} holds no mesh: create one with `thalweg mesh init` and these settings, or give the \
         URL of the database that holds it. To move an oracle's state there, see docs/oracle.md"
    )]
    Empty(DatabaseName),
    /// The state is in a server's database, and the settings name none.
    #[error(
        "the oracle of {dir} keeps its state in {place}, but the settings have no `database` in \
         [oracle]: set its URL there (`--config FILE`). To return to a file permanently, with the \
         members of the newest roster, remove {marker} first"
    )]
    Elsewhere {
        dir: PathBuf,
        /// The database that holds the state.
        place: String,
        /// The file that records it.
        marker: PathBuf,
    },
    /// The mesh has no node with this host's key.
    #[error(
        "the mesh of {dir} has no node with this host's key {node:?}; restore node.key, \
         client.key, mesh.json and oracle/ of the state directory together, from one copy"
    )]
    OtherNode {
        dir: PathBuf,
        /// The host's key.
        node: NodeId,
    },
    /// The resulting roster would be rejected by members.
    #[error("the resulting roster would not be valid: {0}")]
    Roster(#[from] thalweg_wire::SignedError),
    /// A roster is signed by a key that may not sign for this mesh.
    #[error(transparent)]
    Authority(#[from] thalweg_wire::mesh::AuthorityError),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The database's URL is not valid.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The request was refused; nothing was changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The system provides no random bytes.
    #[error("the system provides no random bytes: {0}")]
    Random(#[source] io::Error),
}

impl OracleError {
    /// A stable code for programs; [`Refusal::code`] for refusals.
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
    /// The request is not readable, or beyond a bound.
    #[error("{0}")]
    Bad(String),
    /// The body is too long.
    #[error("the request's body is longer than {0} bytes")]
    TooLarge(usize),
    /// The body did not arrive in time.
    #[error("the request's body did not arrive within {}", about(*.0))]
    Slow(Duration),
    /// There is no such route.
    #[error("the oracle does not know this request; compare its version with this one")]
    NoRoute,
    /// The route has another method.
    #[error("the request has the wrong HTTP method")]
    Method,
    /// The caller is a stranger or a revoked member.
    #[error("only members may make this request: this host has not joined, or it was revoked")]
    NotMember,
    /// The caller has not the role admin.
    #[error("only members with the role admin may make this request; ask one of them: {0}")]
    NotAdmin(String),
    /// Too many requests to join.
    #[error("too many requests to join; try again in {}", about(*.0))]
    RateLimited(Duration),
    /// A member's relays change too often.
    #[error("the relays of this member change too often; try again in {}", about(*.0))]
    ChangesTooOften(Duration),
    /// Too many waiting requests.
    #[error("too many requests of {0} are waiting; try again")]
    Waiting(&'static str),
    #[error("too many connections at once; try again")]
    Crowded,
    /// The keys in a request to join do not match.
    #[error("the request's keys are not valid: {0}")]
    Keys(&'static str),
    /// The token does not exist.
    #[error(
        "this oracle does not know the token: it is from another mesh, or expired long ago; ask \
         for another"
    )]
    TokenUnknown,
    /// Another host used the token.
    #[error(
        "the token was used by another host or key; each token lets one host join: ask for another"
    )]
    TokenUsed,
    #[error("the token expired {} ago, by the oracle's clock; ask for another{skew}", about(*.ago))]
    TokenExpired {
        ago: Duration,
        /// How the joiner's clock differs; empty if by at most a minute.
        skew: String,
    },
    /// The token's maker is no longer an admin.
    #[error(
        "the token is void, because the member that made it is no longer an admin of the mesh; ask \
         an admin for another"
    )]
    TokenVoid,
    /// The token is for another name.
    #[error("the token is for the name {0}: join with `--name {0}`")]
    TokenName(Name),
    /// A member already has the name.
    #[error("the name {0} is taken; choose another with `--name`")]
    NameTaken(Name),
    /// A member already has the key.
    #[error("this host's key already belongs to member {0}")]
    KeyTaken(Name),
    /// The key belonged to a revoked member.
    #[error(
        "this host's key was revoked as {0}: move node.key and client.key away to join with new \
         keys"
    )]
    KeyRevoked(Name),
    /// An address cannot be the host's.
    #[error("address {address}: {why}")]
    Address {
        address: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The member lacks something that the role requires.
    #[error("the role {role} needs {what}")]
    Role {
        role: Role,
        /// What is missing.
        what: &'static str,
    },
    /// The roster or the list of open tokens is full.
    #[error("{0}")]
    Full(String),
    /// There is no such member.
    #[error("no member has the name or key `{0}`; see `thalweg mesh members`")]
    UnknownMember(String),
    /// The member was revoked before.
    #[error("{name} was revoked {} ago", about(*.ago))]
    AlreadyRevoked { name: Name, ago: Duration },
    /// A member cannot revoke itself.
    #[error("{0} cannot revoke itself; another admin must do it")]
    Yourself(Name),
    /// The last member with the role cannot be revoked.
    #[error(
        "{name} is the last {role} of the mesh: without one, no member could be added or revoked \
         again"
    )]
    Last { name: Name, role: Role },
    /// The oracle's own node is not in the roster.
    #[error("this oracle's key {0:?} belongs to no member: no host could join with its tokens")]
    NotListed(NodeId),
    /// Another oracle of the mesh schedules measurements.
    #[error(
        "this oracle does not schedule measurements: the elected oracle is {0}; contact that one"
    )]
    NotElected(String),
    /// The oracle is stopping.
    #[error("the oracle is stopping; try again")]
    Stopping,
}

impl Refusal {
    /// A stable code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Bad(_) => "bad_request",
            Self::TooLarge(_) => "too_large",
            Self::Slow(_) => "too_slow",
            Self::NoRoute => "not_found",
            Self::Method => "method",
            Self::NotMember => "not_member",
            Self::NotAdmin(_) => "not_admin",
            Self::RateLimited(_) | Self::ChangesTooOften(_) => "rate_limited",
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

/// A duration for people, in the largest unit of which it has at least two.
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
    fn durations_have_readable_units() {
        let told = [0, 90, 120, 7199, 7200, 9100, 48 * 3600, 30 * 24 * 3600]
            .map(|seconds| about(Duration::from_secs(seconds)));
        let expected = ["0 s", "90 s", "2 min", "120 min", "2 h", "3 h", "2 days", "30 days"];
        assert_eq!(told, expected);
    }
}
