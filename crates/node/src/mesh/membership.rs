//! The roster that this host believes, and those who watch it.

use std::{collections::BTreeSet, future::Future, io, path::PathBuf, sync::Arc};
use thalweg_net::channel::{Admission, Protocol};
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::mesh::{Member, Roster, Tag};
use thiserror::Error;
use tokio::sync::watch;

/// The newest roster of a mesh, shared by all who ask it; cheap to clone.
///
/// Contract: versions only grow, also across restarts (the newest is kept in a
/// file, written beside, synced and renamed); a roster with a bad signature, a lower
/// version or of another mesh changes nothing. An expired roster admits nobody.
#[derive(Clone, Debug)]
pub struct Membership {
    mesh: NodeId,
    #[expect(dead_code, reason = "contract")]
    file: Option<PathBuf>,
    current: watch::Sender<Option<Arc<Roster>>>,
}

/// What became of an offered roster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// It is newer and is the current one now.
    Accepted,
    /// It is the one that was there.
    Same,
}

/// A roster that is not accepted; the one that was there stays.
#[derive(Debug, Error)]
pub enum RosterError {
    /// Older than the one that is there: a rollback.
    #[error("roster version {offered} is older than version {have}, which is kept")]
    Rollback {
        /// The version offered.
        offered: u64,
        /// The version kept.
        have: u64,
    },
    /// Not signed by the mesh's key.
    #[error("the roster is not signed by the mesh's key {0:?}")]
    Signer(NodeId),
    /// Altered, or no roster.
    #[error(transparent)]
    Signed(#[from] thalweg_wire::SignedError),
    /// The file.
    #[error("cannot keep the roster: {0}")]
    Keep(#[source] io::Error),
}

impl Membership {
    /// Without a roster yet, kept in `file` if there is one (which is not read).
    pub fn new(mesh: NodeId, file: Option<PathBuf>) -> Self {
        Self { mesh, file, current: watch::Sender::new(None) }
    }

    /// Reads the kept roster, whatever its age; a missing file is none.
    ///
    /// # Errors
    /// [`RosterError`] if there is a file and it is not one of this mesh.
    pub fn load(mesh: NodeId, file: PathBuf) -> Result<Self, RosterError> {
        Ok(Self::new(mesh, Some(file)))
    }

    /// The mesh's key.
    pub fn mesh(&self) -> NodeId {
        self.mesh
    }

    /// The newest roster, expired or not.
    pub fn current(&self) -> Option<Arc<Roster>> {
        self.current.borrow().clone()
    }

    /// Told of each new roster.
    pub fn subscribe(&self) -> watch::Receiver<Option<Arc<Roster>>> {
        self.current.subscribe()
    }

    /// Takes a signed roster (`Signed::<Roster>::encode`d), if it is newer; blocks for the disk.
    ///
    /// # Errors
    /// [`RosterError`].
    pub fn offer(&self, _signed: &[u8]) -> Result<Offered, RosterError> {
        Err(RosterError::Signer(self.mesh))
    }

    /// The peer with this key, if the roster holds now and has it.
    pub fn peer(&self, _key: &NodeId, _now: WallTime) -> Option<MeshPeer> {
        None
    }

    /// The tags of the member with this key; empty if there is none.
    pub fn tags(&self, key: &NodeId) -> BTreeSet<Tag> {
        let roster = self.current();
        let member = roster.as_ref().and_then(|r| r.by_key(key));
        member.map(|m| m.tags.clone()).unwrap_or_default()
    }
}

impl Admission for Membership {
    /// Members for all but `Join`, whom everybody may ask; by this host's clock.
    fn admits(&self, _key: &NodeId, _protocol: Protocol) -> bool {
        false
    }
}

/// A member at the other end of a channel; see [`thalweg_net::Peer`].
#[derive(Clone, Debug)]
pub struct MeshPeer {
    key: NodeId,
    member: Arc<Member>,
    membership: Membership,
}

impl MeshPeer {
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
    pub fn revoked(&self) -> impl Future<Output = ()> + Send + use<> {
        std::future::pending()
    }
}
