//! A node at the other end, as its authenticated channel knows it.

use thalweg_units::NodeId;

/// An authenticated node at the other end of a channel: the contract that identity will fill.
///
/// It exists only after the TLS 1.3 handshake has proven the key *and* the key
/// stands in the current roster; nothing that takes a `Peer` asks again.
/// Plain SOCKS5 relays have none: they know addresses alone.
pub trait Peer: Send + Sync {
    /// The node's entry in the roster: roles, tags, rules.
    type Entry;

    /// The proven Ed25519 public key.
    fn key(&self) -> NodeId;

    /// The roster entry under which it was admitted; a newer roster replaces the whole peer.
    fn entry(&self) -> &Self::Entry;

    /// Fills `secret` with keying material bound to this channel (RFC 8446 §7.5).
    ///
    /// For UDP probes between the same two nodes, without a second handshake.
    /// The same label and context give both ends the same bytes; each purpose
    /// has a label of its own.
    ///
    /// # Errors
    /// When the channel is closed or cannot give so many bytes.
    fn exporter_secret(
        &self,
        label: &[u8],
        context: &[u8],
        secret: &mut [u8],
    ) -> std::io::Result<()>;

    /// Ends when the key is revoked or the roster that admitted it expires.
    ///
    /// Whoever moves bytes for the peer selects on it and cuts the legs at
    /// once; it never ends for another reason, and never un-revokes.
    fn revoked(&self) -> impl Future<Output = ()> + Send;
}
