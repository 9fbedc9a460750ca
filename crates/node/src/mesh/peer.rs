//! A member at the other end of a channel.

use super::Membership;
use std::{future::Future, io, sync::Arc, time::Duration};
use thalweg_net::{Peer, channel::Channel};
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::mesh::{Member, Roster};
use tokio::time::sleep;

/// How often the wall clock is asked whether the roster still holds: it may jump, and
/// timers do not follow it.
const CLOCK_CHECK: Duration = Duration::from_secs(1);

/// The exporter's label (RFC 8446 §7.5) of the secret that all others are derived from.
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
    pub fn on<IO>(mut self, channel: &Channel<IO>) -> io::Result<Self> {
        let mut secret = [0; 32];
        channel.exporter_secret(EXPORTER_LABEL, self.membership.mesh().as_bytes(), &mut secret)?;
        self.secret = Some(secret);
        Ok(self)
    }

    /// The proven key.
    pub fn key(&self) -> NodeId {
        self.key
    }

    /// Its entry, as it was when it was admitted.
    pub fn member(&self) -> &Member {
        &self.member
    }

    /// The membership that admitted it.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Ends when a newer roster lacks the key or the roster expires; never otherwise.
    ///
    /// A lost role does not end it: roles are asked when work is begun. A renewed
    /// roster moves the end. To be awaited within a tokio runtime.
    pub fn revoked(&self) -> impl Future<Output = ()> + Send + use<> {
        let (key, membership) = (self.key, self.membership.clone());
        async move {
            // The clone of the membership holds the sender: `changed` does not fail.
            let mut rosters = membership.subscribe();
            loop {
                let Some(roster) = rosters.borrow_and_update().clone() else { return };
                if roster.by_key(&key).is_none() {
                    return;
                }
                tokio::select! {
                    _ = rosters.changed() => {}
                    () = expired(&roster, &membership) => return,
                }
            }
        }
    }
}

/// Ends when the roster does not hold by the membership's clock.
async fn expired(roster: &Roster, membership: &Membership) {
    while let Some(left) = time_left(roster, membership.now()) {
        sleep(left.min(CLOCK_CHECK)).await;
    }
}

/// How long the roster still holds; `None` if it does not.
fn time_left(roster: &Roster, now: WallTime) -> Option<Duration> {
    let left = roster.expiry.as_unix_nanos().saturating_sub(now.as_unix_nanos());
    roster.check(now).ok().map(|()| Duration::from_nanos(left))
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

    /// Derived with keyed BLAKE3 from one exported secret, so that it outlives the
    /// TLS session (an open leg leaves it). `Unsupported` without [`MeshPeer::on`].
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
