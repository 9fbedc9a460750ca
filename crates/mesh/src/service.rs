//! Traits of the services that a daemon passes channels to.
//!
//! The daemon knows services, and the oracle, only by these traits (decision 0083).

use crate::MeshPeer;
use futures_util::future::BoxFuture;
use std::{fmt, net::SocketAddr};
use thalweg_net::channel::{Channel, Protocol};
use thalweg_units::NodeId;
use thalweg_wire::bistro::{StrikeReply, StrikeRequest};
use thalweg_wire::mesh::{
    AddressesReply, AddressesRequest, ApiError, RevokeReply, RevokeRequest, StatusReply,
    TokenReply, TokenRequest,
};
use tokio::net::TcpStream;

/// The sender of requests on a channel to the oracle.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// The proven key; a member's unless the protocol is [`Protocol::Join`].
    pub key: NodeId,
    /// The source of the connection.
    pub address: SocketAddr,
    /// `Api` or `Join`.
    pub protocol: Protocol,
}

/// Serves members' channels of one protocol: a relay, a prober, files, casts, or a fake in tests.
pub trait MemberService: Send + Sync + fmt::Debug {
    /// Serves one channel to its end, which comes at once when the peer is revoked. Dropping the future cuts the
    /// channel; a relay resets both legs.
    fn serve(
        &self,
        channel: Channel<TcpStream>,
        peer: MeshPeer,
        from: SocketAddr,
    ) -> BoxFuture<'static, ()>;

    /// The true address of the member whose stream this service passes on to the node's own port from the address
    /// `_from`; `None` if it passes on none from there.
    fn origin(&self, _from: SocketAddr) -> Option<SocketAddr> {
        None
    }

    /// Its counters, and a relay's quotas, for `thalweg status`; null if it has none.
    fn report(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// Serves channels `submit`: `thalweg_dropbox`, or a fake in tests.
pub trait SubmitService: Send + Sync + fmt::Debug {
    /// Whether a key that is in no roster may open a channel. Never blocks.
    fn admits(&self, key: &NodeId) -> bool;

    /// Serves one channel to its end or to a member's revocation. Dropping the future cuts the channel.
    fn serve(
        &self,
        channel: Channel<TcpStream>,
        peer: Option<MeshPeer>,
        from: SocketAddr,
    ) -> BoxFuture<'static, ()>;

    /// Its counters for `thalweg status`, and its settings for `thalweg drop-box`.
    fn report(&self) -> serde_json::Value;

    /// Strikes submissions and keys from a drop box.
    fn strike(&self, request: StrikeRequest) -> BoxFuture<'_, Result<StrikeReply, ApiError>>;
}

/// The oracle's end of the channels `api` and `join`; only oracles have one.
pub trait ApiService: Send + Sync + fmt::Debug {
    /// Serves one channel to its end. Dropping the future cuts the channel.
    fn serve(&self, channel: Channel<TcpStream>, caller: Caller) -> BoxFuture<'static, ()>;
}

/// Answers requests that only an oracle can answer: the oracle in this process, or a client of another one.
///
/// The local API asks in this node's name; only the node's owner can open it.
pub trait Control: Send + Sync + fmt::Debug {
    /// Creates a join token.
    fn token(&self, request: TokenRequest) -> BoxFuture<'_, Result<TokenReply, ApiError>>;
    fn revoke(&self, request: RevokeRequest) -> BoxFuture<'_, Result<RevokeReply, ApiError>>;
    /// Replaces the addresses of this host in the roster.
    fn set_addresses(
        &self,
        request: AddressesRequest,
    ) -> BoxFuture<'_, Result<AddressesReply, ApiError>>;
    /// The oracle's view of the mesh.
    fn status(&self) -> BoxFuture<'_, Result<StatusReply, ApiError>>;
}
