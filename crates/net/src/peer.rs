//! The interface of an authenticated peer.

use thalweg_units::NodeId;

/// An authenticated node at the other end of a channel.
///
/// It exists only after the TLS 1.3 handshake has proven the key *and* the key was found in the current roster;
/// functions that take a `Peer` do not check again. Plain SOCKS5 relays have none, because they know only addresses.
pub trait Peer: Send + Sync {
    /// The node's entry in the roster: roles, tags, rules.
    type Entry;

    /// The proven Ed25519 public key.
    fn key(&self) -> NodeId;

    /// The roster entry under which the node was admitted. A newer roster replaces the whole peer.
    fn entry(&self) -> &Self::Entry;

    /// Fills `secret` with keying material bound to this channel (RFC 8446 §7.5).
    ///
    /// It serves UDP probes between the two nodes, without a second handshake. The same label and context give both
    /// ends the same bytes; each purpose has its own label.
    ///
    /// # Errors
    /// If the channel is closed or cannot export that many bytes.
    fn exporter_secret(
        &self,
        label: &[u8],
        context: &[u8],
        secret: &mut [u8],
    ) -> std::io::Result<()>;

    /// Completes when the key is revoked or the roster that admitted it expires.
    ///
    /// Code that moves bytes for the peer selects on it and then cuts the legs at once. It never completes for another
    /// reason, and a revocation is never undone.
    fn revoked(&self) -> impl Future<Output = ()> + Send;
}
