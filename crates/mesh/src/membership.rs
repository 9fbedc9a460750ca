//! The roster that this host trusts, and the tasks that watch it.

use super::{
    MeshPeer, RosterError,
    expiry_timer::ExpiryTimer,
    roster_writer::{self, RosterDamage},
};
use parking_lot::Mutex;
use std::{
    cmp::Ordering,
    collections::BTreeSet,
    fmt,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};
use thalweg_base::clock::WallClock;
use thalweg_net::channel::{Admission, Protocol};
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::mesh::{Member, Roster, RosterFault, RosterRank, Tag};
use tokio::sync::watch;

/// The newest roster of a mesh, shared by all who use it; cheap to clone.
///
/// Contract: ranks ([`RosterRank`]) only grow, also across restarts and among the processes of one host (the newest roster is kept in
/// a file, which is written beside the old one, synced and renamed). A roster with a bad signature, a lower version, or
/// of another mesh changes nothing. An expired roster admits nobody, nor does one that is not valid yet.
#[derive(Clone, Debug)]
pub struct Membership(pub(super) Arc<Inner>);

/// What clones of a membership share.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) mesh: NodeId,
    pub(super) file: Option<PathBuf>,
    /// This host's own key, once it has been set.
    own: OnceLock<NodeId>,
    clock: WallClock,
    current: watch::Sender<Option<Arc<Roster>>>,
    /// Held while offers are compared, never while waiting for the disk.
    newest: Mutex<StoredRoster>,
    /// What was wrong with the stored file.
    damage: Option<RosterDamage>,
    /// The last fork that a roster has shown.
    fork: Mutex<Option<RosterFork>>,
    pub(super) guard: ExpiryTimer,
}

/// The newest roster, as it was signed.
#[derive(Clone, Debug, Default)]
pub(super) struct StoredRoster {
    pub(super) signed: Option<Arc<[u8]>>,
    /// Whether the file has it.
    pub(super) kept: bool,
}

/// A roster that is in force, but does not follow from the one before, though the same key signed both: two hosts sign
/// with that key, or an oracle continues from an old backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RosterFork {
    /// The version of the roster before.
    pub before: u64,
    /// The version of the roster that does not follow from it.
    pub after: u64,
}

impl fmt::Display for RosterFork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { before, after } = self;
        write!(
            f,
            "roster {after} does not follow from roster {before}, which this host had: another host \
             signs with a copy of the mesh's key, or an oracle was restored from an old backup. If \
             no backup was restored, replace the key: `thalweg mesh rekey` on the oracle's host"
        )
    }
}

/// What happened to an offered roster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferOutcome {
    /// It is newer, and is the current one now.
    Accepted,
    /// It is the current one already.
    Same,
}

impl Membership {
    /// Creates a membership without a roster, stored in `file` if there is one, which is read at the first offer.
    pub fn new(mesh: NodeId, file: Option<PathBuf>) -> Self {
        Self::with_clock(mesh, file, WallClock::default())
    }

    /// As [`Membership::new`], with another clock.
    pub fn with_clock(mesh: NodeId, file: Option<PathBuf>, clock: WallClock) -> Self {
        let (current, newest) = (watch::Sender::new(None), Mutex::default());
        let guard = ExpiryTimer::default();
        let own = OnceLock::new();
        let (damage, fork) = (None, Mutex::default());
        Self(Arc::new(Inner { mesh, file, own, clock, current, newest, damage, fork, guard }))
    }

    /// Reads the stored roster, whatever its age; without a file there is none.
    ///
    /// A torn or altered file is moved away, which [`Membership::damage`] reports.
    ///
    /// # Errors
    /// [`RosterError`] if the file is another mesh's or cannot be read.
    pub fn load(mesh: NodeId, file: PathBuf) -> Result<Self, RosterError> {
        Self::load_with_clock(mesh, file, WallClock::default())
    }

    /// As [`Membership::load`], with another clock.
    ///
    /// # Errors
    /// As [`Membership::load`].
    pub fn load_with_clock(
        mesh: NodeId,
        file: PathBuf,
        clock: WallClock,
    ) -> Result<Self, RosterError> {
        let found = roster_writer::read(&mesh, &file);
        let damage = match &found {
            Err(RosterError::Signed(why)) => Some(roster_writer::set_aside(&file, why)?),
            _ => None,
        };
        let (current, newest) = (watch::Sender::new(None), Mutex::default());
        let guard = ExpiryTimer::default();
        let own = OnceLock::new();
        let (file, fork) = (Some(file), Mutex::default());
        let inner = Inner { mesh, file, own, clock, current, newest, damage, fork, guard };
        match found {
            Err(RosterError::Signed(_)) | Ok(None) => {}
            Ok(Some((roster, signed))) => inner.put(&mut inner.lock(), roster, &signed, true),
            Err(other) => return Err(other),
        }
        Ok(Self(Arc::new(inner)))
    }

    /// What was wrong with the stored file when it was loaded, for the operator.
    pub fn damage(&self) -> Option<&RosterDamage> {
        self.0.damage.as_ref()
    }

    /// The last fork that a roster has shown since this process began, for the operator.
    pub fn fork(&self) -> Option<RosterFork> {
        *self.0.fork.lock()
    }

    /// The mesh's root key, which names the mesh.
    pub fn mesh(&self) -> NodeId {
        self.0.mesh
    }

    /// The date, by the clock against which rosters are checked.
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

    /// Subscribes to new rosters.
    pub fn subscribe(&self) -> watch::Receiver<Option<Arc<Roster>>> {
        self.0.current.subscribe()
    }

    /// A receiver that is notified at least once a second while the roster is not valid. Needs a tokio runtime.
    pub(super) fn expiry_ticks(&self) -> watch::Receiver<()> {
        self.0.guard.watch(&self.0)
    }

    /// How long the roster is still valid; `None` if it is not, or there is none.
    pub fn time_left(&self) -> Option<Duration> {
        self.0.time_left()
    }

    /// Sets this host's own key; only the first call has an effect.
    ///
    /// From then on a roster without this key ends all sessions of this host, see [`MeshPeer::revoked`]: a revoked
    /// relay relays for nobody.
    pub fn set_own(&self, key: NodeId) {
        _ = self.0.own.set(key);
        // Waiting tasks check again.
        self.0.current.send_modify(|_| {});
    }

    /// Takes a signed roster (`Signed::<Roster>::encode`d) and stores it in the file, if it is newer; waits for the
    /// disk. [`super::RosterWriter::take`] does not.
    ///
    /// Its dates do not matter here: a member that it leaves out is revoked even if the roster has expired.
    ///
    /// # Errors
    /// [`RosterError`]. After [`RosterError::Keep`] the roster is the current one, but not in the file: a revocation
    /// does not wait for a full disk. The next offer tries again.
    pub fn offer(&self, signed: &[u8]) -> Result<OfferOutcome, RosterError> {
        let turn = self.0.turn();
        // Another process of the host may have stored a newer roster meanwhile.
        let found = self.0.catch_up();
        let offered = self.publish(signed)?;
        turn.and_then(|_turn| self.0.write(found)).map(|()| offered)
    }

    /// As [`Membership::offer`], but only in memory: the roster is in force when this returns, without waiting for a
    /// disk.
    ///
    /// # Errors
    /// [`RosterError`], except [`RosterError::Keep`].
    pub(super) fn publish(&self, signed: &[u8]) -> Result<OfferOutcome, RosterError> {
        let inner = &*self.0;
        let roster = roster_writer::verify(&inner.mesh, signed)?;
        let mut newest = inner.lock();
        if newest.signed.as_deref() == Some(signed) {
            return Ok(OfferOutcome::Same);
        }
        inner.check_newer(roster.rank())?;
        inner.note_fork(&newest, &roster);
        inner.put(&mut newest, roster, signed, false);
        Ok(OfferOutcome::Accepted)
    }

    /// Ends when the roster lacks this key or is not valid; never otherwise.
    ///
    /// For sessions *to* that member: a session through a relay ends when the relay is revoked. Needs a tokio runtime.
    pub fn wait_for_removal(&self, key: NodeId) -> impl Future<Output = ()> + Send + use<> {
        self.wait_for_removal_of_any(vec![key])
    }

    /// Ends when the roster lacks any of these keys or is not valid; never otherwise.
    pub fn wait_for_removal_of_any(
        &self,
        keys: Vec<NodeId>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let membership = self.clone();
        async move {
            let left = |roster: &Roster| keys.iter().any(|key| roster.by_key(key).is_none());
            membership.wait_until(left).await;
        }
    }

    /// Ends when there is no valid roster, or when `ended` is true for it.
    pub(super) async fn wait_until(&self, ended: impl Fn(&Roster) -> bool + Send) {
        // The senders are held here: `changed` does not fail.
        let (mut rosters, mut expiry_ticks) = (self.subscribe(), self.expiry_ticks());
        loop {
            if rosters.borrow_and_update().as_ref().is_none_or(|r| ended(r)) {
                return;
            }
            loop {
                if self.time_left().is_none() {
                    return;
                }
                tokio::select! {
                    _ = rosters.changed() => break,
                    _ = expiry_ticks.changed() => {}
                }
            }
        }
    }

    /// Whether this host's own key has been set and is not in the roster.
    pub(super) fn lacks_own_key(&self, roster: &Roster) -> bool {
        self.0.own.get().is_some_and(|own| roster.by_key(own).is_none())
    }

    /// The peer with this key, if the roster is valid at `now` and lists it.
    pub fn peer(&self, key: &NodeId, now: WallTime) -> Option<MeshPeer> {
        let roster = self.current().filter(|r| r.check(now).is_ok())?;
        let member = roster.by_key(key)?.clone();
        Some(MeshPeer::new(*key, member, self.clone()))
    }

    /// Why nobody is admitted now; `None` while the roster is valid, or if there is none.
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

    pub(super) fn lock(&self) -> parking_lot::MutexGuard<'_, StoredRoster> {
        self.newest.lock()
    }

    pub(super) fn put(&self, newest: &mut StoredRoster, roster: Roster, signed: &[u8], kept: bool) {
        *newest = StoredRoster { signed: Some(signed.into()), kept };
        self.current.send_replace(Some(Arc::new(roster)));
    }

    /// Refuses a rank that is not above the current roster's.
    pub(super) fn check_newer(&self, offered: RosterRank) -> Result<(), RosterError> {
        let Some(have) = self.current.borrow().as_ref().map(|roster| roster.rank()) else {
            return Ok(());
        };
        let (of_key, key) = (offered.endorsement, have.endorsement);
        match offered.cmp(&have) {
            Ordering::Greater => Ok(()),
            Ordering::Equal => Err(RosterError::Forked(have.version)),
            Ordering::Less if of_key < key => {
                Err(RosterError::ReplacedKey { offered: of_key, have: key })
            }
            Ordering::Less => {
                Err(RosterError::Rollback { offered: offered.version, have: have.version })
            }
        }
    }

    /// Notes that the roster does not follow from the current one, although the same key signed both.
    pub(super) fn note_fork(&self, newest: &StoredRoster, roster: &Roster) {
        let (Some(current), Some(signed)) = (self.current.borrow().clone(), &newest.signed) else {
            return;
        };
        let is_same_key = roster.rank().endorsement == current.rank().endorsement;
        if is_same_key && roster.contradicts(&current, signed) {
            let fork = RosterFork { before: current.version, after: roster.version };
            *self.fork.lock() = Some(fork);
        }
    }
}

impl Admission for Membership {
    /// Admits members by this host's clock, and everybody for `Join`. For `Measure` and `Reach` only daemons are
    /// admitted, not the keys of command lines.
    fn admits(&self, key: &NodeId, protocol: Protocol) -> bool {
        let of_daemons = [Protocol::Measure, Protocol::Reach].contains(&protocol);
        let fits = |m: &Member| !of_daemons || m.node == Some(*key);
        let holds =
            |r: &Arc<Roster>| r.check(self.now()).is_ok() && r.by_key(key).is_some_and(fits);
        protocol == Protocol::Join || self.0.current.borrow().as_ref().is_some_and(holds)
    }
}
