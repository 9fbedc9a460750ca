//! A member at the other end of a channel.

use super::Membership;
use std::{future::Future, io, sync::Arc};
use thalweg_net::{Peer, channel::Channel};
use thalweg_units::NodeId;
use thalweg_wire::mesh::{Member, Roster};

/// The exporter's label (RFC 8446 §7.5) of the secret from which all others are derived.
const EXPORTER_LABEL: &[u8] = b"EXPORTER-thalweg peer 1";

/// A member at the other end of a channel; see [`thalweg_net::Peer`].
#[derive(Clone)]
pub struct MeshPeer {
    key: NodeId,
    member: Arc<Member>,
    membership: Membership,
    secret: Option<[u8; 32]>,
}

impl MeshPeer {
    pub(super) fn new(key: NodeId, member: Member, membership: Membership) -> Self {
        Self { key, member: Arc::new(member), membership, secret: None }
    }

    /// The same peer with the channel's keying material, for [`Peer::exporter_secret`].
    ///
    /// # Errors
    /// The channel's.
    pub fn with_channel<IO>(mut self, channel: &Channel<IO>) -> io::Result<Self> {
        let mut secret = [0; 32];
        channel.exporter_secret(EXPORTER_LABEL, self.membership.mesh().as_bytes(), &mut secret)?;
        self.secret = Some(secret);
        Ok(self)
    }

    /// The proven key.
    pub fn key(&self) -> NodeId {
        self.key
    }

    /// Its roster entry at the time of admission.
    pub fn member(&self) -> &Member {
        &self.member
    }

    /// The membership that admitted it.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Ends when a newer roster lacks the peer's key or this host's own ([`Membership::set_own`]), or when the roster
    /// expires; never otherwise.
    ///
    /// A lost role does not end it: roles are checked when work begins. A renewed roster postpones the end. Needs a
    /// tokio runtime.
    pub fn revoked(&self) -> impl Future<Output = ()> + Send + use<> {
        let (key, membership) = (self.key, self.membership.clone());
        async move {
            let ended = |r: &Roster| r.by_key(&key).is_none() || membership.lacks_own_key(r);
            membership.wait_until(ended).await;
        }
    }

    /// Does the work, and stops it at once when the peer is [`revoked`](Self::revoked).
    ///
    /// # Errors
    /// [`Revoked`] if that came first; the work is then dropped.
    pub async fn unless_revoked<T>(&self, work: impl Future<Output = T>) -> Result<T, Revoked> {
        tokio::select! {
            biased;
            () = self.revoked() => Err(Revoked),
            done = work => Ok(done),
        }
    }
}

/// The peer was revoked during the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer is revoked")]
pub struct Revoked;

impl From<Revoked> for io::Error {
    fn from(revoked: Revoked) -> Self {
        Self::other(revoked)
    }
}

impl std::fmt::Debug for MeshPeer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MeshPeer({}, {:?})", self.member.name, self.key)
    }
}

impl Peer for MeshPeer {
    type Entry = Member;

    fn key(&self) -> NodeId {
        self.key
    }

    fn entry(&self) -> &Member {
        &self.member
    }

    /// Derived with keyed BLAKE3 from one exported secret, so that it outlives the TLS session, which an open leg
    /// leaves. `Unsupported` without [`MeshPeer::with_channel`].
    fn exporter_secret(&self, label: &[u8], context: &[u8], secret: &mut [u8]) -> io::Result<()> {
        let master = self.secret.ok_or(io::ErrorKind::Unsupported)?;
        let mut hasher = blake3::Hasher::new_keyed(&master);
        hasher.update(&(label.len() as u64).to_be_bytes()).update(label).update(context);
        hasher.finalize_xof().fill(secret);
        Ok(())
    }

    fn revoked(&self) -> impl Future<Output = ()> + Send {
        Self::revoked(self)
    }
}
