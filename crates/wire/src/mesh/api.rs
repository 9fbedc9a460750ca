//! The bodies of the oracle's API: JSON over HTTP/1.1, inside TLS.
//!
//! | Request | Who | Reply |
//! |---|---|---|
//! | `POST /v1/join` (ALPN join) | any key, with a token | [`JoinReply`] |
//! | `GET /v1/roster?after=V&wait_s=S` | members | 200 with the signed roster's bytes once its version is above V, or 204 after S seconds |
//! | `GET /v1/status` | members | [`StatusReply`] |
//! | `POST /v1/tokens` | role admin | [`TokenReply`] |
//! | `POST /v1/revoke` | role admin | [`RevokeReply`] |
//!
//! Errors: status 4xx or 5xx and an [`ApiError`]. Unknown fields are ignored, so
//! that a node of the next version is understood.

use super::{Name, Role, Secret, Tag, Token};
use crate::{DecodeError, Destination, Signable};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, time::Duration};
use thalweg_units::{NodeId, WallTime, serde_duration};

/// Asks to become a member. The connection is authenticated with `node`, or with
/// `client` if there is no node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    /// The token's secret.
    pub secret: Secret,
    /// The wanted name.
    pub name: Name,
    /// The daemon's key.
    pub node: Option<NodeId>,
    /// A [`ClientBinding`] signed by the client key: `crate::Signed::encode`d, in hexadecimal.
    pub client: String,
    /// Where the daemon's port is reached.
    pub addresses: Vec<Destination>,
    /// The joining host's clock.
    pub time: WallTime,
}

/// What the client key signs: "this daemon and I are one host".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientBinding {
    /// The mesh that is joined.
    pub mesh: NodeId,
    /// The daemon's key.
    pub node: Option<NodeId>,
    /// [`Secret::hash`] of the token.
    pub token: [u8; 32],
}

impl Signable for ClientBinding {
    const DOMAIN: &'static str = "client binding 1";
    /// Two keys of 65 bytes (as text), an option's byte, the hash: 163.
    const MAX_BYTES: usize = 192;

    fn encode(&self, out: &mut Vec<u8>) {
        // Writing to a vector fails for no value of this type.
        out.extend(postcard::to_stdvec(self).unwrap_or_default());
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        postcard::from_bytes(bytes).map_err(|_| DecodeError::Invalid("no client binding"))
    }
}

/// The host is a member now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinReply {
    /// The name it got.
    pub name: Name,
    /// The signed roster, in hexadecimal.
    pub roster: String,
    /// The oracle's clock.
    pub time: WallTime,
}

/// Asks for a join token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRequest {
    /// What the joining host will do.
    pub roles: BTreeSet<Role>,
    /// Its tags.
    pub tags: BTreeSet<Tag>,
    /// The name it must take; none: it chooses.
    pub name: Option<Name>,
    /// How long the token can be used.
    #[serde(with = "serde_duration")]
    pub valid: Duration,
}

/// A new token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenReply {
    /// As text; see [`Token`].
    pub token: String,
    /// When it expires, by the oracle's clock.
    pub expires: WallTime,
}

/// Asks to revoke a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokeRequest {
    /// Its name, or one of its keys.
    pub member: String,
}

/// The member is revoked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokeReply {
    /// Who.
    pub name: Name,
    /// The roster's version without it.
    pub version: u64,
}

/// The oracle's view of the mesh.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusReply {
    /// The mesh's key.
    pub mesh: NodeId,
    /// The roster's version.
    pub version: u64,
    /// When it expires.
    pub expiry: WallTime,
    /// The oracle's clock.
    pub time: WallTime,
    /// The members, sorted by name.
    pub members: Vec<MemberStatus>,
}

/// One member, as the oracle sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its name.
    pub name: Name,
    /// How long ago it last asked for the roster; none: not since the oracle started.
    #[serde(default, with = "serde_duration::option")]
    pub seen: Option<Duration>,
    /// The version it had then.
    #[serde(default)]
    pub version: Option<u64>,
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiError {
    /// For programs, e.g. `token_used`.
    pub code: String,
    /// For people: what failed and what to try.
    pub message: String,
}

/// The token in a [`TokenReply`].
impl TryFrom<&TokenReply> for Token {
    type Error = super::TokenError;
    fn try_from(reply: &TokenReply) -> Result<Self, Self::Error> {
        reply.token.parse()
    }
}
