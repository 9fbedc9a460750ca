//! The roster that this host believes, and those who watch it.

use super::{MeshPeer, RosterError, WallClock, durable, guard::Guard};
use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use thalweg_net::{
    Ed25519,
    channel::{Admission, Protocol},
};
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::{
    Signable as _, Signed,
    mesh::{Roster, RosterFault, Tag},
};
use tokio::sync::watch;

/// The newest roster of a mesh, shared by all who ask it; cheap to clone.
///
/// Contract: versions only grow, also across restarts and among the processes
/// of one host (the newest is kept in a file, written beside, synced and renamed);
/// a roster with a bad signature, a lower version, or of another mesh changes
/// nothing. An expired roster admits nobody, nor does one whose time has not come.
#[derive(Clone, Debug)]
pub struct Membership(Arc<Inner>);

/// What its clones share.

#[derive(Debug)]
pub(super) struct Inner {
    mesh: NodeId,
    file: Option<PathBuf>,
    clock: WallClock,
    current: watch::Sender<Option<Arc<Roster>>>,
    /// Held by whoever offers, so that offers are compared and kept one by one.
    newest: Mutex<Newest>,
    /// What was wrong with the kept file.
    damage: Option<Damage>,
    pub(super) guard: Guard,
}

/// The newest roster as it was signed.
#[derive(Debug, Default)]
struct Newest {
    signed: Option<Arc<[u8]>>,
    /// Whether the file holds it.
    kept: bool,
}

/// What became of an offered roster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// It is newer and is the current one now.
    Accepted,
    /// It is the one that was there.
    Same,
}

/// The kept roster was torn or altered, and was set aside; a new one is to be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where the damaged file is now.
    pub aside: PathBuf,
    /// What is wrong with it.
    pub why: String,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { aside, why } = self;
        let aside = aside.display();
        write!(
            f,
            "the kept roster was damaged ({why}) and is now {aside}; the oracle is asked anew"
        )
    }
}

impl Membership {
    /// Without a roster yet, kept in `file` if there is one; it is read at the first offer.
    pub fn new(mesh: NodeId, file: Option<PathBuf>) -> Self {
        Self::with_clock(mesh, file, WallClock::default())
    }

    /// The same by another clock.
    pub fn with_clock(mesh: NodeId, file: Option<PathBuf>, clock: WallClock) -> Self {
        let (current, newest) = (watch::Sender::new(None), Mutex::default());
        let guard = Guard::default();
        Self(Arc::new(Inner { mesh, file, clock, current, newest, damage: None, guard }))
    }

    /// Reads the kept roster, whatever its age; a missing file is none.
    ///
    /// A torn or altered one is set aside, which [`Membership::damage`] tells.
    ///
    /// # Errors
    /// [`RosterError`] if the file is another mesh's or cannot be read.
    pub fn load(mesh: NodeId, file: PathBuf) -> Result<Self, RosterError> {
        Self::load_with_clock(mesh, file, WallClock::default())
    }

    /// The same by another clock.
    ///
    /// # Errors
    /// As [`Membership::load`].
    pub fn load_with_clock(
        mesh: NodeId,
        file: PathBuf,
        clock: WallClock,
    ) -> Result<Self, RosterError> {
        let found = read(&mesh, &file);
        let damage = match &found {
            Err(RosterError::Signed(why)) => Some(set_aside(&file, why)?),
            _ => None,
        };
        let (current, newest) = (watch::Sender::new(None), Mutex::default());
        let guard = Guard::default();
        let inner = Inner { mesh, file: Some(file), clock, current, newest, damage, guard };
        match found {
            Err(RosterError::Signed(_)) | Ok(None) => {}
            Ok(Some((roster, signed))) => inner.put(&mut inner.lock(), roster, &signed, true),
            Err(other) => return Err(other),
        }
        Ok(Self(Arc::new(inner)))
    }

    /// What was wrong with the kept file when it was loaded, to be told to the operator.
    pub fn damage(&self) -> Option<&Damage> {
        self.0.damage.as_ref()
    }

    /// The mesh's key.
    pub fn mesh(&self) -> NodeId {
        self.0.mesh
    }

    /// The date, by the clock that the rosters are judged by.
    pub fn now(&self) -> WallTime {
        self.0.clock.now()
    }

    /// The newest roster, expired or not.
    pub fn current(&self) -> Option<Arc<Roster>> {
        self.0.current.borrow().clone()
    }

    /// The newest roster as the mesh's key signed it, e.g. to show it to others.
    pub fn signed(&self) -> Option<Arc<[u8]>> {
        self.0.lock().signed.clone()
    }

    /// Told of each new roster.
    pub fn subscribe(&self) -> watch::Receiver<Option<Arc<Roster>>> {
        self.0.current.subscribe()
    }

    /// Told at least once a second while the roster does not hold; within a tokio runtime.
    pub(super) fn lapses(&self) -> watch::Receiver<()> {
        self.0.guard.watch(&self.0)
    }

    /// How long the roster still holds; `None` if it does not, or there is none.
    pub fn time_left(&self) -> Option<Duration> {
        self.0.time_left()
    }

    /// Takes a signed roster (`Signed::<Roster>::encode`d), if it is newer; blocks for the disk.
    ///
    /// Its dates do not matter here: whom it leaves out is revoked even if it has expired.
    ///
    /// # Errors
    /// [`RosterError`]. After [`RosterError::Keep`] it is the current one, but not in
    /// the file: a revocation does not wait for a full disk. The next offer tries again.
    pub fn offer(&self, signed: &[u8]) -> Result<Offered, RosterError> {
        let inner = &*self.0;
        let roster = verify(&inner.mesh, signed)?;
        let mut newest = inner.lock();
        let _turn = inner.file.as_deref().map(durable::turn).transpose().map_err(inner.keep())?;
        inner.catch_up(&mut newest);
        let known = newest.signed.as_deref() == Some(signed);
        if !known {
            inner.is_newer(roster.version)?;
            inner.put(&mut newest, roster, signed, false);
        }
        if let (Some(file), false) = (&inner.file, newest.kept) {
            durable::replace(file, signed).map_err(inner.keep())?;
            newest.kept = true;
        }
        Ok(if known { Offered::Same } else { Offered::Accepted })
    }

    /// The peer with this key, if the roster holds at `now` and has it.
    pub fn peer(&self, key: &NodeId, now: WallTime) -> Option<MeshPeer> {
        let roster = self.current().filter(|r| r.check(now).is_ok())?;
        let member = roster.by_key(key)?.clone();
        Some(MeshPeer::new(*key, member, self.clone()))
    }

    /// Why nobody is admitted now; `None` while the roster holds, or if there is none.
    pub fn fault(&self) -> Option<RosterFault> {
        self.current().and_then(|r| r.check(self.now()).err())
    }

    /// The tags of the member with this key; empty if there is none.
    pub fn tags(&self, key: &NodeId) -> BTreeSet<Tag> {
        let roster = self.current();
        let member = roster.as_ref().and_then(|r| r.by_key(key));
        member.map(|m| m.tags.clone()).unwrap_or_default()
    }
}

impl Inner {
    pub(super) fn time_left(&self) -> Option<Duration> {
        let now = self.clock.now();
        let current = self.current.borrow();
        let roster = current.as_ref().filter(|r| r.check(now).is_ok())?;
        Some(Duration::from_nanos(roster.expiry.as_unix_nanos() - now.as_unix_nanos()))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Newest> {
        // A panic in between leaves whole values behind.
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, newest: &mut Newest, roster: Roster, signed: &[u8], kept: bool) {
        *newest = Newest { signed: Some(signed.into()), kept };
        self.current.send_replace(Some(Arc::new(roster)));
    }

    /// Refuses what is not above the version that is there.
    fn is_newer(&self, offered: u64) -> Result<(), RosterError> {
        match self.current.borrow().as_ref().map(|r| r.version) {
            Some(have) if offered < have => Err(RosterError::Rollback { offered, have }),
            Some(have) if offered == have => Err(RosterError::Forked(have)),
            _ => Ok(()),
        }
    }

    /// Takes what another process of this host has kept meanwhile, if it is newer.
    fn catch_up(&self, newest: &mut Newest) {
        let found = self.file.as_deref().map(|file| read(&self.mesh, file));
        // What cannot be read is about to be replaced by what was offered.
        if let Some(Ok(Some((roster, signed)))) = found
            && self.is_newer(roster.version).is_ok()
        {
            self.put(newest, roster, &signed, true);
        }
    }

    fn keep(&self) -> impl Fn(io::Error) -> RosterError {
        let file = self.file.clone().unwrap_or_default();
        move |source| RosterError::Keep { file: file.clone(), source }
    }
}

fn verify(mesh: &NodeId, signed: &[u8]) -> Result<Roster, RosterError> {
    let signed = Signed::<Roster>::open(signed, &Ed25519)?;
    if signed.signer() != *mesh {
        return Err(RosterError::Signer { signer: signed.signer(), mesh: *mesh });
    }
    Ok(signed.into_value())
}

/// The kept roster and its signed bytes.
fn read(mesh: &NodeId, file: &Path) -> Result<Option<(Roster, Vec<u8>)>, RosterError> {
    // The envelope adds a hundred bytes to the roster.
    let found = durable::read(file, Roster::MAX_BYTES + 128);
    let failed = |source| RosterError::Read { file: file.to_owned(), source };
    let Some(signed) = found.map_err(failed)? else { return Ok(None) };
    match verify(mesh, &signed) {
        Ok(roster) => Ok(Some((roster, signed))),
        Err(RosterError::Signer { signer, mesh }) => {
            Err(RosterError::Foreign { file: file.to_owned(), signer, mesh })
        }
        Err(error) => Err(error),
    }
}

fn set_aside(file: &Path, why: &thalweg_wire::SignedError) -> Result<Damage, RosterError> {
    let failed = |source| RosterError::Read { file: file.to_owned(), source };
    let aside = durable::set_aside(file).map_err(failed)?;
    Ok(Damage { aside, why: why.to_string() })
}

impl Admission for Membership {
    /// Members for all but `Join`, whom everybody may ask; by this host's clock.
    fn admits(&self, key: &NodeId, protocol: Protocol) -> bool {
        let holds = |r: &Arc<Roster>| r.check(self.now()).is_ok() && r.by_key(key).is_some();
        protocol == Protocol::Join || self.0.current.borrow().as_ref().is_some_and(holds)
    }
}
