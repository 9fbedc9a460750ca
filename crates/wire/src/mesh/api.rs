//! The bodies of the oracle's API: JSON over HTTP/1.1 in TLS.
//!
//! | Request | Who | Reply |
//! |---|---|---|
//! | `POST /v1/join` (ALPN join) | any key, with a token | [`JoinReply`] |
//! | `GET /v1/roster?after=V&wait_s=S` | members | the signed roster once its version is above V; 204 after S s |
//! | `GET /v1/status` | members | [`StatusReply`] |
//! | `POST /v1/tokens` | role admin | [`TokenReply`] |
//! | `POST /v1/revoke` | role admin | [`RevokeReply`] |
//! | `POST /v1/addresses` | members, about themselves | [`AddressesReply`] |
//! | `POST /v1/reach` | nodes | [`super::ReachReply`] |
//!
//! Errors: status 4xx or 5xx and an [`ApiError`]. Unknown fields are ignored, so that requests of later versions are
//! understood.

use super::{Name, Role, Secret, Tag, Token};
use crate::{DecodeError, Destination, Signable};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, time::Duration};
use thalweg_units::{NodeId, WallTime, serde_duration};

/// A request to become a member. The connection is authenticated with `node`, or with `client` if there is no node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    pub secret: Secret,
    pub name: Name,
    /// The daemon's key; none if the host runs no daemon.
    pub node: Option<NodeId>,
    /// A [`ClientBinding`] signed with the client's key: the bytes of `crate::Signed::encode` in hexadecimal.
    pub client: String,
    /// The addresses of the daemon.
    pub addresses: Vec<Destination>,
    /// The joining host's clock.
    pub time: WallTime,
}

/// A statement that daemon and client belong to the same host, signed with the client's key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientBinding {
    /// The key of the mesh to join.
    pub mesh: NodeId,
    /// The daemon's key.
    pub node: Option<NodeId>,
    /// [`Secret::hash`] of the token.
    pub token: [u8; 32],
}

impl Signable for ClientBinding {
    const DOMAIN: &'static str = "client binding 1";
    /// Two keys of 65 bytes (as text), an option's byte, and the hash have 163 bytes.
    const MAX_BYTES: usize = 192;

    fn encode(&self, out: &mut Vec<u8>) {
        // Encoding this type to a vector cannot fail.
        out.extend(postcard::to_stdvec(self).unwrap_or_default());
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        postcard::from_bytes(bytes).map_err(|_| {
            DecodeError::Invalid(
                "the client binding is not \
            valid",
            )
        })
    }
}

/// The reply to a [`JoinRequest`]: the host is a member now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinReply {
    /// The name of the new member.
    pub name: Name,
    /// The signed roster, in hexadecimal.
    pub roster: String,
    /// The oracle's clock.
    pub time: WallTime,
}

/// A request for a join token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRequest {
    /// The roles of the joining host.
    pub roles: BTreeSet<Role>,
    /// The tags of the joining host.
    pub tags: BTreeSet<Tag>,
    /// The name that the host must take; none: the host chooses.
    pub name: Option<Name>,
    /// How long the token is valid.
    #[serde(with = "serde_duration")]
    pub valid: Duration,
}

/// A new token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenReply {
    /// The token as text; see [`Token`].
    pub token: String,
    /// When the token expires, by the oracle's clock.
    pub expires: WallTime,
}

/// A request to revoke a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokeRequest {
    /// The member's name, or one of its keys.
    pub member: String,
}

/// The reply to a [`RevokeRequest`]: the member is revoked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokeReply {
    /// The member's name.
    pub name: Name,
    /// The version of the roster without the member.
    pub version: u64,
}

/// A request to replace the addresses of the member that sends it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressesRequest {
    /// The addresses at which other hosts reach it, the best first.
    pub addresses: Vec<Destination>,
}

/// The reply to an [`AddressesRequest`]: the addresses are in the roster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressesReply {
    /// The member's name.
    pub name: Name,
    pub addresses: Vec<Destination>,
    /// The version of the roster with these addresses.
    pub version: u64,
}

/// The oracle's view of the mesh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusReply {
    /// The mesh's key.
    pub mesh: NodeId,
    /// The roster's version.
    pub version: u64,
    /// When the roster expires.
    pub expiry: WallTime,
    /// The oracle's clock.
    pub time: WallTime,
    /// The members, sorted by name.
    pub members: Vec<MemberStatus>,
}

/// The oracle's view of one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    pub name: Name,
    /// The time since the member last requested the roster; none: it has not since the oracle started.
    #[serde(default, with = "serde_duration::option")]
    pub seen: Option<Duration>,
    /// The version that the member had then.
    #[serde(default)]
    pub version: Option<u64>,
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiError {
    /// The error for programs, e.g. `token_used`.
    pub code: String,
    /// The error for people: what failed and what to try.
    pub message: String,
}

/// Parses the token in a [`TokenReply`].
impl TryFrom<&TokenReply> for Token {
    type Error = super::TokenError;
    fn try_from(reply: &TokenReply) -> Result<Self, Self::Error> {
        reply.token.parse()
    }
}
